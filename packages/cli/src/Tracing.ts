/**
 * Spans of an invocation, sent where OpenTelemetry's own variables say (`OTEL_EXPORTER_OTLP_ENDPOINT`, …).
 *
 * Effect's exporter reads all of them. Where there is no endpoint (`Settings.isTraced`) nothing is collected, and this
 * module is not loaded.
 */
import { ConfigProvider, Layer } from "effect"
import * as FetchHttpClient from "effect/http/FetchHttpClient"
import * as OtlpSerialization from "effect/observability/OtlpSerialization"
import * as OtlpTracer from "effect/observability/OtlpTracer"

/** Of the service, where `OTEL_SERVICE_NAME` says no other. */
export const serviceName = "cogni-sandbox"

/** What is left to send is sent when it closes, within three seconds. */
export const layer = (environment: Readonly<Record<string, string>>, serviceVersion: string) =>
  OtlpTracer.layerFromConfig({
    resource: { serviceName: environment["OTEL_SERVICE_NAME"] ?? serviceName, serviceVersion }
  }).pipe(
    Layer.provide([
      OtlpSerialization.layerJson,
      FetchHttpClient.layer,
      // OpenTelemetry's own default, which Effect does not have.
      ConfigProvider.layer(ConfigProvider.fromEnvRecord({ OTEL_TRACES_EXPORTER: "otlp", ...environment }))
    ])
  )
