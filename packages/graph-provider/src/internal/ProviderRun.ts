/**
 * A run of a third-party provider, with the guarantees that a run of the sandbox has.
 *
 * The provider's events are read here, not by the run's reader. So the grammar holds, `final` settles and the observer
 * hears the usage, whatever the provider and the reader do. If the run must end early, the provider is cancelled and
 * has some time to report its usage.
 */
import { Cause, Effect, Fiber, Option, Result, Stream } from "effect"
import type { AiEvent } from "../events/AiEvent.ts"
import * as EventGrammar from "../events/EventGrammar.ts"
import * as UsageFact from "../events/UsageFact.ts"
import type { GraphObserver } from "../graphs/GraphObserver.ts"
import type { GraphRunRequest, RunContext } from "../graphs/GraphProvider.ts"
import type { GraphFinal, GraphRefused, GraphRun } from "../graphs/GraphRun.ts"
import * as GraphEnd from "./GraphEnd.ts"
import * as GraphLife from "../graphs/GraphLife.ts"
import * as Observation from "./Observation.ts"

const { beside, patience } = Observation

/** Maximum number of usage facts of one run. */
const factsMax = 10_000

/** End of a run whose provider did not keep the grammar. */
const broke = {
  error: "internal",
  reason: "ProviderBroke",
  message: "the graph provider ended without a result; see the host's log"
} as const

/** Everything that the provider has said, as the end of the run needs it. */
interface Heard {
  state: EventGrammar.Grammar
  content?: string
  readonly facts: Array<UsageFact.UsageFact>
  failure?: NonNullable<EventGrammar.Ending["failure"]>
}

/** Continues a run that a provider has started. Its owner is what the host knows about it. */
export const make = Effect.fnUntraced(function* (
  run: GraphRun,
  owner: Required<UsageFact.UsageOwner>,
  request: GraphRunRequest,
  context: RunContext,
  observer: GraphObserver["Service"]
) {
  const observed = yield* Observation.make(observer, request, context)
  const heard: Heard = { state: EventGrammar.initial, facts: [] }

  /** Beyond the maximum, one more fact says that the rest of the usage is unknown. */
  const factOf = (fact: UsageFact.UsageFact): UsageFact.UsageFact =>
    heard.facts.length < factsMax
      ? UsageFact.ofProvider(owner, fact)
      : { ...UsageFact.ofUnknown(owner), usageUnitId: UsageFact.restUnitId }

  const isAllowed = (event: AiEvent): boolean => {
    const next = EventGrammar.next(heard.state, event)
    if (Result.isSuccess(next)) heard.state = next.success
    return Result.isSuccess(next)
  }

  /** Takes an event, and returns it if the reader gets it now. All others belong to the end. */
  const take = (event: AiEvent): ReadonlyArray<AiEvent> => {
    switch (event.type) {
      case "assistant_final":
        heard.content = event.content
        return []
      case "usage_report":
        if (heard.facts.length <= factsMax) heard.facts.push(factOf(event.fact))
        return []
      case "error": {
        const { error, message = error, reason = error } = event
        heard.failure = { error, message, reason }
        return []
      }
      case "done":
        return []
      default:
        return [event]
    }
  }

  const read = (emit: GraphLife.Life["emit"]) =>
    run.events.pipe(
      Stream.filter(isAllowed),
      Stream.takeUntil(({ type }) => type === "done"),
      Stream.runForEachArray((events) => emit(events.flatMap(take))),
      Effect.catchCause((cause) =>
        Cause.hasInterruptsOnly(cause)
          ? Effect.void
          : Effect.logError("a graph provider failed with a defect", cause)
      )
    )

  const factsOf = (
    usage: GraphFinal["usage"]
  ): readonly [UsageFact.UsageFact, ...ReadonlyArray<UsageFact.UsageFact>] => {
    const [first, ...more] = heard.facts
    if (first !== undefined) return [first, ...more]
    const unknown = UsageFact.ofUnknown(owner)
    if (usage === undefined) return [unknown]
    return [{ ...unknown, inputTokens: usage.promptTokens, outputTokens: usage.completionTokens }]
  }

  /** The fiber that reads. It outlives an interruption of the run, because the usage comes last. */
  let reading: Fiber.Fiber<void> | undefined

  /** Cancels the provider, and gives it some time to report its usage. */
  const cut = Effect.gen(function* () {
    yield* beside("a graph provider could not be cancelled", run.cancel)
    reading ??= yield* Effect.forkDetach(read(() => Effect.void))
    const ended = yield* Effect.timeoutOption(Fiber.await(reading), patience)
    if (Option.isNone(ended)) yield* Effect.forkDetach(Fiber.interrupt(reading))
  })

  /** `why` is the reason for which the run must end before its provider has ended it. */
  const concluded = Effect.fnUntraced(function* (why: GraphLife.Stop | undefined) {
    if (why !== undefined) yield* cut
    const said = yield* beside("a graph provider did not report its result", run.final)
    const isWhole = said !== undefined && heard.state.phase !== "speaking"
    const stopped = why && GraphEnd.make(request, context, GraphEnd.stopped(why, ""), undefined)
    const failure = isWhole ? heard.failure : (stopped?.ending.failure ?? broke)
    const base = said ?? { runId: context.runId, requestId: request.caller.requestId }
    const final: GraphFinal = isWhole ? said : { ...base, ...failure, ok: false }
    const end = { ending: { content: heard.content, facts: factsOf(said?.usage), failure }, final }
    yield* observed(end)
    return end
  })
  const conclude = Observation.once(concluded)

  const live = yield* GraphLife.make(
    context.runId,
    (life) =>
      Effect.gen(function* () {
        const fiber = yield* Effect.uninterruptible(
          Effect.map(Effect.forkDetach(read(life.emit)), (made) => (reading = made))
        )
        const why = yield* Effect.raceFirst(Effect.as(Fiber.await(fiber), undefined), life.stopped)
        return yield* conclude(why)
      }),
    () => conclude("reader_left")
  )
  return { ...live, isObserved: true as const }
})

/** A run whose provider failed before it started one. */
export const broken = Effect.fnUntraced(function* (
  cause: Cause.Cause<never>,
  owner: UsageFact.UsageOwner,
  request: GraphRunRequest,
  context: RunContext,
  observer: GraphObserver["Service"]
) {
  yield* Effect.logError("a graph provider failed before the run started", cause)
  return yield* ended(broke, UsageFact.ofUnknown(owner), request, context, observer)
})

/** A run that is refused before it starts. */
export const refused = (
  { error, message, reason }: GraphRefused,
  fact: UsageFact.UsageFact,
  request: GraphRunRequest,
  context: RunContext,
  observer: GraphObserver["Service"]
) => ended({ error, message, reason }, fact, request, context, observer)

const ended = Effect.fnUntraced(function* (
  failure: NonNullable<EventGrammar.Ending["failure"]>,
  fact: UsageFact.UsageFact,
  { caller, graphId, model }: GraphRunRequest,
  context: RunContext,
  observer: GraphObserver["Service"]
) {
  const observed = yield* Observation.make(observer, { graphId, model }, context)
  const end: GraphLife.LifeEnd = {
    ending: { facts: [fact], failure },
    final: { ...failure, ok: false, runId: context.runId, requestId: caller.requestId }
  }
  const conclude = Observation.once(() => Effect.as(observed(end), end))
  const live = yield* GraphLife.make(
    context.runId,
    () => conclude(undefined),
    () => conclude(undefined)
  )
  return { ...live, isObserved: true as const }
})
