/** Paths that the command forbids as workspaces. No test reaches an engine. */
import { assert, describe, it } from "@effect/vitest"
import * as Composition from "../src/Composition.ts"
import { RunId } from "@cogni/sandbox-core/RunId"
import { Workspace } from "@cogni/sandbox-core/Workspace"
import * as HostWorkspace from "@cogni/sandbox-docker/HostWorkspace"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect } from "effect"
import { chmodSync, mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"

const directory = Effect.acquireRelease(
  Effect.sync(() => {
    const path = realpathSync(mkdtempSync(join(tmpdir(), "cogni-held-")))
    chmodSync(path, 0o777)
    return path
  }),
  (path) => Effect.sync(() => rmSync(path, { recursive: true }))
)

const nothing = { stateDirectory: "/proc/nowhere/at/all", dockerHost: undefined, keyFile: undefined }

/** Returns why a directory is refused as a workspace; `undefined` if it is accepted. */
const refusal = Effect.fnUntraced(
  function* (path: string, settings: Partial<Parameters<typeof Composition.neverHeld>[0]>) {
    const forbidden = yield* Composition.neverHeld({ ...nothing, ...settings })
    return yield* Workspace.use((workspace) =>
      workspace.acquire({
        runId: RunId.make("run-000000000001"),
        source: { type: "directory", path },
        inputs: [],
        planted: [],
        memory: false,
        workspaceBytesMax: 1024 * 1024
      })
    ).pipe(
      Effect.as(undefined),
      Effect.catch(({ message, remedy }) =>
        Effect.succeed(message.includes(remedy) ? message : `${message} ${remedy}`)
      ),
      Effect.provide(HostWorkspace.layer({ forbidden }))
    )
  },
  Effect.scoped,
  Effect.provide(NodeServices.layer)
)

describe("a workspace", () => {
  it.effect("is accepted if it contains no forbidden path", () =>
    Effect.gen(function* () {
      assert.isUndefined(yield* refusal(yield* directory, {}))
    })
  )

  it.effect("is refused if it contains the engine's socket, wherever DOCKER_HOST puts it", () =>
    Effect.gen(function* () {
      const path = yield* directory
      mkdirSync(join(path, "run"))
      for (const dockerHost of [`unix://${path}/docker.sock`, `${path}/run/docker.sock`])
        assert.include(yield* refusal(path, { dockerHost }), `${path}/`)
      assert.isUndefined(yield* refusal(path, { dockerHost: "tcp://127.0.0.1:2375" }))
      assert.isUndefined(yield* refusal(path, { dockerHost: "no address" }))
    })
  )

  it.effect("is refused if it contains the engine's socket behind a link", () =>
    Effect.gen(function* () {
      const path = yield* directory
      const elsewhere = yield* directory
      symlinkSync(path, join(elsewhere, "link"))
      writeFileSync(join(path, "engine.sock"), "")
      symlinkSync(join(path, "engine.sock"), join(elsewhere, "docker.sock"))
      for (const name of ["docker.sock", "link/engine.sock", "link/not-yet.sock"])
        assert.include(yield* refusal(path, { dockerHost: `unix://${elsewhere}/${name}` }), `${path}/`)
    })
  )

  it.effect("is refused if it contains the records, or lies among them", () =>
    Effect.gen(function* () {
      const path = yield* directory
      const stateDirectory = join(path, "not", "yet")
      const why = yield* refusal(path, { stateDirectory, databaseFile: join(stateDirectory, "runs.db") })
      assert.include(why, `would hand the state directory (${path}/not/yet) to the agent`)
      assert.include(why, "COGNI_STATE_DIR")
      assert.include(yield* refusal(path, { stateDirectory: join(path, "..") }), "would hand")
    })
  )

  it.effect("is refused if it contains the key file", () =>
    Effect.gen(function* () {
      const path = yield* directory
      const why = yield* refusal(path, { keyFile: join(path, ".key") })
      assert.include(why, `would hand the key file (${path}/.key) to the agent`)
      assert.include(why, "Move the key file (COGNI_LLM_KEY_FILE) out of the workspace")
    })
  )

  it.effect("is refused if it contains the key that images are verified with", () =>
    Effect.gen(function* () {
      const path = yield* directory
      const why = yield* refusal(path, { imageKeyFile: join(path, "cosign.pub") })
      assert.include(
        why,
        `would hand the key that images are verified with (${path}/cosign.pub) to the agent`
      )
    })
  )

  it.effect("is refused if it contains a file that decides what the upstream gets", () =>
    Effect.gen(function* () {
      const path = yield* directory
      const why = yield* refusal(path, { upstreamFiles: [join(path, "profile.json")] })
      assert.include(why, "COGNI_LLM_PROFILE_FILE, COGNI_LLM_IDENTITY_SECRET_FILE")
    })
  )
})
