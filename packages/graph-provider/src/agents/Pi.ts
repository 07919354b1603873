/**
 * pi without a terminal: one prompt, four tools, text as it is written.
 *
 * It prints one JSON object per line. Text arrives in deltas, and again in full at the end of its message. The answer
 * is the model's last message, once `agent_end` reports that nothing follows. A failed model call does not change pi's
 * exit code: it is in that message, with the reason `error`. Before pi gives up, it retries and reports each retry.
 */
import { Option, Schema } from "effect"
import { type Agent, AgentId, promptInput, withPrompt, withSession } from "./Agent.ts"
import { type AgentTask } from "./AgentFields.ts"
import { chatProvider, codingCapabilities, provider } from "./AgentParts.ts"
import {
  type AgentOutcome,
  answered,
  byType,
  Count,
  failed,
  fitting,
  jsonLines,
  noTokens,
  plus,
  type Step,
  type Tokens,
  tokensOf,
  toolResult,
  toolStart,
  unreadable,
  usageOf
} from "./AgentOutput.ts"

const Session = Schema.Struct({ id: Schema.NonEmptyString })

const Piece = Schema.Struct({
  assistantMessageEvent: Schema.Struct({ type: Schema.Literal("text_delta"), delta: Schema.String })
})

const MessageEnd = Schema.Struct({
  message: Schema.Struct({
    role: Schema.Literal("assistant"),
    content: Schema.Array(Schema.Unknown),
    stopReason: Schema.String,
    errorMessage: Schema.optionalKey(Schema.String),
    usage: Schema.optionalKey(Schema.Unknown)
  })
})

const decodeText = Schema.decodeUnknownOption(
  Schema.Struct({ type: Schema.Literal("text"), text: Schema.String })
)

const ToolStart = Schema.Struct({
  toolCallId: Schema.String,
  toolName: Schema.String,
  args: Schema.optionalKey(Schema.Unknown)
})

const ToolEnd = Schema.Struct({
  toolCallId: Schema.String,
  result: Schema.optionalKey(Schema.Unknown),
  isError: Schema.optionalKey(Schema.Boolean)
})

const Retry = Schema.Struct({ attempt: Count, maxAttempts: Count })

const AgentEnd = Schema.Struct({ willRetry: Schema.optionalKey(Schema.Boolean) })

interface State {
  readonly sessionId: string | undefined
  /** Deltas of the current message. */
  readonly inPieces: string
  /** The last complete message. */
  readonly last: { readonly text: string; readonly reason: string; readonly error: string } | undefined
  readonly isOver: boolean
  readonly tokens: Tokens
}

const initial: State = {
  sessionId: undefined,
  inPieces: "",
  last: undefined,
  isOver: false,
  tokens: noTokens
}

const textOf = (content: ReadonlyArray<unknown>): string =>
  content
    .flatMap((block) => Option.toArray(decodeText(block)))
    .map(({ text }) => text)
    .join("")

const ofPiece = (state: State, { assistantMessageEvent: { delta } }: typeof Piece.Type): Step<State> =>
  delta === ""
    ? [[], state]
    : [[{ type: "text_delta", delta }], { ...state, inPieces: state.inPieces + delta }]

const ofMessage = (state: State, { message }: typeof MessageEnd.Type): Step<State> => {
  const text = textOf(message.content)
  return [
    // Without streaming, the text arrives only here.
    state.inPieces === "" && text !== "" ? [{ type: "text_delta", delta: text }] : [],
    {
      ...state,
      inPieces: "",
      last: { text, reason: message.stopReason, error: message.errorMessage ?? "" },
      isOver: false,
      tokens: plus(state.tokens, tokensOf(message.usage))
    }
  ]
}

const line = byType<State>({
  session: fitting(Session, (state, { id }) => [[], { ...state, sessionId: state.sessionId ?? id }]),
  message_update: fitting(Piece, ofPiece),
  message_end: fitting(MessageEnd, ofMessage),
  tool_execution_start: fitting(ToolStart, (state, { args = {}, toolCallId, toolName }) => [
    [toolStart(toolCallId, toolName, args)],
    state
  ]),
  tool_execution_end: fitting(ToolEnd, (state, { isError, result = "", toolCallId }) => [
    [toolResult(toolCallId, result, isError === true)],
    state
  ]),
  auto_retry_start: fitting(Retry, (state, { attempt, maxAttempts }) => [
    [{ type: "status", phase: "model_retry", label: `${attempt} of ${maxAttempts}` }],
    state
  ]),
  agent_end: fitting(AgentEnd, (state, { willRetry }) => [[], { ...state, isOver: willRetry !== true }])
})

const end = ({ inPieces, isOver, last, sessionId, tokens }: State): AgentOutcome => {
  const said = inPieces || (last?.text ?? "")
  if (last === undefined || !isOver) return unreadable("it ended before its turn was complete", said)
  if (last.reason !== "stop") {
    return failed(last.reason || "error", last.error || "its last message is incomplete", said)
  }
  return last.text === ""
    ? unreadable("its last message has no text")
    : answered(last.text, { sessionId, usage: usageOf(tokens) })
}

const models = (task: AgentTask) => ({ providers: { [provider]: chatProvider(task) } })

/** Variables of every run. */
const constants: Readonly<Record<string, string>> = {
  // The directory of models.json.
  PI_CODING_AGENT_DIR: "/cogni",
  PI_OFFLINE: "1",
  PI_SKIP_VERSION_CHECK: "1",
  PI_TELEMETRY: "0"
}

export const pi: Agent = {
  id: AgentId.make("pi"),
  name: "pi",
  description:
    "A small coding agent with four tools: reads and changes files, runs commands, answers as it writes.",
  image: "pi",
  modelApi: "chat-completions",
  capabilities: { ...codingCapabilities("delta"), subagents: "none" },
  argv: ({ model, session }) =>
    withSession(
      session,
      withPrompt([
        "pi",
        "--print",
        "--mode",
        "json",
        "--provider",
        provider,
        "--model",
        model,
        // A placeholder: without one, pi looks for a key in a file, which it would have to lock.
        "--api-key",
        "none",
        ...(session === undefined
          ? ["--no-session"]
          : ["--session-dir", session.directory, "--session-id", session.id]),
        // Extensions in a workspace are programs that pi would run in its own process.
        "--no-approve",
        "--no-extensions",
        "--no-prompt-templates",
        "--no-skills",
        "--no-themes"
      ])
    ),
  env: () => constants,
  // Modules keep what they read while they are loaded. A run with other variables starts as without a preload.
  preload: [
    "/usr/bin/env",
    ...Object.entries(constants).map(([name, value]) => `${name}=${value}`),
    "node",
    "/usr/local/lib/pi/preload.mjs"
  ],
  limits: {},
  inputs: (task) => [
    { name: "models.json", content: JSON.stringify(models(task), undefined, 2) },
    promptInput(task)
  ],
  reader: jsonLines({ initial, line, end })
}
