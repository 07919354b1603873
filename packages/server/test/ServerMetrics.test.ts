/** Tests that labels come from small sets, whatever callers send. */
import * as MetricsText from "../src/internal/MetricsText.ts"
import * as ServerMetrics from "../src/internal/ServerMetrics.ts"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Metric } from "effect"

const ended = (graphId: string, ok: boolean) => ({ graphId, final: { ok }, durationMs: 1500 })

describe("ServerMetrics", () => {
  it.effect("gives unknown agents, paths and methods one label each", () =>
    Effect.gen(function* () {
      const known = new Set(["sandbox:agent"])
      yield* ServerMetrics.runEnded(known, ended("sandbox:agent", true))
      yield* ServerMetrics.runEnded(known, ended("sandbox:made-up", false))
      yield* ServerMetrics.requestAnswered("PROPFIND", "/made/up?secret=hush", 404)
      const text = yield* MetricsText.make(MetricsText.plain)
      for (const line of [
        'sandbox_graph_runs_total{agent="sandbox:agent",status="ok"} 1',
        'sandbox_graph_runs_total{agent="unknown",status="internal"} 1',
        'sandbox_graph_run_duration_seconds_sum{agent="sandbox:agent"} 1.5',
        'sandbox_http_requests_total{method="other",route="other",status="404"} 1'
      ]) {
        assert.include(text, `${line}\n`)
      }
      assert.notMatch(text, /made|hush|PROPFIND/u)
    }).pipe(Effect.provideService(Metric.MetricRegistry, new Map()))
  )

  it("maps each path to its route template", () => {
    assert.strictEqual(ServerMetrics.routeOf("/api/v1/runs/run-000000000001?x=1"), "/api/v1/runs/{id}")
    assert.strictEqual(ServerMetrics.routeOf("/api/v1/runs?limit=1"), "/api/v1/runs")
    assert.strictEqual(
      ServerMetrics.routeOf("/api/v1/runs/run-000000000001/audit/entries?after=1"),
      "/api/v1/runs/{id}/audit/entries"
    )
    assert.strictEqual(ServerMetrics.routeOf("/health/ready"), "/health")
    assert.strictEqual(ServerMetrics.routeOf("/api/v1/runs/a/b"), "other")
  })
})
