/** Connections to registries: the addresses that a name resolves to are checked at the connection. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as PackageRegistry from "../../../test/harness/PackageRegistry.ts"
import * as RegistryClient from "../src/internal/packages/RegistryClient.ts"

const client = RegistryClient.make({ connectSecondsMax: 60, silentSecondsMax: 60, proxies: {} })

const fetchFrom = (url: URL, allowPrivateAddresses: boolean) =>
  Effect.scoped(
    Effect.acquireRelease(
      client.fetch({
        place: { url: url.origin, origins: [url.origin], allowPrivateAddresses },
        url,
        accept: "*/*",
        isCompressible: false
      }),
      ({ close }) => Effect.sync(close)
    )
  )

describe("RegistryClient", () => {
  it.live("refuses a name that resolves to a private address, before it sends anything", () =>
    Effect.gen(function* () {
      const registry = yield* PackageRegistry.acquire
      registry.npm({ name: "left-pad", version: "1.0.0" })
      // A name, not an address: only the connection learns where it leads.
      const url = new URL(`${registry.origin.replace("127.0.0.1", "localhost")}/npm/left-pad`)
      const { detail, outcome } = yield* Effect.flip(fetchFrom(url, false))
      assert.strictEqual(outcome, "registry_unreachable")
      assert.strictEqual(detail, "localhost resolves to a private address")
      assert.deepStrictEqual(registry.asked, [])
      const { bytes = 0 } = yield* fetchFrom(url, true)
      assert.isAbove(bytes, 0)
    })
  )
})
