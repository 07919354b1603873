/**
 * A separate process that runs a graph whose agent makes model calls, or recovers the usage of dead processes. It kills
 * itself with SIGKILL at a step that its parent chose, so that no clock decides where it dies.
 *
 * The run store, the gateway, its audit and the ledger are real. Only the container is in memory. The first half starts
 * the process, the second half is its program.
 */
import { LlmProxy } from "@cogni/sandbox-core/LlmProxy"
import * as MemoryContainerRuntime from "@cogni/sandbox-core/MemoryContainerRuntime"
import { RunId } from "@cogni/sandbox-core/RunId"
import { RunStore } from "@cogni/sandbox-core/RunStore"
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import * as Workspace from "@cogni/sandbox-core/Workspace"
import * as UsageObserver from "@cogni/sandbox-core/UsageObserver"
import * as FileRunStore from "@cogni/sandbox-docker/FileRunStore"
import * as AgentRegistry from "@cogni/sandbox-graph-provider/agents/AgentRegistry"
import { minimal } from "@cogni/sandbox-graph-provider/agents/Minimal"
import type { UsageFact } from "../../graph-provider/src/events/UsageFact.ts"
import { GrantStore } from "@cogni/sandbox-graph-provider/grants/GrantStore"
import * as AggregatingGraphExecutor from "@cogni/sandbox-graph-provider/graphs/AggregatingGraphExecutor"
import { GraphId } from "@cogni/sandbox-graph-provider/graphs/GraphId"
import * as GraphObserver from "@cogni/sandbox-graph-provider/graphs/GraphObserver"
import * as SandboxGraphProvider from "@cogni/sandbox-graph-provider/graphs/SandboxGraphProvider"
import * as Repositories from "@cogni/sandbox-graph-provider/Repositories"
import * as UsageRecovery from "@cogni/sandbox-graph-provider/UsageRecovery"
import * as AuditTraffic from "@cogni/sandbox-proxy/AuditTraffic"
import * as GatewayLlmProxy from "@cogni/sandbox-proxy/GatewayLlmProxy"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Effect, Layer, Redacted, Stream } from "effect"
import { type ChildProcess, spawn } from "node:child_process"
import { appendFileSync, existsSync, readFileSync, writeSync } from "node:fs"
import * as http from "node:http"
import { join } from "node:path"
import * as LinkedPrograms from "../../../test/harness/LinkedPrograms.ts"

export interface Asked {
  readonly mode: "run" | "recover"
  readonly directory: string
  readonly runId: string
  /** Address of the upstream. */
  readonly url: string
  /** Step at which the process kills itself. Default: never. */
  readonly killAt?: string | undefined
}

export interface Ended {
  /** False if the process ended by itself. */
  readonly isKilled: boolean
  /** Steps of the process, in order. */
  readonly steps: ReadonlyArray<string>
}

/** Calls of the agent. */
export const callsMax = 3

/** Figures that the upstream reports for each call. */
export const figures = { inputTokens: 11, outputTokens: 5 }

/** Runs the process to its end. `onStart` receives it at once. */
export const run = (asked: Asked, onStart: (child: ChildProcess) => void = () => undefined) =>
  Effect.callback<Ended>((resume) => {
    const child = spawn(
      process.execPath,
      [
        "--disable-warning=ExperimentalWarning",
        LinkedPrograms.pathOf(import.meta.filename),
        JSON.stringify(asked)
      ],
      { stdio: ["ignore", "pipe", "pipe"] }
    )
    onStart(child)
    let said = ""
    let problem = ""
    child.stdout.on("data", (piece) => (said += String(piece)))
    child.stderr.on("data", (piece) => (problem += String(piece)))
    child.once("close", (code, signal) => {
      const steps = [...said.matchAll(/^step (\S+)$/gmu)].map(([, name]) => name!)
      if (signal === "SIGKILL") resume(Effect.succeed({ isKilled: true, steps }))
      else if (code === 0) resume(Effect.succeed({ isKilled: false, steps }))
      else resume(Effect.die(new Error(`the process ended with ${code ?? signal}: ${said}${problem}`)))
    })
    return Effect.sync(() => child.kill("SIGKILL"))
  })

const ledgerOf = (directory: string) => join(directory, "ledger.jsonl")

/** Stores usage like a ledger: one write for each end of a run, which the process cannot do by half. */
export const account =
  (directory: string) =>
  ({ facts }: Pick<GraphObserver.ObservedEnd, "facts">) =>
    Effect.sync(() =>
      appendFileSync(ledgerOf(directory), facts.map((fact) => `${JSON.stringify(fact)}\n`).join(""))
    )

/** All facts of a ledger, in the order in which they were reported. */
export const ledger = (directory: string): ReadonlyArray<UsageFact> =>
  existsSync(ledgerOf(directory))
    ? readFileSync(ledgerOf(directory), "utf8")
        .split("\n")
        .filter((line) => line !== "")
        .map((line) => JSON.parse(line) as UsageFact)
    : []

/** Reports the steps of this process, and kills it at one of them. */
const stepping = (killAt: string | undefined) => (name: string) =>
  Effect.sync(() => {
    writeSync(1, `step ${name}\n`)
    if (name !== killAt) return
    process.kill(process.pid, "SIGKILL")
    // The signal may need a moment. Nothing else may happen until then.
    for (;;);
  })

type Step = ReturnType<typeof stepping>

