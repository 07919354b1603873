/**
 * What is seen on the ways out of a run: canaries, in its calls and in its output, and budgets that are spent.
 *
 * The proxy sees calls, the runner sees output; what either sees is judged here by the spec's policies, told to whoever
 * listens, and kept for the record.
 */
import { Clock, Deferred, Effect } from "effect"
import * as Canary from "../Canary.ts"
import type { LlmObservation } from "../LlmProxy.ts"
import type { Evidence, Exhaustion, OutputChunk } from "../RunResult.ts"
import type { RunEvent } from "../RunEvent.ts"
import { BudgetExceeded, ExfiltrationSuspected } from "../SandboxError.ts"
import type { SandboxSpec } from "../SandboxSpec.ts"
import type { HostLimit } from "./AgentWatch.ts"

/** There are fewer kinds than that; a proxy that makes some up must not fill the record. */
const suspicionsMax = 100

const budgetExceeded =
  (exhaustion: Exhaustion): HostLimit =>
  (partial) =>
    new BudgetExceeded({ ...exhaustion, partial })

export const make = Effect.fnUntraced(function* (
  spec: SandboxSpec,
  emit: (event: RunEvent) => Effect.Effect<void>
) {
  const planted = spec.canaries === "off" ? Canary.none : yield* yield* Canary.Planting
  const violation = yield* Deferred.make<HostLimit>()
  const suspicions: Array<Evidence> = []
  const kinds = new Set<string>()
  let exhausted: Exhaustion | undefined
  let violated: HostLimit | undefined
  const watchers = {
    stdout: Canary.makeWatcher(planted.canaries),
    stderr: Canary.makeWatcher(planted.canaries)
  }

  const violate = (limit: HostLimit) =>
    Effect.suspend(() => {
      violated ??= limit
      return Deferred.succeed(violation, violated)
    })

  // The run is ended before anybody is told why: whoever listens may be slow.
  const observe = (observation: LlmObservation): Effect.Effect<void> =>
    Effect.suspend(() => {
      if (observation._tag === "BudgetExhausted") {
        const { exhaustion } = observation
        if (exhausted !== undefined) return Effect.void
        exhausted = exhaustion
        return Effect.andThen(
          spec.llm?.budget?.onExhausted === "stop" ? violate(budgetExceeded(exhaustion)) : Effect.void,
          emit(observation)
        )
      }
      const { evidence } = observation
      const kind = `${evidence.canary} ${evidence.encoding} ${evidence.channel}`
      if (kinds.has(kind) || kinds.size === suspicionsMax) return Effect.void
      kinds.add(kind)
      suspicions.push(evidence)
      return Effect.andThen(
        spec.canaries === "stop"
          ? violate((partial) => new ExfiltrationSuspected({ evidence, partial }))
          : Effect.void,
        emit(observation)
      )
    })

  return {
    planted,
    observe,
    /** Looks at a piece of output. */
    inspect: ({ bytes, channel }: OutputChunk) =>
      Effect.forEach(
        watchers[channel].push(bytes),
        (sighting) =>
          Effect.flatMap(Clock.currentTimeMillis, (now) =>
            observe({
              _tag: "ExfiltrationSuspected",
              evidence: { at: new Date(now).toISOString(), ...sighting, channel }
            })
          ),
        { discard: true }
      ),
    /** Settles when the run must end for what was seen. */
    violation: Deferred.await(violation),
    /** The same, as far as it is known by now. */
    violated: () => violated,
    /** What an agent that ended by itself has ended of, where that was not its own doing. */
    verdict: (exitCode: number) =>
      violated ?? (exitCode === 0 || exhausted === undefined ? undefined : budgetExceeded(exhausted)),
    suspicions: (): ReadonlyArray<Evidence> => [...suspicions]
  }
})
