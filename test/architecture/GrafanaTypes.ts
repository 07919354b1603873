/**
 * Grafana's dashboard with what its type leaves open: the options, the fields and the queries of the panels that we
 * ship. `GrafanaSchema` makes a JSON schema of it.
 */
import type { GraphFieldConfig } from "@grafana/schema"
import type {
  AnnotationContainer,
  AnnotationQuery,
  Dashboard,
  DataSourceRef,
  FieldConfig,
  Panel,
  RowPanel
} from "@grafana/schema/dist/esm/raw/dashboard/x/Dashboard_types.gen"
import type { Options as LogsOptions } from "@grafana/schema/dist/esm/raw/composable/logs/panelcfg/x/LogsPanelCfg_types.gen"
import type { Options as StatOptions } from "@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen"
import type { Options as TimeSeriesOptions } from "@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen"

/** A query, as the data sources of Prometheus and Loki read it. `@grafana/schema` has no type of them. */
interface Query {
  readonly datasource: DataSourceRef
  readonly refId: string
  readonly expr: string
  readonly legendFormat?: string
  readonly range?: boolean
  readonly instant?: boolean
  readonly exemplar?: boolean
}

interface Fields<Custom> {
  readonly defaults: Omit<FieldConfig, "custom"> & { readonly custom?: Custom }
  readonly overrides: ReadonlyArray<never>
}

/** Every package calls its options `Options`. A schema has one definition of each name, so they have none there. */
type Plain<T> = { readonly [Field in keyof T]: T[Field] }

type PanelOf<Type extends string, Options, Custom> = Omit<
  Panel,
  "fieldConfig" | "options" | "targets" | "type"
> & {
  readonly type: Type
  readonly options: Plain<Options>
  readonly fieldConfig?: Fields<Custom>
  readonly targets: ReadonlyArray<Query>
}

/** An annotation from Prometheus, whose fields are those of its data source. */
type PrometheusAnnotation = Plain<AnnotationQuery> & {
  readonly expr: string
  readonly titleFormat?: string
}

export type ShippedDashboard = Omit<Dashboard, "annotations" | "panels"> & {
  readonly annotations: Omit<AnnotationContainer, "list"> & {
    readonly list: ReadonlyArray<PrometheusAnnotation>
  }
  readonly panels: ReadonlyArray<
    | PanelOf<"logs", LogsOptions, never>
    | PanelOf<"stat", StatOptions, never>
    | PanelOf<"timeseries", TimeSeriesOptions, GraphFieldConfig>
    | RowPanel
  >
}
