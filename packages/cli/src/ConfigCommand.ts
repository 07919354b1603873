/**
 * `config check`, `config resolve`, `config schema`: inspect a configuration of sessions before it is used.
 *
 * Reads one file and changes nothing; needs no engine. Control characters from the file are made visible on a terminal.
 */
import { formatBytes } from "@cogni/sandbox-core/RunFigures"
import * as AgentRouter from "@cogni/sandbox-sessions/router/AgentRouter"
import * as Configuration from "@cogni/sandbox-sessions/config/Configuration"
import * as ConfigurationError from "@cogni/sandbox-sessions/config/ConfigurationError"
import * as ConfigurationStore from "@cogni/sandbox-sessions/config/ConfigurationStore"
import * as Orchestrator from "@cogni/sandbox-sessions/router/Orchestrator"
import { Effect, FileSystem, Schema } from "effect"
import { problemsOf } from "@cogni/sandbox-core/SchemaIssues"
import * as ConfiguredAgents from "./ConfiguredAgents.ts"
import { exitCode } from "./ExitCode.ts"
import { type Refusal, refusal } from "./Failure.ts"
import * as HostTools from "./HostTools.ts"
import * as Output from "./Output.ts"
import { plural } from "./Quantity.ts"
import { Settings } from "./Settings.ts"
import { columns, oneLine } from "./TerminalText.ts"

/** Checks a configuration file, and lists every problem. */
export const check = Effect.fnUntraced(function* (input: Output.Asked & { readonly file: string }) {
  if (yield* isDirectory(input.file)) return yield* checkDirectory(input)
  const found = yield* Effect.result(load(input.file, yield* offered))
  if (found._tag === "Failure") return yield* refuse(found.failure, input)
  const configuration = found.success
  if (input.output === "json") return yield* Output.json({ ok: true, ...describe(configuration) })
  yield* Output.lines([oneLine(summary(configuration))])
  for (const warning of configuration.warnings)
    yield* Output.note(`warning: ${oneLine(`${input.file}:${ConfigurationError.describe(warning)}`)}`)
})

/** Checks a directory with personalities and skills, as before a change of it is proposed. */
const checkDirectory = Effect.fnUntraced(function* (input: Output.Asked & { readonly file: string }) {
  const { file } = input
  const rules = yield* ConfiguredAgents.rules(yield* Settings)
  const found = yield* Effect.result(ConfiguredAgents.read(file, rules))
  if (found._tag === "Success") {
    const personalities = Object.keys(found.success.personalities)
    const skills = Object.keys(found.success.skills)
    const subagents = Object.keys(found.success.subagents)
    if (
      personalities.length + skills.length + subagents.length === 0 &&
      found.success.configuration === undefined
    ) {
      return yield* refusal(
        "input",
        `the directory ${file} has no configuration`,
        "Name a directory with personalities/, skills/, subagents/ or cogni.yaml, or a file"
      )
    }
    return yield* input.output === "json"
      ? Output.json({ ok: true, file, personalities, skills, subagents })
      : Output.lines([
          oneLine(
            `${file}: ${countOf(personalities.length, "personality", "personalities")}, ` +
              `${plural(skills.length, "skill")}, ${plural(subagents.length, "subagent")}`
          )
        ])
  }
  if (found.failure._tag === "Refusal") return yield* found.failure
  const { _tag: reason, lines, problems, problemsOmitted } = found.failure
  return yield* refuseWith(input, { file, reason, problems, problemsOmitted, lines })
})

const countOf = (count: number, one: string, more: string) => `${count} ${count === 1 ? one : more}`

/** Shows which agent answers a sender, and by which rule. */
export const resolve = Effect.fnUntraced(function* (
  input: Output.Asked & { readonly file: string; readonly channel: string; readonly sender: string }
) {
  const sender = yield* decodeSender({ channel: input.channel, senderId: input.sender }).pipe(
    Effect.mapError((error) =>
      refusal(
        "input",
        `invalid --channel or --sender: ${problemsOf(error).join("; ")}`,
        "Use the channel and the sender ID of a message"
      )
    )
  )
  const found = yield* Effect.result(load(input.file, yield* offered))
  if (found._tag === "Failure") return yield* refuse(found.failure, input)
  const { agent, rule } = AgentRouter.make(found.success).resolve(sender)
  const executor = found.success.sandbox.enabled && agent.sandbox ? "sandbox" : "host"
  const key = AgentRouter.keyOf(sender, agent.name)
  yield* input.output === "json"
    ? Output.json({ ok: true, agent: agent.name, rule, executor, key })
    : Output.lines(
        columns([
          ["agent", agent.name],
          ["rule", oneLine(AgentRouter.describeRule(rule))],
          ["executor", executor],
          ["session", oneLine(key)]
        ])
      )
})

