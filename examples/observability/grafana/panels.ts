/** Panels of the dashboard, typed by Grafana's own schema. */
import {
  BigValueColorMode,
  BigValueGraphMode,
  BigValueJustifyMode,
  BigValueTextMode,
  type DataQuery,
  type DataSourceRef,
  GraphDrawStyle,
  type GraphFieldConfig,
  LegendDisplayMode,
  LogsDedupStrategy,
  LogsSortOrder,
  type Panel,
  PercentChangeColorMode,
  type RowPanel,
  SortOrder,
  StackingMode,
  type Threshold,
  ThresholdsMode,
  TooltipDisplayMode,
  VizOrientation
} from "@grafana/schema"
import type { Options as LogsOptions } from "@grafana/schema/dist/esm/raw/composable/logs/panelcfg/x/LogsPanelCfg_types.gen"
import type { Options as StatOptions } from "@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen"
import type { Options as TimeSeriesOptions } from "@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen"

export const prometheus: DataSourceRef = { type: "prometheus", uid: "${datasource}" }
export const loki: DataSourceRef = { type: "loki", uid: "${logs}" }

/** Unit of the values, as Grafana names it. */
export type Unit = "currencyUSD" | "percentunit" | "reqps" | "s" | "short"

/** A query in PromQL, and the name of its series. */
export type Query = readonly [expr: string, legend: string]

/** A panel before it has a place. */
export interface Placeable {
  readonly width: number
  readonly height: number
  readonly make: (id: number, x: number, y: number) => Panel
}

interface Target extends DataQuery {
  readonly expr: string
  readonly legendFormat?: string
  readonly range?: boolean
  readonly instant?: boolean
  readonly exemplar?: boolean
}

const targets = (queries: ReadonlyArray<Query>, instant: boolean): NonNullable<Panel["targets"]> =>
  queries.map(([expr, legendFormat], index) => {
    const target: Target = {
      datasource: prometheus,
      refId: String.fromCodePoint(65 + index),
      expr,
      legendFormat,
      range: !instant,
      instant,
      // Dots in the graph of a histogram. Each leads to the trace of a run.
      ...(!instant && expr.includes("_bucket{") ? { exemplar: true } : {})
    }
    return { ...target }
  })

const steps = (warning: number | undefined, critical: number | undefined): Array<Threshold> => [
  // The first step has no lower limit. Grafana writes it as null, which the schema cannot express.
  { color: "green", value: null as unknown as number },
  ...(warning === undefined ? [] : [{ color: "yellow", value: warning }]),
  ...(critical === undefined ? [] : [{ color: "red", value: critical }])
]

/** One number, over the range of the dashboard. */
export const stat = (
  title: string,
  description: string,
  unit: Unit,
  expr: string,
  { critical, warning }: { readonly warning?: number; readonly critical?: number } = {}
): Placeable => {
  const options: StatOptions = {
    colorMode: (warning ?? critical) ? BigValueColorMode.Background : BigValueColorMode.Value,
    graphMode: BigValueGraphMode.None,
    justifyMode: BigValueJustifyMode.Auto,
    orientation: VizOrientation.Auto,
    percentChangeColorMode: PercentChangeColorMode.Standard,
    reduceOptions: { calcs: ["lastNotNull"], fields: "", values: false },
    showPercentChange: false,
    textMode: BigValueTextMode.Auto,
    wideLayout: true
  }
  return {
    width: 4,
    height: 4,
    make: (id, x, y) => ({
      id,
      type: "stat",
      title,
      description,
      datasource: prometheus,
      gridPos: { x, y, w: 4, h: 4 },
      targets: targets([[expr, title]], true),
      fieldConfig: {
        defaults: {
          unit,
          noValue: "none",
          thresholds: { mode: ThresholdsMode.Absolute, steps: steps(warning, critical) }
        },
        overrides: []
      },
      options: { ...options }
    })
  }
}

/** Lines over time, or stacked bars for events that are rare. */
export const series = (
  title: string,
  description: string,
  unit: Unit,
  queries: ReadonlyArray<Query>,
  style: "bars" | "lines" = "lines"
): Placeable => {
  const custom: GraphFieldConfig =
    style === "bars"
      ? {
          drawStyle: GraphDrawStyle.Bars,
          fillOpacity: 60,
          stacking: { mode: StackingMode.Normal, group: "A" }
        }
      : { drawStyle: GraphDrawStyle.Line, fillOpacity: 8, lineWidth: 1 }
  const options: TimeSeriesOptions = {
    legend: { calcs: [], displayMode: LegendDisplayMode.List, placement: "bottom", showLegend: true },
    tooltip: { mode: TooltipDisplayMode.Multi, sort: SortOrder.Descending }
  }
  return {
    width: 8,
    height: 8,
    make: (id, x, y) => ({
      id,
      type: "timeseries",
      title,
      description,
      datasource: prometheus,
      gridPos: { x, y, w: 8, h: 8 },
      targets: targets(queries, false),
      fieldConfig: { defaults: { unit, min: 0, custom: { ...custom } }, overrides: [] },
      options: { ...options }
    })
  }
}

/** Log lines, of which each leads to its trace by the data source's field `trace_id`. */
export const logs = (title: string, description: string, expr: string): Placeable => {
  const options: LogsOptions = {
    dedupStrategy: LogsDedupStrategy.none,
    enableLogDetails: true,
    prettifyLogMessage: false,
    showCommonLabels: false,
    showLabels: false,
    showLogContextToggle: false,
    showTime: true,
    sortOrder: LogsSortOrder.Descending,
    wrapLogMessage: true
  }
  const target: Target = { datasource: loki, refId: "A", expr }
  return {
    width: 24,
    height: 8,
    make: (id, x, y) => ({
      id,
      type: "logs",
      title,
      description,
      datasource: loki,
      gridPos: { x, y, w: 24, h: 8 },
      targets: [{ ...target }],
      options: { ...options }
    })
  }
}

/** Places rows of panels from left to right on a grid of 24 columns. */
export const placed = (
  rows: ReadonlyArray<readonly [title: string, panels: ReadonlyArray<Placeable>]>
): Array<Panel | RowPanel> => {
  const placed: Array<Panel | RowPanel> = []
  let y = 0
  for (const [title, panels] of rows) {
    placed.push({
      id: placed.length + 1,
      type: "row",
      title,
      collapsed: false,
      gridPos: { x: 0, y: y++, w: 24, h: 1 },
      panels: []
    })
    let x = 0
    let height = 0
    for (const panel of panels) {
      if (x + panel.width > 24) {
        y += height
        x = height = 0
      }
      placed.push(panel.make(placed.length + 1, x, y))
      x += panel.width
      height = Math.max(height, panel.height)
    }
    y += height
  }
  return placed
}
