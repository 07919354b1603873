/** `demo` as a new user runs it: without a key, and with the user's own upstream. */
import { assert, layer } from "@effect/vitest"
import * as DemoUpstream from "@cogni/sandbox-proxy/DemoUpstream"
import { Effect } from "effect"
import { existsSync, readFileSync } from "node:fs"
import { join } from "node:path"
import * as CliProcess from "../harness/CliProcess.ts"

const key = "sk-planted-9b2e4d-quixotic"

layer(CliProcess.layer, { excludeTestServices: true })("demo", (it) => {
  it.effect("needs no key, labels its output as a demo, and fits into 80 columns", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const { code, stderr, stdout } = yield* cli.run(["demo"])
      assert.strictEqual(code, 0, stderr)
      const page = stdout.toString("utf8").split("\n")
      assert.include(page[0], "no model is asked")
      for (const part of [
        "Answer (demo)",
        "This is the demo upstream; no model was asked",
        "uid 1000",
        "interfaces lo; routes none",
        "POST /v1/chat/completions → 200",
        "Headers added by the proxy (demo)",
        "Bearer sha256:",
        "x-litellm-spend-logs-metadata",
        "Timings",
        "Try next"
      ]) {
        assert.include(page.join("\n"), part)
      }
      for (const line of page.filter((one) => !/^ {2}(?:record|audit) /u.test(one)))
        assert.isAtMost(line.length, 80, line)
      assert.match(stderr, /^· demo upstream: no model is asked\n/u)
      assert.deepStrictEqual(yield* cli.leftovers, [])
    })
  )

  it.effect("prints one JSON object for scripts, with valid paths of the record and the audit", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const { code, stdout } = yield* cli.run(["demo", "--output", "json", "--quiet"])
      assert.strictEqual(code, 0)
      const json = JSON.parse(stdout.toString("utf8"))
      assert.containSubset(json, { ok: true, demo: true, posture: { seccompMode: 2, interfaces: ["lo"] } })
      const received = new Map<string, string>(json.received)
      assert.match(received.get("authorization") ?? "", /^Bearer sha256:[0-9a-f]{12}$/u)
      assert.strictEqual(received.get("x-litellm-customer-id"), "acct-tests")
      assert.strictEqual(JSON.parse(received.get("x-litellm-spend-logs-metadata")!).run_id, json.runId)
      assert.isTrue(existsSync(json.recordPath))
      assert.include(readFileSync(json.llm.auditPath, "utf8"), "/v1/chat/completions")
      assert.strictEqual(json.recordPath, join(cli.stateDirectory, "runs", json.runId, "record.json"))
    })
  )

  it.effect("calls a configured upstream, reports it, and does not show the key", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const upstream = yield* DemoUpstream.acquire({ raw: true })
      const env = { COGNI_LLM_URL: upstream.url, COGNI_LLM_KEY: key, COGNI_LLM_MODEL: "mine" }
      const { code, stderr, stdout } = yield* cli.run(["demo"], { env })
      assert.strictEqual(code, 0, stderr)
      const page = stdout.toString("utf8")
      assert.include(page, `${upstream.url} answers`)
      assert.include(page, "with your upstream")
      assert.notInclude(page, "no model is asked")
      assert.notInclude(page + stderr, key)
      const [request] = yield* upstream.received
      assert.deepInclude(request!.headers, ["authorization", `Bearer ${key}`])
    })
  )

  it.effect("refuses an incomplete configuration instead of using the demo upstream", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const { code, stderr, stdout } = yield* cli.run(["demo"], { env: { COGNI_LLM_KEY: key } })
      assert.strictEqual(code, 78)
      assert.strictEqual(stdout.length, 0)
      assert.include(stderr, "COGNI_LLM_KEY is set and COGNI_LLM_URL is not")
    })
  )
})
