/**
 * Derives the spec of a run and its egress from flags and environment.
 *
 * Pure: decides every refusal that requires neither an engine nor a file. The demo upstream is used only on request,
 * never as a fallback.
 */
import type { RunId } from "@cogni/sandbox-core/RunId"
import { type SandboxSpecInput } from "@cogni/sandbox-core/SandboxSpec"
import { LlmBudget, ToolName } from "@cogni/sandbox-core/SpecFields"
import { problemsOf } from "@cogni/sandbox-core/SchemaIssues"
import type { Agent } from "@cogni/sandbox-graph-provider/agents/Agent"
import type { Message } from "@cogni/sandbox-graph-provider/agents/AgentFields"
import { modelOf } from "@cogni/sandbox-graph-provider/agents/AgentPersonalities"
import * as AgentRun from "@cogni/sandbox-graph-provider/AgentRun"
import type { OpenTurn } from "@cogni/sandbox-graph-provider/threads/OpenTurn"
import * as DemoUpstream from "@cogni/sandbox-proxy/DemoUpstream"
import * as Upstream from "@cogni/sandbox-proxy/Upstream"
import { type Redacted, Result, Schema } from "effect"
import { type Refusal, refusal, refuse } from "./Failure.ts"
import * as Flags from "./Flags.ts"
import { inFlags } from "./RemedyWords.ts"
import type { Settings } from "./Settings.ts"
import type { UpstreamOptions } from "./UpstreamSettings.ts"

/** Flags of `run`; each may be absent. */
export type RunFlags = Partial<Flags.Typed<typeof Flags.run>>

/** The agent or the command to run. */
export type RunSubject =
  | {
      readonly _tag: "Prompt"
      readonly agent: Agent
      readonly prompt: string
      /** Earlier turns of the conversation. */
      readonly earlier?: ReadonlyArray<Message> | undefined
      /** The turn of a remembered thread. */
      readonly turn?: Pick<OpenTurn, "session" | "workspace"> | undefined
    }
  | { readonly _tag: "Command"; readonly argv: readonly [string, ...ReadonlyArray<string>] }

/** Egress of a sandbox: where its socket leads. */
export type WayOut = { readonly _tag: "None" } | ModelWayOut

type ModelWayOut = { readonly _tag: "Demo"; readonly model: string } | UpstreamWayOut

export interface UpstreamWayOut {
  readonly _tag: "Upstream"
  readonly model: string
  readonly url: string
  readonly key: Redacted.Redacted<string>
  readonly options: UpstreamOptions
}

export interface RunPlan {
  readonly spec: SandboxSpecInput
  readonly wayOut: WayOut
  /** A note about an egress that the user may not expect. */
  readonly note: string | undefined
}

const configure = "Set COGNI_LLM_URL and COGNI_LLM_KEY_FILE (or COGNI_LLM_KEY)"
const orDemo = `${configure}, try it with --demo (no model is asked), or see: cogni-sandbox demo`

/** Returns the configured upstream; `hasDemo` is set if the command has `--demo`. */
export const upstreamAddress = (
  { upstream: setting, upstreamOptions }: Pick<Settings["Service"], "upstream" | "upstreamOptions">,
  hasDemo = true
): Result.Result<Omit<UpstreamWayOut, "_tag" | "model">, Refusal> => {
  if (setting._tag === "Absent") {
    return refuse("configuration", "no model is configured", hasDemo ? orDemo : configure)
  }
  if (setting._tag === "Refused") return Result.fail(setting.refusal)
  if (setting._tag === "Incomplete") {
    const { missing, present } = setting
    const absent = missing === "COGNI_LLM_KEY" ? "COGNI_LLM_KEY_FILE (or COGNI_LLM_KEY)" : missing
    return refuse("configuration", `${present} is set and ${absent} is not`, `Set both, or unset ${present}`)
  }
  const { key, url } = setting
  return Result.flatMap(upstreamOptions, (options) => {
    const resolved = Upstream.resolve({ type: "host", url }, options)
    if (Result.isSuccess(resolved)) return Result.succeed({ url, key, options })
    const { problem, remedy } = resolved.failure
    return resolved.failure._tag === "ProfileRefused"
      ? refuse("configuration", `the profile of COGNI_LLM_URL ${problem}`, remedy)
      : refuse("configuration", `COGNI_LLM_URL ${problem}`, remedy)
  })
}

const demoWayOut = ({
  costUsdMax,
  model = DemoUpstream.model
}: Pick<RunFlags, "costUsdMax" | "model">): Result.Result<ModelWayOut, Refusal> =>
  costUsdMax === undefined
    ? Result.succeed({ _tag: "Demo", model })
    : refuse(
        "usage",
        "--max-cost has no effect with --demo, whose answers have no cost",
        "Leave one of them out, or set --max-calls or --max-output-tokens"
      )

