import { assert, describe, it } from "@effect/vitest"
import { serviceName, serviceNameOf } from "../src/Tracing.ts"

describe("Tracing", () => {
  it.each([
    [{}, serviceName],
    [{ OTEL_SERVICE_NAME: "" }, serviceName],
    [{ OTEL_SERVICE_NAME: "mine" }, "mine"]
  ])("names the service for %o", (environment, expected) => {
    assert.strictEqual(serviceNameOf(environment), expected)
  })
})
