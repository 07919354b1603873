/**
 * The loop of a model that the host owns: ask, do what it asks for in an executor, tell it, until it answers.
 *
 * Everything a model says is untrusted, and nothing of it is ever executed on the host: its tools reach an `Executor`
 * and nothing else. Whatever goes wrong inside (a command that fails, a file that is refused, arguments that are none)
 * is told to the model; what ends the loop is an answer, a limit, a model that fails, or a sandbox that is over. It
 * always ends, within its limits, and says once how.
 */
import { type Cause, Clock, Duration, Effect, Queue, type Result, type Schema, Stream } from "effect"
import * as ChatModel from "./ChatModel.ts"
import type { Executor } from "@cogni/sandbox-core/Executor"
import * as HostLoopCalls from "./internal/HostLoopCalls.ts"
import * as HostLoopStep from "./internal/HostLoopStep.ts"
import * as HostLoopTalk from "./internal/HostLoopTalk.ts"
import * as HostLoopTools from "./internal/HostLoopTools.ts"
import type { SandboxError } from "@cogni/sandbox-core/SandboxError"
import * as Telemetry from "@cogni/sandbox-core/Telemetry"

/** What a model hears of a call. */
export interface ToolAnswer {
  readonly content: string
  /** The call did not do what it was for. A command that ends with another code than 0 did. */
  readonly isError: boolean
}

/** A tool whose effects are all in an executor. */
export interface HostTool extends ChatModel.ChatTool {
  /**
   * What a call with these arguments (JSON decoded) does, or what is wrong with them. It fails when the sandbox can be
   * used no more; whatever else goes wrong is an answer.
   */
  readonly prepare: (input: unknown) => Result.Result<Effect.Effect<ToolAnswer, SandboxError>, string>
}

/** How much of everything a loop may have. */
export interface LoopLimits {
  /** Answers of the model. The last one may ask for nothing more. */
  readonly stepsMax: number
  readonly toolCallsMax: number
  /** Calls of tools that do not exist, or with arguments that are none. */
  readonly invalidCallsMax: number
  readonly runtimeSecondsMax: number
  /** Of all answers, looked at after each; what an upstream does not count is estimated from its bytes. */
  readonly outputTokensMax: number
  /** What is asked for in one answer at most. Absent: as many as the model gives; not all take any number. */
  readonly answerTokensMax?: number | undefined
  /** Of the conversation, when the model is asked; so also of all results of tools together. */
  readonly contextBytesMax: number
  /** Of one result; of a longer one, the beginning and the end are told. */
  readonly toolResultBytesMax: number
  /** How often one question is asked when its model cannot answer now. */
  readonly attemptsMax: number
  /** Between two attempts, whatever the upstream asks for. */
  readonly retrySecondsMax: number
  readonly answer: ChatModel.ChatLimits
}

export const defaultLimits: LoopLimits = {
  stepsMax: 50,
  toolCallsMax: 200,
  invalidCallsMax: 10,
  runtimeSecondsMax: 1800,
  outputTokensMax: 200_000,
  contextBytesMax: 1024 * 1024,
  toolResultBytesMax: 32 * 1024,
  attemptsMax: 4,
  retrySecondsMax: 30,
  answer: ChatModel.defaultLimits
}

export interface LoopOptions {
  readonly at: ChatModel.ChatEndpoint
  readonly model: string
  /** The conversation so far; the last message is what is asked. */
  readonly messages: ReadonlyArray<ChatModel.ChatMessage>
  readonly tools: ReadonlyArray<HostTool>
  readonly limits?: Partial<LoopLimits> | undefined
  /** Fails when the sandbox can be used no more (`Sandbox.ended`); then the loop ends, also while the model is asked. */
  readonly ended?: Effect.Effect<never, SandboxError> | undefined
}

/** Tokens as the upstream counted them; where it did not, estimates. */
export interface LoopUsage {
  readonly inputTokens: number
  readonly outputTokens: number
}

/** How a loop ended. */
export type LoopOutcome =
  | "finished"
  | "steps_exhausted"
  | "tool_calls_exhausted"
  | "invalid_calls_exhausted"
  | "output_tokens_exhausted"
  | "context_exhausted"
  | "timeout"
  | "model_failed"
  | "sandbox_failed"

export type LoopVerdict =
  | { readonly outcome: Exclude<LoopOutcome, "model_failed" | "sandbox_failed"> }
  | { readonly outcome: "model_failed"; readonly error: ChatModel.ChatModelFailed }
  | { readonly outcome: "sandbox_failed"; readonly error: SandboxError }

/** The one end of a loop. */
export type LoopEnd = LoopVerdict & {
  /** The last thing the model said: its answer, where it finished. */
  readonly text: string
  readonly steps: number
  readonly toolCalls: number
  readonly usage: LoopUsage
  readonly durationMs: number
  /** What happened and what to do. */
  readonly message: string
}

/** What happens on the way. Every call that began ends. */
export type LoopProgress =
  | { readonly type: "step_started"; readonly step: number }
  | { readonly type: "text_delta"; readonly delta: string }
  /** `input`: the arguments, where they are some; else `{ malformed }`, the beginning of what was written in their stead. */
  | {
      readonly type: "tool_call_started"
      readonly id: string
      readonly name: string
      readonly input: Readonly<Record<string, unknown>>
    }
  | {
      readonly type: "tool_call_ended"
      readonly id: string
      readonly name: string
      readonly content: string
      readonly isError: boolean
      readonly durationMs: number
    }
  | ({ readonly type: "step_ended"; readonly step: number } & LoopUsage)

