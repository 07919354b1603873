/**
 * OpenAI's Codex without a terminal: one prompt, its tools, one turn.
 *
 * It prints one JSON object per line: each item when it starts and ends, and the end of the turn. Messages arrive
 * complete. The last message before `turn.completed` is the answer; before `turn.failed`, or without an end, there is
 * no answer. With several turns, the last one counts, but a failure in any of them is final. Output with two thread IDs
 * did not come from one agent, and is unreadable. An `error` line by itself reports a retry, and ends nothing.
 */
import { Option, Schema } from "effect"
import { type Agent, AgentId, promptInput, withPrompt, withSession } from "./Agent.ts"
import { type AgentTask } from "./AgentFields.ts"
import { codingCapabilities, provider } from "./AgentParts.ts"
import {
  type AgentEvent,
  type AgentOutcome,
  answered,
  byType,
  Count,
  excerpt,
  failed,
  fitting,
  jsonLines,
  standing,
  type Step,
  toolResult,
  toolStart,
  unreadable
} from "./AgentOutput.ts"

const Thread = Schema.Struct({ thread_id: Schema.String })

/** Fields that all items share. The others depend on the type, and new types keep appearing. */
const Item = Schema.Struct({
  item: Schema.StructWithRest(Schema.Struct({ id: Schema.String, type: Schema.String }), [
    Schema.Record(Schema.String, Schema.Unknown)
  ])
})

type Item = (typeof Item.Type)["item"]

const Trouble = Schema.Struct({ message: Schema.String })

const Completed = Schema.Struct({
  usage: Schema.optionalKey(Schema.NullOr(Schema.Struct({ input_tokens: Count, output_tokens: Count })))
})

const Failed = Schema.Struct({ error: Trouble })

/** The model API's own error, passed on unchanged. */
const ApiError = Schema.fromJsonString(
  Schema.Struct({
    error: Schema.Struct({
      message: Schema.String,
      code: Schema.optionalKey(Schema.NullOr(Schema.String)),
      type: Schema.optionalKey(Schema.NullOr(Schema.String))
    })
  })
)

const decode = {
  completed: Schema.decodeUnknownOption(Completed),
  failed: Schema.decodeUnknownOption(Failed),
  apiError: Schema.decodeUnknownOption(ApiError)
}

interface State {
  readonly threadId: string | undefined
  /** The last message of this turn. */
  readonly said: string | undefined
  /** IDs of calls that started and have not ended: at most the last {@link openMax}. */
  readonly open: ReadonlyArray<string>
  readonly ended: AgentOutcome | undefined
}

const initial: State = { threadId: undefined, said: undefined, open: [], ended: undefined }

/** More calls than any agent makes at one time, and few enough to search for each line. */
const openMax = 100

/** Items that are not tool calls. */
const silent: ReadonlySet<string> = new Set(["reasoning", "todo_list"])

const start = (item: Item): AgentEvent => {
  const { id, type, status: _status, aggregated_output: _output, exit_code: _code, ...rest } = item
  const { arguments: args, error: _error, result: _result, server, tool, ...plain } = rest
  return typeof server === "string" && typeof tool === "string"
    ? toolStart(id, `${server}.${tool}`, args ?? {})
    : toolStart(id, type, plain)
}

const finish = (item: Item): AgentEvent => {
  const { aggregated_output: output, error, exit_code: exitCode, id, result, status } = item
  const isError =
    (typeof exitCode === "number" && exitCode !== 0) || (status !== undefined && status !== "completed")
  return toolResult(id, output ?? result ?? error ?? status ?? "", isError)
}

const ofItem = (state: State, item: Item, isDone: boolean): Step<State> => {
  const { id, type } = item
  if (silent.has(type)) return [[], state]
  if (type === "agent_message") {
    const { text } = item
    return isDone && typeof text === "string"
      ? [[{ type: "text_delta", delta: text }], { ...state, said: text }]
      : [[], state]
  }
  if (type === "error") {
    const { message } = item
    return [typeof message === "string" ? [status("warning", message)] : [], state]
  }
  const isOpen = state.open.includes(id)
  const events = [...(isOpen ? [] : [start(item)]), ...(isDone ? [finish(item)] : [])]
  const others = isOpen ? state.open.filter((one) => one !== id) : state.open
  return [events, { ...state, open: isDone ? others : [...others.slice(1 - openMax), id] }]
}

const status = (phase: string, label: string): AgentEvent => ({
  type: "status",
  phase,
  label: excerpt(label)
})

const ofThread = (state: State, { thread_id: threadId }: typeof Thread.Type): Step<State> =>
  state.threadId === undefined || state.threadId === threadId
    ? [[], { ...state, threadId }]
    : ending(state, unreadable("it reported two threads", state.said))

