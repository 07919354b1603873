/** What the gateway knows of one run while its socket is open: its policy, its money, its calls, its audit. */
import * as Canary from "@cogni/sandbox-core/Canary"
import type { RunId } from "@cogni/sandbox-core/RunId"
import type { Evidence, Exhaustion, LlmCall } from "@cogni/sandbox-core/RunResult"
import type { CanaryPolicy, LlmAccess } from "@cogni/sandbox-core/SandboxSpec"
import type { AuditEntry } from "../../AuditEntry.ts"
import type * as Budget from "../policy/Budget.ts"
import type * as KeyInjection from "../../KeyInjection.ts"
import type { BodyPolicy } from "../policy/RequestBody.ts"
import type { Api } from "../policy/RoutePolicy.ts"
import type { Address } from "../../Upstream.ts"
import type { Inspector } from "./Inspector.ts"
import type { Reading } from "./RequestReader.ts"
import type { RunGate } from "./RunGate.ts"
import type { UpstreamClient } from "./UpstreamClient.ts"

/** More calls than these are counted, and are to be read in the audit. */
export const callsKeptMax = 1000

/** Refusals that are written down in a second; what is over that is counted. */
const refusalsPerSecondMax = 20

/** What the runs of a shard share. */
export interface Shared {
  readonly address: Address
  readonly client: UpstreamClient
  readonly inspector: Inspector
  readonly upstreamKey: KeyInjection.UpstreamKey
  readonly keyHeader: KeyInjection.KeyHeader
  readonly requestBytesMax: number
  readonly outputTokensPerCallMax: number | undefined
  readonly auditBodies: "digest" | "full"
}

export interface Options {
  readonly shared: Shared
  readonly runId: RunId
  readonly llm: LlmAccess
  readonly ledger: Budget.Ledger
  /** Never fails; true when it is written. */
  readonly append: (entry: AuditEntry) => Promise<boolean>
  readonly canaries: { readonly policy: CanaryPolicy; readonly planted: ReadonlyArray<Canary.Canary> }
  /** How its bodies are read. */
  readonly reading: Reading
  /** Its bounds: what is done for it elsewhere is counted there. */
  readonly gate: RunGate
  readonly suspected: (evidence: Evidence) => void
  readonly exhausted: (exhaustion: Exhaustion) => void
}

export interface GatewayRun extends Options {
  readonly policyOf: (api: Api, betas: ReadonlyArray<string>) => BodyPolicy
  /** Names the agent may use. */
  readonly modelNames: ReadonlyArray<string>
  readonly calls: Array<LlmCall>
  readonly addCall: (call: LlmCall) => void
  /** Write a refusal down, unless there were too many in this second. */
  readonly refuse: (refusal: Omit<Extract<AuditEntry, { type: "request.refused" }>, "type">) => void
  readonly suspect: (sighting: Omit<Evidence, "at">) => void
  /** Say once that a budget is spent for good. */
  readonly spent: (refusal: Budget.Refusal) => void
  readonly counts: { callsTotal: number; refusedTotal: number; active: number; toolCallsTotal: number }
  /** The run is over: what is still under way ends with it. */
  closing: boolean
}

export const make = (options: Options): GatewayRun => {
  const { append, ledger, llm, shared } = options
  const models: Readonly<Record<string, string>> = { [llm.model]: llm.model, ...llm.models }
  const calls: Array<LlmCall> = []
  const counts = { callsTotal: 0, refusedTotal: 0, active: 0, toolCallsTotal: 0 }
  let second = 0
  let written = 0
  let suppressed = 0
  let suppressedCalls = 0
  let told = false
  const suspected = new Set<string>()

  return {
    ...options,
    modelNames: Object.keys(models),
    calls,
    counts,
    closing: false,
    policyOf: (api, betas) => {
      const { absent, max } = ledger.answerCaps(Object.values(models))
      const perCall = shared.outputTokensPerCallMax
      const least = (...caps: ReadonlyArray<number | undefined>) => {
        const known = caps.filter((cap) => cap !== undefined)
        return known.length === 0 ? undefined : Math.min(...known)
      }
      return {
        api,
        model: llm.model,
        models,
        billingAccountId: llm.identity.billingAccountId,
        unknownFields: llm.unknownFields,
        betas,
        outputTokensMax: least(perCall, max),
        outputTokensAbsent: perCall === undefined ? absent : least(perCall, max),
        sentBytesMax: shared.requestBytesMax
      }
    },
    addCall: (call) => {
      counts.callsTotal += 1
      if (calls.length < callsKeptMax) calls.push(call)
    },
    refuse: (refusal) => {
      counts.refusedTotal += 1
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
      void append({
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
      // A conversation is sent again with every call, and what was in it once is in it for ever.
      const kind = `${sighting.channel} ${sighting.canary} ${sighting.encoding}`
      if (suspected.has(kind)) return
      suspected.add(kind)
      const evidence = { at: new Date().toISOString(), ...sighting }
      void append({ type: "exfiltration.suspected", evidence })
      options.suspected(evidence)
    },
    spent: ({ exhaustion, final }) => {
      if (!final || told) return
      told = true
      void append({ type: "budget.exhausted", exhaustion })
      options.exhausted(exhaustion)
    }
  }
}
