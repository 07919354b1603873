/**
 * A key for each run, issued and enforced by a real LiteLLM with its PostgreSQL.
 *
 * The agent is sealed and calls the model through the gateway. The tests compare what LiteLLM stores with what the run
 * reports, and break LiteLLM, its database and the host process.
 */
import { assert, it } from "@effect/vitest"
import * as MemoryContainerRuntime from "@cogni/sandbox-core/MemoryContainerRuntime"
import * as RunId from "@cogni/sandbox-core/RunId"
import { SandboxRunner } from "@cogni/sandbox-core/SandboxRunner"
import type { SandboxSpecInput } from "@cogni/sandbox-core/SandboxSpec"
import * as UsageObserver from "@cogni/sandbox-core/UsageObserver"
import * as HostOwner from "@cogni/sandbox-docker/HostOwner"
import * as GatewayLlmProxy from "@cogni/sandbox-proxy/GatewayLlmProxy"
import * as IdentityCheck from "@cogni/sandbox-proxy/IdentityCheck"
import * as LiteLlmRunKeys from "@cogni/sandbox-proxy/LiteLlmRunKeys"
import * as LiteLlmSpendRows from "@cogni/sandbox-proxy/LiteLlmSpendRows"
import * as RunKeys from "@cogni/sandbox-proxy/RunKeys"
import { Context, Effect, Layer, Redacted, Schedule } from "effect"
import { readFileSync } from "node:fs"
import * as GatewaySocket from "../../packages/proxy/test/GatewaySocket.ts"
import * as RunKeysContract from "../../packages/proxy/test/RunKeysContract.ts"
import * as Await from "../harness/Await.ts"
import * as Images from "../harness/Images.ts"
import * as LiteLlmDatabase from "../harness/LiteLlmDatabase.ts"
import * as Pace from "../harness/Pace.ts"
import * as RawRequests from "../harness/RawRequests.ts"
import * as RunHarness from "../harness/RunHarness.ts"
import * as RunKeyProcess from "../harness/RunKeyProcess.ts"
import * as TcpDoor from "../harness/TcpDoor.ts"
import * as BillingRows from "../harness/billing/BillingRows.ts"
import * as BillingTrial from "../harness/billing/BillingTrial.ts"
import { rowsOf } from "../integration/hostileRequests.ts"
import { attempts, bodyOf } from "./identityAttempts.ts"

class LiteLlm extends Context.Service<
  LiteLlm,
  LiteLlmDatabase.LiteLlmDatabase & { readonly door: TcpDoor.TcpDoor }
>()("test/LiteLlm") {}

/** One LiteLLM for all tests of this file, behind a door: it takes half a minute of processor to start. */
const liteLlm = Layer.effect(
  LiteLlm,
  Effect.gen(function* () {
    const lite = yield* LiteLlmDatabase.acquire
    const door = yield* TcpDoor.acquire(lite.url)
    return { ...lite, door, url: door.url }
  })
)

/** Layers of this file, so that the suites share that LiteLLM. */
const options = {
  excludeTestServices: true,
  memoMap: Layer.makeMemoMapUnsafe(),
  timeout: Pace.hangMillis
} as const

const deployment = "stack-test"

/** Returns the run that an alias names. */
const runOf = (alias: string): string => alias.split(".")[2] ?? ""

/** Every key that was created, in plain text. */
const issued: Array<RunKeys.RunKey> = []

const optionsOf = ({ masterKey, url }: Pick<LiteLlmDatabase.LiteLlmDatabase, "masterKey" | "url">) => ({
  url,
  key: Redacted.make(masterKey),
  deployment,
  owners: HostOwner,
  requestSecondsMax: Pace.requestSecondsMax
})

const keysLayer = Layer.effect(
  RunKeys.RunKeys,
  Effect.gen(function* () {
    const keys = yield* LiteLlmRunKeys.make(optionsOf(yield* LiteLlm))
    return RunKeys.RunKeys.of({
      ...keys,
      create: (alias, terms) =>
        Effect.tap(keys.create(alias, terms), (key) => Effect.sync(() => void issued.push(key)))
    })
  })
)

/** LiteLLM's own prices, in US dollars per million tokens. */
const prices = {
  chat: { input: 2.5, output: 10 },
  slow: { input: 2.5, output: 10 },
  claude: { input: 3, output: 15 }
}

