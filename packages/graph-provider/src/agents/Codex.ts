/**
 * OpenAI's Codex, without a terminal: one prompt, its tools, one turn.
 *
 * It prints a JSON object a line: items as they begin and end, and how the turn ended. Messages come whole. The last
 * one before `turn.completed` is the answer; before `turn.failed`, or before nothing at all, it is none. Should there
 * be several turns, the last counts, but a failure of any of them stands. Two threads were not written by one agent,
 * and are unreadable. An `error` line by itself is news of a retry, and ends nothing.
 */
import { Option, Schema } from "effect"
import {
  type Agent,
  AgentId,
  type AgentTask,
  codingCapabilities,
  promptInput,
  provider,
  withPrompt
} from "./Agent.ts"
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

/** What every item has; the rest depends on its type, of which new ones keep coming. */
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

/** A model API's own error, which is handed on as it came. */
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
  /** Calls that began and have not ended: the last so many. */
  readonly open: ReadonlyArray<string>
  readonly ended: AgentOutcome | undefined
}

const initial: State = { threadId: undefined, said: undefined, open: [], ended: undefined }

/** More than any agent does at one time, and few enough to look through for every line. */
const openMax = 100

/** What calls no tool. */
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
    : ending(state, unreadable("it wrote of two threads", state.said))

const ofCompleted = (state: State, value: unknown): Step<State> => {
  if (state.said === undefined) return ending(state, unreadable("it ended its turn without a word"))
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

/** As `-c` takes it: a path, and TOML. */
const settings: ReadonlyArray<string> = [
  `model_provider="${provider}"`,
  `model_providers.${provider}={name="${provider}",base_url="http://localhost:8080/v1",env_key="OPENAI_API_KEY",wire_api="responses"}`,
  "analytics.enabled=false",
  "check_for_update_on_startup=false",
  "feedback.enabled=false",
  'history.persistence="none"',
  'web_search="disabled"'
]

/** What would speak to its maker's servers, wait for somebody, or look for programs that are not there. */
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

const argv = ({ model }: AgentTask): ReturnType<Agent["argv"]> =>
  withPrompt([
    "codex",
    "exec",
    "--json",
    "--color",
    "never",
    "--ephemeral",
    "--skip-git-repo-check",
    // The sandbox is what holds it; nobody is there to be asked.
    "--dangerously-bypass-approvals-and-sandbox",
    "--model",
    model,
    ...settings.flatMap((setting) => ["-c", setting]),
    ...featuresOff.flatMap((feature) => ["--disable", feature]),
    "-"
  ])

export const codex: Agent = {
  id: AgentId.make("codex"),
  name: "Codex",
  description: "OpenAI's coding agent: reads and changes files by commands and patches, and runs them.",
  image: "codex",
  modelApi: "responses",
  capabilities: codingCapabilities("message"),
  argv,
  env: () => ({}),
  limits: {},
  inputs: (task) => [promptInput(task)],
  reader: jsonLines({ initial, line, end })
}
