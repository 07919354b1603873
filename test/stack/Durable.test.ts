/**
 * Durable runs on a real Temporal server and a real engine: workers and a keeper that are killed in the middle of a
 * run, and a cancellation.
 */
import { label } from "@cogni/sandbox-core/ResourceLabels"
import { RunId } from "@cogni/sandbox-core/RunId"
import * as DockerApi from "@cogni/sandbox-docker/DockerApi"
import { GraphId } from "@cogni/sandbox-graph-provider/graphs/GraphId"
import * as ScriptedModelApi from "@cogni/sandbox-proxy/ScriptedModelApi"
import * as DurableRun from "@cogni/sandbox-temporal/DurableRun"
import * as DurableRuns from "@cogni/sandbox-temporal/DurableRuns"
import { assert, layer } from "@effect/vitest"
import { Effect, Schema } from "effect"
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs"
import { request as forward } from "node:http"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import * as Await from "../harness/Await.ts"
import * as CliProcess from "../harness/CliProcess.ts"
import { freePort } from "../harness/FreePort.ts"
import { serve } from "../harness/LocalServer.ts"
import * as Pace from "../harness/Pace.ts"
import * as TemporalDevServer from "../harness/TemporalDevServer.ts"

/** A model whose answers wait until they are released. The keeper also asks for spend rows, which are not counted. */
const gatedModel = Effect.gen(function* () {
  const model = yield* ScriptedModelApi.acquire({ script: () => ({ say: "In Peru." }) })
  const waiting: Array<() => void> = []
  const runIds: Array<string> = []
  let asked = 0
  const url = yield* serve((incoming, response) => {
    const { headers, method, url: path } = incoming
    const pass = () => {
      const outgoing = forward(`${model.url}${path}`, { method, headers }, (answer) => {
        response.writeHead(answer.statusCode ?? 502, answer.headers)
        answer.pipe(response)
      })
      incoming.pipe(outgoing)
    }
    // Its agent may be gone.
    response.on("error", () => undefined)
    if (method !== "POST") return pass()
    asked += 1
    runIds.push(/"run_id":"([^"]+)"/u.exec(String(headers["x-litellm-spend-logs-metadata"]))?.[1] ?? "none")
    waiting.push(pass)
  })
  return {
    env: { COGNI_LLM_URL: url, COGNI_LLM_KEY: "sk-none", COGNI_LLM_MODEL: "m" },
    asked: (count: number) =>
      Await.until(
        `the model was asked ${count} times`,
        Effect.sync(() => asked >= count)
      ),
    /** The run of each call, in order. */
    runIds: Effect.sync(() => runIds),
    release: Effect.sync(() => {
      for (const pass of waiting.splice(0)) pass()
    })
  }
})

const tokenFile = (token: string) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-token-"))),
      (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
    ),
    (directory) => {
      const path = join(directory, "token")
      writeFileSync(path, token, { mode: 0o600 })
      return path
    }
  )

const Issued = Schema.fromJsonString(
  Schema.Struct({ grant: Schema.Struct({ id: Schema.String }), token: Schema.String })
)

const decodeOutcome = Schema.decodeUnknownEffect(Schema.fromJsonString(DurableRun.DurableOutcome))

const world = Effect.gen(function* () {
  const cli = yield* CliProcess.CliProcess
  const address = yield* TemporalDevServer.acquire
  const model = yield* gatedModel
  const port = yield* freePort
  const created = yield* cli.run(
    "grants create --user ana --account acme --allow-sandbox --output json".split(" ")
  )
  const { grant, token } = yield* Schema.decodeUnknownEffect(Issued)(created.stdout.toString("utf8"))
  const file = yield* tokenFile(token)
  const compiled = join(dirname(file), "compiled")
  const keeper = Effect.gen(function* () {
    const started = yield* cli.start(["serve", "--no-page", "--port", String(port)], {
      env: { ...model.env, SANDBOX_ENABLED: "true" }
    })
    yield* started.said(/^listening on /mu)
    return started
  })
  const worker = Effect.gen(function* () {
    const url = `http://127.0.0.1:${port}`
    const argv = ["--name", "host-1", "--keeper", url, "--token-file", file, "--temporal", address]
    const started = yield* cli.start(["worker", ...argv], { env: { NODE_COMPILE_CACHE: compiled } })
    yield* started.said(/worker host-1 takes runs/u)
    return started
  })
  const submitted = `--grant ${grant.id} --wait --output json --temporal ${address}`.split(" ")
  const submit = (runId: string) => cli.start(["submit", "Where is Lima?", "--run-id", runId, ...submitted])
  return { cli, address, model, grantId: grant.id, keeper, worker, compiled, submit }
})

