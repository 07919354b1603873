/**
 * Anthropic's Claude Code without a terminal: one prompt, its tools, one result.
 *
 * It prints one JSON object per line: text in deltas, tool calls and results as complete blocks, and a `result` at the
 * end. The `result` decides: with `is_error` it is not an answer, whatever its `subtype`. There may be several, because
 * completed background work opens another turn. Then the last result counts, but an error in any of them is final.
 * Results of two sessions did not come from one agent, and are unreadable.
 */
import * as SandboxPlace from "@cogni/sandbox-core/SandboxPlace"
import { Option, Schema } from "effect"
import { type Agent, AgentId, promptInput, withPrompt, withSession } from "./Agent.ts"
import { type AgentTask } from "./AgentFields.ts"
import { codingCapabilities } from "./AgentParts.ts"
import {
  type AgentEvent,
  type AgentOutcome,
  answered,
  byType,
  Count,
  failed,
  fitting,
  jsonLines,
  noTokens,
  plus,
  standing,
  type Step,
  type Tokens,
  toolResult,
  toolStart,
  unreadable
} from "./AgentOutput.ts"

/** On lines of a subagent: ID of the call that started it. */
const Parent = Schema.optionalKey(Schema.NullOr(Schema.String))

const Piece = Schema.Struct({
  parent_tool_use_id: Parent,
  event: Schema.Union([
    Schema.Struct({
      type: Schema.Literal("content_block_delta"),
      delta: Schema.Struct({ type: Schema.Literal("text_delta"), text: Schema.String })
    }),
    Schema.Struct({ type: Schema.Literal("message_start"), message: Schema.Struct({ id: Schema.String }) })
  ])
})

const Message = Schema.Struct({
  parent_tool_use_id: Parent,
  /** Claude Code wrote this message itself, in place of a model that did not answer. */
  is_api_error_message: Schema.optionalKey(Schema.Boolean),
  message: Schema.Struct({ id: Schema.optionalKey(Schema.String), content: Schema.Array(Schema.Unknown) })
})

const Block = Schema.Union([
  Schema.Struct({ type: Schema.Literal("text"), text: Schema.String }),
  Schema.Struct({
    type: Schema.Literal("tool_use"),
    id: Schema.String,
    name: Schema.String,
    input: Schema.Unknown
  }),
  Schema.Struct({
    type: Schema.Literal("tool_result"),
    tool_use_id: Schema.String,
    content: Schema.optionalKey(Schema.Unknown),
    is_error: Schema.optionalKey(Schema.Boolean)
  })
])

const Retry = Schema.Struct({
  subtype: Schema.Literal("api_retry"),
  attempt: Count,
  max_retries: Count,
  error: Schema.optionalKey(Schema.NullOr(Schema.String))
})

const Init = Schema.Struct({ subtype: Schema.Literal("init"), session_id: Schema.String })

const Ended = Schema.Struct({
  subtype: Schema.String,
  is_error: Schema.Boolean,
  session_id: Schema.String,
  result: Schema.optionalKey(Schema.NullOr(Schema.String)),
  errors: Schema.optionalKey(Schema.Array(Schema.Unknown)),
  api_error_type: Schema.optionalKey(Schema.NullOr(Schema.String)),
  terminal_reason: Schema.optionalKey(Schema.NullOr(Schema.String)),
  modelUsage: Schema.optionalKey(Schema.Unknown)
})

/**
 * Tokens of the whole session, by model. Input tokens exclude tokens that were read from or written to a cache. The
 * `usage` next to it covers only one turn, without subagents.
 */
const ModelUsage = Schema.Record(
  Schema.String,
  Schema.Struct({
    inputTokens: Count,
    outputTokens: Count,
    cacheReadInputTokens: Schema.optionalKey(Count),
    cacheCreationInputTokens: Schema.optionalKey(Count)
  })
)

const decode = {
  block: Schema.decodeUnknownOption(Block),
  retry: Schema.decodeUnknownOption(Retry),
  init: Schema.decodeUnknownOption(Init),
  ended: Schema.decodeUnknownOption(Ended),
  usage: Schema.decodeUnknownOption(ModelUsage)
}

