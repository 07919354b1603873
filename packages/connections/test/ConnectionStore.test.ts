/** The contract over the store in memory, and what makes a connection invalid. */
import { assert, describe, it } from "@effect/vitest"
import type { ConnectionInput } from "@cogni/sandbox-connections/Connection"
import * as ConnectionStore from "@cogni/sandbox-connections/ConnectionStore"
import { ConnectionStoreContract } from "@cogni/sandbox-connections/testing"
import { Effect } from "effect"

ConnectionStoreContract.suite("memory", ConnectionStore.layerMemory)

const input: ConnectionInput = {
  billingAccountId: "a",
  name: "github",
  server: "https://github.com",
  means: { kind: "token" },
  expiresAt: null
}

describe("ConnectionStore.draft", () => {
  it.effect("has the defaults of its kind", () =>
    Effect.gen(function* () {
      const { createdAt: _createdAt, id, ...rest } = yield* ConnectionStore.draft(input)
      assert.match(id, /^connection-[0-9a-f-]{36}$/u)
      assert.deepStrictEqual(rest, {
        billingAccountId: "a",
        name: "github",
        server: "https://github.com",
        username: "x-access-token",
        means: { kind: "token" },
        scope: {},
        lifetimeSecondsMax: 3600,
        expiresAt: null,
        revokedAt: null
      })
    })
  )

  it.effect.each<Partial<Record<keyof ConnectionInput, unknown>>>([
    { name: "host/github" },
    { name: "../planted-value" },
    { billingAccountId: "" },
    { server: "http://planted-value.example" },
    { server: "https://planted-value.example/path" },
    { server: "https://planted-value.example:443" },
    { server: "https://user@planted-value.example" },
    { server: "https://Planted-Value.example" },
    { username: "planted-value:" },
    { username: "planted-value\nx" },
    { lifetimeSecondsMax: 3601 },
    { lifetimeSecondsMax: 0 },
    { expiresAt: new Date(Number.NaN) },
    { scope: { repositories: ["https://*.planted-value/**"] } },
    { scope: { purposes: [] } },
    { means: { kind: "environment", variable: "PLANTED_VALUE" } },
    { means: { kind: "github_app", installationId: -1 } },
    { means: { kind: "broker", url: "http://planted-value.example/" } },
    { means: { kind: "broker", url: "https://user:planted-value@broker.example/" } },
    { means: { kind: "broker", url: "https://broker.example/?api_key=planted-value" } },
    { means: { kind: "oauth", tokenUrl: "ftp://planted-value/", clientId: "c" } }
  ])("refuses %j without repeating its value", (changed) =>
    Effect.gen(function* () {
      const error = yield* Effect.flip(ConnectionStore.draft({ ...input, ...changed } as ConnectionInput))
      assert.strictEqual(error._tag, "ConnectionRefused")
      assert.notMatch(error.message, /planted-value/iu)
      assert.include(error.message, Object.keys(changed)[0]!)
    })
  )
})
