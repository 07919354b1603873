/**
 * `serve --durable` on a real Temporal server and a real engine. It has a state directory of its own, like one on
 * another machine, and is killed and started again in the middle of a run.
 */
import * as StateDirectory from "@cogni/sandbox-host-files/StateDirectory"
import * as ScriptedModelApi from "@cogni/sandbox-proxy/ScriptedModelApi"
import * as DurableRuns from "@cogni/sandbox-temporal/DurableRuns"
import { assert, layer } from "@effect/vitest"
import { Effect, Schema } from "effect"
import { createParser } from "eventsource-parser"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { request as forward } from "node:http"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as Await from "../harness/Await.ts"
import * as CliProcess from "../harness/CliProcess.ts"
import { freePort } from "../harness/FreePort.ts"
import { serve } from "../harness/LocalServer.ts"
import * as Pace from "../harness/Pace.ts"
import * as TemporalDevServer from "../harness/TemporalDevServer.ts"

/** A model that answers when the test says so. */
const gatedModel = Effect.gen(function* () {
  const model = yield* ScriptedModelApi.acquire({ script: () => ({ say: "In Peru." }) })
  const waiting: Array<() => void> = []
  let asked = 0
  let isOpen = false
  const url = yield* serve((incoming, response) => {
    asked += 1
    const pass = () => {
      const { headers, method, url: path } = incoming
      const outgoing = forward(`${model.url}${path}`, { method, headers }, (answer) => {
        response.writeHead(answer.statusCode ?? 502, answer.headers)
        answer.pipe(response)
      })
      incoming.pipe(outgoing)
    }
    response.on("error", () => undefined)
    if (isOpen) pass()
    else waiting.push(pass)
  })
  return {
    env: { COGNI_LLM_URL: url, COGNI_LLM_KEY: "sk-none", COGNI_LLM_MODEL: "m", SANDBOX_ENABLED: "true" },
    count: Effect.sync(() => asked),
    asked: (count: number) =>
      Await.until(
        `the model was asked ${count} times`,
        Effect.sync(() => asked >= count)
      ),
    open: (now: boolean) =>
      Effect.sync(() => {
        isOpen = now
        if (now) for (const pass of waiting.splice(0)) pass()
      })
  }
})

const directory = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-front-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
)

const Issued = Schema.fromJsonString(
  Schema.Struct({ grant: Schema.Struct({ id: Schema.String }), token: Schema.String })
)

/** A caller of the durable server. */
const callerOf = (base: string, token: string) => {
  const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" }
  const body = JSON.stringify({
    graphId: "sandbox:agent",
    model: "m",
    messages: [{ role: "user", content: "Where is Lima?" }]
  })
  const ask = (method: string, path: string, more: Readonly<Record<string, string>> = {}) =>
    Effect.promise(async (signal) => {
      const response = await fetch(`${base}/api/v1${path}`, {
        method,
        headers: { ...headers, ...more },
        signal,
        ...(method === "POST" ? { body } : {})
      })
      const text = await response.text()
      const isJson = response.headers.get("content-type")?.includes("json") === true
      return { status: response.status, text, body: isJson ? JSON.parse(text) : undefined }
    })
  /** Reads the events of a run in the background, until the stream ends. */
  const follow = (runId: string, after: number) => {
    const seen: Array<{ readonly id: number; readonly type: string }> = []
    const parser = createParser({
      onEvent: ({ event = "", id = "" }) => void seen.push({ id: Number(id), type: event })
    })
    const ended = (async () => {
      const response = await fetch(`${base}/api/v1/runs/${runId}/events`, {
        headers: { ...headers, "last-event-id": String(after) }
      })
      const text = new TextDecoder()
      for await (const bytes of response.body ?? []) parser.feed(text.decode(bytes, { stream: true }))
    })().catch(() => undefined)
    return {
      seen,
      ended: Effect.promise(() => ended),
      saw: (type: string) =>
        Await.until(
          `${type} is in the events of ${runId}`,
          Effect.sync(() => seen.some((event) => event.type === type))
        )
    }
  }
  const status = (runId: string) => Effect.map(ask("GET", `/runs/${runId}`), ({ body }) => body?.status)
  return { ask, follow, status }
}

