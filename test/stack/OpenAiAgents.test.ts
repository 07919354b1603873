/** Sessions of the OpenAI Agents SDK, and its loop, over sandboxes on a real engine. */
import { assert, layer } from "@effect/vitest"
import { createHost, type SandboxHost } from "@cogni/sandbox-promise"
import { sandboxClient } from "@cogni/sandbox-openai-agents"
import { Context, Effect, Layer } from "effect"
import { join } from "node:path"
import { task } from "../../packages/openai-agents/test/AgentLoop.ts"
import * as Hostile from "../../packages/openai-agents/test/HostileArchives.ts"
import {
  ended,
  lifePromises,
  promises,
  rejected,
  type Subject,
  textOf,
  type WholeSession
} from "../../packages/openai-agents/test/SessionSuite.ts"
import * as Engine from "../harness/Engine.ts"
import * as Images from "../harness/Images.ts"
import * as LeakCheck from "../harness/LeakCheck.ts"
import * as RunHarness from "../harness/RunHarness.ts"

/** The host, and the session that the tests share. */
class Shared extends Context.Service<
  Shared,
  { readonly host: SandboxHost; readonly subject: Subject; readonly session: WholeSession }
>()("test/Shared") {
  static readonly layer = Layer.effect(
    Shared,
    Effect.gen(function* () {
      const stateDirectory = yield* RunHarness.Directory
      const host = yield* Effect.acquireRelease(
        Effect.sync(() => createHost({ stateDirectory, ...Engine.runtime })),
        (host) => Effect.promise(() => host.close())
      )
      const subject: Subject = {
        client: (snapshot) => sandboxClient({ host, snapshot, sandbox: { image: Images.runtime } }),
        isReal: true,
        keepsModes: true
      }
      const session = yield* Effect.promise(() => subject.client({ type: "noop" }).create({}))
      return { host, subject, session: session as WholeSession }
    })
  )
}

const layers = Shared.layer.pipe(
  Layer.provideMerge(
    Layer.unwrap(Effect.map(RunHarness.Directory, (stateDirectory) => LeakCheck.layer({ stateDirectory })))
  ),
  Layer.provideMerge(Layer.merge(Engine.api(), RunHarness.Directory.layer))
)

layer(layers, { excludeTestServices: true })("a client of the OpenAI Agents SDK on Docker", (it) => {
  for (const [title, promise] of Object.entries(promises)) {
    it.effect(title, () =>
      Shared.use(({ session, subject }) => Effect.promise(() => promise(session, subject)))
    )
  }

  for (const [title, promise] of Object.entries(lifePromises)) {
    it.effect(title, () => Shared.use(({ subject }) => Effect.promise(() => promise(subject))))
  }

  it.effect("keeps what an archive of an agent contains in the sandbox and in its workspace", () =>
    Shared.use(({ session }) =>
      Effect.promise(async () => {
        for (const [name, archive] of Object.entries(Hostile.archives)) {
          await session.hydrateWorkspace(archive).catch(() => undefined)
          const { stdout } = await ended(session, "ls /tmp /home/agent; find / -name escaped 2>/dev/null")
          assert.notMatch(stdout, /^(?!\/workspace\/).*escaped/mu, name)
        }
        assert.isTrue(await session.running?.())
      })
    )
  )

  it.effect("reads the beginning of a file that is too large to be read whole", () =>
    Shared.use(({ session }) =>
      Effect.promise(async () => {
        await ended(session, "printf start > large; truncate -s 20M large")
        await rejected(session.readFile({ path: "large" }))
        assert.strictEqual(textOf(await session.readFile({ path: "large", maxBytes: 5 })), "start")
      })
    )
  )

  it.effect(
    "runs the tools of an agent in the container, and goes on from JSON with the local snapshot",
    () =>
      Effect.gen(function* () {
        const { host } = yield* Shared
        const baseDir = join(yield* RunHarness.Directory, "snapshots")
        const options = {
          host,
          sandbox: { image: Images.runtime },
          snapshot: { type: "local", baseDir }
        }
        yield* Effect.promise(() => task(sandboxClient(options)))
        const first = createHost({ stateDirectory: yield* RunHarness.Directory, ...Engine.runtime })
        yield* Effect.promise(() =>
          task(sandboxClient({ ...options, host: first }), async () => {
            await first.close()
            return sandboxClient(options)
          })
        )
      })
  )

  it.effect("has no network, and says so with Unsupported for a port", () =>
    Shared.use(({ session }) =>
      Effect.promise(async () => {
        assert.strictEqual((await ended(session, "ls /sys/class/net")).stdout, "lo\n")
        assert.include(await rejected(session.resolveExposedPort(8080)), { _tag: "Unsupported" })
      })
    )
  )
})
