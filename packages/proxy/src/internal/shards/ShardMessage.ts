/** Messages between the main thread and a shard. Plain data, copied between threads. */
import type { Canary } from "@cogni/sandbox-core/Canary"
import type { LlmAccount } from "@cogni/sandbox-core/LlmProxy"
import type { LlmObservation } from "@cogni/sandbox-core/LlmObservation"
import type { AuditHead, Evidence, Exhaustion, LlmUsageTotal } from "@cogni/sandbox-core/RunFigures"
import type { PackagePattern } from "@cogni/sandbox-core/PackagePattern"
import type { RunId } from "@cogni/sandbox-core/RunId"
import type { CanaryPolicy, LlmAccess } from "@cogni/sandbox-core/SpecFields"
import type { MessagePort } from "node:worker_threads"
import type { AuditEntry, RunKeyed, ToolApproval, ToolCalled } from "../../AuditEntry.ts"
import type { Answer } from "../gateway/GatewayAnswers.ts"
import type { Payer } from "../gateway/GatewayRun.ts"
import type { Prices } from "../../Prices.ts"
import type { Address } from "../../Upstream.ts"
import type { UpstreamProfile } from "../../UpstreamProfile.ts"
import type { AuditProblem } from "../audit/AuditFile.ts"
import type { MirrorConfig } from "../packages/MirrorConfig.ts"
import type { ToolRequest } from "../gateway/ToolPort.ts"
import type { ThreadCode } from "../ThreadCode.ts"
import type { Traffic } from "../gateway/TrafficCount.ts"
import type { KeyAsk, KeyKind, KeyTold } from "../gateway/UpstreamKeys.ts"
import type { GatewayLimits } from "./GatewayLimits.ts"

/** Data that a thread is started with. It contains no secret. */
export interface ShardStart {
  readonly counters: SharedArrayBuffer
  readonly slot: number
  /** Program of the threads that the shard starts. */
  readonly inspection: ThreadCode
  /** Directory of Node's compile cache, if it is enabled. */
  readonly compileCache?: string | undefined
}

/** Configuration that all runs of a gateway share. */
export interface ShardConfig extends GatewayLimits {
  readonly address: Address
  readonly keyKind: KeyKind
  /** A fixed upstream key in plain text. Other credentials cross in answers to a run: see `KeyTold`. */
  readonly key: string | undefined
  readonly profile: UpstreamProfile
  /** URL of the HTTP proxy between host and upstream, with its password. */
  readonly proxyUrl?: string | undefined
  readonly certificateAuthorities?: ReadonlyArray<string> | undefined
  readonly prices?: Prices | undefined
  /** Absent if the host has no package mirror. */
  readonly packages?: MirrorConfig | undefined
  readonly auditBodies: "digest" | "full"
  readonly outputTokensPerCallMax: number | undefined
  readonly connectionsPerSecondMax: number
  readonly connectionsTotalMax: number
}

/** A run to serve. */
export interface RunStart {
  readonly runId: RunId
  /** Absent if the run has no model. */
  readonly llm?: LlmAccess | undefined
  readonly runtimeSecondsMax: number
  readonly payer: Payer
  /** Limits of the account that pays. Their memory is shared with the other runs of the account. */
  readonly account?: LlmAccount | undefined
  /** Whether the run has a key of its own, which the main thread returns when it is asked. */
  readonly hasOwnKey: boolean
  /** Path of the socket to listen on. */
  readonly socketPath: string
  /** Patterns of the packages that the sandbox may install. */
  readonly packages: ReadonlyArray<PackagePattern>
  /** Another socket, which serves only packages: the sandbox of a model that the host calls. */
  readonly packageSocketPath?: string | undefined
  /** Directory that contains the audit. */
  readonly auditParent: string
  /** The audit's first entry. */
  readonly opened: AuditEntry
  readonly canaries: { readonly policy: CanaryPolicy; readonly planted: ReadonlyArray<Canary> }
  /** Header of that name for every upstream request of the run. */
  readonly traceparent?: string | undefined
}

/** Traffic of a run's socket. */
export interface RunTraffic extends Traffic {
  readonly usage: LlmUsageTotal
  readonly exhausted?: Exhaustion | undefined
  readonly subagentsExhausted?: Exhaustion | undefined
  readonly auditHead: AuditHead
}

/** A run whose shard was lost, and whose audit must be completed and closed. */
export interface RunLost {
  readonly runId: RunId
  readonly auditParent: string
  readonly reason: string
}

/** Message to a shard. */
export type ToShard =
  | { readonly type: "configure"; readonly config: ShardConfig }
  /** Live runs of all shards. */
  | { readonly type: "runs"; readonly runs: number }
  | { readonly type: "open"; readonly run: RunStart; readonly port: MessagePort }
  | { readonly type: "recover"; readonly run: RunLost; readonly port: MessagePort }

/** Message to one run of a shard, over the run's own port. */
export type ToRun =
  | { readonly type: "finish" }
  | { readonly type: "traffic"; readonly serial: number }
  | { readonly type: "tool_answer"; readonly serial: number; readonly answer: Answer }
  | { readonly type: "tool_called"; readonly fact: typeof ToolCalled.Type }
  | { readonly type: "approval"; readonly fact: ToolApproval }
  | { readonly type: "keyed"; readonly fact: RunKeyed }
  | { readonly type: "sighted"; readonly sighting: Omit<Evidence, "at"> }
  | { readonly type: "key_told"; readonly serial: number; readonly told: KeyTold }

/** Message from one run of a shard. */
export type FromRun =
  | { readonly type: "opened" }
  /** The run can no longer be served. */
  | { readonly type: "failed"; readonly problem: AuditProblem }
  /** The host has a fault that costs the run a request. The detail contains nothing of the agent. */
  | { readonly type: "troubled"; readonly problem: AuditProblem }
  | { readonly type: "observed"; readonly observation: LlmObservation }
  | { readonly type: "tool"; readonly serial: number; readonly request: ToolRequest }
  /** The client of a tool call has gone. */
  | { readonly type: "tool_gone"; readonly serial: number }
  | { readonly type: "key"; readonly serial: number; readonly ask: KeyAsk }
  | { readonly type: "traffic"; readonly serial: number; readonly traffic: RunTraffic }
  | { readonly type: "finished"; readonly traffic: RunTraffic }

/** Answer to `recover`. */
export type FromRecovery =
  | { readonly type: "recovered"; readonly traffic: RunTraffic }
  | { readonly type: "failed"; readonly problem: AuditProblem }
