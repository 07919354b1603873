/** The container of an nginx, for one run or for many: its start, and the reason for which it ended. */
import { Duration, Effect, Fiber, type Scope, Stream } from "effect"
import type { Mount } from "@cogni/sandbox-core/ContainerMount"
import type {
  Container,
  ContainerExit,
  ContainerRuntime,
  ContainerSpec
} from "@cogni/sandbox-core/ContainerRuntime"
import type { LlmProxyError } from "@cogni/sandbox-core/LlmProxy"
import type { User } from "@cogni/sandbox-core/Posture"
import { named } from "@cogni/sandbox-core/Remedy"
import type { RunId } from "@cogni/sandbox-core/RunId"
import { type PostureMismatch, ProxyFailed } from "@cogni/sandbox-core/SandboxReason"
import type { UpstreamKey } from "../../KeyInjection.ts"
import type * as Upstream from "../../Upstream.ts"
import * as NginxLimits from "./NginxLimits.ts"
import * as ProxyOutput from "./ProxyOutput.ts"

interface NginxContainerOptions {
  readonly runtime: ContainerRuntime["Service"]
  /** Subject of each error, such as `the proxy`. */
  readonly subject: string
  /** Removed from errors. */
  readonly key: UpstreamKey
  readonly readySecondsMax: number | undefined
}

interface NginxSpec {
  readonly runId: RunId
  readonly image: string
  readonly owner: User
  readonly upstream: Upstream.Upstream
  readonly mounts: ReadonlyArray<Mount>
  readonly limits: ContainerSpec["limits"]
  /** Contains the key, so it arrives on standard input alone. */
  readonly configuration: string
}

interface NginxHooks {
  /** Called once, after the start. */
  readonly started?: (container: Container) => Effect.Effect<void>
  /** Called with each piece of standard output. */
  readonly heard?: (bytes: Uint8Array) => void
}

export interface NginxContainer {
  /** Succeeds when it answers. Fails if that takes too long from now on. */
  readonly ready: Effect.Effect<void, ProxyFailed>
  /** Serves until it ends, and fails with the reason. A lost worker process ends it too. */
  readonly serve: (spec: NginxSpec, hooks?: NginxHooks) => Effect.Effect<never, LlmProxyError, Scope.Scope>
}

export const make = Effect.fnUntraced(function* ({
  key,
  readySecondsMax = NginxLimits.defaults.readySecondsMax,
  runtime,
  subject
}: NginxContainerOptions): Effect.fn.Return<NginxContainer> {
  const output = yield* ProxyOutput.make(subject, key)

  const serve = Effect.fnUntraced(function* (
    spec: NginxSpec,
    { heard, started }: NginxHooks
  ): Effect.fn.Return<never, LlmProxyError, Scope.Scope> {
    const container = yield* acquire(runtime, spec)
    const reader = yield* Effect.forkChild(
      Stream.runForEach(container.output, (chunk) => {
        if (chunk.channel === "stdout") heard?.(chunk.bytes)
        return output.add(chunk)
      })
    )
    yield* container.start.pipe(Effect.catchTag("PostureMismatch", loose(subject)))
    if (started !== undefined) yield* started(container)
    const gone = Effect.gen(function* () {
      yield* Fiber.join(reader)
      const exit = yield* container.exit.pipe(
        Effect.catchTag("ContainerFailed", ({ detail, remedy }) =>
          Effect.fail(new ProxyFailed({ detail: `${subject} ended unexpectedly: ${detail}`, remedy }))
        )
      )
      return yield* ended(subject, exit, output.tail())
    })
    return yield* Effect.raceFirst(gone, output.workerLost)
  })

  return {
    ready: output.ready.pipe(
      Effect.timeoutOrElse({
        duration: Duration.seconds(readySecondsMax),
        orElse: () =>
          Effect.fail(
            new ProxyFailed({
              detail: `${subject} did not answer on its socket within ${readySecondsMax} s${output.tail()}`,
              remedy: `Check the engine's load, and the proxy image (${named("DockerDoctor")})`
            })
          )
      })
    ),
    serve: (spec, hooks = {}) => serve(spec, hooks)
  }
})

const acquire = (
  runtime: ContainerRuntime["Service"],
  { configuration, image, limits, mounts, owner, runId, upstream }: NginxSpec
) =>
  runtime.acquire({
    runId,
    role: "proxy",
    image,
    argv: [],
    env: {},
    user: owner,
    mounts,
    network:
      upstream.type === "container"
        ? { mode: "internal", networkName: upstream.networkName }
        : { mode: "none" },
    limits,
    stdin: configuration
  })

/** Reports a container that is not isolated as requested. It is not the sandbox, so the error says which one it is. */
const loose =
  (subject: string) =>
  ({ mismatches }: PostureMismatch): Effect.Effect<never, ProxyFailed> =>
    Effect.fail(
      new ProxyFailed({
        detail: `the isolation check of ${subject} failed: ${mismatches.join("; ")}`,
        remedy: `Check the engine's configuration (${named("DockerDoctor")})`
      })
    )

const ended = (subject: string, { exitCode, oomKilled }: ContainerExit, tail: string): ProxyFailed =>
  new ProxyFailed({
    detail: `${subject} ended with exit code ${exitCode}${oomKilled ? ", killed: out of memory" : ""}${tail}`,
    remedy: oomKilled
      ? "Run again, and report this if it happens again"
      : exitCode === 137 || exitCode === 143
        ? "Something outside the run ended it; run again"
        : "Build the proxy image again, and report this if it happens again"
  })