interface State {
  /** ID of the message that arrived in deltas. Its complete copy is not repeated. */
  readonly inPieces: string | undefined
  /** Text of the current message. */
  readonly said: string
  readonly sessionId: string | undefined
  readonly ended: AgentOutcome | undefined
}

const initial: State = { inPieces: undefined, said: "", sessionId: undefined, ended: undefined }

const ofPiece = (state: State, piece: typeof Piece.Type): Step<State> => {
  if (isOfSubagent(piece)) return [[], state]
  const { event } = piece
  if (event.type === "message_start") return [[], { ...state, inPieces: event.message.id, said: "" }]
  const { text } = event.delta
  return [[{ type: "text_delta", delta: text }], { ...state, said: state.said + text }]
}

const ofMessage = (state: State, written: typeof Message.Type): Step<State> => {
  const { is_api_error_message: isApiError, message } = written
  const isText = !isOfSubagent(written) && isApiError !== true && message.id !== state.inPieces
  const events: Array<AgentEvent> = []
  let { said } = state
  for (const one of message.content) {
    const block = Option.getOrUndefined(decode.block(one))
    switch (block?.type) {
      case "text":
        if (!isText) break
        events.push({ type: "text_delta", delta: block.text })
        said = block.text
        break
      case "tool_use":
        events.push(toolStart(block.id, block.name, block.input))
        break
      case "tool_result":
        events.push(toolResult(block.tool_use_id, block.content ?? "", block.is_error === true))
        break
    }
  }
  return [events, { ...state, said }]
}

const ofSystem = (state: State, value: unknown): Step<State> => {
  const init = decode.init(value)
  if (Option.isSome(init)) return [[], { ...state, sessionId: state.sessionId ?? init.value.session_id }]
  const retry = decode.retry(value)
  if (Option.isNone(retry)) return [[], state]
  const { attempt, error, max_retries: attemptsMax } = retry.value
  const why = error === undefined || error === null ? "" : `: ${error}`
  return [[{ type: "status", phase: "model_retry", label: `${attempt} of ${attemptsMax}${why}` }], state]
}

const ofEnd = (state: State, value: unknown): Step<State> => {
  const decoded = decode.ended(value)
  if (Option.isNone(decoded)) {
    return [[], { ...state, ended: unreadable("its result has an unknown format", state.said) }]
  }
  const end = decoded.value
  const sessionId = state.sessionId ?? end.session_id
  if (end.session_id !== sessionId) {
    const problem = unreadable("it wrote results of two sessions", state.said)
    return [[], { ...state, ended: problem }]
  }
  return [[], { ...state, sessionId, ended: standing(state.ended, outcome(end, state.said)) }]
}

const outcome = (end: typeof Ended.Type, said: string): AgentOutcome => {
  if (end.is_error || end.subtype !== "success") {
    const code =
      end.subtype === "success" ? (end.api_error_type ?? end.terminal_reason ?? "error") : end.subtype
    const errors = (end.errors ?? []).filter((error) => typeof error === "string").join("; ")
    const detail = end.result || errors || "it did not say why"
    return failed(code, detail, said)
  }
  if (typeof end.result !== "string") return unreadable("its result has no text", said)
  return answered(end.result, { sessionId: end.session_id, usage: tokensOf(end.modelUsage) })
}

/** Returns `undefined` if no model is listed: zero would be a count. */
const tokensOf = (modelUsage: unknown): Tokens | undefined => {
  const models = Object.values(Option.getOrElse(decode.usage(modelUsage), () => ({})))
  if (models.length === 0) return undefined
  return models
    .map(({ cacheCreationInputTokens = 0, cacheReadInputTokens = 0, inputTokens, outputTokens }) => ({
      inputTokens: inputTokens + cacheReadInputTokens + cacheCreationInputTokens,
      outputTokens
    }))
    .reduce(plus, noTokens)
}

const isOfSubagent = ({ parent_tool_use_id: parent }: { readonly parent_tool_use_id?: string | null }) =>
  parent !== undefined && parent !== null