const ofCompleted = (state: State, value: unknown): Step<State> => {
  if (state.said === undefined) return ending(state, unreadable("it ended its turn without a message"))
  const usage = Option.getOrUndefined(decode.completed(value))?.usage ?? undefined
  return ending(
    state,
    answered(state.said, {
      sessionId: state.threadId,
      usage: usage && { inputTokens: usage.input_tokens, outputTokens: usage.output_tokens }
    })
  )
}

const ofFailed = (state: State, value: unknown): Step<State> => {
  const said = Option.match(decode.failed(value), {
    onNone: () => "it did not say why",
    onSome: ({ error }) => error.message
  })
  const { code, detail } = Option.match(decode.apiError(said), {
    onNone: () => ({ code: "turn_failed", detail: said }),
    onSome: ({ error }) => ({ code: error.code ?? error.type ?? "turn_failed", detail: error.message })
  })
  return ending(state, failed(code, detail, state.said))
}

const ending = (state: State, ended: AgentOutcome): Step<State> => [
  [],
  { ...state, ended: standing(state.ended, ended) }
]

const ofUnfinished = fitting<State, typeof Item.Type>(Item, (state, { item }) => ofItem(state, item, false))

const line = byType<State>({
  "thread.started": fitting(Thread, ofThread),
  "turn.started": (state) => [[], { ...state, said: undefined }],
  "item.started": ofUnfinished,
  "item.updated": ofUnfinished,
  "item.completed": fitting(Item, (state, { item }) => ofItem(state, item, true)),
  "turn.completed": ofCompleted,
  "turn.failed": ofFailed,
  error: fitting(Trouble, (state, { message }) => [[status("model_retry", message)], state])
})

const end = ({ ended, said }: State): AgentOutcome =>
  ended ?? unreadable("it ended in the middle of its turn", said)

/** Arguments of `-c`: a path, and TOML. */
const configuration: ReadonlyArray<string> = [
  `model_provider="${provider}"`,
  `model_providers.${provider}={name="${provider}",base_url="http://localhost:8080/v1",env_key="OPENAI_API_KEY",wire_api="responses"}`,
  "analytics.enabled=false",
  "check_for_update_on_startup=false",
  "feedback.enabled=false",
  'history.persistence="none"',
  'web_search="disabled"'
]

/** Features that contact the vendor's servers, wait for a user, or need programs that do not exist in the image. */
const featuresOff: ReadonlyArray<string> = [
  "apps",
  "browser_use",
  "computer_use",
  "goals",
  "image_generation",
  "in_app_browser",
  "multi_agent",
  "plugins",
  "remote_plugin",
  "skill_mcp_dependency_install",
  "tool_suggest"
]

/** With a session of its own directory, the last one there is the one to continue. */
const sessionOf = (session: AgentTask["session"]): ReadonlyArray<string> =>
  session === undefined ? ["--ephemeral"] : session.isNew ? [] : ["resume", "--last"]

/** Names in the directory of a session that configure it, without `skills`, which personalities replace. */
const configurationNames = [
  "AGENTS.md",
  "AGENTS.override.md",
  "agents",
  "config.toml",
  "hooks.json",
  "instructions.md",
  "memories",
  "plugins",
  "prompts",
  "rules"
]

const argv = ({ model, session, settings: { effort } = {} }: AgentTask): ReturnType<Agent["argv"]> =>
  withSession(
    session,
    withPrompt([
      "codex",
      "exec",
      "--color",
      "never",
      ...sessionOf(session),
      "--json",
      "--skip-git-repo-check",
      // The sandbox isolates it, and there is no user to ask.
      "--dangerously-bypass-approvals-and-sandbox",
      "--model",
      model,
      ...configuration.flatMap((setting) => ["-c", setting]),
      ...(effort === undefined ? [] : ["-c", `model_reasoning_effort=${JSON.stringify(effort)}`]),
      ...featuresOff.flatMap((feature) => ["--disable", feature]),
      "-"
    ]),
    configurationNames
  )

export const codex: Agent = {
  id: AgentId.make("codex"),
  name: "Codex",
  description: "OpenAI's coding agent: reads and changes files with commands and patches, and runs commands.",
  image: "codex",
  modelApi: "responses",
  capabilities: { ...codingCapabilities("message"), subagents: "none" },
  argv,
  env: ({ session }): Record<string, string> =>
    session === undefined ? {} : { CODEX_HOME: session.directory },
  limits: {},
  inputs: (task) => [promptInput(task)],
  reader: jsonLines({ initial, line, end })
}