const around =
  (step: Step, name: string) =>
  <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    step(`${name}:before`).pipe(
      Effect.andThen(effect),
      Effect.tap(() => step(`${name}:after`))
    )

const storeOf = ({ directory }: Asked, step: Step) => {
  const read = AuditTraffic.reader()
  const { store } = FileRunStore.make({
    directory,
    trafficOf: (run) => around(step, "audit")(read(run))
  })
  return RunStore.of({
    ...store,
    open: (runId, spec) =>
      around(
        step,
        "open"
      )(store.open(runId, spec)).pipe(
        Effect.map((open) => ({ ...open, save: (record) => around(step, "save")(open.save(record)) }))
      ),
    annotate: (runId, annotations) => around(step, "annotate")(store.annotate(runId, annotations)),
    settle: (runId, token) => around(step, "settle")(store.settle(runId, token))
  })
}

const proxyOf = ({ url }: Asked, step: Step) =>
  Layer.effect(
    LlmProxy,
    Effect.map(LlmProxy, (proxy) =>
      LlmProxy.of({
        ...proxy,
        acquire: (request) =>
          around(
            step,
            "acquire"
          )(proxy.acquire(request)).pipe(
            Effect.map((endpoint) => ({
              ...endpoint,
              ready: around(step, "ready")(endpoint.ready),
              finish: around(step, "finish")(endpoint.finish)
            }))
          )
      })
    )
  ).pipe(
    Layer.provide(
      GatewayLlmProxy.layer({ url, key: Redacted.make("sk-planted-billing"), carrier: "directory" }).pipe(
        Layer.provide(UsageObserver.layerNone)
      )
    )
  )

const post = (socketPath: string) =>
  Effect.callback<number>((resume) => {
    const request = http.request(
      {
        socketPath,
        method: "POST",
        path: "/v1/chat/completions",
        headers: { "content-type": "application/json" }
      },
      (response) => {
        response.resume()
        response.once("end", () => resume(Effect.succeed(response.statusCode ?? 0)))
      }
    )
    request.once("error", (error) => resume(Effect.die(error)))
    request.end(JSON.stringify({ model: "m", messages: [{ role: "user", content: "hello" }] }))
  })

const agent =
  (step: Step): MemoryContainerRuntime.Program =>
  ({ spec, stdout }) =>
    Effect.gen(function* () {
      const mount = spec.mounts.find(({ target }) => target === "/llm-sock")
      if (mount === undefined) return yield* Effect.die(new Error("there is no socket"))
      for (let call = 1; call <= callsMax; call++) {
        const status = yield* around(step, `call-${call}`)(post(join(mount.source, "llm.sock")))
        if (status !== 200) return yield* Effect.die(new Error(`the gateway answered ${status}`))
      }
      yield* stdout(JSON.stringify({ payloads: [{ text: "done" }], meta: { durationMs: 1, error: null } }))
      return 0
    })

const observerOf = ({ directory }: Asked, step: Step) =>
  GraphObserver.layer((end) => around(step, "observer")(account(directory)(end)))

const graphs = (asked: Asked, step: Step) =>
  AggregatingGraphExecutor.layer([SandboxGraphProvider.SandboxGraphProvider]).pipe(
    Layer.provide(SandboxGraphProvider.layer({ enabled: true, models: ["m"] })),
    Layer.provide([
      AgentRegistry.layer([minimal]),
      Layer.mock(GrantStore, {
        find: (id) =>
          Effect.succeed({
            id,
            userId: "user",
            billingAccountId: "acct",
            scopes: ["graph:execute:*"],
            allowSandbox: true,
            permissions: {},
            expiresAt: null,
            revokedAt: null,
            createdAt: new Date(0)
          })
      }),
      Repositories.layerNoop,
      observerOf(asked, step)
    ]),
    Layer.provide(SandboxRunner.layer),
    Layer.provide([proxyOf(asked, step), Workspace.layerMemory()]),
    Layer.provide(MemoryContainerRuntime.layer({ program: agent(step) })),
    Layer.provide(Layer.sync(RunStore, () => storeOf(asked, step)))
  )

const execute = (asked: Asked, step: Step) =>
  Effect.gen(function* () {
    const executor = yield* AggregatingGraphExecutor.GraphExecutor
    const run = yield* executor.run(
      {
        graphId: GraphId.make("sandbox:agent"),
        messages: [{ role: "user", content: "hello" }],
        model: "m",
        caller: { billingAccountId: "acct", virtualKeyId: "vk", requestId: "req", traceId: "trace" }
      },
      { runId: RunId.make(asked.runId), attempt: 0, ingressRequestId: "in", grantId: "grant" }
    )
    yield* step("started")
    yield* Stream.runDrain(run.events)
    const final = yield* run.final
    yield* step("final")
    if (!final.ok) return yield* Effect.die(new Error(final.message))
  }).pipe(Effect.scoped, Effect.provide(graphs(asked, step)))

const recover = (asked: Asked, step: Step) =>
  around(
    step,
    "recovery"
  )(UsageRecovery.recover).pipe(
    Effect.provide(
      Layer.merge(
        observerOf(asked, step),
        Layer.sync(RunStore, () => storeOf(asked, step))
      )
    )
  )

if (import.meta.main) {
  const asked: Asked = JSON.parse(process.argv[2]!)
  const step = stepping(asked.killAt)
  const work: Effect.Effect<unknown, unknown> =
    asked.mode === "run" ? execute(asked, step) : recover(asked, step)
  NodeRuntime.runMain(Effect.andThen(step("begin"), work))
}
