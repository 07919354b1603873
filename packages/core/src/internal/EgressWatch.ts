/**
 * Watches the egress of a run: canaries in its calls and its output, spent budgets, and calls that need an approval.
 *
 * The proxy sees calls, and the runner sees output. This module applies the spec's policies to both, emits events, and
 * keeps the observations for the record.
 */
import { Clock, Deferred, Effect } from "effect"
import * as Canary from "../Canary.ts"
import type { LlmObservation } from "../LlmObservation.ts"
import type { OutputChunk } from "../RunResult.ts"
import type { Evidence, Exhaustion } from "../RunFigures.ts"
import type { RunEvent } from "../RunEvent.ts"
import { BudgetExceeded, ExfiltrationSuspected } from "../SandboxReason.ts"
import type { SandboxSpec } from "../SandboxSpec.ts"
import type { HostLimit } from "./AgentWatch.ts"
import * as RunMetrics from "./RunMetrics.ts"

/** More than there are kinds. A proxy that invents kinds must not fill the record. */
const suspicionsMax = 100

const budgetExceeded =
  (exhaustion: Exhaustion): HostLimit =>
  (partial) =>
    new BudgetExceeded({ ...exhaustion, partial })

/** Returns the canaries of a new run. */
export const plant = ({ canaries }: Pick<SandboxSpec, "canaries">): Effect.Effect<Canary.Planted> =>
  canaries === "off" ? Effect.succeed(Canary.none) : Effect.flatten(Canary.Planting)

export const make = Effect.fnUntraced(function* (
  spec: SandboxSpec,
  planted: Canary.Planted,
  emit: (event: RunEvent) => Effect.Effect<void>
) {
  const violation = yield* Deferred.make<HostLimit>()
  const suspicions: Array<Evidence> = []
  const kinds = new Set<string>()
  let exhausted: Exhaustion | undefined
  let isShareSpent = false
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

  // The run is ended before the event is emitted, because a listener may be slow.
  const observe = (observation: LlmObservation): Effect.Effect<void> =>
    Effect.suspend(() => {
      if (observation._tag === "ApprovalRequested") return emit(observation)
      if (observation._tag === "ApprovalDecided")
        return Effect.andThen(RunMetrics.approvalEnded(observation.approval.status), emit(observation))
      if (observation._tag === "SubagentShareSpent") {
        if (isShareSpent) return Effect.void
        isShareSpent = true
        return Effect.andThen(RunMetrics.shareSpent(observation.exhaustion.budget), emit(observation))
      }
      if (observation._tag === "BudgetExhausted") {
        const { exhaustion } = observation
        if (exhausted !== undefined) return Effect.void
        exhausted = exhaustion
        return Effect.andThen(
          RunMetrics.spent(exhaustion.budget),
          Effect.andThen(
            spec.llm?.budget?.onExhausted === "stop" ? violate(budgetExceeded(exhaustion)) : Effect.void,
            emit(observation)
          )
        )
      }
      const { evidence } = observation
      const kind = `${evidence.canary} ${evidence.encoding} ${evidence.channel}`
      if (kinds.has(kind) || kinds.size === suspicionsMax) return Effect.void
      kinds.add(kind)
      suspicions.push(evidence)
      return Effect.andThen(
        RunMetrics.suspected(evidence.channel),
        Effect.andThen(
          spec.canaries === "stop"
            ? violate((partial) => new ExfiltrationSuspected({ evidence, partial }))
            : Effect.void,
          emit(observation)
        )
      )
    })

  return {
    planted,
    observe,
    /** Scans a piece of output for canaries. */
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
    /** Settles when an observation must end the run. */
    violation: Deferred.await(violation),
    /** The violation so far, if any. */
    violated: () => violated,
    /** The limit that an agent that ended by itself broke: a violation, or a spent budget if it failed. */
    verdict: (exitCode: number) =>
      violated ?? (exitCode === 0 || exhausted === undefined ? undefined : budgetExceeded(exhausted)),
    suspicions: (): ReadonlyArray<Evidence> => [...suspicions]
  }
})
