/**
 * One turn of OpenClaw, without its gateway: one prompt, its tools, one envelope at the end.
 *
 * OpenClaw's other features (model router, scheduler, sandbox, dashboard) are off, because they are the host's task
 * here. Its configuration depends only on the task, so that nothing in its home directory can affect a run.
 *
 * The envelope is multi-line JSON, and log lines may surround it. OpenClaw also exits with 0 if its time ran out during
 * a tool call. The envelope then says so, and there is no answer.
 */
import { Option, Schema } from "effect"
import { type Agent, AgentId, promptInput, promptPath, withSession } from "./Agent.ts"
import { type AgentTask } from "./AgentFields.ts"
import { chatProvider, codingCapabilities, provider } from "./AgentParts.ts"
import * as AgentPersonalities from "./AgentPersonalities.ts"
import * as AgentSkills from "./AgentSkills.ts"
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

/** A personality that a task can choose. */
export interface OpenClawPersonality extends AgentPersonalities.AgentPersonality {
  /** The name that it uses for itself. */
  readonly name?: string
  /** The {@link tools} that it cannot use. */
  readonly toolsDenied?: ReadonlyArray<string>
}

/** Personality of a task that does not choose one. */
const defaultPersonality = "main"

/** Tools that a run may use: files and commands of its own sandbox. */
export const tools: ReadonlyArray<string> = ["read", "write", "edit", "apply_patch", "ls", "exec", "process"]

const changing = ["write", "edit", "apply_patch"]

type Personalities = Readonly<Record<string, OpenClawPersonality>>

export const personalities: Personalities = {
  [defaultPersonality]: {},
  coder: {
    name: "Coder",
    instructions:
      "You write code. Make the smallest change that does what you are asked, in the style of the existing code. Run " +
      "the existing tests. Commit your changes if you are asked to."
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
 * Finds JSON objects that start at the beginning of a line and end at the end of one. OpenClaw prints a multi-line
 * object between two lines that contain only a brace. JSON strings contain no line breaks.
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

/** Stop reasons of a turn that is incomplete. */
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
    return failed(code, texts(true) || "its turn ended before it was complete", said)
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
    return unreadable(`its output contains no envelope: ${excerpt(output)}`)
  }
  return others.length === 0
    ? answerOf(first)
    : unreadable(`it wrote ${envelopes.length} envelopes instead of one`)
}

const graceSecondsMin = 10
const graceSecondsMax = 60

/**
 * Returns OpenClaw's timeout: a tenth less than the run's time limit, but 10 to 60 seconds less, and at least 1 second.
 * The difference leaves time for its start, and for its envelope before the host ends the run.
 */
export const timeoutSeconds = (runtimeSecondsMax: number): number => {
  const grace = Math.ceil(runtimeSecondsMax / 10)
  return Math.max(1, runtimeSecondsMax - Math.min(graceSecondsMax, Math.max(graceSecondsMin, grace)))
}

const entry = (workspace: string, { name, skills = [], toolsDenied = [] }: OpenClawPersonality) => ({
  workspace,
  ...(skills.length === 0 ? {} : { skills }),
  ...(name === undefined ? {} : { identity: { name } }),
  ...(toolsDenied.length === 0 ? {} : { tools: { deny: toolsDenied } })
})

