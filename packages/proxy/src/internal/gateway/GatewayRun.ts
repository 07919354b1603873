/** State of one run while its socket is open: its policy, budget, calls and audit. */
import * as Canary from "@cogni/sandbox-core/Canary"
import type { RunId } from "@cogni/sandbox-core/RunId"
import type { Evidence, Exhaustion } from "@cogni/sandbox-core/RunFigures"
import type { CanaryPolicy, LlmAccess } from "@cogni/sandbox-core/SpecFields"
import type { AuditEntry, RunKeyed, ToolApproval, ToolCalled } from "../../AuditEntry.ts"
import type { AuditFile, AuditProblem } from "../audit/AuditFile.ts"
import type { BodyPolicy } from "../policy/BodyRules.ts"
import type { Api } from "../policy/RoutePolicy.ts"
import type { RunLedger, RunRefusal } from "../policy/SubagentShare.ts"
import type { Address } from "../../Upstream.ts"
import type { EndUserField, UpstreamProfile } from "../../UpstreamProfile.ts"
import type { Mirror } from "../packages/Mirror.ts"
import type { RunPackages } from "../packages/RunPackages.ts"
import type { CallDrains } from "./CallDrains.ts"
import type { Inspector } from "./Inspector.ts"
import type { Reading } from "./RequestReader.ts"
import type { RunGate } from "./RunGate.ts"
import * as TrafficCount from "./TrafficCount.ts"
import type { UpstreamClient } from "./UpstreamClient.ts"
import type { KeyAsker, UpstreamKeys } from "./UpstreamKeys.ts"

/** Refusals per second that are audited. Others are only counted. */
const refusalsPerSecondMax = 20

/** Resources that the runs of a shard share. */
export interface Shared {
  readonly address: Address
  readonly client: UpstreamClient
  readonly inspector: Inspector
  /** Absent if the host has no package mirror. */
  readonly mirror?: Mirror | undefined
  readonly keys: UpstreamKeys
  readonly profile: UpstreamProfile
  readonly requestBytesMax: number
  readonly outputTokensPerCallMax: number | undefined
  readonly auditBodies: "digest" | "full"
}

/** The account as an upstream learns it, computed by the main thread. */
export interface Payer {
  /** For LiteLLM the account, for others its pseudonym. Absent: nothing. */
  readonly endUser?: string | undefined
  /** Differs by account: see `BodyPolicy`. */
  readonly cacheScope: string
}

export interface Options {
  readonly shared: Shared
  readonly runId: RunId
  /** Absent if the run has no model. */
  readonly llm?: LlmAccess | undefined
  /** The account as the upstream learns it. */
  readonly payer: Payer
  /** Absent if the run may not install packages. */
  readonly packages?: RunPackages | undefined
  readonly ledger: RunLedger
  /** Calls whose answers are still read after their agent has gone. */
  readonly drains: CallDrains
  readonly audit: Pick<AuditFile, "append" | "note">
  readonly canaries: { readonly policy: CanaryPolicy; readonly planted: ReadonlyArray<Canary.Canary> }
  /** Trace context of the run, from the host. The agent cannot choose it. */
  readonly traceparent?: string | undefined
  /** Limits for reading request bodies. */
  readonly reading: Reading
  /** Limits of the run. Work that other threads do for it is charged here. */
  readonly gate: RunGate
  readonly askKey: KeyAsker
  readonly suspected: (evidence: Evidence) => void
  readonly exhausted: (exhaustion: Exhaustion) => void
  readonly shareSpent: (exhaustion: Exhaustion) => void
  /** Reports a fault of the host to its operator. */
  readonly troubled: (problem: AuditProblem) => void
}

export interface GatewayRun extends Options {
  readonly policyOf: (api: Api, betas: ReadonlyArray<string>, isSubagent: boolean) => BodyPolicy
  /** Model names that the agent may use. */
  readonly modelNames: ReadonlyArray<string>
  readonly traffic: TrafficCount.TrafficCount
  /** Counts a refusal, and audits it unless there were too many in this second. */
  readonly refuse: (refusal: Refusal) => void
  readonly suspect: (sighting: Omit<Evidence, "at">) => void
  /** Reports a fault of the host, once for each text. */
  readonly trouble: (problem: AuditProblem) => void
  readonly toolCalled: (fact: typeof ToolCalled.Type) => void
  /** Records that a tool call waits for an approval, or how the approval ended. */
  readonly approval: (fact: ToolApproval) => void
  /** Reports once that a budget is finally exhausted, and once that the share of the subagents is. */
  readonly spent: (refusal: RunRefusal) => void
  /** The spent part of the share of the subagents. */
  readonly shareSpent: () => Exhaustion | undefined
  /** Records the key with which the calls of the run go upstream. */
  readonly keyed: (fact: RunKeyed) => void
  /** The run's own key at the upstream; `undefined` if the run shares the gateway's. */
  readonly ownKey: () => Pick<RunKeyed, "budgetUsdMax"> | undefined
}

