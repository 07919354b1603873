/**
 * The world of durable runs, without hosts: a model that is paid for each call, a forge with a repository, a grant, and
 * a judge that compares their logs with the ledger after the last run.
 *
 * Each run is a task that asks the model twice and changes one file, which is delivered as a branch and a pull request.
 */
import { GraphId } from "@cogni/sandbox-graph-provider/graphs/GraphId"
import * as RunId from "@cogni/sandbox-core/RunId"
import * as ScriptedModelApi from "@cogni/sandbox-proxy/ScriptedModelApi"
import * as DurableRun from "@cogni/sandbox-temporal/DurableRun"
import { assert } from "@effect/vitest"
import { Effect, Schema } from "effect"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as Await from "../Await.ts"
import type { CliProcess, Started } from "../CliProcess.ts"
import { freePort } from "../FreePort.ts"
import * as GitHubDouble from "../GitHubDouble.ts"
import * as GitHubOrigin from "../GitHubOrigin.ts"
import * as GitOrigin from "../GitOrigin.ts"
import * as Images from "../Images.ts"

/** Calls of each run. */
export const callsOfRun = 2

const gitToken = "ghs_75_planted.for-durable-runs.0123456789"

/** A prompt that the model never answers. */
export const unanswered = "Wait for me."

/** A model that asks for one file, and then says that it is done. Each call has its own usage. */
const model = ScriptedModelApi.acquire({
  script: ({ number, results, text }) => {
    if (text === unanswered) return { _tag: "Hang" }
    const usage = { inputTokens: 1000 + number, outputTokens: 100 + number }
    return results.length === 0
      ? { call: [{ name: "file__write", args: { path: "NOTES.md", content: "tidy\n" } }], usage }
      : { say: "It is tidy.", usage }
  }
})

/** Repositories whose name begins with this refuse the first push for now. */
export const refusing = "refusing"

/** A fault for the first push to each of those repositories. */
const refusesOnce = () => {
  const seen = new Set<string>()
  return ({ method, path }: GitOrigin.Received): GitOrigin.Trouble | undefined => {
    if (method !== "POST" || !path.includes(`/${refusing}`) || !path.endsWith("/git-receive-pack"))
      return undefined
    if (seen.has(path)) return undefined
    seen.add(path)
    return { _tag: "Status", status: 503 }
  }
}

const directory = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-durable-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
)

const Issued = Schema.fromJsonString(
  Schema.Struct({ grant: Schema.Struct({ id: Schema.String }), token: Schema.String })
)

const Sums = Schema.fromJsonString(
  Schema.Struct({
    sums: Schema.Array(
      Schema.Struct({
        group: Schema.String,
        calls: Schema.Int,
        inputTokens: Schema.Int,
        outputTokens: Schema.Int
      })
    )
  })
)

/** The calls of one run, as a log has them. */
interface Paid {
  readonly calls: number
  /** Absent if a call was not answered. */
  readonly tokens: number | undefined
}

const answering = "/v1/chat/completions"

/** The requests for an answer. The keeper also asks for spend rows, in the name of no run. */
const callsIn = (received: ReadonlyArray<ScriptedModelApi.Received>) =>
  received.filter(({ method, target }) => method === "POST" && target === answering)

/** The run of a call, which the gateway tells the upstream. */
const runOf = ({ headers }: ScriptedModelApi.Received): string => {
  const told = headers.find(([name]) => name === "x-litellm-spend-logs-metadata")?.[1] ?? ""
  return /"run_id":"([^"]+)"/u.exec(told)?.[1] ?? "none"
}

/** The upstream's log by run. */
const paidIn = (received: ReadonlyArray<ScriptedModelApi.Received>): ReadonlyMap<string, Paid> => {
  const all = new Map<string, Paid>()
  for (const one of callsIn(received)) {
    const { calls, tokens } = all.get(runOf(one)) ?? { calls: 0, tokens: 0 }
    const { usage } = one
    all.set(runOf(one), {
      calls: calls + 1,
      tokens:
        tokens === undefined || usage === undefined
          ? undefined
          : tokens + usage.inputTokens + usage.outputTokens
    })
  }
  return all
}

/** The ledger by run. */
const ledgerOf = Effect.fnUntraced(function* (
  cli: CliProcess["Service"],
  env: Readonly<Record<string, string>>
) {
  const { stderr, stdout } = yield* cli.run("spend --by run --limit 10000 --output json".split(" "), { env })
  const { sums } = yield* Schema.decodeUnknownEffect(Sums)(stdout.toString("utf8")).pipe(
    Effect.mapError(() => new Error(stderr)),
    Effect.orDie
  )
  return new Map(
    sums.map(({ calls, group, inputTokens, outputTokens }) => [
      group,
      { calls, tokens: inputTokens + outputTokens }
    ])
  )
})

