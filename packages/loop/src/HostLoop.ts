/**
 * Agent loop on the host: ask a model, execute its tool calls in an executor, return the results, until it answers.
 *
 * The model's output is untrusted, and nothing of it is executed on the host: the tools of an executor can reach only
 * that executor. Failures inside (a failed command, a refused file, invalid arguments) are returned to the model. The
 * loop ends with an answer, a limit, a failure of the model, or the end of the sandbox. It always ends within its
 * limits, and reports its outcome once.
 */
import type { Executor } from "@cogni/sandbox-core/Executor"
import * as RunId from "@cogni/sandbox-core/RunId"
import type { SandboxError } from "@cogni/sandbox-core/SandboxError"
import * as Telemetry from "@cogni/sandbox-core/Telemetry"
import { type Cause, Clock, Duration, Effect, Queue, Stream } from "effect"
import * as ChatModel from "./ChatModel.ts"
import type * as ChatMessage from "./ChatMessage.ts"
import * as ExecutorTools from "./ExecutorTools.ts"
import * as LoopCall from "./internal/LoopCall.ts"
import type { LoopEnd, LoopEvent, LoopVerdict, Tell } from "./LoopEvent.ts"
import { defaultLimits, type LoopLimits } from "./LoopLimits.ts"
import * as LoopStep from "./internal/LoopStep.ts"
import * as LoopTalk from "./internal/LoopTalk.ts"
import type { Tool, ToolSession } from "./Tool.ts"
import * as ToolSet from "./ToolSet.ts"

export interface LoopOptions {
  readonly at: ChatMessage.ChatEndpoint
  readonly model: string
  /** The conversation so far; the last message is the question. */
  readonly messages: ReadonlyArray<ChatMessage.ChatMessage>
  readonly tools: ReadonlyArray<Tool>
  /** Identity under which tools are called (default: the account `local`, with a new run ID). */
  readonly session?: ToolSession | undefined
  readonly limits?: Partial<LoopLimits> | undefined
  /** Fails when the sandbox ends (`Sandbox.ended`). The loop then ends, even during a model call. */
  readonly ended?: Effect.Effect<never, SandboxError> | undefined
}

interface ExecutorToolOptions {
  /** Maximum and default time limit of one command (default 120). */
  readonly commandSecondsMax?: number | undefined
  /** Start directory of commands, and base of relative paths, inside the workspace (default: the workspace). */
  readonly workingDirectory?: string | undefined
  /** Limit on one result; must match the loop's `toolResultBytesMax`. */
  readonly toolResultBytesMax?: number | undefined
}

/** Returns tools for the commands and files of an executor. */
export const executorTools = (
  executor: Executor,
  { commandSecondsMax = 120, toolResultBytesMax, workingDirectory }: ExecutorToolOptions = {}
): ReadonlyArray<Tool> => {
  // A result has at most two texts. JSON escapes make them longer, and the limit applies to the whole.
  const outputBytesMax = Math.floor((toolResultBytesMax ?? defaultLimits.toolResultBytesMax) * 0.45)
  return ExecutorTools.make(executor, {
    timeoutSecondsMax: commandSecondsMax,
    workingDirectory,
    outputBytesMax
  })
}

/**
 * Runs the loop to its end, and reports progress to `tell`, which sets the pace. Never fails. Interruption ends the
 * running call or command.
 */
export const run = Effect.fn("HostLoop.run")(function* (
  options: LoopOptions,
  tell: Tell = () => Effect.void
): Effect.fn.Return<LoopEnd, never, ChatModel.ChatModel> {
  const { at, ended = Effect.never, model } = options
  const limits: LoopLimits = { ...defaultLimits, ...options.limits }
  yield* Effect.annotateCurrentSpan(Telemetry.attribute.model, model)
  const startedMs = yield* Clock.currentTimeMillis
  const talk = LoopTalk.make(options.messages)
  const session = options.session ?? { runId: yield* RunId.generate, identity: localIdentity }
  const tools = ToolSet.make(options.tools)
  const loop: LoopTalk.Loop = { at, model, tools, session, limits, tell, talk }
  const verdict = yield* Effect.raceFirst(
    conversation(loop),
    ended.pipe(Effect.catch((error) => Effect.succeed<LoopVerdict>({ outcome: "sandbox_failed", error })))
  ).pipe(
    Effect.timeoutOrElse({
      duration: Duration.seconds(limits.runtimeSecondsMax),
      orElse: () => Effect.succeed<LoopVerdict>({ outcome: "timeout" })
    })
  )
  yield* LoopCall.endOpen(loop)
  return {
    ...verdict,
    text: talk.text,
    steps: talk.steps,
    toolCalls: talk.toolCalls,
    usage: { ...talk.usage },
    durationMs: (yield* Clock.currentTimeMillis) - startedMs,
    message: messageOf(verdict, limits)
  }
})

