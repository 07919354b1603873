/**
 * A host of planned runs: a gateway with a key for each run, and a ledger, composed as the command does it.
 *
 * `proxyLayer` and `play` serve a test's own process. `start` plays runs in a separate host process, to be killed: its
 * program is at the end.
 */
import type { ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import { LlmProxy, type LlmProxyError } from "@cogni/sandbox-core/LlmProxy"
import * as MemoryContainerRuntime from "@cogni/sandbox-core/MemoryContainerRuntime"
import * as ResourceLabels from "@cogni/sandbox-core/ResourceLabels"
import { RunId } from "@cogni/sandbox-core/RunId"
import type { SandboxError } from "@cogni/sandbox-core/SandboxError"
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import type { LlmAccess } from "@cogni/sandbox-core/SpecFields"
import * as LlmProxyContract from "@cogni/sandbox-core/testing/LlmProxyContract"
import * as DockerContainerRuntime from "@cogni/sandbox-docker/DockerContainerRuntime"
import * as FileRunStore from "@cogni/sandbox-docker/FileRunStore"
import * as HostOwner from "@cogni/sandbox-docker/HostOwner"
import * as HostWorkspace from "@cogni/sandbox-docker/HostWorkspace"
import type { Ledger } from "@cogni/sandbox-ledger/Ledger"
import * as LedgerLlmProxy from "@cogni/sandbox-ledger/LedgerLlmProxy"
import * as LedgerRecovery from "@cogni/sandbox-ledger/LedgerRecovery"
import type { LedgerRun } from "@cogni/sandbox-ledger/LedgerRun"
import * as AuditCalls from "@cogni/sandbox-proxy/AuditCalls"
import * as AuditTraffic from "@cogni/sandbox-proxy/AuditTraffic"
import * as GatewayLlmProxy from "@cogni/sandbox-proxy/GatewayLlmProxy"
import * as LiteLlmRunKeys from "@cogni/sandbox-proxy/LiteLlmRunKeys"
import * as RunKeys from "@cogni/sandbox-proxy/RunKeys"
import * as Database from "@cogni/sandbox-sql/Database"
import * as DatabaseAddress from "@cogni/sandbox-sql/DatabaseAddress"
import * as SqlLedger from "@cogni/sandbox-sql/SqlLedger"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Data, Deferred, Effect, Layer, Redacted, Result, Schedule, type Scope, Stream } from "effect"
import { spawn } from "node:child_process"
import { mkdirSync } from "node:fs"
import { join } from "node:path"
import { createInterface } from "node:readline"
import * as Engine from "../Engine.ts"
import * as Images from "../Images.ts"
import * as LinkedPrograms from "../LinkedPrograms.ts"
import * as BillingAgent from "./BillingAgent.ts"
import { prices } from "./BillingModel.ts"
import type { PlannedRun } from "./BillingPlan.ts"

export interface HostOptions {
  /** URL of the upstream. */
  readonly url: string
  readonly masterKey: string
  /** Deployment for keys that LiteLLM issues. Absent: the keys are made up, and the upstream accepts any. */
  readonly deployment?: string | undefined
  /** URL of the ledger's database. */
  readonly ledgerUrl: string
  /** Directory of the runs. */
  readonly directory: string
}

/** Seconds for which an answer is read after its agent has gone: less than the slowest answers take. */
const drainSecondsMax = 2

const runtimeSecondsMax = 600

/** No budget stops a run. */
const accessOf = ({ attempt = 0, billingAccountId }: PlannedRun): LlmAccess => ({
  model: "priced",
  models: { "priced-claude": "priced-claude" },
  identity: { billingAccountId, attempt, userId: "user-1", graphId: "sandbox:billing" },
  budget: { costUsdMax: 1000, concurrentCallsMax: 8, onExhausted: "refuse" },
  unknownFields: "drop",
  caller: "sandbox"
})

export const ledgerLayer = (ledgerUrl: string): Layer.Layer<Ledger> =>
  SqlLedger.layer.pipe(
    Layer.provide(Database.layer(Result.getOrThrow(DatabaseAddress.parse(ledgerUrl)))),
    Layer.orDie
  )

export const keysLayer = ({ deployment, masterKey, url }: HostOptions): Layer.Layer<RunKeys.RunKeys> =>
  deployment === undefined
    ? RunKeys.layerMemory()
    : Layer.orDie(LiteLlmRunKeys.layer({ url, key: Redacted.make(masterKey), deployment, owners: HostOwner }))