const proxy = Layer.unwrap(
  Effect.gen(function* () {
    const keys = yield* RunKeys.RunKeys
    const { masterKey, url } = yield* LiteLlm
    return GatewayLlmProxy.layer({
      url,
      key: Redacted.make(masterKey),
      runKeys: { keys },
      prices,
      carrier: "directory"
    }).pipe(Layer.provide(UsageObserver.layerNone))
  })
)

const whole = RunHarness.layer(proxy).pipe(Layer.provideMerge(keysLayer), Layer.provideMerge(liteLlm))

/** Sends the requests in `/cogni/requests.json`, one after the other or at once, and prints each status. */
const program = (isParallel = false) => `
const send = async ({ path, body }) => {
  const answer = await fetch("http://localhost:8080" + path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body)
  })
  const text = await answer.text()
  if (answer.status !== 200) console.error(text)
  console.log(answer.status)
}
const all = JSON.parse(require("node:fs").readFileSync("/cogni/requests.json", "utf8"))
;(async () => {
  if (${isParallel}) await Promise.all(all.map(send))
  else for (const one of all) await send(one)
})()
`

const message = [{ role: "user", content: "Say hello" }]
const chat = (over: object = {}) => ({
  path: "/v1/chat/completions",
  body: { model: "chat", messages: message, max_tokens: 100, ...over }
})

const specOf = (requests: ReadonlyArray<object>, over: Partial<SandboxSpecInput> = {}): SandboxSpecInput => ({
  image: Images.runtime,
  argv: ["node", "-e", program()],
  inputs: [{ name: "requests.json", content: JSON.stringify(requests) }],
  limits: { runtimeSecondsMax: Pace.runSecondsMax },
  llm: {
    model: "chat",
    models: { claude: "claude" },
    identity: { billingAccountId: "acct-7", attempt: 1, userId: "user-1" },
    budget: { costUsdMax: 1, concurrentCallsMax: 4 }
  },
  ...over
})

const statuses = ({ output }: { readonly output: { readonly stdout: { readonly text: string } } }) =>
  output.stdout.text.trimEnd().split("\n").map(Number)

/** Every known way to claim another identity, and every hostile request, as bytes. */
const hostile: ReadonlyArray<readonly [name: string, bytes: Buffer]> = [
  ...attempts.map((attempt) => {
    const { headers = [], name, path = chat().path } = attempt
    return [name, Buffer.from(RawRequests.raw("POST", path, headers, bodyOf(attempt)), "base64")] as const
  }),
  ...rowsOf(JSON.stringify(chat().body), "Content-Type: application/json").map(
    ([name, bytes]) => [name, Buffer.from(bytes, "latin1")] as const
  )
]

/** Sends requests through a gateway, over the socket of one run. Returns its audit and its key. */
const sendAll = Effect.fnUntraced(function* (
  requests: typeof hostile,
  llm: NonNullable<GatewaySocket.Options["llm"]>
) {
  const keys = yield* RunKeys.RunKeys
  const lite = yield* LiteLlm
  const proxy = yield* GatewayLlmProxy.make({
    url: lite.url,
    key: Redacted.make(lite.masterKey),
    runKeys: { keys },
    prices,
    requestsPerSecondMax: 10_000,
    shardsMax: 1
  }).pipe(Effect.provide([MemoryContainerRuntime.layer(), UsageObserver.layerNone]))
  const run = yield* GatewaySocket.openRun(proxy, { llm })
  const statuses = yield* Effect.forEach(requests, ([, bytes]) => run.send(bytes), { concurrency: 4 })
  yield* run.endpoint.finish
  return { ...run, calls: BillingRows.audited(run.directory), key: issued.at(-1)!, statuses }
}, Effect.scoped)

/** Waits until no key of this run exists: keys are deleted in the background. */
const gone = (runId: string) =>
  Effect.gen(function* () {
    const { keys } = yield* LiteLlm
    yield* keys(runId).pipe(
      Effect.filterOrFail((found) => found.length === 0),
      Effect.retry({ schedule: Schedule.spaced("50 millis"), times: Pace.hangMillis / 100 }),
      Effect.orDie
    )
  })

