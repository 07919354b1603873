/**
 * A target for Prometheus with the metrics of rare events, which a healthy server does not have. They are a canary, a
 * spent budget, a spent share of subagents, an approval without a decision, a refused spec, leftovers, a verdict about
 * a cost, a pool and ready networks. Each comes from the code that counts it in production.
 */
import * as Approval from "@cogni/sandbox-core/Approval"
import * as PoolPolicy from "@cogni/sandbox-core/PoolPolicy"
import * as ResourceLabels from "@cogni/sandbox-core/ResourceLabels"
import { RunId } from "@cogni/sandbox-core/RunId"
import { ContainerFailed } from "@cogni/sandbox-core/SandboxReason"
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import * as DockerApi from "@cogni/sandbox-docker/DockerApi"
import * as DockerReaper from "@cogni/sandbox-docker/DockerReaper"
import * as HostOwner from "@cogni/sandbox-docker/HostOwner"
import { Ledger, Reconciler, ReconciliationLimits, SpendRows } from "@cogni/sandbox-ledger"
import * as MetricsServer from "@cogni/sandbox-server/MetricsServer"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { Context, Effect, Layer, Metric } from "effect"
import { HttpServer } from "effect/http"
import { createServer } from "node:http"
import * as PoolHarness from "../../packages/core/test/PoolHarness.ts"
import * as ReadyNetworks from "../../packages/docker/src/internal/container/ReadyNetworks.ts"
import { entryOf, runOf } from "../../packages/ledger/src/testing/LedgerSamples.ts"
import * as Await from "./Await.ts"

const asked = Approval.begin(
  {
    runId: RunId.make("run-000000000000"),
    billingAccountId: "account-1",
    requestId: "call-1",
    tool: "acme__pay",
    effect: "external_side_effect",
    arguments: "{}",
    argumentsDigest: "a".repeat(64),
    askedBy: {},
    waitSecondsMax: 60
  },
  0
)

const runner = SandboxRunner.layerMemory({
  program: () => Effect.succeed(0),
  llm: {
    observations: [
      {
        _tag: "ExfiltrationSuspected",
        evidence: { at: "2026-01-31T10:00:00.000Z", canary: "aws", encoding: "plain", channel: "prompt" }
      },
      { _tag: "BudgetExhausted", exhaustion: { budget: "calls", limit: 1, used: 1 } },
      { _tag: "SubagentShareSpent", exhaustion: { budget: "calls", limit: 1, used: 1 } },
      { _tag: "ApprovalDecided", approval: { ...asked, status: "expired" } }
    ]
  }
})

/** A run with a canary, a spent budget and an approval, and a spec that is refused. */
const runs = Effect.gen(function* () {
  const { run } = yield* SandboxRunner.SandboxRunner
  const identity = { billingAccountId: "account-1" }
  yield* run({ image: "memory/agent", argv: ["agent"], canaries: "warn", llm: { model: "m", identity } })
  yield* Effect.flip(run({ image: "", argv: ["agent"] }))
}).pipe(Effect.provide(runner))

/** A run in a sandbox that waited, one that no such sandbox can serve, and a sandbox that waits until the pool closes. */
const pooled = Effect.gen(function* () {
  const { run } = yield* SandboxRunner.SandboxRunner
  const waits = Effect.map(PoolHarness.report, ({ waiting }) => waiting.length > 0)
  const spec = { image: "memory/agent", argv: ["agent"] } as const
  yield* Await.until("a sandbox waits", waits)
  yield* run(spec)
  yield* run({ ...spec, canaries: "warn", llm: { model: "m", identity: { billingAccountId: "account-1" } } })
  yield* Await.until("another sandbox waits", waits)
}).pipe(
  Effect.provide(
    PoolHarness.layer({
      program: () => Effect.succeed(0),
      pool: { keep: [{ image: "memory/agent", count: 1 }] }
    })
  )
)

/** A cold run that found no ready network, and a network that is ready after it. */
const networks = Effect.gen(function* () {
  const imageId = "sha256:one"
  const { keep, take } = ReadyNetworks.make({
    imageId: () => Effect.succeed(imageId),
    quiet: Effect.void,
    sharesHost: Effect.succeed(true),
    start: () =>
      Effect.succeed({
        id: "holder",
        imageId,
        isNetless: true,
        whyUnusable: () => undefined,
        mismatches: () => []
      })
  })
  const report = yield* keep({
    limits: PoolPolicy.defaults,
    networksMax: 1,
    memoryAvailableBytes: Effect.undefined
  })
  yield* take("memory/agent")
  yield* Await.until(
    "a network is ready",
    Effect.map(report, ({ ready }) => ready === 1)
  )
}).pipe(Effect.scoped)

/** A container of a dead process that is removed, and a volume that is not. */
const leftovers = Effect.suspend(() => {
  const living = HostOwner.self()
  const resource = (kind: "container" | "volume") => ({
    kind,
    id: kind,
    name: kind,
    labels: ResourceLabels.make({
      runId: RunId.make("run-000000000000"),
      role: "agent",
      owner: { ...living, startTicks: living.startTicks + 1 },
      startedAt: new Date("2030-01-01T00:00:00Z"),
      expiresAt: new Date("2100-01-01T00:00:00Z")
    })
  })
  const engine = Layer.mock(DockerApi.DockerApi, {
    address: { type: "unix", path: "/nowhere" },
    labelled: () => Effect.succeed([resource("container"), resource("volume")]),
    remove: () => Effect.void,
    removeVolume: () =>
      Effect.fail(new ContainerFailed({ operation: "remove", detail: "in use", remedy: "Wait" } as never))
  })
  return DockerReaper.DockerReaper.use(({ reap }) => reap).pipe(
    Effect.provide(Layer.provide(DockerReaper.layerApi(), engine))
  )
})

/** A pass over a call whose row does not exist. */
const verdict = Effect.gen(function* () {
  const ledger = yield* Ledger.makeMemory()
  const spend = yield* SpendRows.makeMemory("litellm")
  const run = runOf("run-00000001")
  const entries = [entryOf("run-00000001", "call-1", { runKeyHash: "a".repeat(64) })]
  yield* ledger.open(run)
  yield* ledger.settle({ run, entries, closedAt: "2026-01-31T10:05:00.000Z" })
  const { reconcile } = yield* Reconciler.make({ limits: ReconciliationLimits.limitsFor() }).pipe(
    Effect.provideService(Ledger.Ledger, ledger),
    Effect.provideService(SpendRows.SpendRows, spend.service)
  )
  yield* reconcile()
})

/** Address of the target, as `host:port`. */
export const acquire = Effect.gen(function* () {
  const context = yield* Layer.build(
    MetricsServer.layer().pipe(
      Layer.provideMerge(NodeHttpServer.layer(() => createServer(), { port: 0, host: "127.0.0.1" }))
    )
  )
  yield* runs
  yield* pooled
  yield* networks
  yield* leftovers
  yield* verdict
  const { address } = Context.get(context, HttpServer.HttpServer)
  return HttpServer.formatAddress(address).replace("http://", "")
}).pipe(Effect.provideService(Metric.MetricRegistry, new Map()), Effect.orDie)
