/**
 * A real LiteLLM from PyPI, without a real model, and with a recorder of the accounts that it bills.
 *
 * `./dev test` installs it, pinned and hashed. If it is missing, tests that need it fail with a message; they are never
 * skipped.
 */
import { Effect, Schedule, Schema } from "effect"
import { type ChildProcess, spawn } from "node:child_process"
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs"
import { homedir, tmpdir } from "node:os"
import { dirname, join } from "node:path"
import * as ScriptedModelApi from "@cogni/sandbox-proxy/ScriptedModelApi"
import { freePort } from "./FreePort.ts"

/** LiteLLM's own record of a call. */
export const Recorded = Schema.Struct({
  status: Schema.Literals(["success", "failure"]),
  callId: Schema.NullOr(Schema.String),
  endUser: Schema.NullOr(Schema.String),
  spendLogsMetadata: Schema.NullOr(Schema.Record(Schema.String, Schema.Unknown)),
  model: Schema.NullOr(Schema.String),
  modelGroup: Schema.NullOr(Schema.String),
  cost: Schema.NullOr(Schema.Finite),
  promptTokens: Schema.NullOr(Schema.Int),
  completionTokens: Schema.NullOr(Schema.Int),
  stream: Schema.Boolean,
  tags: Schema.NullOr(Schema.Array(Schema.String)),
  callType: Schema.NullOr(Schema.String),
  traceId: Schema.NullOr(Schema.String),
  apiBase: Schema.NullOr(Schema.String)
})

export type Recorded = typeof Recorded.Type

export interface LiteLlm {
  readonly url: string
  readonly masterKey: string
  readonly records: Effect.Effect<ReadonlyArray<Recorded>>
  /** Waits until all expected records exist. LiteLLM writes them shortly after the response, and in any order. */
  readonly recorded: (
    found: (rows: ReadonlyArray<Recorded>) => boolean
  ) => Effect.Effect<ReadonlyArray<Recorded>>
}

/** A made-up key. */
export const masterKey = "sk-master-7f3a9c51e2d84b06"

/** Files of the harness. */
export const files = join(import.meta.dirname, "litellm")

/** Directory of the virtual environment that `./dev` installs. */
export const home = process.env["COGNI_LITELLM"] ?? join(homedir(), ".cache", "cogni-sandbox", "litellm")

const startSecondsMax = 500

const decode = Schema.decodeUnknownSync(Schema.fromJsonString(Recorded))

/** Figures of the scripted model API, for the models that are called `priced`. */
export const figures = { inputTokens: 1000, cachedTokens: 400, outputTokens: 50 }

export interface StartOptions {
  /** Name of the configuration in `test/harness/litellm`. */
  readonly config: string
  /** A directory of this LiteLLM only. */
  readonly directory: string
  readonly port: number
  /** Further environment variables. */
  readonly environment?: Readonly<Record<string, string>> | undefined
}

const launch = ({ config, directory, environment, port }: StartOptions): ChildProcess => {
  const program = join(home, "bin", "litellm")
  if (!existsSync(program))
    throw new Error(`there is no LiteLLM at ${home}. Run ./dev test, which installs it from PyPI`)
  const address = ["--host", "127.0.0.1", "--port", String(port)]
  return spawn(program, ["--config", join(files, config), ...address, "--telemetry", "False"], {
    cwd: directory,
    stdio: ["ignore", "pipe", "pipe"],
    // A group of its own, so that its query engine can be ended with it.
    detached: true,
    env: {
      PATH: [dirname(process.execPath), "/usr/local/bin:/usr/bin:/bin"].join(":"),
      HOME: directory,
      PYTHONPATH: files,
      PYTHONDONTWRITEBYTECODE: "1",
      LITELLM_MASTER_KEY: masterKey,
      LITELLM_LOCAL_MODEL_COST_MAP: "True",
      ...environment
    }
  })
}

/** Ends the query engine of a LiteLLM that was killed. It would live on, and hold this process's pipes open. */
const endGroup = ({ pid }: ChildProcess): void => {
  try {
    if (pid !== undefined) process.kill(-pid, "SIGKILL")
  } catch {
    // The group has ended.
  }
}

/** Creates a temporary directory, and removes it when the scope closes. */
export const temporaryDirectory = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-litellm-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
)

/** Starts LiteLLM and waits until it answers. Closing the scope ends it. Returns its URL. */
export const start = Effect.fnUntraced(function* (options: StartOptions) {
  let log = ""
  let ended: number | null | undefined
  yield* Effect.acquireRelease(
    Effect.sync(() => {
      const child = launch(options)
      const hear = (data: Buffer) => {
        log = (log + data.toString("utf8")).slice(-8000)
      }
      child.stdout?.on("data", hear)
      child.stderr?.on("data", hear)
      child.once("exit", (code) => {
        ended = code
      })
      return child
    }),
    (child) =>
      Effect.callback<void>((resume) => {
        if (ended !== undefined) return resume(Effect.void)
        const late = setTimeout(() => child.kill("SIGKILL"), 5000)
        child.once("exit", () => {
          clearTimeout(late)
          resume(Effect.void)
        })
        child.kill("SIGTERM")
      }).pipe(Effect.andThen(Effect.sync(() => endGroup(child))))
  )
  const url = `http://127.0.0.1:${options.port}`
  yield* Effect.tryPromise(() => fetch(`${url}/health/liveliness`)).pipe(
    Effect.filterOrFail((response) => response.ok),
    Effect.retry({ schedule: Schedule.spaced("250 millis"), while: () => ended === undefined }),
    Effect.timeout(`${startSecondsMax} seconds`),
    Effect.mapError(() => new Error(`LiteLLM did not start (${ended ?? "still starting"}):\n${log}`)),
    Effect.orDie
  )
  return url
})

export const acquire = Effect.gen(function* () {
  const directory = yield* temporaryDirectory
  const model = yield* ScriptedModelApi.acquire({ script: () => ({ say: "hello", usage: figures }) })
  const url = yield* start({
    config: "config.yaml",
    directory,
    port: yield* freePort,
    environment: {
      MODEL_OPENAI_URL: `${model.url}/v1`,
      MODEL_ANTHROPIC_URL: model.url,
      COGNI_RECORDS: join(directory, "records.jsonl")
    }
  })
  const records = Effect.sync((): ReadonlyArray<Recorded> => {
    const file = join(directory, "records.jsonl")
    return existsSync(file)
      ? readFileSync(file, "utf8")
          .trimEnd()
          .split("\n")
          .map((line) => decode(line))
      : []
  })
  return {
    url,
    masterKey,
    records,
    recorded: (found) =>
      records.pipe(
        Effect.filterOrFail(found),
        Effect.retry({ schedule: Schedule.spaced("50 millis"), times: 6000 }),
        Effect.catch(() => records)
      )
  } satisfies LiteLlm
})
