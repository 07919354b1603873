/**
 * A real `cogni-sandbox serve` that did three runs, as its operator sees it: in a real Prometheus, in a collector of
 * OpenTelemetry, and in its log.
 *
 * The last run works in a repository, with two model calls and a host tool whose call is approved, and continues the
 * trace of its caller.
 */
import { assert } from "@effect/vitest"
import { type Scope, Effect } from "effect"
import { fileURLToPath } from "node:url"
import * as Await from "./Await.ts"
import * as CliProcess from "./CliProcess.ts"
import { freePort } from "./FreePort.ts"
import * as GitOrigin from "./GitOrigin.ts"
import * as Images from "./Images.ts"
import * as ObservedEvents from "./ObservedEvents.ts"
import * as OtlpCollector from "./OtlpCollector.ts"
import * as Prometheus from "./Prometheus.ts"
import * as ScriptedModel from "./ScriptedModel.ts"

export const directory = fileURLToPath(new URL("../../examples/observability/", import.meta.url))

/** The caller's span, whose trace the last run continues. */
export const caller = { traceId: "4bf92f3577b34da6a3ce929d0e0e4736", spanId: "00f067aa0ba902b7" }

/** The session of that run. */
export const threadId = "thread-1"

/** Texts that belong in no metric, no span and no log line, and where they come from. */
export const secrets = {
  key: "sk-planted-observed-9d27",
  prompt: "vermilion",
  answer: "cerulean",
  query: "planted-in-a-query",
  header: "planted-in-a-header"
}

const tool = "core__get_current_time"

/** The model calls the host tool through the shell of the agent, changes a file, and then answers. */
const script: ScriptedModel.Script = ({ index }) =>
  index === 0
    ? {
        call: [
          {
            name: "Bash",
            args: { command: `cogni-tool exec ${tool} '{}' && echo tidy >NOTES.md`, description: "As asked" }
          }
        ]
      }
    : { say: `It is ${secrets.answer}.` }

export interface Observed {
  readonly runId: string
  readonly token: string
  /** The run's record, as its caller sees it. */
  readonly record: { readonly traceId?: string }
  /** Requests and answers of the run's model calls, which this server keeps. */
  readonly bodies: string
  readonly prometheus: Prometheus.Prometheus
  readonly collector: OtlpCollector.OtlpCollector
  /** Text that `/metrics` of the server had after the runs, in Prometheus's text format. */
  readonly metrics: string
  /** The same as OpenMetrics, with exemplars. */
  readonly openMetrics: string
  /** Requests for the model, with their headers. */
  readonly asked: Effect.Effect<ReadonlyArray<{ readonly headers: ReadonlyArray<readonly [string, string]> }>>
  /** Stops the server, and returns the lines of its log. Prometheus then has no current value any more. */
  readonly stopped: Effect.Effect<ReadonlyArray<Readonly<Record<string, unknown>>>>
}

/** A caller of the server. */
const callerOf = (url: string, token: string) => {
  const headers = { authorization: `Bearer ${token}` }
  return {
    get: (path: string) =>
      Effect.promise(() => fetch(`${url}${path}`, { headers }).then((answer) => answer.text())),
    chat: (body: object, more: Record<string, string> = {}) =>
      Effect.promise(async () => {
        const answer = await fetch(`${url}/api/v1/ai/chat?x=${secrets.query}`, {
          method: "POST",
          headers: { ...headers, ...more, "x-forwarded-access-token": secrets.header },
          body: JSON.stringify({ messages: [{ role: "user", content: secrets.prompt }], ...body })
        })
        return { runId: answer.headers.get("x-cogni-run-id") ?? "", text: await answer.text() }
      }),
    /** Approves the first tool call that waits. */
    approve: Effect.gen(function* () {
      const listed = Effect.promise(async () => {
        const answer = await fetch(`${url}/api/v1/approvals?status=pending`, { headers })
        const { approvals } = (await answer.json()) as {
          readonly approvals: ReadonlyArray<{ readonly id: string }>
        }
        return approvals
      })
      yield* Await.until(
        "a tool call waits for an approval",
        Effect.map(listed, ({ length }) => length > 0)
      )
      const [waiting] = yield* listed
      return yield* Effect.promise(async () => {
        const answer = await fetch(`${url}/api/v1/approvals/${waiting?.id}`, {
          method: "POST",
          headers: { ...headers, "content-type": "application/json" },
          body: JSON.stringify({ decision: "approve" })
        })
        return answer.status
      })
    })
  }
}

