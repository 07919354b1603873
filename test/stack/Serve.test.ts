/** The server as a separate process on a real engine: its guide, executed as written, and its shutdown. */
import { assert, describe, layer } from "@effect/vitest"
import { label, parseOwner } from "@cogni/sandbox-core/ResourceLabels"
import * as DockerApi from "@cogni/sandbox-docker/DockerApi"
import { Effect } from "effect"
import { execFile, spawn } from "node:child_process"
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import * as Await from "../harness/Await.ts"
import * as CliProcess from "../harness/CliProcess.ts"
import * as GitOrigin from "../harness/GitOrigin.ts"
import * as Images from "../harness/Images.ts"
import * as LeakCheck from "../harness/LeakCheck.ts"
import { serve } from "../harness/LocalServer.ts"
import * as ScriptedModel from "../harness/ScriptedModel.ts"
import { freePort } from "../harness/FreePort.ts"
import * as Pace from "../harness/Pace.ts"

const guide = fileURLToPath(new URL("../../docs/guides/server.md", import.meta.url))
const { program } = CliProcess

/** Shell blocks of the guide. */
const blocks = [...readFileSync(guide, "utf8").matchAll(/^```sh\n([\s\S]*?)^```$/gmu)].map(
  ([, text]) => text!
)

const directory = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-serve-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
)

const run = (file: string, argv: ReadonlyArray<string>, options: object = {}) =>
  Effect.callback<{ readonly stdout: string; readonly stderr: string; readonly failed: boolean }>(
    (resume) => {
      execFile(file, [...argv], { maxBuffer: 2 ** 24, ...options }, (error, stdout, stderr) =>
        resume(Effect.succeed({ stdout, stderr, failed: error !== null }))
      )
    }
  )

/** Runs the blocks as one script, and returns the output of each. */
const walked = Effect.gen(function* () {
  const { stateDirectory } = yield* CliProcess.CliProcess
  const home = yield* directory
  const port = yield* freePort
  const operatorPort = yield* freePort
  const bin = join(home, "bin")
  mkdirSync(bin)
  writeFileSync(
    join(bin, "cogni-sandbox"),
    `#!/bin/sh\nexec "${process.execPath}" --disable-warning=ExperimentalWarning "${program}" "$@"\n`,
    { mode: 0o755 }
  )
  const mark = "-- the next block --"
  const script = [
    "set -eu",
    // Stops the server even if the script fails.
    "trap 'kill \"${SERVER:-}\" 2>/dev/null || true' EXIT",
    ...blocks.flatMap((block) => [
      block.replaceAll("8787", String(port)).replaceAll("8788", String(operatorPort)),
      `echo "${mark}"`
    ])
  ].join("\n")
  const ended = yield* run("sh", ["-c", script], {
    cwd: home,
    // Shorter than the test's own timeout, so that a failure shows the output.
    timeout: Pace.hangMillis / 2,
    env: {
      PATH: `${bin}:/usr/local/bin:/usr/bin:/bin`,
      COGNI_STATE_DIR: stateDirectory,
      COGNI_RUNTIME_IMAGE: Images.runtime
    }
  })
  assert.isFalse(ended.failed, `${ended.stderr}\n${ended.stdout}`)
  return { blocks: ended.stdout.split(`${mark}\n`).map((text) => text.trim()), stderr: ended.stderr }
})

/**
 * Follows the engine's events, and returns a function that lists the run of every container created since then.
 * It follows because the engine keeps only its last 256 events, and other suites use the same engine.
 */
const createdRuns = Effect.gen(function* () {
  const child = yield* Effect.acquireRelease(
    Effect.sync(() =>
      spawn(
        "docker",
        [
          "events",
          `--since=${Math.floor(Date.now() / 1000)}`,
          "--filter=type=container",
          "--filter=event=create",
          `--format={{.Actor.ID}} {{index .Actor.Attributes "${label.run}"}}`
        ],
        { stdio: ["ignore", "pipe", "inherit"] }
      )
    ),
    (follower) => Effect.sync(() => follower.kill())
  )
  let text = ""
  child.stdout.setEncoding("utf8").on("data", (piece: string) => {
    text += piece
  })
  // Events arrive in order: once this container's event is here, every earlier one is too.
  const last = Effect.acquireUseRelease(
    run("docker", ["create", Images.runtime]),
    ({ stdout }) =>
      Await.until(
        "the event of a container",
        Effect.sync(() => text.includes(stdout.trim()))
      ),
    ({ stdout }) => run("docker", ["rm", stdout.trim()])
  )
  yield* last
  return Effect.map(last, () => text.split("\n").map((line) => line.split(" ")[1] ?? ""))
})