/** Containers of a run that still exist. */
const containersOf = (runId: string) =>
  DockerApi.DockerApi.use((api) => api.labelled(label.run)).pipe(
    Effect.map((all) => all.filter(({ labels }) => labels[label.run] === runId))
  )

layer(CliProcess.layer)("durable runs", (it) => {
  it.effect(
    "outlive a killed worker, end as lost with a killed keeper, and stop when they are cancelled",
    () =>
      Effect.gen(function* () {
        const { address, cli, compiled, grantId, keeper, model, submit, worker } = yield* world
        const firstKeeper = yield* keeper
        const firstWorker = yield* worker

        // The worker is killed while the model is thinking. The next ones follow the same run.
        const submitted = yield* submit("run-durable-killed")
        yield* model.asked(1)
        yield* firstWorker.kill("SIGKILL")
        yield* firstWorker.ended
        const kept = readdirSync(compiled, { recursive: true })
        assert.isAbove(kept.length, 100, "the next worker must compile everything again")
        const secondWorker = yield* worker
        // One that ends in order gives the run back at once.
        yield* secondWorker.kill("SIGTERM")
        yield* secondWorker.ended
        yield* worker
        yield* model.release
        const { code, stderr, stdout } = yield* submitted.ended
        assert.strictEqual(code, 0, stderr)
        const survived = yield* decodeOutcome(stdout.toString("utf8"))
        assert.strictEqual(survived.status, "succeeded")
        assert.lengthOf(survived.attempts, 1)
        assert.strictEqual(survived.attempts[0]?.spend.calls, 1)
        assert.deepStrictEqual(yield* model.runIds, ["run-durable-killed"], "the model was paid twice")
        const listed = yield* cli.run(["ps", "--all", "--output", "json"])
        assert.lengthOf(JSON.parse(listed.stdout.toString("utf8")), 1)

        // A run is cancelled, and its sandbox ends.
        const runs = yield* DurableRuns.make({
          address,
          namespace: "default",
          taskQueue: "cogni-sandbox",
          isSearchable: true
        })
        const cancelled = RunId.make("run-durable-cancelled")
        yield* runs.submit({
          ...DurableRun.defaults,
          runId: cancelled,
          grantId,
          request: { graphId: GraphId.make("sandbox:agent"), messages: [{ role: "user", content: "Where?" }] }
        })
        yield* model.asked(2)
        const begun = performance.now()
        yield* runs.cancel(cancelled)
        yield* Await.until(
          "its container is gone",
          Effect.map(containersOf(cancelled), (left) => left.length === 0)
        )
        const millis = performance.now() - begun
        assert.isBelow(millis, Pace.allowed(4000), "the cancellation was slow")
        const stopped = yield* runs.wait(cancelled)
        assert.deepInclude(stopped, { status: "stopped", reason: "Cancelled" })

        // The keeper is killed, and so its run. Its cost is known when the keeper is back.
        const before = (yield* model.runIds).length
        const lost = yield* submit("run-durable-lost")
        yield* model.asked(before + 1)
        yield* firstKeeper.kill("SIGKILL")
        yield* firstKeeper.ended
        yield* keeper
        const end = yield* lost.ended
        assert.strictEqual(end.code, 69, end.stderr)
        const outcome = yield* decodeOutcome(end.stdout.toString("utf8"))
        assert.deepInclude(outcome, { status: "lost", reason: "HostLost" })
        assert.strictEqual(outcome.attempts[0]?.status, "abandoned")
        assert.strictEqual(outcome.attempts[0]?.spend.calls, 1)
        const paid = yield* model.runIds
        assert.lengthOf(
          paid.filter((runId) => runId.startsWith("run-durable-lost")),
          1,
          String(paid)
        )
        yield* Await.until(
          "nothing is left",
          Effect.map(cli.leftovers, (left) => left.length === 0)
        )
      }),
    { timeout: Pace.hangMillis }
  )
})
