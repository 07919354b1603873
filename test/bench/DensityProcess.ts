/** A host process with as many live runs as requested, each with a model: over the gateway or a shared nginx. */
import { formatOwner } from "@cogni/sandbox-core/ResourceLabels"
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import * as UsageObserver from "@cogni/sandbox-core/UsageObserver"
import * as DockerContainerRuntime from "@cogni/sandbox-docker/DockerContainerRuntime"
import * as FileRunStore from "@cogni/sandbox-docker/FileRunStore"
import * as HostOwner from "@cogni/sandbox-docker/HostOwner"
import * as HostWorkspace from "@cogni/sandbox-docker/HostWorkspace"
import * as GatewayLlmProxy from "@cogni/sandbox-proxy/GatewayLlmProxy"
import * as SharedNginxLlmProxy from "@cogni/sandbox-proxy/SharedNginxLlmProxy"
import { Cause, Deferred, Effect, Fiber, Layer, Redacted, Stream } from "effect"
import type * as SharingProcess from "./SharingProcess.ts"

export interface Start extends SharingProcess.Start {
  /** Image of the sandboxes. */
  readonly runtime: string
}

/** How many more runs to start. */
export type Ask = SharingProcess.Ask

export interface Told {
  /** Value of the owner's label on all containers of this process. */
  readonly owner: string
}

/** Starts of containers at the same time. */
const startsConcurrent = 4

/** Longer than the measurement. */
const runtimeSecondsMax = 3600

const next = <A>() => new Promise<A>((resolve) => process.once("message", (message) => resolve(message as A)))

const layerOf = ({ directory, image, kind, url }: Start) => {
  const key = Redacted.make("sk-bench")
  const proxy =
    kind === "gateway"
      ? GatewayLlmProxy.layer({ url, key, carrier: "directory", image })
      : SharedNginxLlmProxy.layer({ upstream: { type: "host", url }, key, image, directory })
  return SandboxRunner.layer.pipe(
    Layer.provide(Layer.provide(proxy, UsageObserver.layerNone)),
    Layer.provide([HostWorkspace.layer(), FileRunStore.layer({ directory, trafficOf: "unknown" })]),
    Layer.provide(DockerContainerRuntime.layer())
  )
}

/** Starts a run that sleeps, and returns when its program runs. */
const startRun = Effect.fnUntraced(function* (image: string) {
  const runner = yield* SandboxRunner.SandboxRunner
  const started = yield* Deferred.make<void>()
  const running = runner
    .stream({
      image,
      argv: ["sleep", String(runtimeSecondsMax)],
      llm: { model: "m", identity: { billingAccountId: "bench" } },
      limits: { runtimeSecondsMax }
    })
    .pipe(
      Stream.runForEach((event) =>
        event._tag === "PhaseEnded" && event.phase === "entrypoint"
          ? Deferred.succeed(started, undefined)
          : Effect.void
      )
    )
  const fiber = yield* Effect.forkScoped(running)
  yield* Effect.raceFirst(
    Deferred.await(started),
    Effect.andThen(Fiber.await(fiber), Effect.die(new Error("a run has ended")))
  )
})

const program = Effect.gen(function* () {
  const start = yield* Effect.promise(() => next<Start>())
  const runs = yield* Layer.build(layerOf(start))
  process.send?.("ready")
  for (;;) {
    const { open } = yield* Effect.promise(() => next<Ask>())
    yield* Effect.forEach(Array.from({ length: open }), () => Effect.provide(startRun(start.runtime), runs), {
      concurrency: startsConcurrent,
      discard: true
    })
    globalThis.gc?.()
    process.send?.({ owner: formatOwner(HostOwner.self()) } satisfies Told)
  }
}).pipe(Effect.scoped)

const fiber = Effect.runFork(program)
process.once("disconnect", () => void fiber.interruptUnsafe())
fiber.addObserver((exit) => {
  if (exit._tag === "Success" || Cause.hasInterruptsOnly(exit.cause)) process.exit(0)
  process.stderr.write(`${Cause.pretty(exit.cause)}\n`, () => process.exit(1))
})
