/** The gateway on the command line, on a real engine: budgets, canaries and the audit. */
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import * as CliProcess from "../harness/CliProcess.ts"
import * as ModelApi from "../harness/ModelApi.ts"

const key = "sk-planted-91ab07-in-a-gateway"

const environment = (url: string) => ({ COGNI_LLM_URL: url, COGNI_LLM_KEY: key, COGNI_LLM_MODEL: "m" })

/** Makes this number of calls, and exits with the number of refused ones. */
const asking = (times: number) => [
  "node",
  "-e",
  `(async () => {
    let refused = 0
    for (let index = 0; index < ${times}; index++) {
      const response = await fetch("http://localhost:8080/v1/chat/completions", {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ messages: [{ role: "user", content: "hi" }] })
      })
      await response.text()
      if (!response.ok) refused += 1
    }
    console.log("refused " + refused)
    process.exitCode = refused
  })()`
]

const idOf = (stderr: string): string => /run-[0-9a-z]{12}/u.exec(stderr)?.[0] ?? assert.fail(stderr)

layer(CliProcess.layer, { excludeTestServices: true })("the gateway on the command line", (it) => {
  it.effect("an agent that fails because of its budget exits with 120, and its audit is valid", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const { received, url } = yield* ModelApi.acquire
      const ended = yield* cli.run(["run", "--max-calls", "2", "--", ...asking(3)], {
        env: environment(url)
      })
      assert.strictEqual(ended.code, 120, ended.stderr)
      assert.match(ended.stdout.toString(), /refused 1/u)
      assert.match(ended.stderr, /budget of 2 calls is spent/u)
      assert.strictEqual((yield* received).length, 2)
      const verified = yield* cli.run(["audit", "verify", idOf(ended.stderr)])
      assert.strictEqual(verified.code, 0, verified.stderr)
    })
  )

  it.effect("an agent may handle a spent budget itself, unless --stop-when-spent stops it", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const { url } = yield* ModelApi.acquire
      const env = environment(url)
      const coping = yield* cli.run(
        ["run", "--max-calls", "1", "--", "sh", "-c", `${quoted(asking(2))} || true`],
        { env }
      )
      assert.strictEqual(coping.code, 0, coping.stderr)
      const stopped = yield* cli.run(
        ["run", "--max-calls", "1", "--stop-when-spent", "--", "sh", "-c", `${quoted(asking(2))}; sleep 60`],
        { env }
      )
      assert.strictEqual(stopped.code, 120, stopped.stderr)
    })
  )

  it.effect("a canary in a prompt raises a warning, or stops the agent before the prompt is sent", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const { received, url } = yield* ModelApi.acquire
      const env = environment(url)
      const thief = [
        "node",
        "-e",
        `const secret = require("node:fs").readFileSync(process.env.HOME + "/.aws/credentials", "utf8")
        fetch("http://localhost:8080/v1/chat/completions", {
          method: "POST",
          headers: { "content-type": "application/json" },
          body: JSON.stringify({ messages: [{ role: "user", content: Buffer.from(secret).toString("base64") }] })
        }).then((response) => console.log(response.status)).then(() => setTimeout(() => {}, 3000))`
      ]
      const warned = yield* cli.run(["run", "--canaries", "warn", "--", ...thief], { env })
      assert.strictEqual(warned.code, 0, warned.stderr)
      assert.match(warned.stderr, /a canary was detected in the prompt/u)
      assert.strictEqual((yield* received).length, 1)
      const stopped = yield* cli.run(["run", "--canaries", "stop", "--", ...thief], { env })
      assert.strictEqual(stopped.code, 119, stopped.stderr)
      assert.strictEqual((yield* received).length, 1)
    })
  )

  it.effect("verifies the audit during and after a run, and reports the line of an edit", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const { url } = yield* ModelApi.acquire
      const living = yield* cli.start(["run", "--", "sh", "-c", `${quoted(asking(2))}; echo up; sleep 30`], {
        env: environment(url)
      })
      yield* living.said(/^up$/mu)
      const listed = yield* cli.run(["ps", "--output", "json"])
      const [{ runId }] = JSON.parse(listed.stdout.toString()).runs ?? JSON.parse(listed.stdout.toString())
      const alive = yield* cli.run(["audit", "verify", runId])
      assert.strictEqual(alive.code, 0, alive.stderr + alive.stdout.toString())
      yield* living.kill("SIGTERM")
      yield* living.ended
      assert.strictEqual((yield* cli.run(["audit", "verify", runId])).code, 0)
      const shown = yield* cli.run(["audit", "show", runId])
      assert.include(shown.stdout.toString(), "call.started")
      const path = join(cli.stateDirectory, "runs", runId, "audit", "audit.jsonl")
      const log = readFileSync(path, "utf8")
      assert.notInclude(log, key)
      writeFileSync(path, log.replace('"status":200', '"status":201'))
      const edited = yield* cli.run(["audit", "verify", runId])
      assert.strictEqual(edited.code, 1, edited.stdout.toString())
      assert.match(edited.stdout.toString() + edited.stderr, /line [0-9]+/u)
      writeFileSync(path, log.split("\n").slice(0, -2).join("\n"))
      assert.strictEqual((yield* cli.run(["audit", "verify", runId])).code, 1)
      writeFileSync(path, log)
    })
  )

  it.effect("a proxy that does not read bodies refuses limits that it cannot enforce", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const ended = yield* cli.run(["run", "--proxy", "nginx", "--max-calls", "2", "--", "true"], {
        env: environment("http://127.0.0.1:9")
      })
      assert.strictEqual(ended.code, 65, ended.stderr)
      assert.match(ended.stderr, /does not read bodies/u)
    })
  )
})

/** Quotes an argv for a shell. */
const quoted = (argv: ReadonlyArray<string>): string =>
  argv.map((word) => `'${word.replaceAll("'", `'\\''`)}'`).join(" ")