/** Selects the upstream: the demo upstream with `--demo`, else the configured one. */
export const modelWayOut = (
  { costUsdMax, demo = false, model }: Pick<RunFlags, "costUsdMax" | "demo" | "model">,
  settings: Pick<Settings["Service"], "upstream" | "upstreamOptions" | "model">
): Result.Result<ModelWayOut, Refusal> =>
  demo
    ? demoWayOut({ costUsdMax, model })
    : Result.flatMap(upstreamAddress(settings), (address) => {
        const name = model ?? settings.model
        return name === undefined
          ? refuse("configuration", "no model is named", "Name one: --model NAME, or COGNI_LLM_MODEL")
          : Result.succeed({ _tag: "Upstream", model: name, ...address })
      })

const wayOutOf = (
  subject: RunSubject,
  flags: RunFlags,
  settings: Settings["Service"]
): Result.Result<WayOut, Refusal> => {
  const { _tag: upstream } = settings.upstream
  const isNamed = flags.demo === true || flags.model !== undefined
  if (flags.noModel === true) {
    return isNamed
      ? refuse("usage", "--no-model excludes --model and --demo", "Leave one of them out")
      : Result.succeed({ _tag: "None" })
  }
  // A command does not need a model, so it has none unless one is named.
  return subject._tag === "Command" &&
    !isNamed &&
    (upstream === "Absent" || (upstream === "Configured" && settings.model === undefined))
    ? Result.succeed({ _tag: "None" })
    : modelWayOut(flags, settings)
}

/** Refuses to ask a configured upstream if no account is named: the costs could be charged to no account later. */
export const paid = (
  { isAccountNamed }: Pick<Settings["Service"], "isAccountNamed">,
  { _tag }: WayOut
): Result.Result<void, Refusal> =>
  _tag === "Upstream" && !isAccountNamed
    ? refuse(
        "configuration",
        "no account is named that pays for the model",
        "Set COGNI_BILLING_ACCOUNT, such as to the name of your team, or try --demo"
      )
    : Result.void

type LlmInput = NonNullable<SandboxSpecInput["llm"]>

/** Decodes the budget that the flags of a command set, if any. */
export const budgetOf = (
  flags: Pick<RunFlags, "callsMax" | "costUsdMax" | "inputTokensMax" | "outputTokensMax">,
  command: string
): Result.Result<LlmBudget | undefined, Refusal> => {
  const { callsMax, costUsdMax, inputTokensMax, outputTokensMax } = flags
  const said = Flags.given({ callsMax, costUsdMax, inputTokensMax, outputTokensMax })
  return Object.keys(said).length === 0
    ? Result.succeed(undefined)
    : Schema.decodeUnknownResult(LlmBudget)(said).pipe(
        Result.mapError((error) =>
          refusal(
            "usage",
            `the budget is out of bounds: ${problemsOf(error)
              .map((problem) => inFlags(`llm.budget.${problem}`))
              .join("; ")}`,
            `See cogni-sandbox ${command} --help (--max-calls, --max-output-tokens, --max-cost)`
          )
        )
      )
}

/** Refuses `--stop-when-spent` without a limit, which it would end the run at. */
const stoppable = (flags: RunFlags): Result.Result<void, Refusal> => {
  const { callsMax, costUsdMax, inputTokensMax, outputTokensMax, stopWhenSpent } = flags
  return stopWhenSpent === true &&
    [callsMax, costUsdMax, inputTokensMax, outputTokensMax].every((max) => max === undefined)
    ? refuse(
        "usage",
        "--stop-when-spent needs a budget",
        "Set --max-calls, --max-input-tokens, --max-output-tokens or --max-cost, or leave it out"
      )
    : Result.void
}

/** Refuses `--subagent-share` for a command without a model, which it could not bound. */
const shareable = ({ subagentShareMax }: RunFlags, { _tag }: WayOut): Result.Result<void, Refusal> =>
  subagentShareMax !== undefined && _tag === "None"
    ? refuse(
        "usage",
        "--subagent-share has no effect without a model",
        "Name a model (--model NAME), or leave it out"
      )
    : Result.void

/** Makes the `llm` part of a spec. Without limits it has no budget, so that a proxy without budgets can be chosen. */
export const llmOf = (
  flags: RunFlags,
  { billingAccountId }: Settings["Service"],
  { model }: ModelWayOut,
  graphId?: string
): LlmInput => {
  const { callsMax, costUsdMax, inputTokensMax, outputTokensMax, subagentShareMax } = flags
  const budget: NonNullable<LlmInput["budget"]> = Flags.given({
    callsMax,
    inputTokensMax,
    outputTokensMax,
    costUsdMax,
    subagentShareMax
  })
  return {
    model,
    identity: { billingAccountId, ...Flags.given({ graphId, userId: flags.user, sessionId: flags.session }) },
    ...(Object.keys(budget).length === 0
      ? {}
      : { budget: flags.stopWhenSpent === true ? { ...budget, onExhausted: "stop" } : budget }),
    ...(flags.strict === true ? { unknownFields: "refuse" } : {})
  }
}

/** Makes the parts of a spec that are the same for agents and commands. */
export const termsOf = (
  flags: RunFlags,
  image: string
): Pick<
  SandboxSpecInput,
  "canaries" | "env" | "image" | "limits" | "packages" | "toolRules" | "tools" | "workspace"
