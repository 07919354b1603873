/**
 * A host of planned runs: the gateway with a key for each run, and the ledger, composed as the command does it.
 *
 * `layer` and `play` serve this process. `start` plays runs in a separate host process, to be killed: its program is at
 * the end.
 */
import type { ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import { LlmProxy } from "@cogni/sandbox-core/LlmProxy"
import * as MemoryContainerRuntime from "@cogni/sandbox-core/MemoryContainerRuntime"
import * as ResourceLabels from "@cogni/sandbox-core/ResourceLabels"
import { RunId } from "@cogni/sandbox-core/RunId"
import type { LlmAccess } from "@cogni/sandbox-core/SandboxSpec"
import * as LlmProxyContract from "@cogni/sandbox-core/testing/LlmProxyContract"
import * as HostOwner from "@cogni/sandbox-docker/HostOwner"
import type { Ledger } from "@cogni/sandbox-ledger/Ledger"
import * as LedgerLlmProxy from "@cogni/sandbox-ledger/LedgerLlmProxy"
import * as LedgerRecovery from "@cogni/sandbox-ledger/LedgerRecovery"
import type { LedgerRun } from "@cogni/sandbox-ledger/LedgerRun"
import * as AuditCalls from "@cogni/sandbox-proxy/AuditCalls"
import * as GatewayLlmProxy from "@cogni/sandbox-proxy/GatewayLlmProxy"
import * as LiteLlmRunKeys from "@cogni/sandbox-proxy/LiteLlmRunKeys"
import { RunKeys } from "@cogni/sandbox-proxy/RunKeys"
import * as Database from "@cogni/sandbox-sql/Database"
import * as DatabaseAddress from "@cogni/sandbox-sql/DatabaseAddress"
import * as SqlLedger from "@cogni/sandbox-sql/SqlLedger"
import { NodeRuntime } from "@effect/platform-node"
import { Data, Deferred, Effect, Layer, Redacted, Result, Schedule, type Scope } from "effect"
import { spawn } from "node:child_process"
import { mkdirSync } from "node:fs"
import { join } from "node:path"
import { createInterface } from "node:readline"
import * as BillingAgent from "./BillingAgent.ts"
import { prices } from "./BillingModel.ts"
import type { PlannedRun } from "./BillingPlan.ts"

export interface HostOptions {
  /** URL of LiteLLM. */
  readonly url: string
  readonly masterKey: string
  readonly deployment: string
  /** URL of the ledger's database. */
  readonly ledgerUrl: string
  /** Directory of the runs. */
  readonly directory: string
}

/** Seconds for which an answer is read after its agent has gone: less than the slowest answers take. */
const drainSecondsMax = 2

/** Runs of one agent each, which the budget of none stops. */
export const accessOf = ({ billingAccountId }: Pick<PlannedRun, "billingAccountId">): LlmAccess => ({
  model: "priced",
  models: { "priced-claude": "priced-claude" },
  identity: { billingAccountId, attempt: 0, userId: "user-1", graphId: "sandbox:billing" },
  budget: { costUsdMax: 1000, concurrentCallsMax: 8, onExhausted: "refuse" },
  unknownFields: "drop",
  caller: "sandbox"
})

export const ledgerLayer = ({ ledgerUrl }: Pick<HostOptions, "ledgerUrl">): Layer.Layer<Ledger> =>
  SqlLedger.layer.pipe(
    Layer.provide(Database.layer(Result.getOrThrow(DatabaseAddress.parse(ledgerUrl)))),
    Layer.orDie
  )

export const keysLayer = ({ deployment, masterKey, url }: HostOptions): Layer.Layer<RunKeys> =>
  LiteLlmRunKeys.layer({ url, key: Redacted.make(masterKey), deployment, owners: HostOwner }).pipe(
    Layer.orDie
  )

const isOrphaned = ({ expiresAt, owner }: LedgerRun): boolean =>
  HostOwner.isOrphaned(owner, expiresAt, new Date())

const callsOf = AuditCalls.reader({ prices })

/** Name of this machine in the ledger. */
export const hostName = HostOwner.machineName()

/** Settles the runs of host processes that have died. Any number of processes may do it at the same time. */
export const recover = LedgerRecovery.recover({
  host: hostName,
  isOver: isOrphaned,
  callsOf
})

/** The proxy of the runs. The same layer value is one gateway, wherever it is provided. */
export const proxyLayer = ({
  masterKey,
  url
}: HostOptions): Layer.Layer<LlmProxy, never, ContainerRuntime | Ledger | RunKeys> =>
  LedgerLlmProxy.layer(
    Layer.unwrap(
      Effect.map(RunKeys, (keys) =>
        GatewayLlmProxy.layer({
          url,
          key: Redacted.make(masterKey),
          runKeys: { keys },
          prices,
          carrier: "directory",
          requestsPerSecondMax: 1000,
          drainSecondsMax
        })
      )
    ),
    {
      host: hostName,
      owner: ResourceLabels.formatOwner(HostOwner.self()),
      isOrphaned,
      callsOf
    }
  ).pipe(Layer.orDie)

/** A run was refused because LiteLLM created no key for it. */
export class Refused extends Data.TaggedError("Refused")<{ readonly detail: string }> {}

/** Repeats a run that was refused, while LiteLLM restarts. `attempt` counts from 0. */
export const untilAccepted = <E, R>(
  once: (attempt: number) => Effect.Effect<void, E | Refused, R>
): Effect.Effect<number, E | Refused, R> =>
  Effect.suspend(() => {
    let refused = -1
    return Effect.suspend(() => once(++refused)).pipe(
      Effect.retry({
        schedule: Schedule.spaced("1 second"),
        times: 500,
        while: (error) => error instanceof Refused
      }),
      Effect.map(() => refused)
    )
  })

/** ID of a planned run. A run that was refused is begun again with another one. */
export const runIdOf = ({ index }: Pick<PlannedRun, "index">, attempt: number): RunId =>
  RunId.make(`billing-${String(index).padStart(4, "0")}-${attempt}`)

/** Plays a run in this process. Returns how often it was refused before. */
export const play = (
  run: PlannedRun,
  directory: string,
  begun: (call: number) => void = () => undefined
): Effect.Effect<number, never, LlmProxy> =>
  Effect.orDie(untilAccepted((attempt) => once(run, { directory, begun, runId: runIdOf(run, attempt) })))

const once = (
  run: PlannedRun,
  options: { readonly directory: string; readonly runId: RunId; readonly begun: (call: number) => void }
) =>
  Effect.gen(function* () {
    const proxy = yield* LlmProxy
    const own = join(options.directory, options.runId)
    mkdirSync(own, { recursive: true })
    const llm = accessOf(run)
    const endpoint = yield* proxy.acquire(
      LlmProxyContract.requestOf(options.runId, { directory: own, runtimeSecondsMax: 600, llm })
    )
    yield* endpoint.ready.pipe(
      Effect.mapError(({ _tag, ...error }) => new Refused({ detail: `${_tag} ${JSON.stringify(error)}` }))
    )
    const killed = yield* Deferred.make<void>()
    const door = { socketPath: join(endpoint.mounts[0]!.source, "llm.sock") }
    const agent = yield* BillingAgent.start(own, door, run, (call) => {
      options.begun(call)
      if (run.fate === "is killed" && call === run.killedAt) Deferred.doneUnsafe(killed, Effect.void)
    })
    yield* Effect.raceFirst(agent.ended, Effect.andThen(Deferred.await(killed), agent.kill))
    yield* Effect.orDie(endpoint.finish)
  }).pipe(Effect.scoped)

export interface BillingHost {
  /** Settles when a run has reached the call in whose middle it is killed. */
  readonly reached: Effect.Effect<void>
  /** Sends SIGKILL and waits for the end. */
  readonly kill: Effect.Effect<void>
}

interface Asked {
  readonly options: HostOptions
  readonly runs: ReadonlyArray<PlannedRun>
}

/** Plays runs in a separate host process. */
export const start = Effect.fnUntraced(function* (
  asked: Asked
): Effect.fn.Return<BillingHost, never, Scope.Scope> {
  const reached = yield* Deferred.make<void>()
  const child = yield* Effect.acquireRelease(
    Effect.sync(() => {
      const argv = ["--disable-warning=ExperimentalWarning", import.meta.filename]
      const made = spawn(process.execPath, argv, { stdio: ["pipe", "pipe", "inherit"] })
      made.stdin.end(JSON.stringify(asked))
      createInterface({ input: made.stdout }).on("line", (line) => {
        const [, index, call] = /^(\d+) begun (\d+)$/u.exec(line) ?? []
        const run = asked.runs.find((one) => one.index === Number(index))
        if (run !== undefined && Number(call) >= run.killedAt) Deferred.doneUnsafe(reached, Effect.void)
      })
      made.once("exit", (code) =>
        Deferred.doneUnsafe(reached, Effect.die(new Error(`the host process has ended with ${code}`)))
      )
      return made
    }),
    (made) => Effect.sync(() => made.kill("SIGKILL"))
  )
  return {
    reached: Deferred.await(reached),
    kill: Effect.callback<void>((resume) => {
      if (child.exitCode !== null || child.signalCode !== null) return resume(Effect.void)
      child.once("exit", () => resume(Effect.void))
      child.kill("SIGKILL")
      return undefined
    })
  }
})

const program = Effect.gen(function* () {
  const pieces: Array<Buffer> = []
  yield* Effect.promise(async () => {
    for await (const piece of process.stdin) pieces.push(piece as Buffer)
  })
  const { options, runs }: Asked = JSON.parse(Buffer.concat(pieces).toString("utf8"))
  yield* Effect.forEach(
    runs,
    (run) => play(run, options.directory, (call) => console.log(`${run.index} begun ${call}`)),
    { concurrency: "unbounded", discard: true }
  ).pipe(
    Effect.provide(
      proxyLayer(options).pipe(
        Layer.provide([ledgerLayer(options), keysLayer(options), MemoryContainerRuntime.layer()])
      )
    )
  )
  // Whether its runs have ended or not, it is killed.
  return yield* Effect.never
})

if (import.meta.main) NodeRuntime.runMain(program)
