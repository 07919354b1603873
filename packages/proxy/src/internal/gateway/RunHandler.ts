/**
 * All that decides about the requests of one run: its ledger, its policy, its way upstream. Loaded while the run's
 * socket listens already, because it takes longer to load than everything else of a shard.
 */
import * as Budget from "../policy/Budget.ts"
import * as KeyInjection from "../../KeyInjection.ts"
import type { AuditFile } from "../audit/AuditFile.ts"
import * as GatewayRun from "./GatewayRun.ts"
import type { Handler } from "./GatewayServer.ts"
import * as Inspector from "./Inspector.ts"
import type { Reading } from "./RequestReader.ts"
import * as RequestRoutes from "./RequestRoutes.ts"
import type { RunGate } from "./RunGate.ts"
import type { FromRun, RunStart, RunTraffic, ShardConfig } from "../shards/ShardMessage.ts"
import type { ToolHandler } from "./ToolPort.ts"
import * as UpstreamClient from "./UpstreamClient.ts"

export interface RunHandlerOptions {
  readonly config: ShardConfig
  readonly shared: GatewayRun.Shared
  readonly start: RunStart
  readonly audit: AuditFile
  readonly gate: RunGate
  readonly reading: Reading
  readonly tools: ToolHandler
  readonly slow: RequestRoutes.RequestRoutesOptions["slow"]
  readonly tell: (message: FromRun) => void
}

export interface RunHandler extends Handler {
  readonly run: GatewayRun.GatewayRun
  readonly traffic: () => RunTraffic
}

/** What all runs of a shard use. */
export const makeShared = (config: ShardConfig, isAlone: () => boolean): GatewayRun.Shared => ({
  address: config.address,
  client: UpstreamClient.make(config),
  inspector: Inspector.make({ isAlone }),
  upstreamKey: KeyInjection.received(config.key),
  keyHeader: config.keyHeader,
  requestBytesMax: config.requestBytesMax,
  outputTokensPerCallMax: config.outputTokensPerCallMax,
  auditBodies: config.auditBodies
})

export const make = (options: RunHandlerOptions): RunHandler => {
  const { audit, config, gate, reading, shared, start, tell } = options
  const run = GatewayRun.make({
    shared,
    runId: start.runId,
    llm: start.llm,
    ledger: Budget.make(start.llm.budget, {
      ...(config.prices === undefined ? {} : { prices: config.prices }),
      defaults: {
        concurrentCallsMax: config.concurrentCallsMax,
        requestsPerSecondMax: config.requestsPerSecondMax
      }
    }),
    append: audit.append,
    canaries: start.canaries,
    reading,
    gate,
    suspected: (evidence) => tell({ type: "suspected", evidence }),
    exhausted: (exhaustion) => tell({ type: "exhausted", exhaustion })
  })
  return {
    ...RequestRoutes.make({ run, tools: options.tools, slow: options.slow }),
    run,
    traffic: () => {
      const { callsTotal, refusedTotal, toolCallsTotal } = run.counts
      return {
        calls: run.calls,
        callsTotal,
        refusedTotal,
        toolCallsTotal,
        usage: run.ledger.total(),
        exhausted: run.ledger.exhausted(),
        auditHead: audit.head()
      }
    }
  }
}