> => ({
  image: flags.image ?? image,
  env: Object.fromEntries(flags.env ?? []),
  ...(flags.workspace === undefined ? {} : { workspace: { type: "directory", path: flags.workspace } }),
  limits: Flags.given({
    runtimeSecondsMax: flags.timeoutSeconds,
    stopGraceSecondsMax: flags.graceSeconds,
    memoryBytesMax: flags.memoryBytes,
    workspaceBytesMax: flags.diskBytes,
    outputBytesMax: flags.outputBytes,
    cpusMax: flags.cpus,
    processesMax: flags.processes
  }),
  ...toolsOf(flags),
  ...(flags.packages === undefined || flags.packages.length === 0 ? {} : { packages: flags.packages }),
  ...(flags.canaries === undefined || flags.canaries === "off" ? {} : { canaries: flags.canaries })
})

/** Refuses a text that no tool can have as its name. Whether the host has the tool, its proxy decides. */
export const toolsNamed = ({ askTools = [], tools = [] }: RunFlags): Result.Result<void, Refusal> => {
  const isName = Schema.is(ToolName)
  const wrong = [
    ...tools.map((text) => ["--tool", text] as const),
    ...askTools.map((text) => ["--ask-tool", text] as const)
  ].find(([, text]) => !isName(text))
  return wrong === undefined
    ? Result.void
    : refuse(
        "input",
        `${wrong[0]} ${JSON.stringify(wrong[1].slice(0, 100))}: expected the name of a tool, such as core__get_current_time`,
        "docs/guides/tools.md lists the tools"
      )
}

/** Returns the tools of a run. With `--ask-tool`, rules say which of them need an approval. */
const toolsOf = ({ askTools = [], tools = [] }: RunFlags): Pick<SandboxSpecInput, "toolRules" | "tools"> => {
  const all = [...new Set([...tools, ...askTools])]
  if (all.length === 0) return {}
  return askTools.length === 0
    ? { tools: all }
    : {
        tools: all,
        toolRules: [
          ...all.map((tool) => ({ tool, access: "open" as const })),
          ...askTools.map((tool) => ({ tool, access: "ask" as const }))
        ]
      }
}

/** Returns a note about an egress that the user may not expect. */
export const noteOf = (flags: RunFlags, settings: Settings["Service"], wayOut: WayOut) => {
  if (wayOut._tag === "Demo") {
    return settings.upstream._tag === "Configured"
      ? "demo upstream, as requested: no model is asked, although COGNI_LLM_URL is set"
      : "demo upstream: no model is asked"
  }
  return wayOut._tag === "None" && flags.noModel !== true && settings.upstream._tag === "Configured"
    ? "no access to a model: name one with --model or COGNI_LLM_MODEL"
    : undefined
}

/** Adds the model of the personality to a run that names none, and asks for no demo. */
const withModel = (subject: RunSubject, flags: RunFlags): RunFlags => {
  if (subject._tag === "Command" || flags.model !== undefined || flags.demo === true) return flags
  const model = modelOf(subject.agent.capabilities, flags.personality)
  return model === undefined || flags.noModel === true ? flags : { ...flags, model }
}

export const make = (
  subject: RunSubject,
  runId: RunId,
  flags: RunFlags,
  settings: Settings["Service"]
): Result.Result<RunPlan, Refusal> =>
  Result.gen(function* () {
    yield* stoppable(flags)
    yield* toolsNamed(flags)
    const wayOut = yield* wayOutOf(subject, withModel(subject, flags), settings)
    yield* paid(settings, wayOut)
    const note = noteOf(flags, settings, wayOut)
    if (subject._tag === "Command") {
      yield* shareable(flags, wayOut)
      const llm = wayOut._tag === "None" ? {} : { llm: llmOf(flags, settings, wayOut) }
      const spec = { ...termsOf(flags, settings.runtimeImage), ...llm, runId, argv: subject.argv }
      return { spec, wayOut, note }
    }
    const { agent, earlier = [], prompt, turn } = subject
    const last = { role: "user", content: prompt } as const
    const [first, ...more] = earlier
    const asked: AgentRun.AgentRequest = {
      messages: first === undefined ? [last] : [first, ...more, last],
      personality: flags.personality,
      hasRepository: flags.repo !== undefined,
      session: turn?.session
    }
    const share = Flags.given({ subagentShareMax: flags.subagentShareMax })
    yield* Result.mapError(AgentRun.check(agent, { ...asked, ...share }), ({ message }) =>
      refusal("usage", message, "List agents and their capabilities: cogni-sandbox agents")
    )
    if (wayOut._tag === "None") {
      return yield* refuse(
        "usage",
        "an agent needs a model",
        "Leave --no-model out, or run a command: run --no-model -- CMD"
      )
    }
    const spec = AgentRun.specOf(agent, asked, {
      ...termsOf(flags, settings.imageOf(agent.image)),
      ...(turn === undefined ? {} : { workspace: turn.workspace, memory: true }),
      runId,
      llm: llmOf(flags, settings, wayOut, `sandbox:${agent.id}`)
    })
    return { spec, wayOut, note }
  })
