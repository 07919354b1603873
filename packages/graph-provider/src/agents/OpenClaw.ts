/**
 * OpenClaw, one turn of it, without its gateway: one prompt, its tools, one envelope at the end.
 *
 * What else OpenClaw is (a router of models, a schedule, a sandbox, a dashboard) is the host's business here, and off.
 * Its configuration follows from the task alone, so that no run can be told from another by what it found in its home.
 *
 * The envelope is JSON over many lines, and logs may stand around it. OpenClaw ends with 0 as well where its time was
 * over in the middle of a tool: then the envelope says so, and there is no answer.
 */
import { Option, Schema } from "effect"
import {
  type Agent,
  AgentId,
  type AgentTask,
  chatProvider,
  codingCapabilities,
  promptInput,
  promptPath,
  provider
} from "./Agent.ts"
import {
  type AgentOutcome,
  answered,
  excerpt,
  failed,
  tokensOf,
  unreadable,
  usageOf,
  whole
} from "./AgentOutput.ts"

/** A character that a task can ask for. */
export interface OpenClawPersonality {
  /** What it calls itself. */
  readonly name?: string
  /** What it is told before anything else is said. */
  readonly instructions?: string
  /** Of {@link tools}, those that it has not. */
  readonly toolsDenied?: ReadonlyArray<string>
}

/** The one that a task gets which asks for none. */
const defaultPersonality = "main"

/** What a run may use: files and commands of its own sandbox. */
export const tools: ReadonlyArray<string> = ["read", "write", "edit", "apply_patch", "ls", "exec", "process"]

const changing = ["write", "edit", "apply_patch"]

type Personalities = Readonly<Record<string, OpenClawPersonality>>

export const personalities: Personalities = {
  [defaultPersonality]: {},
  coder: {
    name: "Coder",
    instructions:
      "You write code. Make the smallest change that does what is asked, in the style of what is there; run what tests " +
      "there are; commit what you have changed when you were asked to."
  },
  researcher: {
    name: "Researcher",
    instructions:
      "You find things out. Read before you answer, say where in the files each claim comes from, and say what you do " +
      "not know. You change no file.",
    toolsDenied: changing
  },
  reviewer: {
    name: "Reviewer",
    instructions:
      "You review code. Look for what is wrong, not for what is different; name file and line, say what would happen, " +
      "and say it when there is nothing. You change no file.",
    toolsDenied: changing
  }
}

const Answered = Schema.Struct({
  payloads: Schema.Array(
    Schema.Struct({
      text: Schema.optionalKey(Schema.NullOr(Schema.String)),
      isError: Schema.optionalKey(Schema.NullOr(Schema.Boolean))
    })
  ),
  meta: Schema.Struct({
    aborted: Schema.optionalKey(Schema.NullOr(Schema.Boolean)),
    stopReason: Schema.optionalKey(Schema.NullOr(Schema.String)),
    error: Schema.optionalKey(
      Schema.NullOr(
        Schema.Struct({ kind: Schema.optionalKey(Schema.String), message: Schema.optionalKey(Schema.String) })
      )
    ),
    agentMeta: Schema.optionalKey(
      Schema.Struct({
        sessionId: Schema.optionalKey(Schema.String),
        usage: Schema.optionalKey(Schema.Unknown)
      })
    )
  })
})

const Refused = Schema.Struct({
  ok: Schema.Literal(false),
  error: Schema.Struct({ type: Schema.NonEmptyString, message: Schema.String })
})

const Envelope = Schema.Union([Refused, Answered])

const decodeEnvelope = Schema.decodeUnknownOption(Schema.fromJsonString(Envelope))

/**
 * Texts of objects that start at the beginning of a line and end at the end of one. As OpenClaw prints them, one over
 * several lines starts and ends with a line that is nothing but a brace; inside a string there are no line breaks.
 */
const objects = (output: string): ReadonlyArray<string> => {
  const found: Array<string> = []
  let block: Array<string> | undefined
  for (const raw of output.split("\n")) {
    const line = raw.trimEnd()
    if (line === "{") block = [line]
    else if (block !== undefined) {
      block.push(line)
      if (line !== "}") continue
      found.push(block.join("\n"))
      block = undefined
    } else if (line.startsWith("{")) found.push(line)
  }
  return found
}

/** How a turn ends that is not over, or not whole. */
const notAnEnd: ReadonlySet<string> = new Set(["aborted", "error", "length", "toolUse"])

const answerOf = ({ meta, payloads }: typeof Answered.Type): AgentOutcome => {
  const texts = (isFailed: boolean) =>
    payloads
      .flatMap(({ isError, text }) => (text && (isError === true) === isFailed ? [text] : []))
      .join("\n")
  const said = texts(false)
  const { aborted, agentMeta, error, stopReason } = meta
  if (error !== undefined && error !== null) {
    return failed(error.kind || "error", error.message || "it did not say why", said)
  }
  const hasFailed = payloads.some(({ isError }) => isError === true)
  if (aborted === true || hasFailed || (typeof stopReason === "string" && notAnEnd.has(stopReason))) {
    const code =
      aborted === true ? "aborted" : hasFailed && stopReason === "stop" ? "error" : stopReason || "error"
    return failed(code, texts(true) || "its turn ended before it was done", said)
  }
  if (said === "") return unreadable("its envelope has no text")
  return answered(said, {
    sessionId: agentMeta?.sessionId,
    usage: usageOf(tokensOf(agentMeta?.usage))
  })
}

