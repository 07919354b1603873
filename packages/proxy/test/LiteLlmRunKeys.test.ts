/** Requests to a LiteLLM that is scripted to fail in every way. A real one: `test/stack/RunKeys.test.ts`. */
import { assert, describe, it } from "@effect/vitest"
import * as RunId from "@cogni/sandbox-core/RunId"
import { Effect, Exit, Redacted } from "effect"
import { createServer, type IncomingMessage, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"
import * as LiteLlmRunKeys from "../src/LiteLlmRunKeys.ts"
import { hashOf } from "../src/internal/keys/RunKeyAlias.ts"
import type { RunKeyFailed } from "../src/RunKeys.ts"
import { termsOf } from "./RunKeysContract.ts"

const masterKey = "sk-master-planted-5f2a"
const issued = "sk-issued-0123456789abcdef"
const runId = RunId.RunId.make("run-000000000001")

type Handler = (path: string, body: Record<string, unknown>, response: ServerResponse) => void

interface Seen {
  readonly method: string
  readonly url: string
  readonly headers: IncomingMessage["headers"]
  readonly body: Record<string, unknown>
}

const serve = (handle: Handler) =>
  Effect.acquireRelease(
    Effect.callback<{ readonly url: string; readonly seen: Array<Seen>; readonly close: () => void }>(
      (resume) => {
        const seen: Array<Seen> = []
        const server = createServer((request, response) => {
          let text = ""
          request.on("data", (piece) => (text += piece))
          request.on("end", () => {
            const { headers, method = "", url = "" } = request
            const body = text === "" ? {} : JSON.parse(text)
            seen.push({ method, url, headers, body })
            handle(url.split("?")[0]!, body, response)
          })
        })
        server.listen(0, "127.0.0.1", () =>
          resume(
            Effect.succeed({
              url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
              seen,
              close: () => server.close().closeAllConnections()
            })
          )
        )
      }
    ),
    ({ close }) => Effect.sync(close)
  )

const json = (response: ServerResponse, status: number, value: unknown) => {
  response.writeHead(status, { "content-type": "application/json" })
  response.end(typeof value === "string" ? value : JSON.stringify(value))
}

/** Answer of LiteLLM to a request for a key. */
const created = (body: Record<string, unknown>, over: object = {}) => ({
  ...body,
  key: issued,
  token: hashOf(issued),
  expires: new Date(Date.now() + 960_000).toISOString(),
  ...over
})

const owner = { bootId: "boot", processId: 1, startTicks: 1 }

const keysOf = (url: string, options: Partial<LiteLlmRunKeys.LiteLlmRunKeysOptions> = {}) =>
  LiteLlmRunKeys.make({
    url,
    key: Redacted.make(masterKey),
    deployment: "test",
    owners: { self: () => owner, isOrphaned: (text) => text === "dead/1/1" },
    ...options
  })

/** Creates a key with a LiteLLM that answers so, and returns what was created or why not. */
const createWith = Effect.fnUntraced(function* (
  answer: (body: Record<string, unknown>, response: ServerResponse) => void,
  options: Partial<LiteLlmRunKeys.LiteLlmRunKeysOptions> = {}
) {
  const server = yield* serve((path, body, response) =>
    path === "/key/generate" ? answer(body, response) : json(response, 404, { detail: "Not Found" })
  )
  const keys = yield* keysOf(server.url, options)
  const exit = yield* Effect.exit(keys.create(keys.aliasOf(runId), termsOf(runId)))
  return { exit, seen: server.seen }
})

const failureOf = (exit: Exit.Exit<unknown, RunKeyFailed>): RunKeyFailed => {
  if (Exit.isSuccess(exit)) return assert.fail("a key was created")
  const [reason] = exit.cause.reasons
  return reason?._tag === "Fail" ? reason.error : assert.fail(`no failure: ${exit.cause}`)
}

describe("keys from LiteLLM", () => {
  it.live("asks for exactly the terms of the run, with the run's identity and its process", () =>
    Effect.gen(function* () {
      const { exit, seen } = yield* createWith((body, response) => json(response, 200, created(body)))
      assert.isTrue(Exit.isSuccess(exit))
      const { body, headers } = seen.find(({ url }) => url === "/key/generate")!
      assert.strictEqual(headers.authorization, `Bearer ${masterKey}`)
      assert.match(String(body["key_alias"]), /^cogni-sandbox\.test\.run-000000000001\.[0-9a-f]{12}$/u)
      const { key_alias: _, ...rest } = body
      assert.deepStrictEqual(rest, {
        duration: "960s",
        models: ["chat"],
        allowed_routes: ["/v1/chat/completions", "/v1/messages"],
        max_budget: 2,
        max_parallel_requests: 8,
        rpm_limit: 1200,
        tpm_limit: null,
        metadata: {
          cogni_sandbox_deployment: "test",
          cogni_sandbox_owner: "boot/1/1",
          cogni_sandbox_run: "run-000000000001",
          spend_logs_metadata: { run_id: "run-000000000001", attempt: 0, user_id: null }
        }
      })
    })
  )

  const expiring = (seconds: number) => ({ expires: new Date(Date.now() + seconds * 1000).toISOString() })

  it.live("refuses a key that differs from its terms, and says that it may exist", () =>
    Effect.gen(function* () {
      for (const [over, says] of [
        [{ models: ["chat", "other"] }, "other models"],
        [{ models: [] }, "other models"],
        [{ allowed_routes: [] }, "other routes"],
        [{ allowed_routes: null }, "other routes"],
        [{ max_budget: null }, "another budget"],
        [{ max_parallel_requests: 9 }, "concurrent calls"],
        [{ rpm_limit: null }, "limit of requests"],
        [{ tpm_limit: 5 }, "limit of tokens"],
        [{ token: hashOf("another") }, "another hash"],
        [{ expires: null }, "without an expiry"],
        [expiring(960 + 4000), "later than asked"],
        [expiring(960 - 4000), "later than asked"]
      ] as const) {
        const { exit } = yield* createWith((body, response) => json(response, 200, created(body, over)))
        const failure = failureOf(exit)
        assert.include(failure.message, says)
        assert.isTrue(failure.isUncertain)
        assert.isFalse(failure.isRetryable)
        assert.notInclude(JSON.stringify(failure), issued)
      }
    })
  )

  it.live("reports each failure with what to do, without a key, and whether a retry can help", () =>
    Effect.gen(function* () {
      const echo = { error: { message: `wrong: ${masterKey}`, type: "x" } }
      for (const [status, answer, says, isRetryable, isUncertain] of [
        [401, echo, "master key", false, false],
        [403, { detail: "no" }, "master key", false, false],
        [400, echo, "Correct what it names", false, false],
        [422, { detail: [{ msg: "field" }] }, "Correct what it names", false, false],
        [404, "<html>", "LiteLLM", false, false],
        [302, "", "LiteLLM", false, false],
        [429, echo, "try again", true, true],
        [500, echo, "try again", true, true],
        [502, "<html>", "try again", true, true],
        [500, { error: { message: "No connected db.", type: "no_db_connection" } }, "database", true, true],
        [200, "<html>", "update LiteLLM", false, true],
        [200, { key: 5 }, "update LiteLLM", false, true],
        [200, "", "update LiteLLM", false, true]
      ] as const) {
        const { exit } = yield* createWith((_, response) => json(response, status, answer))
        const failure = failureOf(exit)
        assert.include(failure.message, says, String(status))
        assert.strictEqual(failure.isRetryable, isRetryable, failure.message)
        assert.strictEqual(failure.isUncertain, isUncertain, failure.message)
        assert.notInclude(`${failure} ${JSON.stringify(failure)}`, masterKey)
      }
    })
  )

  it.live("waits for a bounded time, and reads a bounded answer", () =>
    Effect.gen(function* () {
      const slow = yield* createWith(() => undefined, { requestSecondsMax: 0.2 })
      assert.include(failureOf(slow.exit).message, "within 0.2 s")
      const cut = yield* createWith((_, response) => {
        response.writeHead(200, { "content-length": "100" })
        response.write("{")
        response.destroy()
      })
      assert.isTrue(failureOf(cut.exit).isUncertain)
      const endless = yield* createWith((_, response) => {
        response.writeHead(200)
        const piece = " ".repeat(256 * 1024)
        const more = () => {
          while (!response.destroyed && response.write(piece)) continue
        }
        response.on("drain", more)
        more()
      })
      assert.include(failureOf(endless.exit).message, "not what LiteLLM's API says")
    })
  )

  it.live("knows that no key exists if nothing listens", () =>
    Effect.gen(function* () {
      const closed = yield* serve(() => undefined)
      closed.close()
      const keys = yield* keysOf(closed.url)
      const failure = yield* Effect.flip(keys.create(keys.aliasOf(runId), termsOf(runId)))
      assert.isTrue(failure.isRetryable)
      assert.isFalse(failure.isUncertain)
    })
  )

  it.live("refuses a version that must not be used, also if it creates keys, until it is updated", () =>
    Effect.gen(function* () {
      let version = "1.82.8"
      const server = yield* serve((path, body, response) =>
        path === "/key/generate"
          ? json(response, 200, created(body))
          : json(response, 200, { litellm_version: version, db: "connected" })
      )
      const keys = yield* keysOf(server.url)
      const failure = yield* Effect.flip(keys.create(keys.aliasOf(runId), termsOf(runId)))
      assert.include(failure.message, "attacker")
      assert.isTrue(failure.isUncertain)
      version = "1.106.2"
      const made = yield* keys.create(keys.aliasOf(runId), termsOf(runId))
      assert.include(made.alias, runId)
    })
  )

  it.live("deletes only keys of this deployment whose process is dead, from all pages", () =>
    Effect.gen(function* () {
      const entry = (alias: string | null, over: object = {}) => ({
        key_alias: alias,
        expires: new Date().toISOString(),
        metadata: {
          cogni_sandbox_deployment: "test",
          cogni_sandbox_owner: "dead/1/1",
          cogni_sandbox_run: "run-000000000001",
          ...over
        }
      })
      const ours = "cogni-sandbox.test.run-000000000001.00112233445"
      const pages = [
        [
          entry(`${ours}5`),
          entry(null),
          entry("admin"),
          entry(`${ours}6`, { cogni_sandbox_owner: "boot/1/1" }),
          { key_alias: `${ours}7`, expires: null, metadata: null }
        ],
        [
          entry(`${ours}8`, { cogni_sandbox_deployment: "other" }),
          entry(`${ours}9`, { cogni_sandbox_run: "run-000000000002" }),
          entry("cogni-sandbox.test-2.run-000000000001.001122334455"),
          entry(`${ours}a`)
        ]
      ]
      const deleted: Array<unknown> = []
      const server = yield* serve((path, body, response) => {
        if (path === "/key/list") {
          const page = pages[server.seen.filter(({ url }) => url.startsWith("/key/list")).length - 1]
          return json(response, 200, { keys: page, total_pages: pages.length })
        }
        if (path !== "/key/delete") return json(response, 404, { detail: "Not Found" })
        deleted.push(...(body["key_aliases"] as Array<unknown>))
        return deleted.length === 2
          ? json(response, 500, { error: { message: "no" } })
          : json(response, 200, { deleted_keys: body["key_aliases"] })
      })
      const keys = yield* keysOf(server.url)
      const reaped = yield* keys.reap
      assert.sameMembers(deleted, [`${ours}5`, `${ours}a`])
      assert.strictEqual(reaped.deleted.length, 1)
      assert.strictEqual(reaped.left.length, 1)
      for (const { url } of server.seen.filter(({ url }) => url.startsWith("/key/list")))
        assert.include(url, "key_alias=cogni-sandbox.test.")
    })
  )

  it.live("needs a name for its deployment, and LiteLLM as its upstream", () =>
    Effect.gen(function* () {
      const unnamed = yield* Effect.flip(keysOf("http://127.0.0.1:4000", { deployment: "Team A" }))
      assert.include(unnamed.message, "lower-case letters")
      const openai = yield* Effect.flip(keysOf("https://api.openai.com/v1"))
      assert.include(openai.message, "only LiteLLM issues keys")
    })
  )
})
