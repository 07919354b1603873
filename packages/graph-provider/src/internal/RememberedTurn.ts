/** The turn of a thread behind a graph run that asks to be remembered. */
import type { SandboxError } from "@cogni/sandbox-core/SandboxError"
import { Effect, Result } from "effect"
import type { AgentRunEnd } from "../AgentRun.ts"
import type { Agent } from "../agents/Agent.ts"
import { type GraphRunRequest, type RunContext } from "../graphs/GraphProvider.ts"
import { GraphRefused } from "../graphs/GraphRun.ts"
import type { RepositoryUnavailable } from "../RepositoryUse.ts"
import type { RepositoryDelivery } from "../RepositoryUse.ts"
import type { ThreadRefusal } from "../threads/ThreadError.ts"
import type { ThreadsShape } from "../threads/Threads.ts"
import type { OpenTurn } from "../threads/OpenTurn.ts"
import * as GraphEnd from "./GraphEnd.ts"

const codes: Record<ThreadRefusal["_tag"], GraphRefused["error"]> = {
  ThreadBusy: "rate_limit",
  ThreadHostFull: "internal",
  ThreadLimitReached: "policy_denied",
  ThreadFilesLost: "not_found",
  ThreadFilesFailed: "internal",
  ThreadUnsupported: "invalid_request",
  ThreadsUnavailable: "internal"
}

/** Without the path of the directory, which is not for callers. */
const filesFailed =
  "the files of this thread cannot be used. The operator of this host must check its disk; see its log"

const refusedBy = (refusal: ThreadRefusal): GraphRefused =>
  new GraphRefused({
    error: codes[refusal._tag],
    reason: refusal._tag,
    detail: refusal._tag === "ThreadFilesFailed" ? filesFailed : refusal.message,
    ...(refusal._tag === "ThreadBusy" ? { retrySeconds: refusal.retrySeconds } : {})
  })

const unsupported = (detail: string): GraphRefused =>
  new GraphRefused({ error: "invalid_request", reason: "ThreadUnsupported", detail })

/** A request that asks to be remembered by a graph that cannot. */
export const refusedHere = unsupported(
  "this graph does not remember threads. Send the whole conversation in messages, without remember"
)

/** Returns why a request cannot be a turn, or `undefined` if it can. Pure. */
export const problemOf = (
  { messages, repository }: Pick<GraphRunRequest, "messages" | "repository">,
  threadId: string | undefined
): string | undefined => {
  if (threadId === undefined) return "remember needs a threadId, which names the conversation"
  if (repository !== undefined)
    return "a remembered thread has files of its own. Leave out repository, or remember"
  return messages.length === 1 && messages[0].role === "user"
    ? undefined
    : "with remember, messages contains only the new message of the user. The host adds the earlier turns"
}

/** Opens the turn of a request, if it asks to be remembered. */
export const open = Effect.fnUntraced(function* (
  threads: ThreadsShape,
  agent: Agent,
  request: GraphRunRequest,
  { runId, threadId }: RunContext
) {
  if (request.remember !== true) return undefined
  const problem = problemOf(request, threadId)
  if (problem !== undefined || threadId === undefined) return yield* unsupported(problem ?? "")
  return yield* threads
    .open({
      billingAccountId: request.caller.billingAccountId,
      threadId,
      runId,
      agent,
      personality: request.personality,
      asked: request.messages[0].content
    })
    .pipe(
      Effect.tapError((refusal) =>
        refusal._tag === "ThreadFilesFailed" ? Effect.logWarning(refusal.message) : Effect.void
      ),
      Effect.mapError(refusedBy)
    )
})

/** Runs a turn, and records its answer. An answer that could not be recorded is a failure with that text. */
export const around = Effect.fnUntraced(function* (
  turn: OpenTurn | undefined,
  live: Effect.Effect<AgentRunEnd<RepositoryDelivery>, SandboxError | RepositoryUnavailable>
) {
  if (turn === undefined) return GraphEnd.ended(yield* live)
  const begun = yield* Effect.result(turn.begin)
  if (Result.isFailure(begun)) {
    yield* Effect.logWarning(begun.failure.message)
    const { _tag, message } = begun.failure
    return GraphEnd.notBegun({ _tag, message: _tag === "ThreadFilesFailed" ? filesFailed : message })
  }
  return yield* Effect.raceFirst(live, turn.lost).pipe(
    Effect.flatMap((end) => {
      if (Result.isFailure(end.judged)) return Effect.succeed(GraphEnd.ended(end))
      return Effect.match(turn.end(end.judged.success.text), {
        onSuccess: () => GraphEnd.ended(end),
        onFailure: (error) => GraphEnd.forgotten(error, end)
      })
    }),
    Effect.catchTag("ThreadLost", (error) => Effect.succeed(GraphEnd.forgotten(error)))
  )
})
