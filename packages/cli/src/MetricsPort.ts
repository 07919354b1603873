/** Serves the metrics of a command that stays on a port of this machine, and measures the delay of its event loop. */
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import * as MetricsServer from "@cogni/sandbox-server/MetricsServer"
import { Effect, Layer, Metric, Schedule, type Scope } from "effect"
import { HttpServer } from "effect/http"
import { createServer } from "node:http"
import { monitorEventLoopDelay } from "node:perf_hooks"
import { mapLayerError, type Refusal } from "./Failure.ts"
import * as ListenFailure from "./ListenFailure.ts"
import * as Output from "./Output.ts"

const host = "127.0.0.1"

/** Precision of the delay, and time between two values, in seconds. */
const precisionMillis = 10
const sampleSeconds = 5

const lag = Metric.gauge("sandbox_event_loop_lag_seconds", {
  description: "Delay of the event loop in the last 5 seconds, by quantile"
})

/** Measures the delay of the event loop until the scope closes. A busy loop delays every run of this process. */
export const measured: Effect.Effect<void, never, Scope.Scope> = Effect.gen(function* () {
  const delay = yield* Effect.acquireRelease(
    Effect.sync(() => {
      const monitor = monitorEventLoopDelay({ resolution: precisionMillis })
      monitor.enable()
      return monitor
    }),
    (monitor) => Effect.sync(() => monitor.disable())
  )
  const seconds = (nanos: number) => Math.max(0, nanos / 1e9 - precisionMillis / 1000)
  yield* Effect.suspend(() => {
    const values = [
      ["0.5", delay.percentile(50)],
      ["0.99", delay.percentile(99)],
      ["1", delay.max]
    ] as const
    delay.reset()
    return Effect.forEach(
      values,
      ([quantile, nanos]) => Metric.update(Metric.withAttributes(lag, { quantile }), seconds(nanos)),
      { discard: true }
    )
  }).pipe(Effect.repeat(Schedule.spaced(`${sampleSeconds} seconds`)), Effect.forkScoped)
})

/** Opens the port until the scope closes, if one was named. */
export const opened = Effect.fnUntraced(function* (
  port: number | undefined
): Effect.fn.Return<void, Refusal, Output.Output | Scope.Scope> {
  yield* measured
  if (port === undefined) return
  const server = yield* Layer.build(
    MetricsServer.layer().pipe(
      Layer.provideMerge(NodeHttpServer.layer(createServer, { host, port })),
      mapLayerError(({ cause }) => ListenFailure.refused({ host, port }, cause, "--metrics-port"))
    )
  )
  const { address } = yield* Effect.provide(HttpServer.HttpServer, server)
  yield* Output.note(`metrics on ${HttpServer.formatAddress(address)}/metrics`)
})