const parse = (output: string): AgentOutcome => {
  if (output.trim() === "") return unreadable("it wrote nothing")
  const envelopes = objects(output).flatMap((text) => Option.toArray(decodeEnvelope(text)))
  const refused = envelopes.find((envelope) => "ok" in envelope)
  if (refused !== undefined && "ok" in refused) {
    const { message, type } = refused.error
    return failed(type, message, "")
  }
  const [first, ...others] = envelopes
  if (first === undefined || "ok" in first) {
    return unreadable(`what it wrote holds no envelope: ${excerpt(output)}`)
  }
  return others.length === 0
    ? answerOf(first)
    : unreadable(`it wrote ${envelopes.length} envelopes, where there is one`)
}

const graceSecondsMin = 10
const graceSecondsMax = 60

/**
 * What OpenClaw is told to be done within: a tenth less than the run has, and between 10 and 60 seconds less, so that
 * it starts, and says its last words, before it is ended from outside. At least one second.
 */
export const timeoutSeconds = (runtimeSecondsMax: number): number => {
  const grace = Math.ceil(runtimeSecondsMax / 10)
  return Math.max(1, runtimeSecondsMax - Math.min(graceSecondsMax, Math.max(graceSecondsMin, grace)))
}

const entry = (workspace: string, { name, toolsDenied = [] }: OpenClawPersonality) => ({
  workspace,
  ...(name === undefined ? {} : { identity: { name } }),
  ...(toolsDenied.length === 0 ? {} : { tools: { deny: toolsDenied } })
})

const configuration = (known: Personalities, task: AgentTask) => {
  const { model, runtimeSecondsMax, workingDirectory } = task
  const seconds = timeoutSeconds(runtimeSecondsMax)
  return {
    models: {
      // None but this one: what OpenClaw knows of models elsewhere is gone.
      mode: "replace",
      providers: { [provider]: chatProvider(task) }
    },
    agents: {
      ownership: "explicit",
      defaults: {
        model: { primary: `${provider}/${model}`, fallbacks: [] },
        // Its own files about itself would be in the workspace, and in a commit.
        skipBootstrap: true,
        skills: [],
        sandbox: { mode: "off" },
        timeoutSeconds: seconds,
        subagents: { runTimeoutSeconds: timeoutSeconds(seconds) }
      },
      entries: Object.fromEntries(
        Object.entries(known).map(([id, one]) => [id, entry(workingDirectory, one)])
      )
    },
    tools: {
      allow: tools,
      elevated: { enabled: false },
      // What it may run is anything: the sandbox is around it, and nobody is there to be asked.
      exec: { security: "full", ask: "off" },
      toolSearch: false
    },
    cron: { enabled: false },
    gateway: { controlUi: { enabled: false } },
    memory: { search: { enabled: false } },
    plugins: { enabled: false },
    update: { checkOnStart: false }
  }
}

/** What a personality is told comes before the conversation. */
const instructed = (known: Personalities, task: AgentTask): AgentTask["messages"] => {
  const { instructions } = known[task.personality ?? defaultPersonality] ?? {}
  return instructions === undefined
    ? task.messages
    : [{ role: "system", content: instructions }, ...task.messages]
}

/**
 * With personalities of one's own, and `main`, whatever they are. One that is not among them is refused before anything
 * is made.
 */
export const make = (known: Personalities): Agent => {
  const all = { [defaultPersonality]: {}, ...known }
  return {
    id: AgentId.make("openclaw"),
    name: "OpenClaw",
    description:
      "A coding agent with several characters: reads and changes files, runs commands, answers at the end.",
    image: "openclaw",
    modelApi: "chat-completions",
    capabilities: { ...codingCapabilities("final"), toolEvents: false, personalities: Object.keys(all) },
    argv: ({ personality = defaultPersonality, runId, runtimeSecondsMax }) => [
      "openclaw",
      "agent",
      // Without its gateway, which would be another router and another dashboard.
      "--local",
      "--agent",
      personality,
      "--session-id",
      runId,
      "--message-file",
      promptPath,
      "--json",
      "--timeout",
      String(timeoutSeconds(runtimeSecondsMax))
    ],
    env: () => ({
      OPENCLAW_CONFIG_PATH: "/cogni/openclaw.json",
      OPENCLAW_STATE_DIR: "/home/agent/.openclaw",
      OPENCLAW_LOAD_SHELL_ENV: "0",
      OPENCLAW_NO_AUTO_UPDATE: "1"
    }),
    // One tool call takes it beyond 1 GiB.
    limits: { memoryBytesMax: 2 * 1024 * 1024 * 1024 },
    inputs: (task) => [
      { name: "openclaw.json", content: JSON.stringify(configuration(all, task), undefined, 2) },
      promptInput({ messages: instructed(all, task) })
    ],
    reader: whole(parse)
  }
}

/** With {@link personalities}. */
export const openClaw: Agent = make(personalities)
