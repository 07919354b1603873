/**
 * Liveness and readiness of the server, for process managers and load balancers.
 *
 * Readiness checks the dependencies of a run, with a timeout, and at most once a second.
 */
import type { RunId } from "@cogni/sandbox-core/RunId"
import { RunStore } from "@cogni/sandbox-core/RunStore"
import { Context, Effect } from "effect"
import { HttpRouter, HttpServerResponse } from "effect/http"
import { RunRoster } from "./internal/RunRoster.ts"

/** Liveness route: checks nothing and reveals nothing else. Details are only for the operator. */
export const liveness = HttpRouter.add("GET", "/health", HttpServerResponse.jsonUnsafe({ status: "ok" }))

/** A dependency of a run, and its health check. */
export interface Probe {
  readonly name: string
  readonly check: Effect.Effect<unknown, unknown>
}

/** Additional probes, such as one for the engine. Default: none. */
export const Probes = Context.Reference<ReadonlyArray<Probe>>("@cogni/sandbox-server/Probes", {
  defaultValue: () => []
})

const checkSecondsMax = 3

export const make = Effect.gen(function* () {
  const roster = yield* RunRoster
  const store = yield* RunStore
  const probes: ReadonlyArray<Probe> = [
    { name: "store", check: store.describe(probeRunId) },
    ...(yield* Probes)
  ]

  const ask = Effect.forEach(
    probes,
    ({ check, name }) =>
      check.pipe(
        Effect.timeout(`${checkSecondsMax} seconds`),
        Effect.matchCauseEffect({
          onSuccess: () => Effect.succeed([name, "ok"] as const),
          onFailure: (cause) =>
            Effect.as(Effect.logWarning(`not ready: ${name}`, cause), [name, "failing"] as const)
        })
      ),
    { concurrency: "unbounded" }
  )
  const asked = yield* Effect.cachedWithTTL(ask, "1 second")

  return Effect.gen(function* () {
    const found = yield* asked
    const isReady = found.every(([, state]) => state === "ok")
    const status = (yield* roster.isStopping) ? "stopping" : isReady ? "ready" : "not_ready"
    return { status, checks: Object.fromEntries(found) }
  })
})

/** Not a valid run ID, so that no run has it: looking it up only checks that the store answers. */
const probeRunId = "health_check" as RunId