/** Prints the JSON Schema of a configuration, for editors. */
export const schema = Output.json(Configuration.jsonSchema())

/** The refusal for a file that cannot be read. */
export const unreadable = (
  file: string,
  { _tag, detail, isAbsent, remedy }: ConfigurationError.ConfigurationUnreadable
): Refusal =>
  refusal(isAbsent ? "notFound" : "input", `the configuration ${file} cannot be read: ${detail}`, remedy, {
    reason: _tag
  })

const isDirectory = (path: string) =>
  FileSystem.FileSystem.use((fs) => fs.stat(path)).pipe(
    Effect.map(({ type }) => type === "Directory"),
    Effect.catch(() => Effect.succeed(false))
  )

const decodeSender = Schema.decodeUnknownEffect(
  Schema.Struct({
    channel: Orchestrator.Message.fields.channel,
    senderId: Orchestrator.Message.fields.senderId
  }),
  { errors: "all" }
)

/** The names of tools that this host offers. A check starts no server. */
const offered = Effect.flatMap(Settings, HostTools.namesWithoutServers).pipe(Effect.scoped)

const load = Effect.fnUntraced(function* (file: string, toolNames: ReadonlyArray<string>) {
  const { runtimeImage } = yield* Settings
  const text = yield* ConfigurationStore.readFile(file)
  return yield* Configuration.parse(text, { file, toolNames, runtimeImage })
})

/** Reports problems like a compiler: one line each on standard output, and a summary on standard error. */
const refuse = Effect.fnUntraced(function* (
  error: ConfigurationError.ConfigurationError,
  asked: Output.Asked
) {
  const { file, lines, reason } = error
  if (reason._tag === "ConfigurationUnreadable") return yield* unreadable(file, reason)
  const { _tag, problems, problemsOmitted } = reason
  return yield* refuseWith(asked, { file, reason: _tag, problems, problemsOmitted, lines })
})

const refuseWith = Effect.fnUntraced(function* (
  asked: Output.Asked,
  {
    file,
    lines,
    problems,
    problemsOmitted,
    reason
  }: {
    readonly file: string
    readonly reason: string
    readonly problems: ReadonlyArray<unknown>
    readonly problemsOmitted: number
    readonly lines: ReadonlyArray<string>
  }
) {
  const count = problems.length + problemsOmitted
  const message = `the configuration ${file} is invalid: ${plural(count, "problem")}`
  const output = yield* Output.Output
  yield* output.exitWith(exitCode.input)
  yield* asked.output === "json"
    ? Output.json({
        ok: false,
        exitCode: exitCode.input,
        error: { code: "input", reason, message, isRetryable: false },
        problems,
        problemsOmitted
      })
    : Output.lines(lines.map(oneLine))
  yield* output.stderr(`cogni-sandbox: ${oneLine(message)}\n`)
})

const describe = ({ agents, file, routing, sandbox, warnings }: Configuration.Configuration) => ({
  file,
  agents: agents.list.map(({ name }) => name),
  routes: Object.keys(routing.channels).length + Object.keys(routing.senders).length + 1,
  sandbox,
  warnings
})

/** `cogni.yaml: 2 agents, 4 routes, sandbox of cogni-sandbox/runtime:latest (512 MiB, 1 CPU, …)`. */
const summary = (configuration: Configuration.Configuration): string => {
  const { agents, file, routes, sandbox } = describe(configuration)
  const network = sandbox.network.mode === "none" ? "no network" : `network ${sandbox.network.networkName}`
  const held = sandbox.enabled
    ? `sandbox of ${sandbox.image} (${formatBytes(sandbox.memoryBytesMax)}, ${sandbox.cpusMax} CPU, ${network}, ` +
      `${sandbox.timeoutSecondsMax} s, at most ${plural(sandbox.sessionsMax, "session")})`
    : "sandbox off"
  return `${file}: ${plural(agents.length, "agent")}, ${plural(routes, "route")}, ${held}`
}
