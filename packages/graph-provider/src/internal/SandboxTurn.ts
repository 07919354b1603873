/** One agent in one sandbox, in a clone where the request names a repository: from a spec to what became of it. */
import * as Canary from "@cogni/sandbox-core/Canary"
import type { RunId } from "@cogni/sandbox-core/RunId"
import type { RunResult } from "@cogni/sandbox-core/RunResult"
import type { SandboxRunner } from "@cogni/sandbox-core/SandboxRunner"
import type { SandboxError } from "@cogni/sandbox-core/SandboxError"
import type { SandboxSpecInput } from "@cogni/sandbox-core/SandboxSpec"
import { Effect, Option, Result, Stream } from "effect"
import * as AgentSpec from "../agents/AgentSpec.ts"
import type { AiEvent } from "../events/AiEvent.ts"
import type {
  Repositories,
  RepositoryPlace,
  RepositoryRequest,
  RepositoryUnavailable
} from "../Repositories.ts"
import type { AgentSpeech } from "./AgentSpeech.ts"
import type { Outcome } from "./GraphEnd.ts"

export interface SandboxTurn {
  readonly runId: RunId
  readonly spec: SandboxSpecInput
  readonly repository: RepositoryRequest | undefined
  readonly speech: AgentSpeech
  readonly tell: (events: ReadonlyArray<AiEvent>) => Effect.Effect<void>
  /** The run's id is its own from here on. */
  readonly claimed: () => void
}

export interface SandboxTurnServices {
  readonly repositories: Repositories["Service"]
  readonly runner: SandboxRunner["Service"]
}

/** Interrupting it ends the run, and waits until nothing of it is left. */
export const live = (
  turn: SandboxTurn,
  services: SandboxTurnServices
): Effect.Effect<Outcome, SandboxError | RepositoryUnavailable> =>
  turn.repository === undefined
    ? Effect.map(inSandbox(turn, services, turn.spec, Effect.void), (ended): Outcome => ({
        _tag: "Ended",
        ...ended,
        delivery: undefined
      }))
    : inRepository(turn, services, turn.repository)

/** The run, its agent heard as it speaks. */
const inSandbox = Effect.fnUntraced(function* (
  { claimed, speech, tell }: SandboxTurn,
  { runner }: SandboxTurnServices,
  spec: SandboxSpecInput,
  began: Effect.Effect<void>
): Effect.fn.Return<
  { readonly result: RunResult; readonly judged: ReturnType<typeof AgentSpec.judge> },
  SandboxError
> {
  const last = yield* runner.stream(spec).pipe(
    Stream.tap((event) => {
      switch (event._tag) {
        case "OutputReceived":
          return event.channel === "stdout" ? tell(speech.hear(event.bytes)) : Effect.void
        case "PhaseEnded":
          claimed()
          return tell([{ type: "status", phase: event.phase }])
        case "PostureVerified":
          return began
        default:
          return Effect.void
      }
    }),
    Stream.runLast
  )
  const event = Option.getOrUndefined(last)
  if (event?._tag !== "RunEnded") return yield* Effect.die(new Error("a run ended without saying so"))
  const { result } = event
  return { result, judged: AgentSpec.judge(speech.end(), result) }
})

const inRepository = Effect.fnUntraced(function* (
  turn: SandboxTurn,
  services: SandboxTurnServices,
  repository: RepositoryRequest
) {
  const { runId, spec } = turn
  const planted = (spec.canaries ?? "off") === "off" ? Canary.none : yield* Canary.plant
  const { delivery, value } = yield* services.repositories.around(
    { ...repository, runId, canaries: planted.canaries },
    (place, began) =>
      inSandbox(turn, services, inPlace(spec, place), began).pipe(
        Effect.provideService(Canary.Planting, Effect.succeed(planted)),
        Effect.map((ended) => ({
          ...ended,
          succeeded: Result.isSuccess(ended.judged),
          auditHead: ended.result.llm?.auditHead
        }))
      )
  )
  const { judged, result } = value
  return { _tag: "Ended", judged, result, delivery } satisfies Outcome
})

const inPlace = (spec: SandboxSpecInput, place: RepositoryPlace): SandboxSpecInput => {
  const [program = "", ...rest] = spec.argv
  return {
    ...spec,
    workspace: { type: "directory", path: place.workspacePath },
    argv: place.within([program, ...rest])
  }
}