export type Refusal = Omit<Extract<AuditEntry, { type: "request.refused" }>, "type">

const endUserOf = (field: EndUserField | undefined, value: string | undefined): Pick<BodyPolicy, "endUser"> =>
  field === undefined || value === undefined ? {} : { endUser: { field, value } }

export const make = (options: Options): GatewayRun => {
  const { audit, ledger, llm, shared } = options
  const models: Readonly<Record<string, string>> =
    llm === undefined ? {} : { [llm.model]: llm.model, ...llm.models }
  const traffic = TrafficCount.make()
  let second = 0
  let written = 0
  let suppressed = 0
  let suppressedCalls = 0
  let told = false
  let shareSpent: Exhaustion | undefined
  const suspected = new Set<string>()
  let troubled: string | undefined
  let ownKey: RunKeyed | undefined

  return {
    ...options,
    modelNames: Object.keys(models),
    traffic,
    policyOf: (api, betas, isSubagent) => {
      if (llm === undefined) throw new TypeError("a run without a model has no policy for bodies")
      const { absent, max } = ledger.answerCaps(Object.values(models), isSubagent)
      const perCall = shared.outputTokensPerCallMax
      const fields = shared.profile.bodyFields[api]
      const least = (...caps: ReadonlyArray<number | undefined>) => {
        const known = caps.filter((cap) => cap !== undefined)
        return known.length === 0 ? undefined : Math.min(...known)
      }
      return {
        api,
        model: llm.model,
        models,
        ...endUserOf(shared.profile.endUserFields[api], options.payer.endUser),
        cacheScope: options.payer.cacheScope,
        ...(fields === undefined || Object.keys(fields).length === 0 ? {} : { fields }),
        unknownFields: llm.unknownFields,
        betas,
        outputTokensMax: least(perCall, max),
        outputTokensAbsent: perCall === undefined ? absent : least(perCall, max),
        sentBytesMax: shared.requestBytesMax
      }
    },
    refuse: (refusal) => {
      traffic.add({ refusedTotal: 1 })
      const now = Math.floor(performance.now() / 1000)
      if (now !== second) {
        second = now
        written = 0
      }
      if (written === refusalsPerSecondMax) {
        suppressed += 1
        if (refusal.call !== undefined) suppressedCalls += 1
        return
      }
      written += 1
      const { detail, path } = refusal
      const clean = (text: string) => Canary.redact(options.canaries.planted, text)
      audit.note({
        type: "request.refused",
        ...refusal,
        detail: clean(detail),
        ...(path === undefined ? {} : { path: clean(path) }),
        ...(suppressed === 0 ? {} : { suppressed }),
        ...(suppressedCalls === 0 ? {} : { suppressedCalls })
      })
      suppressed = 0
      suppressedCalls = 0
    },
    suspect: (sighting) => {
      // Every call repeats the conversation, so a canary that was in it once is in every later call.
      const kind = `${sighting.channel} ${sighting.canary} ${sighting.encoding}`
      if (suspected.has(kind)) return
      suspected.add(kind)
      const evidence = { at: new Date().toISOString(), ...sighting }
      audit.note({ type: "exfiltration.suspected", evidence })
      options.suspected(evidence)
    },
    trouble: (problem) => {
      if (problem.detail === troubled) return
      troubled = problem.detail
      options.troubled(problem)
    },
    toolCalled: (fact) => {
      traffic.add({ toolCallsTotal: 1 })
      audit.note(fact)
    },
    approval: audit.note,
    keyed: (fact) => {
      audit.note(fact)
      if (fact.credential === "run") ownKey = fact
    },
    ownKey: () => ownKey,
    shareSpent: () => shareSpent,
    spent: ({ exhaustion, final, isOfSubagents }) => {
      if (final && isOfSubagents === true && shareSpent === undefined) {
        shareSpent = exhaustion
        audit.note({ type: "subagents.exhausted", exhaustion })
        options.shareSpent(exhaustion)
      }
      if (!final || told || isOfSubagents === true) return
      told = true
      audit.note({ type: "budget.exhausted", exhaustion })
      options.exhausted(exhaustion)
    }
  }
}