const suites = () => {
  it.layer(whole, options)("a key for each run", (it) => {
    it.effect("is used by all calls of its run, is on every row, and is gone after the run", () =>
      Effect.gen(function* () {
        const { ask, rows } = yield* LiteLlm
        const { run } = yield* SandboxRunner
        const result = yield* run(
          specOf([
            chat(),
            chat({ stream: true }),
            { path: "/v1/messages", body: { model: "claude", max_tokens: 50, messages: message } },
            { path: "/v1/responses", body: { model: "chat", input: "Say hello", max_output_tokens: 50 } }
          ])
        )
        assert.deepStrictEqual(statuses(result), [200, 200, 200, 200], result.output.stderr.text)
        const key = issued.at(-1)!
        assert.strictEqual(runOf(key.alias), result.runId)
        const calls = result.llm!.calls.filter(({ outcome }) => outcome === "completed")
        const found = yield* rows(key.hash, (all) => all.length >= 4)
        assert.sameMembers(
          found.map((row) => row.litellm_call_id),
          calls.map(({ callId }) => callId!)
        )
        for (const row of found) {
          assert.strictEqual(row.end_user, "acct-7")
          assert.strictEqual(row.metadata.spend_logs_metadata?.["run_id"], result.runId)
          // LiteLLM charges nothing for a mocked answer of the messages API.
          if (row.model_group === "chat") assert.isAbove(row.spend, 0, JSON.stringify(row))
        }
        const audit = readFileSync(result.llm!.auditPath!, "utf8")
        assert.include(audit, `"keyHash":"${key.hash}"`)
        assert.notInclude(audit, Redacted.value(key.key))
        yield* gone(result.runId)
        const late = yield* ask("POST", chat().path, chat().body, { key: Redacted.value(key.key) })
        assert.strictEqual(late.status, 401)
      })
    )

    it.effect(
      "is on every row of a run that claims another identity in every known way, and no other row is written",
      () =>
        Effect.gen(function* () {
          const lite = yield* LiteLlm
          yield* BillingTrial.settled(lite)
          const before = new Set((yield* BillingRows.rows(lite)).map(({ request_id }) => request_id))
          const written = Effect.map(BillingRows.rows(lite), (all) =>
            all.filter(
              ({ end_user, request_id }) => !before.has(request_id) && end_user !== BillingTrial.sentinel
            )
          )
          // Not the models with a constant answer: LiteLLM gives every such answer of the Messages API the same ID, and
          // stores one row for each ID.
          const { calls, key, runId, statuses } = yield* sendAll(hostile, {
            model: "priced",
            models: { chat: "priced", claude: "priced-claude" },
            identity: { billingAccountId: "acct-8", attempt: 3 }
          })
          assert.strictEqual(calls.keyHash, key.hash)
          // Counting tokens leaves no row.
          const ids = [...calls.ended.values()]
            .filter(
              ({ callId, status }) => status === 200 && calls.started.get(callId)?.api !== "count_tokens"
            )
            .map(({ callId }) => callId)
          assert.isAbove(ids.length, 120, JSON.stringify(statuses))
          yield* BillingTrial.settled(lite)
          const rows = yield* written
          const rowIds = rows.map(BillingRows.callIdOf)
          assert.strictEqual(new Set(rowIds).size, rows.length, "one row for each call")
          assert.deepStrictEqual(
            ids.filter((id) => !rowIds.includes(id)).map((id) => calls.started.get(id)),
            [],
            "calls without a row"
          )
          assert.deepStrictEqual(
            rows.filter((_, index) => !calls.started.has(rowIds[index]!)),
            [],
            "rows of other calls"
          )
          for (const row of rows) {
            assert.strictEqual(row.api_key, key.hash, row.request_id)
            assert.include(["", null], row.team_id, row.request_id)
            if (row.status === "success") {
              assert.strictEqual(row.end_user, "acct-8", row.request_id)
              assert.deepInclude(row.metadata.spend_logs_metadata, { run_id: runId, attempt: 3 })
            } else {
              // LiteLLM writes these without an identity.
              assert.strictEqual(row.spend, 0, row.request_id)
              assert.include(["acct-8", "", null], row.end_user, row.request_id)
            }
          }
          assert.notMatch(yield* lite.dump, /evil/u)
          // LiteLLM is attacked without the gateway, to show that this would be found.
          const evil = attempts.find(({ worksUnprotected }) => worksUnprotected === true)!
          yield* lite.ask("POST", chat().path, JSON.parse(bodyOf(evil)), {
            headers: { "x-litellm-customer-id": "evil" }
          })
          yield* Await.until(
            "LiteLLM bills it",
            Effect.map(written, (all) => all.some(({ end_user }) => end_user === "evil"))
          )
          assert.match(yield* lite.dump, /evil/u)
        })
    )

    it.effect(
      "is proven by a marked call at the start, as the gateway's own is, and is gone afterwards",
      () =>
        Effect.gen(function* () {
          const { keys: stored, masterKey, rows, url } = yield* LiteLlm
          const keys = yield* RunKeys.RunKeys
          const upstream = { url, key: Redacted.make(masterKey) }
          const check = (runKeys?: IdentityCheck.IdentityCheckOptions["runKeys"]) =>
            IdentityCheck.check({ ...upstream, runKeys, model: "chat" }).pipe(
              Effect.provide(LiteLlmSpendRows.layer(upstream))
            )
          const before = issued.length
          const own = yield* check()
          assert.isAbove(own.costUsd ?? 0, 0)
          assert.strictEqual(issued.length, before)
          const proof = yield* check({ keys })
          const key = issued.at(-1)!
          assert.strictEqual(issued.length, before + 1)
          assert.strictEqual(proof.runKeyHash, key.hash)
          const [row] = yield* rows(key.hash, (all) => all.length > 0)
          assert.deepInclude(row, { litellm_call_id: proof.callId, end_user: IdentityCheck.account })
          assert.deepStrictEqual(yield* stored(runOf(key.alias)), [])
        })
    )

    it.effect("opens neither another model nor another route of LiteLLM, until it is deleted", () =>
      Effect.gen(function* () {
        const { ask } = yield* LiteLlm
        const keys = yield* RunKeys.RunKeys
        const runId = yield* RunId.generate
        const created = yield* keys.create(keys.aliasOf(runId), RunKeysContract.termsOf(runId))
        const key = Redacted.value(created.key)
        const status = (path: string, body?: unknown) =>
          Effect.map(ask(body === undefined ? "GET" : "POST", path, body, { key }), (answer) => answer.status)
        assert.strictEqual(yield* status(chat().path, chat().body), 200)
        assert.strictEqual(yield* status(chat().path, chat({ model: "other" }).body), 403)
        assert.strictEqual(yield* status("/v1/embeddings", { model: "chat", input: "x" }), 403)
        assert.strictEqual(yield* status("/v1/models"), 403)
        assert.strictEqual(yield* status("/key/info"), 403)
        assert.notStrictEqual(yield* status("/key/generate", { duration: "60s" }), 200)
        yield* keys.remove(created.alias)
        assert.strictEqual(yield* status(chat().path, chat().body), 401)
      })
    )

    it.effect("is deleted when its run fails, times out, or is interrupted", () =>
      Effect.gen(function* () {
        const { keys } = yield* LiteLlm
        const runner = yield* SandboxRunner
        const before = issued.length
        yield* Effect.flip(runner.run(specOf([], { image: Images.absent })))
        yield* Effect.flip(
          runner.run(specOf([], { argv: ["sleep", "60"], limits: { runtimeSecondsMax: 1 } }))
        )
        yield* Effect.timeoutOption(runner.run(specOf([], { argv: ["sleep", "60"] })), "1 second")
        const runs = issued.slice(before).map(({ alias }) => runOf(alias))
        assert.isAtLeast(runs.length, 2)
        yield* Effect.forEach(runs, gone, { discard: true })
        assert.deepStrictEqual(yield* keys(deployment), [])
      })
    )

    it.effect("does not stop a run before the run's own budget does, with 16 calls at once", () =>
      Effect.gen(function* () {
        const { run } = yield* SandboxRunner
        const calls = Array.from({ length: 16 }, () => chat({ model: "slow", max_tokens: 1000 }))
        // Each call reserves 0.01 US dollars for its longest answer, and a little for its input.
        const result = yield* run(
          specOf(calls, {
            argv: ["node", "-e", program(true)],
            llm: {
              model: "slow",
              identity: { billingAccountId: "acct-7", attempt: 0 },
              budget: { costUsdMax: 0.3, concurrentCallsMax: 16 }
            }
          })
        )
        assert.deepStrictEqual(statuses(result), Array(16).fill(200), result.output.stderr.text)
      })
    )

    it.effect("survives a killed host process until the next start deletes it, and no other key", () =>
      Effect.gen(function* () {
        const { ask, keys: stored, masterKey, url } = yield* LiteLlm
        const keys = yield* RunKeys.RunKeys
        const runId = yield* RunId.generate
        const child = yield* RunKeyProcess.start({ url, masterKey, deployment, runId })
        // Keys that only look like ours.
        const foreign = [
          `cogni-sandbox.${deployment}.${runId}.00112233aabb`,
          `cogni-sandbox.${deployment}-2.${runId}.00112233aabb`,
          `x-cogni-sandbox.${deployment}.${runId}.00112233aabb`
        ]
        for (const key_alias of foreign) {
          const { status } = yield* ask("POST", "/key/generate", { key_alias, duration: "900s" })
          assert.strictEqual(status, 200)
        }
        assert.deepStrictEqual(yield* keys.reap, { deleted: [], left: [] })
        yield* child.kill
        const [left] = (yield* stored(child.alias)).map(({ expires }) => Date.parse(expires!))
        assert.isAbove(left!, Date.now())
        assert.deepStrictEqual(yield* keys.reap, { deleted: [child.alias], left: [] })
        assert.sameMembers(
          (yield* stored(runId)).map(({ key_alias }) => key_alias),
          foreign
        )
        yield* Effect.forEach(foreign, keys.remove, { discard: true })
      })
    )

    it.effect("adds little time to a run", () =>
      Effect.gen(function* () {
        const keys = yield* RunKeys.RunKeys
        const millis: Array<number> = []
        for (let time = 0; time < 10; time++) {
          const runId = yield* RunId.generate
          const began = performance.now()
          const { alias } = yield* keys.create(keys.aliasOf(runId), RunKeysContract.termsOf(runId))
          millis.push(performance.now() - began)
          yield* keys.remove(alias)
        }
        const median = millis.toSorted((one, other) => one - other)[5]!
        console.log(`a key takes ${median.toFixed(0)} ms to create (median of 10)`)
        // Less than a container takes to start, beside which it is created.
        assert.isBelow(median, Pace.allowed(150))
      })
    )

    it.effect("refuses a run that LiteLLM issues no key for, before its agent starts", () =>
      Effect.gen(function* () {
        const { database, door, masterKey, url } = yield* LiteLlm
        const runId = yield* RunId.generate
        const keys = yield* RunKeys.RunKeys
        const wrong = yield* LiteLlmRunKeys.make({
          ...optionsOf({ masterKey, url }),
          key: Redacted.make("sk-wrong-91ac")
        })
        const unauthorized = yield* Effect.flip(
          wrong.create(wrong.aliasOf(runId), RunKeysContract.termsOf(runId))
        )
        assert.include(unauthorized.message, "401")
        assert.include(unauthorized.remedy, "master key")
        assert.isFalse(unauthorized.isRetryable)
        assert.notInclude(JSON.stringify(unauthorized), "sk-wrong")

        const { run } = yield* SandboxRunner
        yield* database.stop
        const withoutDatabase = yield* Effect.flip(run(specOf([chat()])))
        assert.include(["ProxyFailed", "Misconfigured"], withoutDatabase.reason._tag)
        assert.include(withoutDatabase.message, "key of its own")
        yield* database.start
        yield* door.close
        const closed = yield* Effect.flip(run(specOf([chat()])))
        assert.strictEqual(closed.reason._tag, "ProxyFailed")
        yield* door.open
        // LiteLLM reconnects to its database.
        yield* keys.create(keys.aliasOf(runId), RunKeysContract.termsOf(runId)).pipe(
          Effect.flatMap(({ alias }) => keys.remove(alias)),
          Effect.retry({ schedule: Schedule.spaced("500 millis"), times: 200 })
        )
        assert.deepStrictEqual(statuses(yield* run(specOf([chat()]))), [200])
      })
    )
  })

  RunKeysContract.suite(
    "LiteLLM",
    keysLayer.pipe(Layer.provideMerge(liteLlm)),
    {
      existing: (runId) =>
        LiteLlm.use(({ keys }) => Effect.map(keys(runId), (all) => all.map(({ key_alias }) => key_alias!)))
    },
    options.memoMap
  )
}

// The outer layer holds LiteLLM until both suites have ended.
it.layer(liteLlm, options)("LiteLLM", suites)
