/** A Temporal server, keepers and workers as processes of their own, for the benchmark of durable runs. */
import { RunId } from "@cogni/sandbox-core/RunId"
import { GraphId } from "@cogni/sandbox-graph-provider/graphs/GraphId"
import * as ScriptedModelApi from "@cogni/sandbox-proxy/ScriptedModelApi"
import type { RunRequest } from "@cogni/sandbox-graph-provider/graphs/RunRequest"
import * as DurableRun from "@cogni/sandbox-temporal/DurableRun"
import * as DurableRuns from "@cogni/sandbox-temporal/DurableRuns"
import { Effect, type Scope } from "effect"
import { type ChildProcess, spawn } from "node:child_process"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { Agent, type IncomingMessage, request } from "node:http"
import { homedir, tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { freePort } from "../harness/FreePort.ts"
import * as Images from "../harness/Images.ts"
import * as ServerChild from "./ServerChild.ts"

const bin = fileURLToPath(new URL("../../packages/cli/src/bin.ts", import.meta.url))

/** Time for a program to say that it is ready. */
const readyMillisMax = 60_000

export const directory = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-bench-durable-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
)

const ended = (child: ChildProcess) =>
  Effect.callback<void>((resume) => {
    if (child.exitCode !== null || child.signalCode !== null) return resume(Effect.void)
    child.once("close", () => resume(Effect.void))
    child.kill("SIGTERM")
  })

interface Started {
  readonly child: ChildProcess
  readonly millis: number
}

/** Starts the command, and returns the time until it says that it is ready. */
export const command = (
  argv: ReadonlyArray<string>,
  env: Readonly<Record<string, string>>,
  ready: RegExp,
  program = bin
): Effect.Effect<Started, never, Scope.Scope> =>
  Effect.gen(function* () {
    const before = performance.now()
    const child = yield* Effect.acquireRelease(
      Effect.sync(() =>
        spawn(process.execPath, ["--disable-warning=ExperimentalWarning", program, ...argv], {
          env: { HOME: homedir(), ...env },
          stdio: ["ignore", "pipe", "pipe"]
        })
      ),
      ended
    )
    yield* Effect.promise(
      () =>
        new Promise<void>((resolve, reject) => {
          let said = ""
          const fail = () => reject(new Error(`${argv[0]} is not ready: ${said}`))
          const timer = setTimeout(fail, readyMillisMax)
          const read = (piece: Buffer) => {
            if (said.length < 10_000) said += piece.toString("utf8")
            if (!ready.test(said)) return
            clearTimeout(timer)
            child.off("exit", fail)
            resolve()
          }
          child.stdout.on("data", read)
          child.stderr.on("data", read)
          child.once("exit", fail)
        })
    )
    return { child, millis: performance.now() - before }
  })

/** The server of one host, with a token for it. */
export interface Keeper {
  readonly url: string
  readonly token: string
  /** Request of a run that takes some time. */
  readonly request: RunRequest
}

/** Starts a keeper, with its files in a directory. */
export type MakeKeeper = (place: string) => Effect.Effect<Keeper, never, Scope.Scope>

const agent = new Agent({ keepAlive: true, maxSockets: 32 })

const ask = (
  { token, url }: Pick<Keeper, "token" | "url">,
  path: string,
  body?: object
): Promise<IncomingMessage> =>
  new Promise((resolve, reject) => {
    const method = body === undefined ? "GET" : "POST"
    const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" }
    const asked = request(`${url}/api/v1${path}`, { agent, method, headers }, resolve)
    asked.on("error", reject)
    asked.end(body === undefined ? undefined : JSON.stringify(body))
  })

const textOf = async (answer: IncomingMessage): Promise<string> => {
  const pieces: Array<Buffer> = []
  for await (const piece of answer) pieces.push(piece as Buffer)
  const text = Buffer.concat(pieces).toString("utf8")
  if ((answer.statusCode ?? 500) >= 300) throw new Error(`${answer.statusCode}: ${text}`)
  return text
}

/** The record of a run, as far as it is needed here. */
interface Recorded {
  readonly status: string
  readonly startedAt: string
  readonly endedAt?: string
}

/** Times of one run, in milliseconds since its caller asked for it. */
export interface Timed {
  readonly total: number
  readonly started: number
  readonly ended: number
}

const recordOf = async (keeper: Keeper, runId: string): Promise<Recorded> =>
  JSON.parse(await textOf(await ask(keeper, `/runs/${runId}`))) as Recorded

const timed = ({ endedAt, startedAt, status }: Recorded, asked: number, total: number): Timed => {
  if (status !== "succeeded" && status !== "closed") throw new Error(`a run ended as ${status}`)
  return { total, started: Date.parse(startedAt) - asked, ended: Date.parse(String(endedAt)) - asked }
}

/** Asks the keeper itself for a run: starts it, follows its events to the end, and reads its record. */
export const plain = async (keeper: Keeper, runId: string): Promise<Timed> => {
  const asked = Date.now()
  const before = performance.now()
  await textOf(await ask(keeper, "/runs", { ...keeper.request, runId }))
  await textOf(await ask(keeper, `/runs/${runId}/events`))
  const record = await recordOf(keeper, runId)
  return timed(record, asked, performance.now() - before)
}

