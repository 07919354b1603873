/**
 * Exports the spans of an invocation as OpenTelemetry's variables configure it (`OTEL_EXPORTER_OTLP_ENDPOINT`, …), and
 * the log lines and metrics of a command that stays.
 *
 * Effect's exporter reads all of them. Without an endpoint (`Settings.isTraced`), nothing is collected, and this module
 * is not loaded.
 */
import { ConfigProvider, Layer } from "effect"
import * as FetchHttpClient from "effect/http/FetchHttpClient"
import * as OtlpLogger from "effect/observability/OtlpLogger"
import * as OtlpMetrics from "effect/observability/OtlpMetrics"
import * as OtlpSerialization from "effect/observability/OtlpSerialization"
import * as OtlpTracer from "effect/observability/OtlpTracer"

/** Default of `OTEL_SERVICE_NAME`. */
export const serviceName = "cogni-sandbox"

/** Returns the name of the service. An empty variable counts as unset, as OpenTelemetry requires. */
export const serviceNameOf = (environment: Readonly<Record<string, string>>): string => {
  const name = environment["OTEL_SERVICE_NAME"]
  return name === undefined || name === "" ? serviceName : name
}

const resourceOf = (environment: Readonly<Record<string, string>>, serviceVersion: string) => ({
  resource: { serviceName: serviceNameOf(environment), serviceVersion }
})

const connected = (environment: Readonly<Record<string, string>>) =>
  Layer.mergeAll(
    OtlpSerialization.layerJson,
    FetchHttpClient.layer,
    // OpenTelemetry's own defaults, which Effect does not have.
    ConfigProvider.layer(
      ConfigProvider.fromEnvRecord({
        OTEL_TRACES_EXPORTER: "otlp",
        OTEL_LOGS_EXPORTER: "otlp",
        OTEL_METRICS_EXPORTER: "otlp",
        ...environment
      })
    )
  )

/** Exports spans. Remaining spans are sent when the layer closes, within three seconds. */
export const layer = (environment: Readonly<Record<string, string>>, serviceVersion: string) =>
  OtlpTracer.layerFromConfig(resourceOf(environment, serviceVersion)).pipe(
    Layer.provide(connected(environment))
  )

/** Exports spans, log lines and metrics, of a command that stays. Log lines still go to standard error, too. */
export const layerStaying = (environment: Readonly<Record<string, string>>, serviceVersion: string) => {
  const resource = resourceOf(environment, serviceVersion)
  return Layer.mergeAll(
    OtlpTracer.layerFromConfig(resource),
    OtlpLogger.layerFromConfig({ ...resource, mergeWithExisting: true }),
    OtlpMetrics.layerFromConfig(resource)
  ).pipe(Layer.provide(connected(environment)))
}
