/**
 * Whether this process lives, and whether it could take a run: two questions, for whoever starts and routes to it.
 *
 * Readiness asks what a run needs, with a bound, and not more often than once in a second, however often it is asked.
 */
import { RunId } from "@cogni/sandbox-core/RunId"
import { RunStore } from "@cogni/sandbox-core/RunStore"
import { Context, Effect } from "effect"
import { HttpRouter, HttpServerResponse } from "effect/http"
import { RunRoster } from "./internal/RunRoster.ts"

/** That the process lives; asks nothing, and says nothing else. What else there is to know is the operator's. */
export const liveness = HttpRouter.add("GET", "/health", HttpServerResponse.jsonUnsafe({ status: "ok" }))

/** What a run needs, and how to ask whether it is there. */
export interface Probe {
  readonly name: string
  readonly check: Effect.Effect<unknown, unknown>
}

/** Of whoever composes the server: the engine, say. None, unless provided. */
export const Probes = Context.Reference<ReadonlyArray<Probe>>("@cogni/sandbox-server/Probes", {
  defaultValue: () => []
})

const checkSecondsMax = 3

export const make = Effect.gen(function* () {
  const roster = yield* RunRoster
  const store = yield* RunStore
  const probes: ReadonlyArray<Probe> = [{ name: "store", check: store.describe(nobody) }, ...(yield* Probes)]

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

/** An id that no run has: asking for it is asking whether anybody answers. */
const nobody = RunId.make("health-check")
