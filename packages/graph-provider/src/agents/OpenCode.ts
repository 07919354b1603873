/**
 * opencode without a terminal: one prompt, its tools, complete messages.
 *
 * It prints one JSON object per line: a message when it is complete, a tool call when it has its result, so that both
 * events of a call arrive at once. The answer is the text of the last message. `step_finish` marks the last message:
 * before any other, its reason is that tools were called. Lines of another session belong to a subagent, whose result
 * is that of the tool call that started it.
 */
import { Option, Schema } from "effect"
import { type Agent, AgentId, promptInput, withPrompt, withSession } from "./Agent.ts"
import { type AgentTask } from "./AgentFields.ts"
import { codingCapabilities, provider } from "./AgentParts.ts"
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
  toolResult,
  toolStart,
  unreadable,
  usageOf
} from "./AgentOutput.ts"

const Text = Schema.Struct({
  sessionID: Schema.String,
  part: Schema.Struct({ messageID: Schema.String, text: Schema.String })
})

const ToolUse = Schema.Struct({
  sessionID: Schema.String,
  part: Schema.Struct({
    tool: Schema.String,
    callID: Schema.String,
    state: Schema.Struct({
      status: Schema.Literals(["completed", "error"]),
      input: Schema.optionalKey(Schema.Unknown),
      output: Schema.optionalKey(Schema.Unknown),
      error: Schema.optionalKey(Schema.Unknown)
    })
  })
})

const StepFinish = Schema.Struct({
  sessionID: Schema.String,
  part: Schema.Struct({
    messageID: Schema.String,
    reason: Schema.String,
    tokens: Schema.optionalKey(Schema.Unknown)
  })
})

const decodeFailed = Schema.decodeUnknownOption(
  Schema.Struct({
    error: Schema.Struct({
      name: Schema.NonEmptyString,
      data: Schema.optionalKey(Schema.Struct({ message: Schema.optionalKey(Schema.String) }))
    })
  })
)

/** Tokens of one step. `input` excludes tokens read from or written to a cache; `output` excludes reasoning. */
const decodeTokens = Schema.decodeUnknownOption(
  Schema.Struct({
    input: Count,
    output: Count,
    reasoning: Schema.optionalKey(Count),
    cache: Schema.optionalKey(
      Schema.Struct({ read: Schema.optionalKey(Count), write: Schema.optionalKey(Count) })
    )
  })
)

interface State {
  readonly sessionId: string | undefined
  /** ID of the last message with text; `said` is its text. */
  readonly messageId: string | undefined
  readonly said: string
  /** The last step that ended. */
  readonly last: { readonly messageId: string; readonly reason: string } | undefined
  readonly tokens: Tokens
  readonly failure: { readonly code: string; readonly detail: string } | undefined
}

const initial: State = {
  sessionId: undefined,
  messageId: undefined,
  said: "",
  last: undefined,
  tokens: noTokens,
  failure: undefined
}

const ofText = (state: State, { part: { messageID: messageId, text } }: typeof Text.Type): Step<State> => [
  text === "" ? [] : [{ type: "text_delta", delta: text }],
  { ...state, messageId, said: messageId === state.messageId ? state.said + text : text }
]

const ofToolUse = (
  state: State,
  { part: { callID: toolCallId, state: call, tool } }: typeof ToolUse.Type
): Step<State> => {
  const isError = call.status === "error"
  return [
    [
      toolStart(toolCallId, tool, call.input ?? {}),
      toolResult(toolCallId, (isError ? call.error : call.output) ?? "", isError)
    ],
    state
  ]
}

const tokensOf = (written: unknown): Tokens =>
  Option.match(decodeTokens(written), {
    onNone: () => noTokens,
    onSome: ({ cache, input, output, reasoning = 0 }) => ({
      inputTokens: input + (cache?.read ?? 0) + (cache?.write ?? 0),
      outputTokens: output + reasoning
    })
  })

const ofStep = (
  state: State,
  { part: { messageID: messageId, reason, tokens } }: typeof StepFinish.Type
): Step<State> => [
  [],
  { ...state, last: { messageId, reason }, tokens: plus(state.tokens, tokensOf(tokens)) }
]

const ofFailed = (state: State, written: unknown): Step<State> => {
  const error = Option.getOrUndefined(decodeFailed(written))?.error
  const failure = { code: error?.name ?? "error", detail: error?.data?.message || "it did not say why" }
  return [[], { ...state, failure: state.failure ?? failure }]
}