/** Submits the same run, and waits for its outcome. */
export const durable = async (
  client: Client,
  keeper: Keeper,
  runId: string,
  over: Partial<DurableRun.DurableRun> = {}
): Promise<Timed> => {
  const asked = Date.now()
  const before = performance.now()
  await Effect.runPromise(client.runs.submit({ ...client.run(runId, keeper.request), ...over }))
  const outcome = await Effect.runPromise(client.runs.wait(runId))
  const total = performance.now() - before
  if (outcome.status !== "succeeded") throw new Error(`${runId}: ${JSON.stringify(outcome)}`)
  return timed(await recordOf(keeper, runId), asked, total)
}

/** A run in the list of its keeper: its ID, and when it started and ended, in milliseconds. */
export interface Listed {
  readonly runId: string
  readonly started: number
  readonly ended: number
}

interface Page {
  readonly runs: ReadonlyArray<Recorded & { readonly runId: string }>
}

/** The newest runs of a keeper that have ended, the oldest first. */
export const endedRuns = async (keeper: Keeper): Promise<ReadonlyArray<Listed>> => {
  const { runs } = JSON.parse(await textOf(await ask(keeper, "/runs?limit=100"))) as Page
  return runs
    .filter(({ endedAt }) => endedAt !== undefined)
    .map((run) => ({
      runId: run.runId,
      started: Date.parse(run.startedAt),
      ended: Date.parse(String(run.endedAt))
    }))
    .toSorted((a, b) => a.started - b.started)
}

/** A client that stays connected. */
export interface Client {
  readonly runs: DurableRuns.DurableRuns["Service"]
  readonly run: (runId: string, request: RunRequest) => DurableRun.DurableRun
}

export const client = Effect.fnUntraced(function* (address: string, keeper: Keeper) {
  const grant = JSON.parse(yield* Effect.promise(async () => textOf(await ask(keeper, "/sign-in")))) as {
    readonly grant: { readonly id: string }
  }
  const server = { address, namespace: "default", taskQueue: "cogni-sandbox", isSearchable: true }
  return {
    runs: yield* Effect.orDie(DurableRuns.make(server)),
    run: (runId, asked) => ({
      ...DurableRun.defaults,
      runId: RunId.make(runId),
      grantId: grant.grant.id,
      request: asked
    })
  } satisfies Client
})

const question: RunRequest["messages"] = [{ role: "user", content: "Where is Lima?" }]

/** A keeper without an engine, with a database. Its agent writes a line every 10 ms. */
export const pacedKeeper = (place: string, lines: number) =>
  Effect.map(
    ServerChild.serve({ database: join(place, "cogni.db"), directory: place, recorded: 0 }),
    ({ token, url }): Keeper => ({
      url,
      token,
      request: {
        graphId: GraphId.make("sandbox:claude-code"),
        model: `paced-${lines}`,
        messages: question
      }
    })
  )

/** A keeper that runs sealed containers, with a scripted model. */
export const sealedKeeper = Effect.fnUntraced(function* (place: string) {
  const model = yield* ScriptedModelApi.acquire({ script: () => ({ say: "In Peru." }) })
  const env = {
    COGNI_STATE_DIR: place,
    COGNI_RUNTIME_IMAGE: Images.runtime,
    COGNI_LLM_URL: model.url,
    COGNI_LLM_KEY: "sk-none",
    COGNI_LLM_MODEL: "m",
    SANDBOX_ENABLED: "true"
  }
  const port = yield* freePort
  const issued = yield* Effect.promise(() => output(grantArgv, env))
  const { token } = JSON.parse(issued) as { readonly token: string }
  yield* command(["serve", "--no-page", "--port", String(port)], env, /^listening on /mu)
  const url = `http://127.0.0.1:${port}`
  return {
    url,
    token,
    request: { graphId: GraphId.make("sandbox:agent"), messages: question }
  } satisfies Keeper
})

const grantArgv = "grants create --user bench --account bench --allow-sandbox --output json".split(" ")

/** Runs the command, and returns its output. */
const output = (argv: ReadonlyArray<string>, env: Readonly<Record<string, string>>): Promise<string> =>
  new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [bin, ...argv], { env, stdio: ["ignore", "pipe", "inherit"] })
    let text = ""
    child.stdout.on("data", (piece: Buffer) => (text += piece.toString("utf8")))
    child.once("close", (code) => (code === 0 ? resolve(text) : reject(new Error(`${argv[0]}: ${code}`))))
  })

/** Starts the worker of a host beside its keeper. */
export const worker = (address: string, { token, url }: Keeper, place: string, runsMax: number) => {
  const file = join(place, "token")
  writeFileSync(file, token, { mode: 0o600 })
  const argv = ["--name", "bench-1", "--keeper", url, "--token-file", file, "--temporal", address]
  return command(
    ["worker", ...argv, "--max-runs", String(runsMax)],
    { COGNI_STATE_DIR: place },
    /worker bench-1 takes runs/u
  )
}
