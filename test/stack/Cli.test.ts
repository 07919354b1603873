/**
 * The command as a separate process on a real engine: its output streams and its exit codes.
 */
import { assert, layer } from "@effect/vitest"
import * as DemoUpstream from "@cogni/sandbox-proxy/DemoUpstream"
import { Effect } from "effect"
import { chmodSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import * as CliProcess from "../harness/CliProcess.ts"
import { directory, key, keyFile } from "../harness/CliWorld.ts"

// eslint-disable-next-line no-control-regex
const control = /[\0-\x08\x0b-\x1f\x7f]/u

const suite = layer(CliProcess.layer, { excludeTestServices: true })

suite("a sealed command", (it) => {
  it.effect("passes on its exit code, stdout and stderr", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const { code, stderr, stdout } = yield* cli.run([
        "run",
        "--quiet",
        "--",
        "sh",
        "-c",
        "echo out; echo err >&2; exit 7"
      ])
      assert.deepStrictEqual([code, stdout.toString(), stderr], [7, "out\n", "err\n"])
    })
  )

  it.effect("gets its arguments unchanged, with any characters", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const argv = ["", " a  b ", "$(id)", "`id`", "'", '"', "*", "--output", "json", "--", "é→", "a\nb"]
      const { code, stdout } = yield* cli.run(["run", "-q", "--", "printf", "%s\\0", ...argv])
      assert.strictEqual(code, 0)
      assert.deepStrictEqual(stdout.toString("utf8").split("\0").slice(0, -1), argv)
    })
  )

  it.effect("writes bytes, not text: binary data and invalid UTF-8 arrive unchanged", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const every = Array.from({ length: 256 }, (_, byte) => `\\${byte.toString(8).padStart(3, "0")}`).join(
        ""
      )
      const { stdout } = yield* cli.run([
        "run",
        "-q",
        "--",
        "sh",
        "-c",
        `printf '${every}'; printf '\\377\\376'`
      ])
      assert.deepStrictEqual([...stdout], [...Array(256).keys(), 255, 254])
    })
  )

  it.effect("streams its output while it runs", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const started = yield* cli.start(["run", "-q", "--", "sh", "-c", "echo first; sleep 30"])
      yield* started.said(/^first$/mu)
      assert.isNull(started.child.exitCode)
      yield* started.kill("SIGINT")
      assert.strictEqual((yield* started.ended).code, 130)
    })
  )

  it.effect("gets variables and a workspace, and changes to the workspace persist", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const workspace = yield* directory
      chmodSync(workspace, 0o777)
      const { code, stdout } = yield* cli.run([
        "run",
        "-q",
        "-w",
        workspace,
        "-e",
        "GREETING=hello=there",
        "--",
        "sh",
        "-c",
        'echo "$GREETING"; echo made > made'
      ])
      assert.deepStrictEqual([code, stdout.toString()], [0, "hello=there\n"])
      assert.strictEqual(readFileSync(join(workspace, "made"), "utf8"), "made\n")
    })
  )

  it.effect("can reach a model only if an upstream is configured", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const look = ["--", "sh", "-c", "ls /llm-sock 2>/dev/null; env | grep -c COGNI_LLM_KEY"]
      assert.strictEqual((yield* cli.run(["run", "-q", ...look])).stdout.toString(), "0\n")
      const { url } = yield* DemoUpstream.acquire()
      const env = { COGNI_LLM_URL: url, COGNI_LLM_KEY: key, COGNI_LLM_MODEL: "m" }
      assert.strictEqual((yield* cli.run(["run", "-q", ...look], { env })).stdout.toString(), "llm.sock\n0\n")
      assert.strictEqual(
        (yield* cli.run(["run", "-q", "--no-model", ...look], { env })).stdout.toString(),
        "0\n"
      )
    })
  )

  it.effect("prints one JSON object with its output for scripts", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const { code, stdout } = yield* cli.run(["run", "-o", "json", "--", "sh", "-c", "echo out; exit 3"])
      assert.strictEqual(code, 3)
      assert.containSubset(JSON.parse(stdout.toString()), {
        ok: false,
        exitCode: 3,
        output: {
          stdout: { text: "out\n", bytes: 4, truncated: false },
          stderr: { text: "", bytes: 0, truncated: false }
        },
        timings: [
          { phase: "workspace" },
          { phase: "create" },
          { phase: "start" },
          { phase: "entrypoint" },
          { phase: "agent" }
        ]
      })
    })
  )
})