/** Streams the events of a loop. `ended` occurs once, as the last event. Ending the stream early ends the loop. */
export const stream = (options: LoopOptions): Stream.Stream<LoopEvent, never, ChatModel.ChatModel> =>
  Stream.callback<LoopEvent, never, ChatModel.ChatModel>(
    (queue: Queue.Queue<LoopEvent, Cause.Done>) =>
      run(options, (event) => Effect.asVoid(Queue.offer(queue, event))).pipe(
        Effect.flatMap((end) => Queue.offer(queue, { type: "ended", end })),
        Effect.matchCauseEffect({
          onFailure: (cause) => Queue.failCause(queue, cause),
          onSuccess: () => Queue.end(queue)
        })
      ),
    { bufferSize: 16 }
  )

const localIdentity = { billingAccountId: "local", attempt: 0 }

/** Runs the conversation. The caller handles the end of the sandbox and the time limit. */
const conversation = Effect.fnUntraced(function* (
  loop: LoopTalk.Loop
): Effect.fn.Return<LoopVerdict, never, ChatModel.ChatModel> {
  const { limits, talk, tell } = loop
  const chat = yield* ChatModel.ChatModel
  while (true) {
    if (talk.contextBytes > limits.contextBytesMax) return { outcome: "context_exhausted" }
    talk.steps += 1
    const step = talk.steps
    yield* tell({ type: "step_started", step })
    const asked = yield* Effect.result(LoopStep.ask(chat, loop))
    if (asked._tag === "Failure") return { outcome: "model_failed", error: asked.failure }
    const answer = asked.success
    yield* tell({ type: "step_ended", step, ...answer.usage })
    if (answer.toolCalls.length === 0) {
      talk.text = answer.text
      return LoopStep.judge(answer)
    }
    if (step >= limits.stepsMax) return { outcome: "steps_exhausted" }
    if (talk.usage.outputTokens >= limits.outputTokensMax) return { outcome: "output_tokens_exhausted" }
    LoopTalk.remember(talk, {
      role: "assistant",
      content: answer.text,
      toolCalls: answer.toolCalls.map(({ told }) => told)
    })
    for (const call of answer.toolCalls) {
      if (talk.toolCalls >= limits.toolCallsMax) return { outcome: "tool_calls_exhausted" }
      const done = yield* Effect.result(LoopCall.answer(call, loop))
      if (done._tag === "Failure") return { outcome: "sandbox_failed", error: done.failure }
      if (talk.invalidCalls > limits.invalidCallsMax) return { outcome: "invalid_calls_exhausted" }
    }
  }
})

const messageOf = (verdict: LoopVerdict, limits: LoopLimits): string => {
  switch (verdict.outcome) {
    case "finished":
      return "the model answered"
    case "steps_exhausted":
      return `the model was not done after ${limits.stepsMax} steps. Raise stepsMax, or give it less to do`
    case "tool_calls_exhausted":
      return `the model asked for more than ${limits.toolCallsMax} tool calls. Raise toolCallsMax, or give it less to do`
    case "invalid_calls_exhausted":
      return `the model made more than ${limits.invalidCallsMax} invalid calls. Use a model that calls tools reliably`
    case "output_tokens_exhausted":
      return `the model reached its limit of ${limits.outputTokensMax} output tokens. Raise outputTokensMax, or give it less to do`
    case "context_exhausted":
      return `the conversation exceeds ${limits.contextBytesMax} bytes. Raise contextBytesMax, or give the model less to read`
    case "timeout":
      return `the model was not done after ${limits.runtimeSecondsMax} s. Raise runtimeSecondsMax, or give it less to do`
    case "model_failed":
    case "sandbox_failed":
      return verdict.error.message
  }
}
