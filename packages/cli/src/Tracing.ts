/**
 * Exports the spans of an invocation as OpenTelemetry's variables configure it (`OTEL_EXPORTER_OTLP_ENDPOINT`, …).
 *
 * Effect's exporter reads all of them. Without an endpoint (`Settings.isTraced`), nothing is collected, and this module
 * is not loaded.
 */
import { ConfigProvider, Layer } from "effect"
import * as FetchHttpClient from "effect/http/FetchHttpClient"
import * as OtlpSerialization from "effect/observability/OtlpSerialization"
import * as OtlpTracer from "effect/observability/OtlpTracer"

/** Default of `OTEL_SERVICE_NAME`. */
export const serviceName = "cogni-sandbox"

/** Returns the name of the service. An empty variable counts as unset, as OpenTelemetry requires. */
export const serviceNameOf = (environment: Readonly<Record<string, string>>): string => {
  const name = environment["OTEL_SERVICE_NAME"]
  return name === undefined || name === "" ? serviceName : name
}

/** Exports spans. Remaining spans are sent when the layer closes, within three seconds. */
export const layer = (environment: Readonly<Record<string, string>>, serviceVersion: string) =>
  OtlpTracer.layerFromConfig({
    resource: { serviceName: serviceNameOf(environment), serviceVersion }
  }).pipe(
    Layer.provide([
      OtlpSerialization.layerJson,
      FetchHttpClient.layer,
      // OpenTelemetry's own default, which Effect does not have.
      ConfigProvider.layer(ConfigProvider.fromEnvRecord({ OTEL_TRACES_EXPORTER: "otlp", ...environment }))
    ])
  )
