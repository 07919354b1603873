/**
 * From what was typed and what the environment says to the spec of a run and its way out.
 *
 * Pure: every refusal that needs neither an engine nor a file is decided here. The demo upstream is somebody's choice,
 * never a fallback.
 */
import type { SandboxSpecInput } from "@cogni/sandbox-core/SandboxSpec"
import type { Agent, AgentTask } from "@cogni/sandbox-graph-provider/agents/Agent"
import * as AgentSpec from "@cogni/sandbox-graph-provider/agents/AgentSpec"
import * as DemoUpstream from "@cogni/sandbox-proxy/DemoUpstream"
import * as Upstream from "@cogni/sandbox-proxy/Upstream"
import { type Redacted, Result } from "effect"
import { Refusal } from "./Failure.ts"
import type { Settings } from "./Settings.ts"

/** What was typed. */
export interface RunFlags {
  /** Absolute. */
  readonly workspace?: string | undefined
  readonly model?: string | undefined
  readonly timeoutSeconds?: number | undefined
  readonly graceSeconds?: number | undefined
  readonly memoryBytes?: number | undefined
  readonly diskBytes?: number | undefined
  readonly outputBytes?: number | undefined
  readonly cpus?: number | undefined
  readonly processes?: number | undefined
  readonly env: ReadonlyArray<readonly [name: string, value: string]>
  readonly image?: string | undefined
  readonly runId?: string | undefined
  readonly proxy: ProxyKind
  readonly callsMax?: number | undefined
  readonly inputTokensMax?: number | undefined
  readonly outputTokensMax?: number | undefined
  readonly costUsdMax?: number | undefined
  readonly stopWhenSpent: boolean
  readonly tools: ReadonlyArray<string>
  readonly canaries: "off" | "warn" | "stop"
  readonly strict: boolean
  readonly auditBodies: boolean
  readonly noModel: boolean
  readonly demo: boolean
}

/** Nothing typed. */
export const noFlags: RunFlags = {
  env: [],
  proxy: "gateway",
  stopWhenSpent: false,
  tools: [],
  canaries: "off",
  strict: false,
  auditBodies: false,
  noModel: false,
  demo: false
}

/** What stands between an agent and its model. */
export type ProxyKind = "gateway" | "gateway-directory" | "gateway-container" | "nginx"

/** What is to be run. */
export type RunSubject =
  | {
      readonly _tag: "Prompt"
      readonly agent: Agent
      readonly prompt: string
      readonly runId: string
      /** Whether it works in a repository of its workspace. */
      readonly hasRepository: boolean
      readonly personality?: string | undefined
    }
  | { readonly _tag: "Command"; readonly argv: readonly [string, ...ReadonlyArray<string>] }

/** Where the sandbox's socket leads. */
export type WayOut =
  | { readonly _tag: "None" }
  | { readonly _tag: "Demo"; readonly model: string }
  | UpstreamWayOut

export interface UpstreamWayOut {
  readonly _tag: "Upstream"
  readonly model: string
  readonly url: string
  readonly key: Redacted.Redacted<string>
}

export interface RunPlan {
  readonly spec: SandboxSpecInput
  readonly wayOut: WayOut
  readonly proxy: ProxyKind
  readonly auditBodies: boolean
  /** Something the caller may not expect. */
  readonly note?: string | undefined
}

const refuse = (exit: Refusal["exit"], detail: string, remedy: string) =>
  Result.fail(new Refusal({ exit, detail, remedy }))

const configure = "Set COGNI_LLM_URL and COGNI_LLM_KEY_FILE (or COGNI_LLM_KEY)"
const orDemo = `${configure}, try it with --demo (no model is asked), or see: cogni-sandbox demo`

/** The configured upstream; `hasDemo` where the command has `--demo`. */
export const upstreamAddress = (
  { upstream: setting }: Pick<Settings["Service"], "upstream">,
  hasDemo = true
): Result.Result<Pick<UpstreamWayOut, "url" | "key">, Refusal> => {
  if (setting._tag === "Absent") {
    return refuse("configuration", "no model is configured", hasDemo ? orDemo : configure)
  }
  if (setting._tag === "Refused") return Result.fail(setting.refusal)
  if (setting._tag === "Incomplete") {
    const { missing, present } = setting
    const absent = missing === "COGNI_LLM_KEY" ? "COGNI_LLM_KEY_FILE (or COGNI_LLM_KEY)" : missing
    return refuse("configuration", `${present} is set and ${absent} is not`, `Set both, or unset ${present}`)
  }
  const address = Upstream.address({ type: "host", url: setting.url })
  return Result.isFailure(address)
    ? refuse("configuration", `COGNI_LLM_URL ${address.failure.problem}`, address.failure.remedy)
    : Result.succeed({ url: setting.url, key: setting.key })
}

/** The same with a model of it. */
export const upstream = (
  settings: Pick<Settings["Service"], "upstream" | "model">,
  model: string | undefined,
  hasDemo = true
): Result.Result<UpstreamWayOut, Refusal> =>
  Result.flatMap(upstreamAddress(settings, hasDemo), ({ key, url }) => {
    const name = model ?? settings.model
    return name === undefined
      ? refuse("configuration", "no model is named", "Name one: --model NAME, or COGNI_LLM_MODEL")
      : Result.succeed({ _tag: "Upstream", model: name, url, key })
  })