suite("an agent", (it) => {
  it.effect("prints only its answer to stdout, and its progress to stderr", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const { code, stderr, stdout } = yield* cli.run(["run", "--demo", "What is the capital of Peru?"])
      assert.strictEqual(code, 0, stderr)
      assert.match(stdout.toString(), /^This is the demo upstream; [^\n]+ What is the capital of Peru\?\n$/u)
      assert.notMatch(stderr, control)
      assert.match(stderr, /^(?:· [^\n]+\n)+$/u)
      assert.include(stderr, "1 model call")
      assert.strictEqual((yield* cli.run(["run", "--demo", "--quiet", "hi"])).stderr, "")
    })
  )

  it.effect("reads a prompt from stdin and from a file, with any characters", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const prompt = 'a "quoted" $(prompt) with `ticks` → é'
      const file = join(yield* directory, "prompt.txt")
      writeFileSync(file, prompt)
      for (const ended of [
        yield* cli.run(["run", "-q", "--demo", "-"], { stdin: prompt }),
        yield* cli.run(["run", "-q", "--demo", "--prompt-file", file])
      ]) {
        assert.strictEqual(ended.code, 0, ended.stderr)
        assert.include(ended.stdout.toString(), prompt)
      }
    })
  )

  it.effect("prints one JSON object with the answer for scripts", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const { code, stdout } = yield* cli.run(["run", "--demo", "--output", "json", "hello"])
      assert.strictEqual(code, 0)
      const json = JSON.parse(stdout.toString())
      assert.containSubset(json, {
        ok: true,
        demo: true,
        agent: "agent",
        exitCode: 0,
        llm: { proxy: "gateway (host directory)", calls: [{ status: 200 }] }
      })
      assert.include(json.answer, "hello")
      assert.isAbove(json.usage.inputTokens, 0)
    })
  )

  it.effect("calls the configured upstream with the key, which appears nowhere else", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const { received, url } = yield* DemoUpstream.acquire({ raw: true })
      const env = {
        COGNI_LLM_URL: url,
        COGNI_LLM_KEY: key,
        COGNI_LLM_MODEL: "m1",
        COGNI_BILLING_ACCOUNT: "acct-7"
      }
      const { code, stderr, stdout } = yield* cli.run(
        ["run", "--output", "json", "--log-level", "debug", "hello"],
        { env }
      )
      assert.strictEqual(code, 0, stderr)
      const headers = new Map((yield* received).at(-1)?.headers)
      assert.strictEqual(headers.get("authorization"), `Bearer ${key}`)
      assert.strictEqual(headers.get("x-litellm-customer-id"), "acct-7")
      const { runId } = JSON.parse(stdout.toString())
      const record = readFileSync(join(cli.stateDirectory, "runs", runId, "record.json"), "utf8")
      assert.notInclude(stdout.toString() + stderr + record, key)
    })
  )

  it.effect("reads the key from a file too, which keeps it out of /proc/PID/environ", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const { received, url } = yield* DemoUpstream.acquire({ raw: true })
      const argv = [
        "run",
        "-q",
        "--",
        "sh",
        "-c",
        `node -e 'fetch("http://localhost:8080/v1/chat/completions", { method: "POST", body: "{\\"messages\\":[]}", headers: { "content-type": "application/json" } })' && echo up && sleep 60`
      ]
      for (const [env, shown] of [
        [{ COGNI_LLM_KEY_FILE: yield* keyFile(0o600) }, false],
        [{ COGNI_LLM_KEY: key }, true]
      ] as const) {
        const started = yield* cli.start(argv, {
          env: { ...env, COGNI_LLM_URL: url, COGNI_LLM_MODEL: "m" }
        })
        yield* started.said(/^up$/mu)
        const environment = readFileSync(`/proc/${started.child.pid}/environ`, "latin1")
        assert.strictEqual(environment.includes(key), shown)
        assert.notInclude(readFileSync(`/proc/${started.child.pid}/cmdline`, "latin1"), key)
        yield* started.kill("SIGTERM")
        yield* started.ended
        assert.strictEqual(new Map((yield* received).at(-1)?.headers).get("authorization"), `Bearer ${key}`)
      }
    })
  )
})
