/**
 * Compares the guide of observability and the example with the code: every metric, span and field is in the guide, and
 * the dashboard and the alerts use only what exists.
 */
import { assert, describe, it } from "@effect/vitest"
import * as Telemetry from "@cogni/sandbox-core/Telemetry"
import { parse } from "yaml"
import { dashboard } from "../../examples/observability/grafana/dashboard.ts"
import * as Pace from "../harness/Pace.ts"
import * as GrafanaSchema from "./GrafanaSchema.ts"
import { none } from "./Rule.ts"
import * as SourceTree from "./SourceTree.ts"

const guide = "docs/guides/observability.md"
const example = "examples/observability"

/** First cells of the tables below a heading of the guide, up to the next heading of the same level. */
const cells = (heading: string, column = 1): ReadonlyArray<string> => {
  const section = SourceTree.read(guide).split(`\n## ${heading}\n`)[1]?.split("\n## ")[0] ?? ""
  const rows = section.split("\n").filter((line) => /^\| (?!-)/u.test(line))
  return rows.map((row) => row.split(" | ")[column - 1]!.replace(/^\| /u, ""))
}

const named = (cell: string): ReadonlyArray<string> =>
  [...cell.matchAll(/`([^`]+)`/gu)].map(([, name]) => name!)

const sources = SourceTree.files("packages/*/src/**/*.ts").map((path) => SourceTree.read(path))

/** Kind of each metric in the code, by name. */
const metrics = new Map(
  sources.flatMap((text) =>
    [...text.matchAll(/Metric\.(counter|gauge|histogram)\(\s*"([^"]+)"/gu)].map(
      ([, kind, name]) => [name!, kind!] as const
    )
  )
)

describe("metrics", () => {
  it("are in the guide with their kind, and only they are", () => {
    const kinds = cells("Metrics", 2)
    const rows = cells("Metrics").flatMap((cell, index) =>
      named(cell).map((name) => [name, kinds[index]?.match(/^(?:counter|gauge|histogram)/u)?.[0]] as const)
    )
    assert.deepStrictEqual(
      rows.filter(([name]) => name.startsWith("sandbox_")).toSorted(),
      [...metrics].toSorted()
    )
  })

  it("in the dashboard and the alerts exist, and every metric is in one of them", () => {
    const texts = [JSON.stringify(dashboard), SourceTree.read(`${example}/prometheus/alerts.yaml`)]
    const used = new Set(texts.join("\n").match(/\bsandbox_[a-z_]+/gu))
    const isMetric = (name: string): boolean =>
      metrics.has(name) || metrics.get(name.replace(/_bucket$/u, "")) === "histogram"
    none(
      [...used].filter((name) => !isMetric(name) && name !== "sandbox_run_state"),
      "no package counts these"
    )
    none(
      [...metrics.keys()].filter((name) => !used.has(name) && !used.has(`${name}_bucket`)),
      "the dashboard and the alerts leave these out: add a panel"
    )
  })
})

describe("spans", () => {
  /** Names that the code spells out, with the variable part of a name as `<…>`. */
  const inCode = sources.flatMap((text) =>
    [
      ...text.matchAll(/(?:Effect\.fn\(|withSpan\([^"`;]{0,80}?)\s*["`]([A-Z]\w+\.(?:\w+|\$\{\w+\}))["`]/gu)
    ].map(([, name]) => name!.replace(/\$\{(\w+)\}/u, "<$1>"))
  )
  const rows = cells("Spans").flatMap(named)

  it("are in the guide", () => {
    assert.isAbove(inCode.length, 60)
    const has = (name: string) => rows.includes(name) || rows.includes(name.replace(/\.[^.]+$/u, ".*"))
    none(
      [...new Set(inCode)].filter((name) => !has(name)),
      `add a row to ${guide}`
    )
  })

  it("in the guide exist", () => {
    const exists = (row: string) =>
      inCode.some((name) => name === row || (row.endsWith(".*") && name.startsWith(row.slice(0, -1))))
    none(
      rows.filter((row) => /^[A-Z]\w+\.(?:\*|\w+|<\w+>)$/u.test(row) && !exists(row)),
      `no code makes these spans: remove them from ${guide}`
    )
  })

  it("and log lines have only attributes of the guide, and it lists no others", () => {
    const inGuide = new Set([...cells("Spans"), ...cells("Logs")].flatMap(named))
    const attributes: ReadonlyArray<string> = Object.values(Telemetry.attribute)
    none(
      attributes.filter((name) => !inGuide.has(name)),
      `add these to ${guide}`
    )
    none(
      [...inGuide].filter((name) => /^[a-z_]+(?:\.[a-z_]+)+$/u.test(name) && !attributes.includes(name)),
      "Telemetry has no such attribute"
    )
  })
})

describe("log lines", () => {
  it("have exactly the fields of the guide", () => {
    const code = SourceTree.read("packages/core/src/internal/RunLog.ts")
    const used = [...code.matchAll(/\[attribute\.(\w+)\]/gu)].map(
      ([, name]) => Telemetry.attribute[name as keyof typeof Telemetry.attribute]
    )
    assert.sameMembers([...new Set(cells("Logs").flatMap(named))], [...new Set<string>(used)])
  })
})

interface Rules {
  readonly groups: ReadonlyArray<{
    readonly rules: ReadonlyArray<{
      readonly alert: string
      readonly labels: { readonly severity: string }
      readonly annotations: { readonly summary: string; readonly description: string }
    }>
  }>
}

interface RuleTests {
  readonly tests: ReadonlyArray<{
    readonly alert_rule_test: ReadonlyArray<{
      readonly alertname: string
      readonly exp_alerts: ReadonlyArray<unknown>
    }>
  }>
}

const yaml = (path: string): any => parse(SourceTree.read(`${example}/${path}`), { merge: true })

describe("the example", () => {
  it("has the dashboard that its program makes", () => {
    assert.deepStrictEqual(
      SourceTree.readJson(`${example}/grafana/dashboards/cogni-sandbox.json`),
      JSON.parse(JSON.stringify(dashboard)),
      `run node ${example}/grafana/dashboard.ts >${example}/grafana/dashboards/cogni-sandbox.json`
    )
  })

  it(
    "has only dashboards that hold to the JSON schema of Grafana's own types",
    () => {
      const problems = GrafanaSchema.make()
      const paths = SourceTree.files(`${example}/grafana/dashboards/*.json`)
      assert.isNotEmpty(paths)
      for (const path of paths) {
        assert.deepStrictEqual(problems(SourceTree.readJson(path)), [], path)
        // The schema is not so open that it would accept anything.
        const broken = (change: (copy: any) => void) => {
          const copy: any = SourceTree.readJson(path)
          change(copy)
          return problems(copy).length > 0
        }
        const at = (copy: any, type: string) => copy.panels.find((panel: any) => panel.type === type)
        for (const [fault, change] of [
          ["an unknown field of a panel", (copy) => (at(copy, "stat").hight = 4)],
          ["a place that is no number", (copy) => (at(copy, "stat").gridPos.x = "left")],
          ["an unknown option", (copy) => (at(copy, "stat").options.colourMode = "value")],
          ["a value that no option has", (copy) => (at(copy, "timeseries").options.tooltip.mode = "many")],
          [
            "a style of another panel",
            (copy) => (at(copy, "stat").fieldConfig.defaults.custom = { fillOpacity: 5 })
          ],
          ["a query without an expression", (copy) => delete at(copy, "logs").targets[0].expr],
          ["an unknown kind of panel", (copy) => (at(copy, "stat").type = "statt")],
          ["an unknown field of the dashboard", (copy) => (copy.refreshh = "10s")]
        ] as ReadonlyArray<readonly [string, (copy: any) => void]>)
          assert.isTrue(broken(change), fault)
      }
    },
    Pace.hangMillis
  )

  it("leads from every histogram to the traces of its exemplars", () => {
    const targets = (dashboard.panels ?? []).flatMap((panel) =>
      "targets" in panel ? (panel.targets ?? []) : []
    )
    const histograms = targets.filter(({ expr }) => String(expr).includes("_bucket{"))
    assert.isAbove(histograms.length, 8)
    assert.deepStrictEqual(
      targets.filter((target) => target["exemplar"] === true),
      histograms
    )
    const sources: ReadonlyArray<any> = yaml("grafana/provisioning/datasources/datasources.yaml").datasources
    const tempo = sources.find(({ type }) => type === "tempo")
    assert.deepStrictEqual(
      sources.find(({ type }) => type === "prometheus").jsonData.exemplarTraceIdDestinations,
      [{ name: "trace_id", datasourceUid: tempo.uid }]
    )
    assert.include(yaml("compose.yaml").services.prometheus.command, "--enable-feature=exemplar-storage")
    assert.isAbove(yaml("prometheus/prometheus.yaml").storage.exemplars.max_exemplars, 0)
  })

  it("has panels with different IDs and titles that do not overlap", () => {
    const panels = dashboard.panels ?? []
    const taken = new Set<string>()
    for (const { gridPos } of panels) {
      const { h, w, x, y } = gridPos!
      assert.isAtMost(x + w, 24)
      for (let column = x; column < x + w; column++)
        for (let row = y; row < y + h; row++) {
          assert.isFalse(taken.has(`${column} ${row}`), `two panels at ${column} ${row}`)
          taken.add(`${column} ${row}`)
        }
    }
    assert.lengthOf([...new Set(panels.map(({ id }) => id))], panels.length)
    assert.lengthOf([...new Set(panels.map(({ title }) => title))], panels.length)
  })

  it("has for each alert a remedy, a test in which it fires, and one in which it does not", () => {
    const files = ["alerts", "alerts-durable"]
    const rules = files.flatMap((name) => yaml(`prometheus/${name}.yaml`).groups as Rules["groups"])
    const tests = files.flatMap((name) => yaml(`prometheus/${name}.test.yaml`).tests as RuleTests["tests"])
    const tested = tests.flatMap((one) => one.alert_rule_test)
    const remedies = SourceTree.read(`${example}/README.md`)
    const alerts = rules.flatMap((group) => group.rules)
    assert.isAbove(alerts.length, 10)
    none(
      alerts.flatMap(({ alert, annotations, labels }) => {
        const own = tested.filter(({ alertname }) => alertname === alert)
        return [
          ...(own.some(({ exp_alerts }) => exp_alerts.length > 0) ? [] : [`${alert}: no test fires it`]),
          ...(own.some(({ exp_alerts }) => exp_alerts.length === 0)
            ? []
            : [`${alert}: no test keeps it quiet`]),
          ...(remedies.includes(`\n| \`${alert}\` | `) ? [] : [`${alert}: no row in README.md`]),
          ...(/^(?:critical|warning)$/u.test(labels.severity) ? [] : [`${alert}: no severity`]),
          ...(annotations.summary && annotations.description ? [] : [`${alert}: no summary or description`])
        ]
      }),
      `complete ${example}/prometheus`
    )
  })

  it("listens on this machine alone, with a limit on memory, and mounts only files that exist", () => {
    const compose = yaml("compose.yaml")
    const services = Object.entries<any>(compose.services)
    assert.isAbove(services.length, 5)
    for (const [name, service] of services) {
      assert.match(service.image, /:[\w.-]+$/u, name)
      assert.isDefined(service.mem_limit, name)
      assert.isUndefined(service.ports, name)
      assert.deepStrictEqual([service.network_mode, service.cap_drop], ["host", ["ALL"]], name)
      for (const volume of service.volumes as ReadonlyArray<string>) {
        const [source = ""] = volume.split(":")
        if (source.startsWith("./"))
          assert.isNotEmpty(SourceTree.files(`${example}/${source.slice(2)}`), `${name} mounts ${source}`)
        else assert.property(compose.volumes, source, name)
      }
    }
    const configurations = SourceTree.files(`${example}/**/*.yaml`).map((path) =>
      path.slice(example.length + 1)
    )
    for (const path of configurations) assert.isObject(yaml(path), path)
    const addresses = configurations.flatMap((path) =>
      [...SourceTree.read(`${example}/${path}`).matchAll(/(?:\d+\.){3}\d+/gu)].map(
        ([address]) => `${path} ${address}`
      )
    )
    none(
      addresses.filter((one) => !one.endsWith(" 127.0.0.1")),
      "anyone on the network could reach these"
    )
  })
})