layer(CliProcess.layer)("cogni-sandbox serve", (it) => {
  describe("the guide", () => {
    it.effect("works block by block, and refused requests create no container", () =>
      Effect.gen(function* () {
        const runs = yield* createdRuns
        const { blocks, stderr } = yield* walked
        const [start, grants, catalog, chat, record, detached, refusals, stop] = blocks
        assert.strictEqual(start, '{"status":"ok"}{"status":"ready","checks":{"store":"ok","engine":"ok"}}')
        assert.match(stderr, /^operator's port on http:\/\/127\.0\.0\.1:\d+$/mu)
        assert.match(stderr, /^listening on http:\/\/127\.0\.0\.1:\d+$/mu)
        assert.match(grants!, /^grant-\S+ +active +yes +acme +ana +\* /mu)
        assert.include(catalog!.split("\n"), '"sandbox:agent"')
        assert.match(chat!, /^event: assistant_final\ndata: .*Where is Lima\?/mu)
        assert.match(chat!, /event: usage_report\ndata: .*"billingAccountId":"acme"/u)
        assert.match(chat!, /event: done\ndata: \{"type":"done"\}$/u)
        const events = [...chat!.matchAll(/^event: /gmu)].length
        assert.strictEqual(
          record,
          `{"status":"succeeded","model":"demo","exitCode":0,"events":${events}}\n` +
            'sandbox_graph_runs_total{agent="sandbox:agent",status="ok"} 1'
        )
        assert.strictEqual(detached, "false")
        assert.strictEqual(
          refusals,
          [
            "403 GrantMissing",
            "403 SandboxNotAllowed",
            "403 GrantExpired",
            "403 ToolNotGranted",
            "403 ModelNotGranted",
            "400 BodyInvalid"
          ].join("\n")
        )
        assert.strictEqual(stop, "ended with 143")
        const runId = /^: (run-[a-z0-9]+)$/mu.exec(chat!)![1]!
        const created = yield* runs
        assert.deepStrictEqual(
          created.filter((run) => run === runId),
          [runId]
        )
        assert.notInclude(created, "run-refused-walk")
        // Tokens are printed only where the guide requests them.
        assert.notMatch(`${stderr}${blocks.join("\n")}`, /cgs_[\w-]{20}/u)
      })
    )
  })

  describe("SIGTERM", () => {
    it.effect("cancels active runs, reports and records the cancellation, and leaves nothing", () =>
      Effect.gen(function* () {
        const cli = yield* CliProcess.CliProcess
        const model = yield* silentModel
        const port = yield* freePort
        const { child, ended, said } = yield* cli.start(["serve", "--port", String(port), "--drain", "1s"], {
          env: { ...model, SANDBOX_ENABLED: "true", COGNI_GATEWAY_IMAGE: Images.gateway }
        })
        yield* said(/^listening on /mu)
        const url = `http://127.0.0.1:${port}`
        const { stdout } = yield* cli.run([
          "grants",
          "create",
          "--user",
          "u",
          "--account",
          "a",
          "--allow-sandbox"
        ])
        const headers = { authorization: `Bearer ${stdout.toString("utf8").trim()}` }
        const body = JSON.stringify({
          graphId: "sandbox:agent",
          messages: [{ role: "user", content: "Where?" }]
        })
        const answers = yield* Effect.forEach(
          [1, 2, 3],
          () => Effect.promise(() => fetch(`${url}/api/v1/ai/chat`, { method: "POST", headers, body })),
          { concurrency: "unbounded" }
        )
        const texts = Effect.forEach(
          answers,
          (answer) =>
            Effect.promise(async () => {
              const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader()
              let text = ""
              for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
                text += piece.value
                // All runs are active, or soon will be.
                if (text.includes('"phase":"entrypoint"') && !child.killed) child.kill("SIGTERM")
              }
              return text
            }),
          { concurrency: "unbounded" }
        )
        for (const text of yield* texts) {
          assert.include(text, "the run was cancelled")
          assert.match(text, /event: done\n.*\n\n$/u)
        }
        const { code, stderr: all } = yield* ended
        assert.strictEqual(code, 143, all)
        assert.deepStrictEqual(yield* cli.leftovers, [])
        const listed = yield* cli.run(["ps", "--all", "--output", "json"])
        const statuses = new Map<string, string>(
          JSON.parse(listed.stdout.toString("utf8")).map(({ runId, status }: any) => [runId, status])
        )
        for (const answer of answers) {
          assert.strictEqual(statuses.get(answer.headers.get("x-cogni-run-id")!), "interrupted")
        }
      })
    )
  })

  describe("--pool", () => {
    it.effect("serves a run from a sandbox that waited for it, counts it, and leaves none", () =>
      Effect.gen(function* () {
        const cli = yield* CliProcess.CliProcess
        const [port, operatorPort] = [yield* freePort, yield* freePort]
        const ports = ["--port", String(port), "--operator-port", String(operatorPort)]
        const { child, ended, said } = yield* cli.start(["serve", "--demo", "--pool", "1", ...ports], {
          env: { SANDBOX_ENABLED: "true" }
        })
        yield* said(/^listening on /mu)
        const { stdout } = yield* cli.run("grants create --user u --account a --allow-sandbox".split(" "))
        const headers = { authorization: `Bearer ${stdout.toString("utf8").trim()}` }
        const textOf = (url: string, init?: RequestInit) =>
          Effect.promise(() => fetch(url, init).then((answer) => answer.text()))
        const body = JSON.stringify({
          graphId: "sandbox:agent",
          messages: [{ role: "user", content: "Where is Lima?" }]
        })
        const chat = textOf(`http://127.0.0.1:${port}/api/v1/ai/chat`, { method: "POST", headers, body })
        const hasMetric = (line: RegExp) =>
          Effect.map(textOf(`http://127.0.0.1:${operatorPort}/metrics`), (text) => line.test(text))
        const answer = /^event: assistant_final\ndata: .*Where is Lima\?/mu
        assert.match(yield* chat, answer)
        yield* Await.until("a sandbox waits", hasMetric(/^sandbox_pool_waiting 1$/mu))
        assert.match(yield* chat, answer)
        assert.isTrue(yield* hasMetric(/^sandbox_pool_claims_total\{result="hit"\} 1$/mu))
        child.kill("SIGTERM")
        const { code, stderr } = yield* ended
        assert.strictEqual(code, 143, stderr)
        const found = yield* DockerApi.DockerApi.use((api) => api.labelled(label.run))
        const own = found.filter(
          ({ labels }) => parseOwner(labels[label.owner] ?? "")?.processId === child.pid
        )
        assert.deepStrictEqual(own, [])
        assert.deepStrictEqual(LeakCheck.waiting(cli.stateDirectory), [])
        assert.deepStrictEqual(yield* cli.leftovers, [])
      })
    )
  })

  it.effect("works in a local repository if that is enabled, and keeps no prompt by default", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const model = yield* ScriptedModel.acquire(({ index }) =>
        index === 0
          ? { call: [{ name: "Bash", args: { command: "echo tidy >NOTES.md", description: "As asked" } }] }
          : { say: "It is tidy." }
      )
      const origin = yield* GitOrigin.acquire()
      const { path } = yield* origin.make("acme/app", { "README.md": "hello\n" })
      const port = yield* freePort
      const { said } = yield* cli.start(["serve", "--port", String(port), "--host-repositories"], {
        env: {
          SANDBOX_ENABLED: "true",
          COGNI_LLM_URL: model.url,
          COGNI_LLM_KEY: "sk-none",
          COGNI_LLM_MODEL: "scripted",
          COGNI_GATEWAY_IMAGE: Images.gateway,
          COGNI_CLAUDE_CODE_IMAGE: Images.ofAgent("claude-code")
        }
      })
      yield* said(/^listening on /mu)
      const { stdout } = yield* cli.run([
        "grants",
        "create",
        "--user",
        "u",
        "--account",
        "a",
        "--allow-sandbox",
        "--repository",
        path
      ])
      const headers = { authorization: `Bearer ${stdout.toString("utf8").trim()}` }
      const body = JSON.stringify({
        graphId: "sandbox:claude-code",
        messages: [{ role: "user", content: "Tidy up." }],
        repository: { url: path }
      })
      const answer = yield* Effect.promise(() =>
        fetch(`http://127.0.0.1:${port}/api/v1/ai/chat`, { method: "POST", headers, body })
      )
      const text = yield* Effect.promise(() => answer.text())
      const runId = answer.headers.get("x-cogni-run-id")
      assert.include(text, `Branch: sandbox/${runId}`)
      assert.strictEqual(yield* GitOrigin.git(path, "show", `sandbox/${runId}:NOTES.md`), "tidy")
      const view = (part: string) =>
        Effect.promise(() =>
          fetch(`http://127.0.0.1:${port}/api/v1/runs/${runId}${part}`, { headers }).then(
            (one): Promise<any> => one.json()
          )
        )
      assert.containSubset(yield* view(""), {
        status: "succeeded",
        relay: { status: "pushed", branch: `sandbox/${runId}` }
      })
      const [{ callId }] = (yield* view("/calls")).calls
      for (const part of ["request", "answer"])
        assert.strictEqual((yield* view(`/calls/${callId}/${part}`)).error.reason, "BodyNotKept")
    })
  )

  it.effect("refuses a remote address without --allow-remote, and a port that is in use", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const remote = yield* cli.run(["serve", "--host", "0.0.0.0"])
      assert.strictEqual(remote.code, 64)
      assert.include(remote.stderr, "--allow-remote")
      const { COGNI_LLM_URL } = yield* silentModel
      const taken = yield* cli.run(["serve", "--port", new URL(COGNI_LLM_URL).port])
      assert.strictEqual(taken.code, 69)
      assert.include(taken.stderr, "another program listens on 127.0.0.1:")
    })
  )
})

/** Environment of a model that never answers. */
const silentModel = Effect.map(
  serve(() => undefined),
  (url) => ({
    COGNI_LLM_URL: url,
    COGNI_LLM_KEY: "sk-none",
    COGNI_LLM_MODEL: "m"
  })
)