const wayOutOf = (
  subject: RunSubject,
  flags: RunFlags,
  settings: Settings["Service"]
): Result.Result<WayOut, Refusal> => {
  if (flags.noModel) {
    if (flags.demo || flags.model !== undefined) {
      return refuse("usage", "--no-model excludes --model and --demo", "Leave one of them out")
    }
    return subject._tag === "Prompt"
      ? refuse(
          "usage",
          "an agent needs a model",
          "Leave --no-model out, or seal a command: run --no-model -- CMD"
        )
      : Result.succeed({ _tag: "None" })
  }
  if (flags.demo) return Result.succeed({ _tag: "Demo", model: flags.model ?? DemoUpstream.model })
  if (subject._tag === "Command" && flags.model === undefined) {
    if (settings.upstream._tag === "Absent") return Result.succeed({ _tag: "None" })
    if (settings.upstream._tag === "Configured" && settings.model === undefined)
      return Result.succeed({ _tag: "None" })
  }
  return upstream(settings, flags.model)
}

const given = <A extends object>(values: { readonly [K in keyof A]: A[K] | undefined }): Partial<A> =>
  Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as Partial<A>

/** Absent where nothing is limited: a proxy that holds no budgets can be chosen then. */
const budgetOf = (flags: RunFlags): { readonly budget?: BudgetInput } => {
  const { callsMax, costUsdMax, inputTokensMax, outputTokensMax } = flags
  const budget: BudgetInput = given({ callsMax, inputTokensMax, outputTokensMax, costUsdMax })
  return Object.keys(budget).length === 0
    ? {}
    : { budget: flags.stopWhenSpent ? { ...budget, onExhausted: "stop" } : budget }
}

type BudgetInput = NonNullable<NonNullable<SandboxSpecInput["llm"]>["budget"]>

/** How long a run may take where neither the caller nor the agent says: as core has it. */
const defaultRuntimeSeconds = 600

const taskOf = (
  subject: Extract<RunSubject, { readonly _tag: "Prompt" }>,
  flags: RunFlags,
  wayOut: WayOut
): AgentTask => ({
  messages: [{ role: "user", content: subject.prompt }],
  model: wayOut._tag === "None" ? "" : wayOut.model,
  runId: subject.runId,
  workingDirectory: subject.hasRepository ? "/workspace/repo" : "/workspace",
  runtimeSecondsMax: flags.timeoutSeconds ?? subject.agent.limits.runtimeSecondsMax ?? defaultRuntimeSeconds,
  personality: subject.personality
})

const specOf = (
  subject: RunSubject,
  flags: RunFlags,
  settings: Settings["Service"],
  wayOut: WayOut
): SandboxSpecInput => {
  const part =
    subject._tag === "Prompt"
      ? AgentSpec.make(subject.agent, taskOf(subject, flags, wayOut))
      : { argv: subject.argv }
  const image = subject._tag === "Prompt" ? settings.imageOf(subject.agent.image) : settings.runtimeImage
  const runId = subject._tag === "Prompt" ? subject.runId : flags.runId
  return {
    ...part,
    ...(runId === undefined ? {} : { runId }),
    image: flags.image ?? image,
    env: { ...part.env, ...Object.fromEntries(flags.env) },
    ...(flags.workspace === undefined ? {} : { workspace: { type: "directory", path: flags.workspace } }),
    limits: {
      ...part.limits,
      ...given({
        runtimeSecondsMax: flags.timeoutSeconds,
        stopGraceSecondsMax: flags.graceSeconds,
        memoryBytesMax: flags.memoryBytes,
        workspaceBytesMax: flags.diskBytes,
        outputBytesMax: flags.outputBytes,
        cpusMax: flags.cpus,
        processesMax: flags.processes
      })
    },
    ...(wayOut._tag === "None"
      ? {}
      : {
          llm: {
            model: wayOut.model,
            identity: {
              billingAccountId: settings.billingAccountId,
              ...(subject._tag === "Prompt" ? { graphId: `sandbox:${subject.agent.id}` } : {})
            },
            ...budgetOf(flags),
            ...(flags.strict ? { unknownFields: "refuse" } : {})
          }
        }),
    ...(flags.tools.length === 0 ? {} : { tools: flags.tools }),
    ...(flags.canaries === "off" ? {} : { canaries: flags.canaries })
  }
}

const noteOf = (flags: RunFlags, settings: Settings["Service"], wayOut: WayOut) => {
  if (wayOut._tag === "Demo") {
    return settings.upstream._tag === "Configured"
      ? "demo upstream, as asked: no model is asked, although COGNI_LLM_URL is set"
      : "demo upstream: no model is asked"
  }
  return wayOut._tag === "None" && !flags.noModel && settings.upstream._tag === "Configured"
    ? "no way to a model: name one with --model or COGNI_LLM_MODEL"
    : undefined
}

/** What the agent cannot do of what was typed. */
const capable = (subject: RunSubject): Result.Result<void, Refusal> =>
  subject._tag === "Command"
    ? Result.succeed(undefined)
    : Result.mapError(
        AgentSpec.check(subject.agent, {
          personality: subject.personality,
          needsTools: subject.hasRepository
        }),
        ({ message }) =>
          new Refusal({
            exit: "usage",
            detail: message,
            remedy: "What each can do: cogni-sandbox agents"
          })
      )

export const make = (
  subject: RunSubject,
  flags: RunFlags,
  settings: Settings["Service"]
): Result.Result<RunPlan, Refusal> =>
  Result.flatMap(capable(subject), () =>
    Result.map(wayOutOf(subject, flags, settings), (wayOut) => ({
      spec: specOf(subject, flags, settings, wayOut),
      wayOut,
      proxy: flags.proxy,
      auditBodies: flags.auditBodies,
      note: noteOf(flags, settings, wayOut)
    }))
  )
