/** One turn of a remembered thread, from the command line. */
import type { RunId } from "@cogni/sandbox-core/RunId"
import type { AgentRunEnd } from "@cogni/sandbox-graph-provider/AgentRun"
import { Threads } from "@cogni/sandbox-graph-provider/threads/Threads"
import { Effect, Result } from "effect"
import { type Refusal, refuse } from "./Failure.ts"
import * as HostThreads from "./HostThreads.ts"
import type { RunFlags, RunSubject } from "./RunPlan.ts"
import type { Settings } from "./Settings.ts"
import * as ThreadFailure from "./ThreadFailure.ts"

export interface ThreadTurn {
  readonly threadId: string
  readonly subject: Extract<RunSubject, { readonly _tag: "Prompt" }>
  readonly personality: string | undefined
}

/** Returns the turn that `--thread` asks for, if any. */
export const make = (
  { personality, repo, thread, workspace }: Pick<RunFlags, "personality" | "repo" | "thread" | "workspace">,
  subject: RunSubject
): Result.Result<ThreadTurn | undefined, Refusal> => {
  if (thread === undefined) return Result.succeed(undefined)
  if (subject._tag === "Command")
    return refuse(
      "usage",
      "--thread needs an agent, and there is a command",
      "Give a prompt, or leave it out"
    )
  if (workspace !== undefined || repo !== undefined)
    return refuse(
      "usage",
      `--thread excludes ${workspace === undefined ? "--repo" : "--workspace"}, because a thread has files of its own`,
      "Leave one of them out"
    )
  return Result.succeed({ threadId: thread, subject, personality })
}

/**
 * Holds the thread while the turn is followed, and records its answer. An answer that could not be recorded is returned
 * with the reason. This process ends with its turn, so it does not sweep.
 */
export const around = <A extends Pick<AgentRunEnd<unknown>, "judged">, E, R>(
  { personality, subject, threadId }: ThreadTurn,
  settings: Settings["Service"],
  runId: RunId,
  followed: (asked: RunSubject) => Effect.Effect<A, E, R>
) =>
  Effect.gen(function* () {
    const threads = yield* Threads
    const { billingAccountId } = settings
    const { agent, prompt: asked } = subject
    const turn = yield* threads
      .open({ billingAccountId, threadId, runId, agent, personality, asked })
      .pipe(Effect.mapError(ThreadFailure.refusalOf))
    yield* Effect.mapError(turn.begin, ThreadFailure.refusalOf)
    const ended = yield* Effect.raceFirst(
      followed({ ...subject, earlier: turn.messages.slice(0, -1), turn }),
      Effect.mapError(turn.lost, ThreadFailure.refusalOf)
    )
    if (Result.isFailure(ended.judged)) return { ended, unrecorded: undefined }
    const recorded = yield* Effect.result(turn.end(ended.judged.success.text))
    if (Result.isSuccess(recorded)) return { ended, unrecorded: undefined }
    return { ended, unrecorded: ThreadFailure.refusalOf(recorded.failure) }
  }).pipe(Effect.scoped, Effect.provide(HostThreads.layer(settings, { sweepsAfterTurns: false })))
