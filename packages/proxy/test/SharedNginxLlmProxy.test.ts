import { assert, describe, it } from "@effect/vitest"
import * as MemoryContainerRuntime from "@cogni/sandbox-core/MemoryContainerRuntime"
import * as UsageObserver from "@cogni/sandbox-core/UsageObserver"
import { Effect, Redacted } from "effect"
import * as SharedNginxLlmProxy from "../src/SharedNginxLlmProxy.ts"

const make = (options: Partial<SharedNginxLlmProxy.SharedNginxLlmProxyOptions>) =>
  SharedNginxLlmProxy.make({
    image: "proxy",
    upstream: { type: "host", url: "http://127.0.0.1:4000" },
    key: Redacted.make("sk-shared-0123456789"),
    ...options
  }).pipe(
    Effect.scoped,
    Effect.provide([
      UsageObserver.layerNone,
      MemoryContainerRuntime.layer({ program: () => Effect.succeed(0) })
    ])
  )

describe("SharedNginxLlmProxy", () => {
  for (const option of [
    "auditBytesMax",
    "concurrentRequestsMax",
    "readySecondsMax",
    "requestBytesMax",
    "requestsPerSecondMax",
    "socketsMax"
  ] as const)
    it.effect(`refuses ${option} if it is not a limit`, () =>
      Effect.gen(function* () {
        for (const value of [Number.NaN, Number.POSITIVE_INFINITY, 0, -1, 0.5]) {
          const error = yield* Effect.flip(make({ [option]: value }))
          assert.strictEqual(error._tag, "Misconfigured", String(value))
          assert.include(error.message, `SharedNginxLlmProxy.${option}`)
        }
        yield* make({ [option]: 1 })
      })
    )

  it.effect("refuses more sockets than leave half of nginx's connections to runs", () =>
    Effect.gen(function* () {
      assert.include((yield* Effect.flip(make({ socketsMax: 3501 }))).message, "3500")
      yield* make({ socketsMax: 3500 })
    })
  )
})