const served = Effect.fnUntraced(function* (env: Readonly<Record<string, string>>) {
  const cli = yield* CliProcess.CliProcess
  const [port, operatorPort] = [yield* freePort, yield* freePort]
  const flags = [
    "--host-repositories",
    "--max-calls",
    "50",
    "--reconcile-every",
    "1s",
    "--log-format",
    "json",
    "--audit-bodies"
  ]
  const server = yield* cli.start(
    ["serve", "--port", String(port), "--operator-port", String(operatorPort), ...flags],
    { env }
  )
  yield* server.said(/listening on /u)
  const operator = `127.0.0.1:${operatorPort}`
  return { ...server, operator, url: `http://127.0.0.1:${port}` }
})

/** Does two runs without a repository, between which Prometheus sees a value, and then the one of the trace. */
const play = Effect.fnUntraced(function* (
  { approve, chat, get }: ReturnType<typeof callerOf>,
  prometheus: Prometheus.Prometheus,
  repository: string
) {
  const ended = (count: number) =>
    Await.until(
      `Prometheus has ${count} ended runs`,
      Effect.map(
        prometheus.query('sum(sandbox_runs_total{status="succeeded",agent=~"agent|claude-code"})'),
        ([sample]) => sample?.value === count
      )
    )
  for (const count of [1, 2]) {
    yield* chat({ graphId: "sandbox:agent" })
    yield* ended(count)
  }
  yield* chat({ graphId: "sandbox:made-up" })
  const [{ runId, text }, decided] = yield* Effect.all(
    [
      chat(
        { graphId: "sandbox:claude-code", repository: { url: repository }, threadId, toolIds: [tool] },
        { traceparent: `00-${caller.traceId}-${caller.spanId}-01` }
      ),
      approve
    ],
    { concurrency: 2 }
  )
  assert.strictEqual(decided, 200)
  assert.include(text, `Branch: sandbox/${runId}`)
  yield* get(`/api/v1/runs/${runId}/events`)
  yield* ended(3)
  yield* prometheus.scraped
  return runId
})

const bodiesOf = Effect.fnUntraced(function* ({ get }: ReturnType<typeof callerOf>, runId: string) {
  const path = `/api/v1/runs/${runId}/calls`
  const { calls }: { readonly calls: ReadonlyArray<{ readonly callId: string }> } = JSON.parse(
    yield* get(path)
  )
  const paths = calls.flatMap(({ callId }) => [`${path}/${callId}/request`, `${path}/${callId}/answer`])
  return (yield* Effect.forEach(paths, get)).join("\n")
})

export const acquire: Effect.Effect<Observed, never, CliProcess.CliProcess | Scope.Scope> = Effect.gen(
  function* () {
    const cli = yield* CliProcess.CliProcess
    const collector = yield* OtlpCollector.acquire
    const model = yield* ScriptedModel.acquire(script)
    const origin = yield* GitOrigin.acquire()
    const { path } = yield* origin.make("acme/app", { "README.md": "hello\n" })
    const server = yield* served({
      SANDBOX_ENABLED: "true",
      COGNI_LLM_URL: model.url,
      COGNI_LLM_KEY: secrets.key,
      COGNI_LLM_MODEL: "scripted",
      COGNI_LLM_PRICES: '{"scripted":{"input":1,"output":2}}',
      COGNI_GATEWAY_IMAGE: Images.gateway,
      COGNI_CLAUDE_CODE_IMAGE: Images.ofAgent("claude-code"),
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url
    })
    const prometheus = yield* Prometheus.acquire({
      job: "cogni-sandbox",
      targets: [server.operator, yield* ObservedEvents.acquire],
      rules: `${directory}prometheus/alerts.yaml`
    })
    const { stdout } = yield* cli.run(
      "grants create --user ana --account acme --allow-sandbox --repository"
        .split(" ")
        .concat(path, "--tool", tool, "--ask-tool", tool, "--approve")
    )
    const token = stdout.toString("utf8").trim()
    const caller = callerOf(server.url, token)
    const runId = yield* play(caller, prometheus, path)
    const scraped = (accept: string) =>
      Effect.promise(() =>
        fetch(`http://${server.operator}/metrics`, { headers: { accept } }).then((answer) => answer.text())
      )
    return {
      runId,
      token,
      record: JSON.parse(yield* caller.get(`/api/v1/runs/${runId}`)),
      bodies: yield* bodiesOf(caller, runId),
      prometheus,
      collector,
      metrics: yield* scraped("text/plain"),
      openMetrics: yield* scraped("application/openmetrics-text"),
      asked: model.received,
      stopped: Effect.andThen(
        server.kill("SIGTERM"),
        Effect.map(server.ended, ({ code, stderr }) => {
          assert.strictEqual(code, 143, stderr)
          return stderr
            .trimEnd()
            .split("\n")
            .map((line): Readonly<Record<string, unknown>> => JSON.parse(line))
        })
      )
    }
  }
)
