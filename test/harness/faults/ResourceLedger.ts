/**
 * Records which resources were acquired and released, for tests about leaks.
 *
 * `observe` wraps any layer of ports. `violations` lists, in sentences, the resources that were never released,
 * released twice, or released while another resource still needed them.
 */
import { Clock, Context, Effect, Layer, type Scope } from "effect"
import type { RunId } from "@cogni/sandbox-core/RunId"
import * as Interceptor from "./Interceptor.ts"

export interface Entry {
  readonly atMillis: number
  readonly event: "acquired" | "releasing" | "released"
  readonly runId: RunId
  readonly kind: Interceptor.Resource["kind"]
  /** Distinguishes resources of the same kind in one run. */
  readonly number: number
}

/** Resources that must be held for as long as a resource of this kind. */
export const dependencies: Readonly<Record<Entry["kind"], ReadonlyArray<Entry["kind"]>>> = {
  container: ["workspace", "proxy", "volume", "run record"],
  proxy: ["run record"],
  volume: ["run record"],
  workspace: ["run record"],
  "run record": []
}

const nameOf = ({ kind, number, runId }: Entry) => `${kind} ${number} of ${runId}`

/** Returns the violations in a list of entries, oldest first. Pure. */
export const violationsOf = (entries: ReadonlyArray<Entry>): ReadonlyArray<string> => {
  const found: Array<string> = []
  const held = new Map<string, Entry>()
  const releasedTimes = new Map<string, number>()
  for (const entry of entries) {
    const name = nameOf(entry)
    switch (entry.event) {
      case "acquired":
        held.set(name, entry)
        break
      case "releasing":
        for (const [dependent, other] of held) {
          if (other.runId === entry.runId && dependencies[other.kind].includes(entry.kind)) {
            found.push(`${name} was released while ${dependent} still needed it`)
          }
        }
        break
      case "released":
        if (!held.delete(name) && !releasedTimes.has(name))
          found.push(`${name} was released, and never acquired`)
        releasedTimes.set(name, (releasedTimes.get(name) ?? 0) + 1)
    }
  }
  for (const [name, times] of releasedTimes) if (times > 1) found.push(`${name} was released ${times} times`)
  for (const name of held.keys()) found.push(`${name} was acquired, and never released`)
  return found
}

export class ResourceLedger extends Context.Service<
  ResourceLedger,
  {
    /** Oldest first. */
    readonly entries: Effect.Effect<ReadonlyArray<Entry>>
    readonly violations: Effect.Effect<ReadonlyArray<string>>
    readonly interceptor: Interceptor.Interceptor
  }
>()("@cogni/sandbox-core/testing/ResourceLedger") {}

export const make = Effect.sync(() => {
  const entries: Array<Entry> = []
  const numbers = new Map<string, number>()

  const hold: Interceptor.Interceptor["hold"] = (resource, acquire) =>
    Effect.suspend(() => {
      const { kind, runId } = resource
      const counter = `${runId} ${kind}`
      const number = (numbers.get(counter) ?? 0) + 1
      numbers.set(counter, number)
      let acquired = false
      const note = (event: Entry["event"]) =>
        Effect.map(Clock.currentTimeMillis, (atMillis) => {
          entries.push({ atMillis, event, runId, kind, number })
        })
      // Finalizers run in reverse order: the first one here runs after the resource's own, the second one before it.
      return Effect.addFinalizer(() =>
        Effect.suspend(() => (acquired ? note("released") : Effect.void))
      ).pipe(
        Effect.andThen(acquire),
        Effect.tap(() =>
          Effect.uninterruptible(
            Effect.suspend(() => {
              acquired = true
              return Effect.andThen(
                note("acquired"),
                Effect.addFinalizer(() => note("releasing"))
              )
            })
          )
        )
      )
    })

  return ResourceLedger.of({
    entries: Effect.sync(() => [...entries]),
    violations: Effect.sync(() => violationsOf(entries)),
    interceptor: { call: (_operation, effect) => effect, hold }
  })
})

export const layer: Layer.Layer<ResourceLedger> = Layer.effect(ResourceLedger, make)

/** Returns `base` with all its resources recorded in the ledger. */
export const observe = <A, E, R>(
  base: Layer.Layer<A, E, R>
): Layer.Layer<A, E, Exclude<R | ResourceLedger, Scope.Scope>> =>
  Interceptor.layer(
    base,
    Effect.map(ResourceLedger, (ledger) => ledger.interceptor)
  )