const world = Effect.gen(function* () {
  const cli = yield* CliProcess.CliProcess
  const address = yield* TemporalDevServer.acquire
  const model = yield* gatedModel
  const issued = yield* cli.run(
    "grants create --user ana --account acme --allow-sandbox --output json".split(" ")
  )
  const { token } = yield* Schema.decodeUnknownEffect(Issued)(issued.stdout.toString("utf8"))
  const own = yield* directory
  const tokenFile = join(own, "token")
  writeFileSync(tokenFile, token, { mode: 0o600 })
  const keeperPort = yield* freePort
  const port = yield* freePort
  const keeper = yield* cli.start(["serve", "--no-page", "--share-events", "--port", String(keeperPort)], {
    env: model.env
  })
  yield* keeper.said(/^listening on /mu)
  const keeperUrl = `http://127.0.0.1:${keeperPort}`
  const worker = yield* cli.start([
    "worker",
    "--name",
    "host-1",
    "--keeper",
    keeperUrl,
    "--token-file",
    tokenFile,
    "--temporal",
    address
  ])
  yield* worker.said(/worker host-1 takes runs/u)
  const front = Effect.gen(function* () {
    const started = yield* cli.start(
      ["serve", "--durable", "--no-page", "--port", String(port), "--temporal", address],
      {
        env: {
          COGNI_STATE_DIR: join(own, "state"),
          COGNI_DATABASE_URL: StateDirectory.paths(cli.stateDirectory).database
        }
      }
    )
    yield* started.said(/^listening on /mu)
    return started
  })
  const runs = yield* DurableRuns.make({
    address,
    namespace: "default",
    taskQueue: "cogni-sandbox",
    isSearchable: true
  })
  return { cli, model, front, runs, caller: callerOf(`http://127.0.0.1:${port}`, token) }
})

layer(CliProcess.layer)("serve --durable", (it) => {
  it.effect(
    "is killed in the middle of a run, and its readers resume where they were",
    () =>
      Effect.gen(function* () {
        const { caller, cli, front, model, runs } = yield* world
        const first = yield* front
        const key = { "idempotency-key": "monday" }
        const started = yield* caller.ask("POST", "/runs", key)
        assert.strictEqual(started.status, 202, started.text)
        const { runId } = started.body
        const before = caller.follow(runId, 0)
        yield* model.asked(1)
        yield* before.saw("posture.verified")
        assert.strictEqual(yield* caller.status(runId), "running")

        yield* first.kill("SIGKILL")
        yield* first.ended
        yield* before.ended
        yield* front
        assert.strictEqual(yield* caller.status(runId), "running")
        const again = yield* caller.ask("POST", "/runs", key)
        assert.deepStrictEqual(again.body, { runId, isRepeated: true })
        const after = caller.follow(runId, before.seen.at(-1)?.id ?? 0)
        yield* model.open(true)
        yield* after.ended
        const ids = [...before.seen, ...after.seen].map(({ id }) => id)
        assert.deepStrictEqual(
          ids,
          ids.map((_, at) => at + 1)
        )
        assert.strictEqual(after.seen.at(-1)?.type, "run.ended")
        const outcome = yield* runs.wait(runId)
        assert.strictEqual(outcome.status, "succeeded", JSON.stringify(outcome))
        assert.lengthOf(outcome.attempts, 1)
        assert.strictEqual(outcome.attempts[0]?.spend.calls, 1)
        assert.strictEqual(yield* model.count, 1, "the model was paid twice")
        assert.strictEqual(yield* caller.status(runId), "succeeded")
        assert.strictEqual((yield* caller.ask("GET", `/runs/${runId}/answer`)).text, "In Peru.")

        // A chat follows a durable run.
        const chat = yield* caller.ask("POST", "/ai/chat")
        assert.include(chat.text, '"type":"assistant_final","content":"In Peru."', chat.text)
        assert.match(chat.text, /event: usage_report[^]*event: done\n/u)
        assert.strictEqual(yield* model.count, 2)

        // A run is cancelled on its host.
        yield* model.open(false)
        const other = (yield* caller.ask("POST", "/runs")).body.runId
        yield* model.asked(3)
        assert.include((yield* caller.ask("GET", "/runs?status=running")).text, other)
        assert.strictEqual((yield* caller.ask("DELETE", `/runs/${other}`)).status, 202)
        yield* Await.until(
          "the run is interrupted",
          Effect.map(caller.status(other), (status) => status === "interrupted")
        )
        assert.deepInclude(yield* runs.wait(other), { status: "stopped", reason: "Cancelled" })
        yield* Await.until(
          "nothing is left",
          Effect.map(cli.leftovers, (left) => left.length === 0)
        )
      }),
    { timeout: Pace.hangMillis }
  )
})