const configuration = (known: Personalities, task: AgentTask) => {
  const { model, runtimeSecondsMax, workingDirectory } = task
  const seconds = timeoutSeconds(runtimeSecondsMax)
  return {
    models: {
      // Replaces OpenClaw's own list of models.
      mode: "replace",
      providers: { [provider]: chatProvider(task) }
    },
    agents: {
      ownership: "explicit",
      defaults: {
        model: { primary: `${provider}/${model}`, fallbacks: [] },
        // OpenClaw's files about itself would be in the workspace, and in a commit.
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
      // Any command is allowed: the sandbox isolates it, and there is no user to ask.
      exec: { security: "full", ask: "off" },
      toolSearch: false
    },
    // Where a run's skills are; see the command line.
    ...(skillsOf(known, task).length === 0 ? {} : { skills: { load: { extraDirs: [skillsDirectory] } } }),
    // A worker that looks for old sessions takes a second of a run's start, and a run has one session.
    session: { maintenance: { mode: "warn" } },
    cron: { enabled: false },
    gateway: { controlUi: { enabled: false } },
    memory: { search: { enabled: false } },
    plugins: { enabled: false },
    update: { checkOnStart: false }
  }
}

/** Puts the instructions of a personality before the conversation. */
const instructed = (known: Personalities, task: AgentTask): AgentTask["messages"] => {
  const { instructions } = known[task.personality ?? defaultPersonality] ?? {}
  return instructions === undefined
    ? task.messages
    : [{ role: "system", content: instructions }, ...task.messages]
}

const skillsDirectory = "/home/agent/skills"

const skillsOf = (known: Personalities, { personality = defaultPersonality }: AgentTask) =>
  known[personality]?.skills ?? []

/** Variables of every run that has no session. */
const constants: Readonly<Record<string, string>> = {
  // It would read the skills and plugins that it brings along, although a run uses none of them.
  OPENCLAW_BUNDLED_SKILLS_DIR: "/var/empty",
  OPENCLAW_CONFIG_PATH: "/cogni/openclaw.json",
  OPENCLAW_DISABLE_BUNDLED_PLUGINS: "1",
  OPENCLAW_LOAD_SHELL_ENV: "0",
  OPENCLAW_NO_AUTO_UPDATE: "1",
  // It would start itself again, only to suppress warnings of Node and to set a certificate authority.
  OPENCLAW_NO_RESPAWN: "1",
  OPENCLAW_STATE_DIR: "/home/agent/.openclaw"
}

/** Modules keep what they read while they are loaded. A run with other variables starts as without a preload. */
const preload: NonNullable<Agent["preload"]> = [
  "/usr/bin/env",
  ...Object.entries(constants).map(([name, value]) => `${name}=${value}`),
  "node",
  "/usr/local/lib/openclaw/preload.mjs"
]

/**
 * Creates the agent with custom personalities, and `main`, which always exists. A task with an unknown personality is
 * rejected before any resource is created. `skills` are the texts of `SKILL.md` of the skills that personalities name.
 */
export const make = (known: Personalities, skills: Readonly<Record<string, string>> = {}): Agent => {
  const all: Personalities = { [defaultPersonality]: {}, ...known }
  AgentPersonalities.requireSkills({ personalities: all, skills })
  return {
    id: AgentId.make("openclaw"),
    name: "OpenClaw",
    description:
      "A coding agent with several personalities: reads and changes files, runs commands, answers at the end.",
    image: "openclaw",
    modelApi: "chat-completions",
    capabilities: {
      ...codingCapabilities("final"),
      toolEvents: false,
      subagents: "none",
      personalities: Object.keys(all),
      ...AgentPersonalities.modelsOf(all)
    },
    argv: (task) =>
      AgentSkills.before(
        skillsDirectory,
        skillsOf(all, task),
        withSession(task.session, [
          "openclaw",
          "agent",
          // Without its gateway, which would be a second router and dashboard.
          "--local",
          "--agent",
          task.personality ?? defaultPersonality,
          "--session-id",
          task.session?.id ?? task.runId,
          "--message-file",
          promptPath,
          "--json",
          "--timeout",
          String(timeoutSeconds(task.runtimeSecondsMax))
        ])
      ),
    env: ({ session }) => ({
      ...constants,
      ...(session === undefined ? {} : { OPENCLAW_STATE_DIR: session.directory })
    }),
    preload,
    // A single tool call needs more than 1 GiB.
    limits: { memoryBytesMax: 2 * 1024 * 1024 * 1024 },
    inputs: (task) => [
      { name: "openclaw.json", content: JSON.stringify(configuration(all, task), undefined, 2) },
      promptInput({ messages: instructed(all, task) }),
      ...AgentSkills.inputs(skillsOf(all, task), skills)
    ],
    reader: whole(parse)
  }
}

/** OpenClaw with the built-in {@link personalities}. */
export const openClaw: Agent = make(personalities)
