/** What the main thread and a shard say to each other. Plain data, copied on its way. */
import type { Canary } from "@cogni/sandbox-core/Canary"
import type { LlmObservation } from "@cogni/sandbox-core/LlmProxy"
import type { AuditHead, Evidence, Exhaustion, LlmUsageTotal } from "@cogni/sandbox-core/RunResult"
import type { RunId } from "@cogni/sandbox-core/RunId"
import type { CanaryPolicy, LlmAccess } from "@cogni/sandbox-core/SandboxSpec"
import type { MessagePort } from "node:worker_threads"
import type { AuditEntry, ToolCalled } from "../../AuditEntry.ts"
import type { Answer } from "../gateway/GatewayAnswers.ts"
import type { KeyHeader } from "../../KeyInjection.ts"
import type { Prices } from "../../Prices.ts"
import type { Address } from "../../Upstream.ts"
import type { AuditProblem } from "../audit/AuditFile.ts"
import type { ToolRequest } from "../gateway/ToolPort.ts"
import type { Traffic } from "../gateway/TrafficCount.ts"
import type { GatewayLimits } from "./GatewayLimits.ts"

/** What a thread is started with. It holds no secret. */
export interface ShardStart {
  readonly counters: SharedArrayBuffer
  readonly slot: number
  /** Where compiled modules are kept, if they are. */
  readonly compileCache?: string | undefined
}

/** What is the same for all runs of a gateway. */
export interface ShardConfig extends GatewayLimits {
  readonly address: Address
  /** The upstream key in plain text: it crosses to the shard in this message and nowhere else. */
  readonly key: string
  readonly keyHeader: KeyHeader
  readonly certificateAuthorities?: ReadonlyArray<string> | undefined
  readonly prices?: Prices | undefined
  readonly auditBodies: "digest" | "full"
  readonly outputTokensPerCallMax: number | undefined
  readonly connectionsPerSecondMax: number
  readonly connectionsTotalMax: number
}

/** A run whose socket is to be served. */
export interface RunStart {
  readonly runId: RunId
  readonly llm: LlmAccess
  /** Where to listen. */
  readonly socketPath: string
  /** Where the audit goes. */
  readonly auditParent: string
  /** The audit's first entry. */
  readonly opened: AuditEntry
  readonly canaries: { readonly policy: CanaryPolicy; readonly planted: ReadonlyArray<Canary> }
}

/** What has gone through a run's socket. */
export interface RunTraffic extends Traffic {
  readonly usage: LlmUsageTotal
  readonly exhausted?: Exhaustion | undefined
  readonly auditHead: AuditHead
}

/** A run whose shard was lost: its audit is to be completed and closed. */
export interface RunLost {
  readonly runId: RunId
  readonly auditParent: string
  readonly reason: string
}

/** To the shard. */
export type ToShard =
  | { readonly type: "configure"; readonly config: ShardConfig }
  /** Runs of all shards that live now. */
  | { readonly type: "runs"; readonly runs: number }
  | { readonly type: "open"; readonly run: RunStart; readonly port: MessagePort }
  | { readonly type: "recover"; readonly run: RunLost; readonly port: MessagePort }

/** To one run of a shard, over a port of its own. */
export type ToRun =
  | { readonly type: "finish" }
  | { readonly type: "traffic"; readonly serial: number }
  | { readonly type: "tool_answer"; readonly serial: number; readonly answer: Answer }
  | { readonly type: "tool_called"; readonly fact: typeof ToolCalled.Type }
  | { readonly type: "sighted"; readonly sighting: Omit<Evidence, "at"> }

/** From one run of a shard. */
export type FromRun =
  | { readonly type: "opened" }
  /** The run cannot be served any more. */
  | { readonly type: "failed"; readonly problem: AuditProblem }
  | { readonly type: "observed"; readonly observation: LlmObservation }
  | { readonly type: "tool"; readonly serial: number; readonly request: ToolRequest }
  | { readonly type: "traffic"; readonly serial: number; readonly traffic: RunTraffic }
  | { readonly type: "finished"; readonly traffic: RunTraffic }

/** Answer to `recover`. */
export type FromRecovery =
  | { readonly type: "recovered"; readonly traffic: RunTraffic }
  | { readonly type: "failed"; readonly problem: AuditProblem }
