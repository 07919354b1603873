/**
 * pi, without a terminal: one prompt, its four tools, text as it is written.
 *
 * It prints a JSON object a line. Text comes in pieces, and then whole at the end of its message; the answer is the
 * last message of the model's, once `agent_end` has said that nothing follows. A model that fails is no failure to pi's
 * exit code: it is in that message, with the reason `error`. Before it gives up it tries again, and says so.
 */
import { Option, Schema } from "effect"
import { type Agent, AgentId, type AgentTask, promptInput, withPrompt } from "./Agent.ts"
import {
  type AgentOutcome,
  answered,
  Count,
  failed,
  jsonLines,
  type Step,
  toolResult,
  unreadable,
  usageOf
} from "./AgentOutput.ts"

const Session = Schema.Struct({ type: Schema.Literal("session"), id: Schema.NonEmptyString })

const Piece = Schema.Struct({
  type: Schema.Literal("message_update"),
  assistantMessageEvent: Schema.Struct({ type: Schema.Literal("text_delta"), delta: Schema.String })
})

const MessageEnd = Schema.Struct({
  type: Schema.Literal("message_end"),
  message: Schema.Struct({
    role: Schema.Literal("assistant"),
    content: Schema.Array(Schema.Unknown),
    stopReason: Schema.String,
    errorMessage: Schema.optionalKey(Schema.String),
    usage: Schema.optionalKey(Schema.Unknown)
  })
})

const TextBlock = Schema.Struct({ type: Schema.Literal("text"), text: Schema.String })

const ToolStart = Schema.Struct({
  type: Schema.Literal("tool_execution_start"),
  toolCallId: Schema.String,
  toolName: Schema.String,
  args: Schema.optionalKey(Schema.Unknown)
})

const ToolEnd = Schema.Struct({
  type: Schema.Literal("tool_execution_end"),
  toolCallId: Schema.String,
  result: Schema.optionalKey(Schema.Unknown),
  isError: Schema.optionalKey(Schema.Boolean)
})

const Retry = Schema.Struct({
  type: Schema.Literal("auto_retry_start"),
  attempt: Count,
  maxAttempts: Count
})

const AgentEnd = Schema.Struct({
  type: Schema.Literal("agent_end"),
  willRetry: Schema.optionalKey(Schema.Boolean)
})

/** Of one call. What a cache was read for or written with is counted beside the rest. */
const Usage = Schema.Struct({
  input: Count,
  output: Count,
  cacheRead: Schema.optionalKey(Count),
  cacheWrite: Schema.optionalKey(Count)
})

const decode = {
  line: Schema.decodeUnknownOption(
    Schema.Union([Session, Piece, MessageEnd, ToolStart, ToolEnd, Retry, AgentEnd])
  ),
  text: Schema.decodeUnknownOption(TextBlock),
  usage: Schema.decodeUnknownOption(Usage)
}

interface State {
  readonly sessionId: string | undefined
  /** Of the message that is being written. */
  readonly inPieces: string
  /** What the last message came to that was whole. */
  readonly last: { readonly text: string; readonly reason: string; readonly error: string } | undefined
  readonly isOver: boolean
  readonly inputTokens: number
  readonly outputTokens: number
}

const initial: State = {
  sessionId: undefined,
  inPieces: "",
  last: undefined,
  isOver: false,
  inputTokens: 0,
  outputTokens: 0
}

const textOf = (content: ReadonlyArray<unknown>): string =>
  content
    .flatMap((block) => {
      const decoded = decode.text(block)
      return Option.isSome(decoded) ? [decoded.value.text] : []
    })
    .join("")

const ofMessage = (state: State, { message }: typeof MessageEnd.Type): Step<State> => {
  const usage = Option.getOrUndefined(decode.usage(message.usage))
  const cache = (usage?.cacheRead ?? 0) + (usage?.cacheWrite ?? 0)
  const text = textOf(message.content)
  return [
    // A model that was not streamed has said all of it at once.
    state.inPieces === "" && text !== "" ? [{ type: "text_delta", delta: text }] : [],
    {
      ...state,
      inPieces: "",
      last: { text, reason: message.stopReason, error: message.errorMessage ?? "" },
      isOver: false,
      inputTokens: state.inputTokens + (usage?.input ?? 0) + cache,
      outputTokens: state.outputTokens + (usage?.output ?? 0)
    }
  ]
}

const line = (state: State, value: unknown): Step<State> => {
  const decoded = decode.line(value)
  if (Option.isNone(decoded)) return [[], state]
  const read = decoded.value
  switch (read.type) {
    case "session":
      return [[], { ...state, sessionId: state.sessionId ?? read.id }]
    case "message_update": {
      const { delta } = read.assistantMessageEvent
      if (delta === "") return [[], state]
      return [[{ type: "text_delta", delta }], { ...state, inPieces: state.inPieces + delta }]
    }
    case "message_end":
      return ofMessage(state, read)
    case "tool_execution_start": {
      const { args = {}, toolCallId, toolName } = read
      return [[{ type: "tool_call_start", toolCallId, toolName, args }], state]
    }
    case "tool_execution_end": {
      const { isError, result = "", toolCallId } = read
      return [[toolResult(toolCallId, result, isError === true)], state]
    }
    case "auto_retry_start":
      return [
        [{ type: "status", phase: "model_retry", label: `${read.attempt} of ${read.maxAttempts}` }],
        state
      ]
    case "agent_end":
      return [[], { ...state, isOver: read.willRetry !== true }]
  }
}

const end = ({ inPieces, inputTokens, isOver, last, outputTokens, sessionId }: State): AgentOutcome => {
  const said = inPieces || (last?.text ?? "")
  if (last === undefined || !isOver) return unreadable("it ended before it was done", said)
  if (last.reason !== "stop") {
    return failed(last.reason || "error", last.error || "its last message is not whole", said)
  }
  return last.text === ""
    ? unreadable("its last message has no text")
    : answered(last.text, { sessionId, usage: usageOf(inputTokens, outputTokens) })
}

/** pi's name for the one place where models are. */
const provider = "cogni"

const models = ({ model }: AgentTask) => ({
  providers: {
    [provider]: {
      baseUrl: "http://localhost:8080/v1",
      api: "openai-completions",
      apiKey: "none",
      models: [{ id: model, name: model }]
    }
  }
})

export const pi: Agent = {
  id: AgentId.make("pi"),
  name: "pi",
  description:
    "A small coding agent of four tools: reads and changes files, runs commands, answers as it writes.",
  image: "pi",
  modelApi: "chat-completions",
  capabilities: {
    tools: true,
    streaming: "delta",
    toolEvents: true,
    history: "prompt",
    personalities: []
  },
  argv: ({ model }) =>
    withPrompt([
      "pi",
      "--print",
      "--mode",
      "json",
      "--provider",
      provider,
      "--model",
      model,
      // No key: with one given here it looks for none in a file, which it would have to lock.
      "--api-key",
      "none",
      "--no-session",
      // What a workspace has for pi are programs that pi would run in itself.
      "--no-approve",
      "--no-extensions",
      "--no-prompt-templates",
      "--no-skills",
      "--no-themes"
    ]),
  env: () => ({
    // Where models.json is.
    PI_CODING_AGENT_DIR: "/cogni",
    PI_OFFLINE: "1",
    PI_SKIP_VERSION_CHECK: "1",
    PI_TELEMETRY: "0"
  }),
  limits: {},
  inputs: (task) => [
    { name: "models.json", content: JSON.stringify(models(task), undefined, 2) },
    promptInput(task)
  ],
  reader: jsonLines({ initial, line, end })
}