/** Who is told of it; the loop goes on when it has been. */
export type Tell = (event: LoopProgress) => Effect.Effect<void>

export type LoopEvent = LoopProgress | { readonly type: "ended"; readonly end: LoopEnd }

/** A tool whose arguments have a schema. */
export const tool: <I, IE>(options: {
  readonly name: string
  readonly description: string
  readonly input: Schema.Codec<I, IE>
  readonly execute: (input: I) => Effect.Effect<ToolAnswer, SandboxError>
}) => HostTool = HostLoopTools.make

export interface ExecutorToolOptions {
  /** Of one command. A model that asks for more gets this. */
  readonly commandSecondsMax?: number | undefined
  /** Where commands begin, and what paths are relative to: a directory of the workspace. Absent: the workspace. */
  readonly workingDirectory?: string | undefined
  /** Of one result, as the loop will have it. */
  readonly toolResultBytesMax?: number | undefined
}

/** `exec`, `read` and `write`, in an executor and nowhere else. */
export const executorTools = (
  executor: Executor,
  options: ExecutorToolOptions = {}
): ReadonlyArray<HostTool> =>
  HostLoopTools.ofExecutor(executor, {
    commandSecondsMax: options.commandSecondsMax ?? 120,
    workingDirectory: options.workingDirectory ?? executor.workspace,
    resultBytesMax: options.toolResultBytesMax ?? defaultLimits.toolResultBytesMax
  })

/**
 * The loop to its end; what happens on the way is told to `tell`, whose pace is the loop's. Never fails. Interrupting
 * it ends the call or the command that is under way.
 */
export const run = Effect.fn("HostLoop.run")(function* (
  options: LoopOptions,
  tell: Tell = () => Effect.void
): Effect.fn.Return<LoopEnd, never, ChatModel.ChatModel> {
  const limits: LoopLimits = { ...defaultLimits, ...options.limits }
  yield* Effect.annotateCurrentSpan(Telemetry.attribute.model, options.model)
  const startedMs = yield* Clock.currentTimeMillis
  const talk = HostLoopTalk.make(options.messages)
  const verdict = yield* Effect.raceFirst(
    conversation(options, limits, talk, tell),
    (options.ended ?? Effect.never).pipe(
      Effect.catch((error) => Effect.succeed<LoopVerdict>({ outcome: "sandbox_failed", error }))
    )
  ).pipe(
    Effect.timeoutOrElse({
      duration: Duration.seconds(limits.runtimeSecondsMax),
      orElse: () => Effect.succeed<LoopVerdict>({ outcome: "timeout" })
    })
  )
  yield* HostLoopCalls.endOpen(talk, tell)
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

/** The loop as it happens; `ended` is the last event, and comes once. Abandoning the stream ends the loop. */
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

/** Everything but what may come at any time: the end of the sandbox, and of the time. */
const conversation = Effect.fnUntraced(function* (
  options: LoopOptions,
  limits: LoopLimits,
  talk: HostLoopTalk.Talk,
  tell: Tell
): Effect.fn.Return<LoopVerdict, never, ChatModel.ChatModel> {
  const chat = yield* ChatModel.ChatModel
  while (true) {
    if (talk.contextBytes > limits.contextBytesMax) return { outcome: "context_exhausted" }
    talk.steps += 1
    const step = talk.steps
    yield* tell({ type: "step_started", step })
    const asked = yield* Effect.result(HostLoopStep.ask(chat, options, limits, talk, tell))
    if (asked._tag === "Failure") return { outcome: "model_failed", error: asked.failure }
    const answer = asked.success
    yield* tell({ type: "step_ended", step, ...answer.usage })
    if (answer.toolCalls.length === 0) {
      talk.text = answer.text
      return HostLoopStep.judge(answer)
    }
    if (step >= limits.stepsMax) return { outcome: "steps_exhausted" }
    if (talk.usage.outputTokens >= limits.outputTokensMax) return { outcome: "output_tokens_exhausted" }
    HostLoopTalk.remember(talk, {
      role: "assistant",
      content: answer.text,
      toolCalls: answer.toolCalls.map(({ told }) => told)
    })
    for (const call of answer.toolCalls) {
      if (talk.toolCalls >= limits.toolCallsMax) return { outcome: "tool_calls_exhausted" }
      const done = yield* Effect.result(HostLoopCalls.answer(call, limits, talk, tell))
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
      return `the model made more than ${limits.invalidCallsMax} calls that are none. Use a model that calls tools well`
    case "output_tokens_exhausted":
      return `the model wrote its ${limits.outputTokensMax} tokens and was not done. Raise outputTokensMax, or give it less to do`
    case "context_exhausted":
      return `the conversation has grown over ${limits.contextBytesMax} bytes. Raise contextBytesMax, or give the model less to read`
    case "timeout":
      return `the model was not done after ${limits.runtimeSecondsMax} s. Raise runtimeSecondsMax, or give it less to do`
    case "model_failed":
    case "sandbox_failed":
      return verdict.error.message
  }
}