const line = byType<State>({
  stream_event: fitting(Piece, ofPiece),
  assistant: fitting(Message, ofMessage),
  user: fitting(Message, ofMessage),
  system: ofSystem,
  result: ofEnd
})

const end = ({ ended, said }: State): AgentOutcome => ended ?? unreadable("it ended without a result", said)

/** Variables for all roles of a model. The gateway would reject any other model. */
const modelRoles = [
  "ANTHROPIC_MODEL",
  "ANTHROPIC_SMALL_FAST_MODEL",
  "ANTHROPIC_DEFAULT_FABLE_MODEL",
  "ANTHROPIC_DEFAULT_HAIKU_MODEL",
  "ANTHROPIC_DEFAULT_OPUS_MODEL",
  "ANTHROPIC_DEFAULT_SONNET_MODEL",
  "CLAUDE_CODE_SUBAGENT_MODEL"
] as const

/** Tools that need a network, or a user who comes back later. */
const toolsLeftOut = ["CronCreate", "CronDelete", "CronList", "ScheduleWakeup", "WebFetch", "WebSearch"]

const constants: Readonly<Record<string, string>> = {
  // It would check the system's certificates too, which takes 20 ms. No host with a certificate can be reached.
  CLAUDE_CODE_CERT_STORE: "bundled",
  CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
  CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL: "1",
  DISABLE_AUTOUPDATER: "1",
  DISABLE_ERROR_REPORTING: "1",
  DISABLE_TELEMETRY: "1"
}

const env = ({ model, session }: AgentTask): Record<string, string> => ({
  ...Object.fromEntries(modelRoles.map((name) => [name, model])),
  ...(session === undefined ? {} : { CLAUDE_CONFIG_DIR: session.directory }),
  ...constants
})

/** A module reads the address of the model while it is loaded. It is the same for each run. */
const preload: NonNullable<Agent["preload"]> = [
  "/usr/bin/env",
  ...Object.entries({ ...constants, ANTHROPIC_BASE_URL: SandboxPlace.baseUrl }).map(
    ([name, value]) => `${name}=${value}`
  ),
  "BUN_OPTIONS=--preload=/usr/local/lib/claude-code/preload.mjs",
  "claude"
]

const sessionOf = (session: AgentTask["session"]): ReadonlyArray<string> =>
  session === undefined
    ? ["--no-session-persistence"]
    : [session.isNew ? "--session-id" : "--resume", session.id]

/**
 * Names in the directory of a session that configure it, without `skills`, which personalities replace. Its transcripts
 * and `.claude.json`, its state, stay.
 */
const configurationNames = [
  "CLAUDE.md",
  "agents",
  "commands",
  "hooks",
  "output-styles",
  "plugins",
  "rules",
  "settings.json",
  "settings.local.json"
]

const argv = ({ model, session, settings = {} }: AgentTask): ReturnType<Agent["argv"]> =>
  withSession(
    session,
    withPrompt([
      "claude",
      "--print",
      "--model",
      model,
      "--output-format",
      "stream-json",
      "--include-partial-messages",
      "--verbose",
      ...sessionOf(session),
      ...(settings.effort === undefined ? [] : ["--effort", settings.effort]),
      ...(settings.subagentsPath === undefined ? [] : ["--agents", settings.subagentsPath]),
      // The sandbox isolates it, and there is no user to ask.
      "--dangerously-skip-permissions",
      // MCP servers of a workspace are programs to start, or addresses that it cannot reach.
      "--strict-mcp-config",
      "--disallowed-tools",
      [...toolsLeftOut, ...(settings.toolsDenied ?? [])].join(",")
    ]),
    configurationNames
  )

export const claudeCode: Agent = {
  id: AgentId.make("claude-code"),
  name: "Claude Code",
  description: "Anthropic's coding agent: reads and changes files, runs commands, and answers as it writes.",
  image: "claude-code",
  modelApi: "messages",
  capabilities: { ...codingCapabilities("delta"), subagents: "marked" },
  argv,
  env,
  preload,
  limits: { memoryBytesMax: 2 * 1024 * 1024 * 1024 },
  inputs: (task) => [promptInput(task)],
  reader: jsonLines({ initial, line, end })
}