export const make = Effect.fnUntraced(function* (
  cli: CliProcess["Service"],
  more: Readonly<Record<string, string>> = {}
) {
  const own = yield* directory
  const upstream = yield* model
  const origin = yield* GitOrigin.acquire({ password: gitToken })
  const api = yield* GitHubDouble.make({ prefix: "/api/v3" })
  origin.extra = api.handle
  const { authorityFile, url: forge } = yield* GitHubOrigin.secured(origin, own)
  origin.trouble = refusesOnce()
  const repository = Effect.fnUntraced(function* (name: string) {
    const { path } = yield* origin.make(`acme/${name}`, { "README.md": "hello\n" })
    yield* GitOrigin.git(path, "config", "core.logAllRefUpdates", "always")
    return { path, url: `${forge}/acme/${name}.git` }
  })
  const app = yield* repository("app")
  const created = yield* cli.run(
    `grants create --user ana --account acme --allow-sandbox --repository ${forge}/** --output json`.split(
      " "
    ),
    { env: more }
  )
  const { grant, token } = yield* Schema.decodeUnknownEffect(Issued)(created.stdout.toString("utf8"))
  const tokenFile = join(own, "token")
  writeFileSync(tokenFile, token, { mode: 0o600 })

  const env = {
    SANDBOX_ENABLED: "true",
    COGNI_LLM_URL: upstream.url,
    COGNI_LLM_KEY: "sk-none",
    COGNI_LLM_MODEL: "m",
    COGNI_LLM_PRICES: '{"m":{"input":1,"output":2}}',
    COGNI_GATEWAY_IMAGE: Images.gateway,
    GITHUB_TOKEN: gitToken,
    GITHUB_SERVER_URL: forge,
    COGNI_FORGES: `${new URL(forge).host}=private`,
    GIT_SSL_CAINFO: authorityFile,
    NODE_EXTRA_CA_CERTS: authorityFile,
    ...more
  }

  return {
    grantId: grant.id,
    tokenFile,
    /** Starts a keeper, which never refuses a run because it has too many. */
    keeper: Effect.fnUntraced(function* (its: {
      readonly port?: number
      /** Concurrent runs (default so many that none is refused). */
      readonly runsMax?: number
      readonly env?: Readonly<Record<string, string>>
    }) {
      const port = its.port ?? (yield* freePort)
      const runsMax = its.runsMax ?? 500
      const limits = `--max-runs ${runsMax} --max-runs-per-grant 500 --runs-per-minute 60000 --requests-per-minute 60000`
      const started: Started = yield* cli.start(
        ["serve", "--no-page", "--port", String(port), ...limits.split(" ")],
        { env: { ...env, ...its.env } }
      )
      yield* started.said(/^listening on /mu)
      return { ...started, port, url: `http://127.0.0.1:${port}` }
    }),
    repository,
    run: (runId: string, { prompt = "Tidy up.", url = app.url } = {}): DurableRun.DurableRun => ({
      ...DurableRun.defaults,
      runId: RunId.RunId.make(runId),
      grantId: grant.id,
      request: {
        graphId: GraphId.make("sandbox:task"),
        messages: [{ role: "user", content: prompt }],
        repository: { url, pullRequest: true }
      }
    }),
    origin,
    api,
    upstream,
    /** Waits until the model was asked by a run. */
    isAsked: (runId: string) =>
      Await.until(
        `the model was asked by ${runId}`,
        Effect.map(upstream.received, (received) => paidIn(received).has(runId))
      ),
    /** Asserts that one of these branches was written, once, and that there is one pull request for all of them. */
    isDelivered: Effect.fnUntraced(function* (runIds: ReadonlyArray<string>, path = app.path) {
      const branches = runIds.map((runId) => `sandbox/${runId}`)
      const logs = yield* Effect.forEach(branches, (branch) =>
        GitOrigin.git(path, "log", "--walk-reflogs", "--format=%gD", branch, "--").pipe(
          Effect.catchDefect(() => Effect.succeed(""))
        )
      )
      const written = logs.flatMap((log) => log.split("\n").filter((line) => line !== ""))
      assert.lengthOf(written, 1, `${branches.join()} was written again, or never`)
      const pulls = api.pulls.filter(({ head }) => branches.includes(head))
      assert.lengthOf(pulls, 1, `pull requests of ${branches.join()}`)
    }),
    /** Number of calls that the upstream was asked for, by run. */
    callsByRun: Effect.map(
      upstream.received,
      (received): ReadonlyMap<string, number> =>
        new Map([...paidIn(received)].map(([runId, { calls }]) => [runId, calls]))
    ),
    /** Asserts that the ledger has the calls that the upstream was asked for. */
    isPaidOnce: Effect.gen(function* () {
      const asked = paidIn(yield* upstream.received)
      const ledger = yield* ledgerOf(cli, more)
      const counted = new Map([...asked].map(([runId, { calls: count }]) => [runId, count]))
      // A call that was not answered has tokens in the ledger alone.
      const answered = [...asked].filter(([, { tokens }]) => tokens !== undefined)
      const charged = answered.map(([runId]): [string, Paid | undefined] => [runId, ledger.get(runId)])
      assert.deepStrictEqual(sorted(new Map(charged)), sorted(new Map(answered)), "tokens in the ledger")
      const entries = new Map([...ledger].map(([runId, { calls: count }]) => [runId, count]))
      assert.deepStrictEqual(sorted(entries), sorted(counted), "calls in the ledger")
    }),
    /** Asserts that each pull request was asked for once, and that the forge understood everything. */
    isAskedOnce: Effect.sync(() => {
      assert.deepStrictEqual(api.complaints, [])
      const created = api.requests.filter(
        ({ method, path: at }) => method === "POST" && at.endsWith("/pulls")
      )
      assert.lengthOf(created, api.pulls.length, "a pull request was asked for again")
    })
  }
})

const sorted = <A>(map: ReadonlyMap<string, A>): ReadonlyArray<[string, A]> =>
  [...map].toSorted(([one], [other]) => (one < other ? -1 : 1))

export type DurableWorld = Effect.Success<ReturnType<typeof make>>
