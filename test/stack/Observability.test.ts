/**
 * The example of observability against the real thing: each query of the dashboard and each alert in a Prometheus that
 * scrapes a real server, and the trace, the log lines and the metrics that the server sends.
 */
import { assert, describe, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { dashboard } from "../../examples/observability/grafana/dashboard.ts"
import * as Await from "../harness/Await.ts"
import * as CliProcess from "../harness/CliProcess.ts"
import * as ObservedServer from "../harness/ObservedServer.ts"
import * as Prometheus from "../harness/Prometheus.ts"

/** Queries of the dashboard's panels, with Grafana's variables replaced. */
const queries = (dashboard.panels ?? []).flatMap((panel) =>
  "targets" in panel && panel.type !== "logs"
    ? (panel.targets ?? []).map(({ expr }) => ({
        title: `${panel.title}: ${String(expr)}`,
        expr: String(expr)
          .replaceAll(/\$(?:job|instance)/gu, ".*")
          .replaceAll(/\$__(?:rate_interval|range)/gu, "1m")
      }))
    : []
)

/** Alerts that the rare events of the scenario cause. */
const provoked = ["SandboxCanaryDetected", "SandboxCostsDiffer"]

/** Every query of the dashboard has a value, and none is about a metric that does not exist. */
const judgeDashboard = Effect.fnUntraced(function* ({ query }: Prometheus.Prometheus) {
  assert.isAbove(queries.length, 30)
  const names = new Set(queries.flatMap(({ expr }) => expr.match(/\bsandbox_\w+(?=\{)/gu) ?? []))
  for (const name of names) assert.isNotEmpty(yield* query(name), `no series of ${name}`)
  for (const { expr, title } of queries) assert.isNotEmpty(yield* query(expr), title)
  // The queries are over real events, not over series without any.
  const [used] = yield* query("sum(rate(sandbox_model_tokens_total[1m]))")
  assert.isAbove(used!.value, 0)
  const variable = yield* query("count by (job, instance) (sandbox_event_loop_lag_seconds)")
  assert.deepInclude(variable[0]?.labels, { job: "cogni-sandbox" })
})

/** Every alert can be evaluated, and those of the provoked events fire. */
const judgeAlerts = Effect.fnUntraced(function* ({ rules }: Prometheus.Prometheus) {
  yield* Await.until(
    "the alerts fire",
    Effect.map(rules, (all) =>
      provoked.every((name) => all.some((rule) => rule.name === name && rule.state === "firing"))
    )
  )
  const all = yield* rules
  assert.deepStrictEqual(
    all.filter(({ health }) => health !== "ok").map(({ lastError, name }) => `${name}: ${lastError}`),
    []
  )
  assert.sameMembers(
    all.flatMap(({ name, state }) => (state === "firing" ? [name] : [])),
    provoked
  )
})

/** The run of the trace: every span is joined, and its model calls and its tool belong to it. */
const judgeTrace = Effect.fnUntraced(function* ({ asked, collector, runId }: ObservedServer.Observed) {
  const { spanId: callerSpan, traceId } = ObservedServer.caller
  const all = yield* collector.spans
  const spans = all.filter((span) => span.traceId === traceId)
  const byId = new Map(spans.map((span) => [span.spanId, span]))
  const pathOf = (span: (typeof spans)[number]): ReadonlyArray<string> => {
    const parent = byId.get(span.parentSpanId ?? "")
    return parent === undefined ? [span.name] : [...pathOf(parent), span.name]
  }
  assert.deepStrictEqual(
    spans
      .filter(({ parentSpanId }) => !byId.has(parentSpanId ?? ""))
      .map(({ name, parentSpanId }) => [name, parentSpanId]),
    [["POST /api/v1/ai/chat", callerSpan]]
  )
  const pathsOf = (name: string) => spans.filter((span) => span.name === name).map(pathOf)
  const root = ["POST /api/v1/ai/chat", "SandboxServer.chat"]
  for (const name of ["chat scripted", "execute_tool core.get_current_time", "SandboxRunner.agent"]) {
    assert.isNotEmpty(pathsOf(name), name)
    for (const path of pathsOf(name))
      assert.includeMembers([...path], [...root, "invoke_agent claude-code", "SandboxRunner.run"], name)
  }
  assert.isAtLeast(pathsOf("chat scripted").length, 2)
  for (const name of ["GitRelay.clone", "GitRelay.push"])
    assert.includeMembers([...(pathsOf(name)[0] ?? [])], [...root, "invoke_agent claude-code"], name)
  const called = spans.find(({ name }) => name.startsWith("execute_tool"))
  assert.strictEqual(called?.attributes["sandbox.tool.approval"], "approved")
  const named = all.filter(({ attributes }) => attributes["sandbox.run.id"] === runId)
  assert.isAbove(named.length, 3)
  assert.isTrue(named.every((span) => span.traceId === traceId))
  // The upstream continues the trace, and probes and scrapes are in none.
  const sent = (yield* asked).map(({ headers }) => headers.find(([name]) => name === "traceparent")?.[1])
  assert.isAtLeast(sent.filter((header) => header?.startsWith(`00-${traceId}-`) === true).length, 2)
  assert.notMatch(all.map(({ name }) => name).join("\n"), /metrics|health/u)
})

/** The exemplars in Prometheus lead to the trace of the run, and to the spans of its phases and calls. */
const judgeExemplars = Effect.fnUntraced(function* ({
  collector,
  prometheus,
  record,
  runId
}: ObservedServer.Observed) {
  const { traceId } = ObservedServer.caller
  assert.strictEqual(record.traceId, traceId)
  const names = new Map((yield* collector.spans).map(({ name, spanId }) => [spanId, name]))
  for (const [series, name] of [
    ['sandbox_run_duration_seconds_bucket{agent="claude-code"}', /^SandboxRunner\.run$/u],
    ['sandbox_runs_total{agent="claude-code"}', /^SandboxRunner\.run$/u],
    ['sandbox_run_phase_duration_seconds_bucket{phase="agent"}', /^SandboxRunner\.agent$/u],
    ["sandbox_model_call_duration_seconds_bucket", /^(?:chat|count_tokens) scripted$/u],
    ["sandbox_gateway_added_seconds_bucket", /^(?:chat|count_tokens) scripted$/u],
    ['sandbox_graph_run_duration_seconds_bucket{agent="sandbox:claude-code"}', /^SandboxServer\.chat$/u]
  ] as const) {
    const found = yield* prometheus.exemplars(series)
    const own = found.filter(({ labels }) => labels["trace_id"] === traceId)
    assert.isNotEmpty(own, `${series} leads to the trace of ${runId}: ${JSON.stringify(found)}`)
    for (const { labels } of own) {
      assert.sameMembers(Object.keys(labels), ["trace_id", "span_id"])
      assert.match(names.get(labels["span_id"]!) ?? "", name, series)
    }
  }
})

const states = ["started", "ready", "ended"]

/** Each state of the run is a line, to a collector and in JSON, and leads to the trace. */
const judgeLogs = Effect.fnUntraced(function* (
  { collector, runId }: ObservedServer.Observed,
  lines: ReadonlyArray<Readonly<Record<string, unknown>>>
) {
  const { traceId } = ObservedServer.caller
  const fields = {
    "sandbox.run.attempt": 0,
    "gen_ai.agent.id": "claude-code",
    agentVariant: "claude-code",
    "sandbox.account.id": "acme",
    "gen_ai.conversation.id": ObservedServer.threadId,
    "gen_ai.request.model": "scripted",
    trace_id: traceId
  }
  const records = (yield* collector.logs).filter(
    ({ attributes }) => attributes["sandbox.run.id"] === runId && "sandbox.run.state" in attributes
  )
  assert.deepStrictEqual(
    records.map(({ attributes }) => attributes["sandbox.run.state"]),
    states
  )
  for (const { attributes, traceId: own } of records) {
    assert.containSubset(attributes, fields)
    assert.strictEqual(own, traceId)
  }
  assert.containSubset(records.at(-1)?.attributes, {
    "sandbox.run.outcome": "exited",
    "process.exit.code": 0
  })
  const written = lines.filter((line) => line["sandbox.run.id"] === runId && "sandbox.run.state" in line)
  assert.deepStrictEqual(
    written.map((line) => line["sandbox.run.state"]),
    states
  )
  for (const line of written) assert.containSubset(line, { ...fields, level: "INFO" })
})

layer(CliProcess.layer, { excludeTestServices: true })("the example of observability", (it) => {
  it.effect("has a value for each query and alert, and one trace for a run, without a secret", () =>
    Effect.gen(function* () {
      const observed = yield* ObservedServer.acquire
      yield* judgeDashboard(observed.prometheus)
      yield* judgeAlerts(observed.prometheus)
      const lines = yield* observed.stopped
      yield* judgeTrace(observed)
      yield* judgeExemplars(observed)
      yield* judgeLogs(observed, lines)
      // The server keeps bodies, so that these texts were in reach of everything that is searched below.
      for (const text of [ObservedServer.secrets.prompt, ObservedServer.secrets.answer])
        assert.include(observed.bodies, text)
      assert.notInclude(observed.bodies, ObservedServer.secrets.key)
      const exported = yield* observed.collector.metrics
      const scraped = [...observed.metrics.matchAll(/^# TYPE (sandbox_\w+)/gmu)].map(([, name]) => name!)
      assert.includeMembers([...exported], scraped)
      // Cardinality: no label holds what a caller, an account or a run chose.
      const metrics = observed.metrics + observed.openMetrics
      assert.notMatch(metrics, new RegExp(`acme|ana\\b|made-up|scripted|${observed.runId}`, "u"))
      assert.include(observed.openMetrics, `# {trace_id="${ObservedServer.caller.traceId}"`)
      const told = `${metrics}${JSON.stringify(lines)}${yield* observed.collector.everything}`
      for (const [name, secret] of Object.entries({ ...ObservedServer.secrets, token: observed.token }))
        assert.notInclude(told, secret, name)
    }).pipe(Effect.scoped)
  )
})

layer(Layer.empty)("promtool", (it) => {
  describe("accepts", () => {
    for (const argv of [
      ["check", "config", "prometheus.yaml"],
      ["check", "rules", "alerts.yaml"],
      ["check", "rules", "alerts-durable.yaml"],
      ["test", "rules", "alerts.test.yaml"],
      ["test", "rules", "alerts-durable.test.yaml"]
    ])
      it.effect(argv.join(" "), () =>
        Effect.gen(function* () {
          const { output, succeeded } = yield* Prometheus.promtool(
            `${ObservedServer.directory}prometheus`,
            argv
          )
          assert.isTrue(succeeded, output)
        })
      )
  })
})