/** Reads only lines of the first session. */
const ofSession = <A extends { readonly sessionID: string }>(
  schema: Schema.ConstraintDecoder<A>,
  step: (state: State, read: A) => Step<State>
) =>
  fitting<State, A>(schema, (state, read) => {
    const sessionId = state.sessionId ?? read.sessionID
    return read.sessionID === sessionId ? step({ ...state, sessionId }, read) : [[], state]
  })

const line = byType<State>({
  text: ofSession(Text, ofText),
  tool_use: ofSession(ToolUse, ofToolUse),
  step_finish: ofSession(StepFinish, ofStep),
  error: ofFailed
})

const end = (state: State): AgentOutcome => {
  const { failure, last, messageId, said, sessionId, tokens } = state
  if (failure !== undefined) return failed(failure.code, failure.detail, said)
  if (last === undefined || last.reason === "tool-calls") {
    return unreadable("it ended before its last message was complete", said)
  }
  if (last.reason !== "stop") {
    const detail = "its last message is incomplete"
    return failed(last.reason || "error", detail, said)
  }
  if (messageId !== last.messageId || said === "") {
    return unreadable("its last message has no text", said)
  }
  return answered(said, { sessionId, usage: usageOf(tokens) })
}

const configuration = ({ model }: AgentTask) => ({
  enabled_providers: [provider],
  model: `${provider}/${model}`,
  // For titles and summaries. The gateway would reject any other model.
  small_model: `${provider}/${model}`,
  provider: {
    [provider]: {
      npm: "@ai-sdk/openai-compatible",
      name: provider,
      options: { baseURL: "http://localhost:8080/v1", apiKey: "none" },
      models: { [model]: { name: model } }
    }
  },
  // The sandbox isolates it, and there is no user to ask. Tools that need a network are denied.
  permission: { "*": "allow", codesearch: "deny", question: "deny", webfetch: "deny", websearch: "deny" },
  autoupdate: false,
  formatter: false,
  lsp: false,
  share: "disabled",
  // Snapshots are copies of the workspace, in memory.
  snapshot: false
})

/** Variables of every run. A waiting sandbox loads opencode with them. */
const environment = {
  OPENCODE_CONFIG: "/cogni/opencode.json",
  OPENCODE_DISABLE_AUTOUPDATE: "1",
  OPENCODE_DISABLE_DEFAULT_PLUGINS: "1",
  OPENCODE_DISABLE_LSP_DOWNLOAD: "1",
  OPENCODE_DISABLE_MODELS_FETCH: "1",
  OPENCODE_DISABLE_SHARE: "1",
  // Only a window would show what others change in the workspace.
  OPENCODE_EXPERIMENTAL_DISABLE_FILEWATCHER: "1",
  // Without it, opencode reads its built-in list of all providers, for a third of its start. The only provider is in
  // the configuration.
  OPENCODE_MODELS_PATH: "/usr/local/lib/cogni/opencode-models.json"
}

/** Without a session, no later run reads the database. */
const database = { OPENCODE_DB: ":memory:" }

export const openCode: Agent = {
  id: AgentId.make("opencode"),
  name: "opencode",
  description:
    "An open coding agent: reads and changes files, runs commands, and answers message by message.",
  image: "opencode",
  modelApi: "chat-completions",
  capabilities: { ...codingCapabilities("message"), subagents: "marked" },
  argv: ({ model, runId, session }) =>
    withSession(
      session,
      withPrompt([
        "opencode",
        "run",
        "--format",
        "json",
        "--model",
        `${provider}/${model}`,
        // The directory has no other session. Without a title, opencode asks its model for one.
        ...(session === undefined || session.isNew ? ["--title", runId] : ["--continue"])
      ])
    ),
  env: ({ session }) => ({
    ...environment,
    ...(session === undefined ? database : { XDG_DATA_HOME: session.directory })
  }),
  preload: [
    "/usr/bin/env",
    ...Object.entries({ ...environment, ...database }).map(([name, value]) => `${name}=${value}`),
    "BUN_INSPECT_PRELOAD=/usr/local/lib/cogni/opencode-preload.mjs",
    "opencode"
  ],
  limits: { memoryBytesMax: 2 * 1024 * 1024 * 1024 },
  inputs: (task) => [
    { name: "opencode.json", content: JSON.stringify(configuration(task), undefined, 2) },
    promptInput(task)
  ],
  reader: jsonLines({ initial, line, end })
}