const isOrphaned = ({ expiresAt, owner }: LedgerRun): boolean =>
  HostOwner.isOrphaned(owner, expiresAt, new Date())

const callsOf = AuditCalls.reader({ prices })

/** Name of this machine in the ledger. */
export const hostName = HostOwner.machineName()

/** Settles the runs of host processes that have died. Any number of processes may do it at the same time. */
export const recover = LedgerRecovery.recover({ host: hostName, isOver: isOrphaned, callsOf })

/** The proxy of the runs. The same layer value is one gateway, wherever it is provided. */
export const proxyLayer = ({
  masterKey,
  url
}: HostOptions): Layer.Layer<LlmProxy, never, ContainerRuntime | Ledger | RunKeys.RunKeys> =>
  LedgerLlmProxy.layer(
    Layer.unwrap(
      Effect.map(RunKeys.RunKeys, (keys) =>
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

/** How a run went that its host has played to its end. */
export interface Played {
  /** How often it was refused before, because the upstream created no key for it. */
  readonly refused: number
  /** Why it failed, if it did. */
  readonly failure?: string | undefined
}

/** A run was refused before its agent could start, because the upstream was gone. */
class Refused extends Data.TaggedError("Refused")<{ readonly detail: string }> {}

/** ID of a planned run. A run that was refused is begun again with another one. */
const runIdOf = ({ index }: PlannedRun, refused: number): RunId =>
  RunId.make(`billing-${String(index).padStart(4, "0")}-${refused}`)

/** Returns the index of the plan of a run. */
export const indexOf = (runId: string): number => Number(runId.split("-")[1])

const beginsAgain = { schedule: Schedule.spaced("1 second"), times: 500 }

/** Plays a run in this process: again and again while it is refused. */
export const play = Effect.fnUntraced(function* (
  run: PlannedRun,
  directory: string,
  begun: (call: number) => void = () => undefined
): Effect.fn.Return<Played, never, LlmProxy | SandboxRunner.SandboxRunner> {
  let refused = -1
  const once = Effect.suspend((): Attempted => {
    refused += 1
    const runId = runIdOf(run, refused)
    return run.isSealed ? sealed(run, runId, begun) : unsealed(run, runId, { directory, begun })
  })
  const isRefusal = (error: unknown) => error instanceof Refused
  const failure = yield* Effect.retry(once, { ...beginsAgain, while: isRefusal }).pipe(
    Effect.as(undefined),
    Effect.catch(({ message }) => Effect.succeed(message))
  )
  return failure === undefined ? { refused } : { refused, failure }
})

type Attempted = Effect.Effect<
  void,
  Refused | LlmProxyError | SandboxError,
  LlmProxy | SandboxRunner.SandboxRunner
>

/** Plays a run with a process of this host as its agent. */
const unsealed = (
  run: PlannedRun,
  runId: RunId,
  options: { readonly directory: string; readonly begun: (call: number) => void }
) =>
  Effect.gen(function* () {
    const proxy = yield* LlmProxy
    const directory = join(options.directory, runId)
    mkdirSync(directory, { recursive: true })
    const request = { directory, runtimeSecondsMax, llm: accessOf(run) }
    const endpoint = yield* proxy.acquire(LlmProxyContract.requestOf(runId, request))
    yield* Effect.mapError(
      endpoint.ready,
      ({ _tag, remedy }) => new Refused({ detail: `${_tag}: ${remedy}` })
    )
    const killed = yield* Deferred.make<void>()
    const door = { socketPath: join(endpoint.mounts[0]!.source, "llm.sock") }
    const agent = yield* BillingAgent.start(directory, door, run, (call) => {
      options.begun(call)
      if (run.fate === "is killed" && call === run.killedAt) Deferred.doneUnsafe(killed, Effect.void)
    })
    yield* Effect.raceFirst(agent.ended, Effect.andThen(Deferred.await(killed), agent.kill))
    yield* endpoint.finish
  }).pipe(Effect.scoped)

/** Plays a run in a sealed container. */
const sealed = (run: PlannedRun, runId: RunId, begun: (call: number) => void) =>
  Effect.gen(function* () {
    const { stream } = yield* SandboxRunner.SandboxRunner
    const { caller: _caller, ...llm } = accessOf(run)
    let text = ""
    let hasReached = false
    yield* stream({
      runId,
      image: Images.runtime,
      argv: ["node", "-e", BillingAgent.program, "/cogni/calls.json"],
      inputs: [{ name: "calls.json", content: BillingAgent.input({ host: "127.0.0.1", port: 8080 }, run) }],
      limits: { runtimeSecondsMax },
      llm
    }).pipe(
      // Abandoning the stream kills the run.
      Stream.takeUntil((event) => {
        if (event._tag !== "OutputReceived") return false
        const lines = (text + new TextDecoder().decode(event.bytes)).split("\n")
        text = lines.pop() ?? ""
        for (const line of lines)
          BillingAgent.hear(line, (call) => {
            begun(call)
            hasReached ||= run.fate === "is killed" && call === run.killedAt
          })
        return hasReached
      }),
      Stream.runDrain,
      Effect.mapError((error) =>
        error.reason._tag === "ProxyFailed" ? new Refused({ detail: error.message }) : error
      )
    )
  })

export interface BillingHost {
  /** Settles when a run has reached the call in whose middle it is killed. */
  readonly reached: Effect.Effect<void>
  /** Settles when the process has ended. */
  readonly ended: Effect.Effect<void>
  /** Sends SIGKILL and waits for the end. */
  readonly kill: Effect.Effect<void>
}

interface Asked {
  readonly options: HostOptions
  readonly runs: ReadonlyArray<PlannedRun>
}

/** Plays runs in a separate host process. It ends when all of them have. */
export const start = Effect.fnUntraced(function* (
  asked: Asked
): Effect.fn.Return<BillingHost, never, Scope.Scope> {
  const reached = yield* Deferred.make<void>()
  const ended = yield* Deferred.make<void>()
  const child = yield* Effect.acquireRelease(
    Effect.sync(() => {
      const argv = ["--disable-warning=ExperimentalWarning", LinkedPrograms.pathOf(import.meta.filename)]
      const made = spawn(process.execPath, argv, { stdio: ["pipe", "pipe", "inherit"] })
      made.stdin.end(JSON.stringify(asked))
      createInterface({ input: made.stdout }).on("line", (line) => {
        const [, index, call] = /^(\d+) begun (\d+)$/u.exec(line) ?? []
        const run = asked.runs.find((one) => one.index === Number(index))
        if (run !== undefined && Number(call) >= run.killedAt) Deferred.doneUnsafe(reached, Effect.void)
      })
      made.once("exit", (code) => {
        Deferred.doneUnsafe(reached, Effect.die(new Error(`the host process has ended with ${code}`)))
        Deferred.doneUnsafe(ended, Effect.void)
      })
      return made
    }),
    (made) => Effect.sync(() => made.kill("SIGKILL"))
  )
  return {
    reached: Deferred.await(reached),
    ended: Deferred.await(ended),
    kill: Effect.andThen(
      Effect.sync(() => child.kill("SIGKILL")),
      Deferred.await(ended)
    )
  }
})

/** The layers of a separate host process. It has Docker if a run is sealed. */
const layerOf = ({ options, runs }: Asked) => {
  const proxy = proxyLayer(options)
  const runtime = runs.some(({ isSealed }) => isSealed)
    ? Layer.orDie(DockerContainerRuntime.layer(Engine.options))
    : MemoryContainerRuntime.layer()
  const store = FileRunStore.layer({ directory: options.directory, trafficOf: AuditTraffic.reader() })
  return Layer.merge(Layer.provide(SandboxRunner.layer, proxy), proxy).pipe(
    Layer.provide([
      runtime,
      HostWorkspace.layer(),
      Layer.orDie(store),
      ledgerLayer(options.ledgerUrl),
      keysLayer(options)
    ])
  )
}

const program = Effect.gen(function* () {
  const pieces: Array<Buffer> = []
  yield* Effect.promise(async () => {
    for await (const piece of process.stdin) pieces.push(piece as Buffer)
  })
  const asked: Asked = JSON.parse(Buffer.concat(pieces).toString("utf8"))
  yield* Effect.forEach(
    asked.runs,
    (run) => play(run, asked.options.directory, (call) => console.log(`${run.index} begun ${call}`)),
    { concurrency: "unbounded", discard: true }
  ).pipe(Effect.provide(layerOf(asked)))
})

if (import.meta.main) NodeRuntime.runMain(program)
