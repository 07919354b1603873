/** Tests what is reachable without a grant: host names, addresses, and lookups in the store. */
import { GrantStore, layerMemory as grantsMemory } from "@cogni/sandbox-graph-provider/grants/GrantStore"
import * as GrantToken from "@cogni/sandbox-graph-provider/grants/GrantToken"
import * as HostNames from "@cogni/sandbox-server/HostNames"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { NetAddress } from "effect/net"
import { TestClock } from "effect/testing"
import { request } from "node:http"
import * as UnknownCallers from "../src/internal/UnknownCallers.ts"
import { asked, serve } from "./ServerWorld.ts"

/** Sends a request with any `Host`, which `fetch` does not allow. */
const under = (url: string, host: string, path: string) =>
  Effect.callback<{ readonly status: number; readonly text: string }>((resume) => {
    request(`${url}${path}`, { headers: { host } }, (response) => {
      let text = ""
      response.on("data", (piece: Buffer) => (text += piece.toString("utf8")))
      response.on("end", () => resume(Effect.succeed({ status: response.statusCode ?? 0, text })))
    }).end()
  })

describe("host names", () => {
  it.effect("refuses any other name in Host with 421, before any other check", () =>
    Effect.gen(function* () {
      let probed = 0
      const { operatorUrl, url } = yield* serve({
        probes: [{ name: "engine", check: Effect.sync(() => (probed += 1)) }]
      })
      const asks = [
        [url, "/health"],
        [url, "/api/v1/runs"],
        [operatorUrl, "/health/ready"],
        [operatorUrl, "/metrics"],
        [operatorUrl, "/openapi.json"],
        [operatorUrl, "/docs"]
      ] as const
      for (const host of [
        "evil.example",
        "127.0.0.1.evil.example",
        "evil.example:80",
        "localhost.evil",
        "a b"
      ]) {
        for (const [base, path] of asks) {
          const { status, text } = yield* under(base, host, path)
          assert.deepStrictEqual([host, path, status], [host, path, 421])
          assert.strictEqual(JSON.parse(text).error.reason, "HostUnknown")
          assert.notInclude(text, "evil")
        }
      }
      assert.strictEqual(probed, 0)
    })
  )

  it.effect("accepts the server's address, the local names and the configured ones, with any port", () =>
    Effect.gen(function* () {
      const { url } = yield* serve({ hostNames: ["Sandbox.example.com"] })
      for (const host of [
        "127.0.0.1",
        "localhost:1",
        "LOCALHOST",
        "[::1]:8787",
        "sandbox.example.com",
        "SANDBOX.example.com:443"
      ])
        assert.strictEqual((yield* under(url, host, "/health")).status, 200, host)
    })
  )

  it("excludes an unspecified address from the names", () => {
    const names = (address: string) => [
      ...HostNames.of(NetAddress.inetAddressFromIpStringUnsafe(address, 8787), ["a.example"])
    ]
    assert.deepStrictEqual(names("0.0.0.0"), ["localhost", "127.0.0.1", "[::1]", "a.example"])
    assert.deepStrictEqual(names("10.1.2.3"), ["localhost", "127.0.0.1", "[::1]", "10.1.2.3", "a.example"])
    assert.deepStrictEqual(names("2001:db8::1"), [
      "localhost",
      "127.0.0.1",
      "[::1]",
      "[2001:db8::1]",
      "a.example"
    ])
  })
})

describe("the address for callers", () => {
  it.effect("answers the liveness check and nothing else without a grant", () =>
    Effect.gen(function* () {
      let probed = 0
      const { operatorUrl, url } = yield* serve({
        probes: [{ name: "engine", check: Effect.sync(() => (probed += 1)) }]
      })
      assert.deepStrictEqual((yield* asked(`${url}/health`)).body, { status: "ok" })
      for (const path of ["/metrics", "/docs", "/openapi.json", "/health/ready"]) {
        const { body, status } = yield* asked(`${url}${path}`)
        assert.deepStrictEqual([path, status, body.error.reason], [path, 404, "RouteNotFound"])
      }
      assert.strictEqual(probed, 0)
      for (const path of ["/metrics", "/docs", "/openapi.json", "/health/ready", "/health"])
        assert.strictEqual((yield* asked(`${operatorUrl}${path}`)).status, 200, path)
      // The operator's address has no routes for callers.
      assert.strictEqual((yield* asked(`${operatorUrl}/api/v1/runs`)).status, 404)
    })
  )
})

describe("requests without a known grant", () => {
  it.effect("are limited before the store is asked, without slowing down known callers", () =>
    Effect.gen(function* () {
      let lookups = 0
      const counting = Layer.effect(
        GrantStore,
        Effect.map(GrantStore, (store) =>
          GrantStore.of({
            ...store,
            authenticate: (token) => Effect.suspend(() => ((lookups += 1), store.authenticate(token)))
          })
        )
      ).pipe(Layer.provide(grantsMemory))
      const server = yield* serve({ grants: counting, limits: { unknownRequestsPerMinuteMax: 4 } })
      const known = yield* server.caller()
      const late = yield* server.caller()
      assert.strictEqual((yield* known.get("/api/v1/runs")).status, 200)
      const flood = yield* Effect.forEach([1, 2, 3, 4, 5, 6], () =>
        Effect.flatMap(GrantToken.generate, (token) =>
          asked(`${server.url}/api/v1/runs`, {
            headers: { authorization: `Bearer ${GrantToken.tell(token)}` }
          })
        )
      )
      assert.deepStrictEqual(
        flood.map(({ status }) => status),
        [403, 403, 403, 429, 429, 429]
      )
      assert.isAbove(Number(flood[5]?.headers.get("retry-after")), 0)
      assert.strictEqual(lookups, 4)
      assert.strictEqual((yield* known.get("/api/v1/runs")).status, 200)
      assert.strictEqual((yield* late.get("/api/v1/runs")).status, 429)
      yield* TestClock.adjust("1 minute")
      assert.strictEqual((yield* late.get("/api/v1/runs")).status, 200)
      // A revocation takes effect immediately, also for a known caller.
      yield* server.grants.revoke(known.grantId)
      assert.strictEqual((yield* known.get("/api/v1/runs")).status, 403)
    })
  )

  it.effect("include those with a revoked or removed token", () =>
    Effect.gen(function* () {
      const forgotten = new Set<string>()
      const forgetful = Layer.effect(
        GrantStore,
        Effect.map(GrantStore, (store) =>
          GrantStore.of({
            ...store,
            authenticate: (token) =>
              Effect.map(store.authenticate(token), (grant) =>
                grant !== undefined && forgotten.has(grant.id) ? undefined : grant
              )
          })
        )
      ).pipe(Layer.provide(grantsMemory))
      for (const end of ["revoked", "removed"] as const) {
        const server = yield* serve({ grants: forgetful, limits: { unknownRequestsPerMinuteMax: 2 } })
        const known = yield* server.caller()
        const status = Effect.map(known.get("/api/v1/runs"), (answer) => answer.status)
        assert.deepStrictEqual([yield* status, yield* status, yield* status], [200, 200, 200], end)
        if (end === "revoked") yield* server.grants.revoke(known.grantId)
        else forgotten.add(known.grantId)
        assert.deepStrictEqual([yield* status, yield* status, yield* status], [403, 403, 429], end)
      }
    })
  )

  it.effect("never reach the store if the token is malformed", () =>
    Effect.gen(function* () {
      const { url } = yield* serve({
        grants: Layer.mock(GrantStore, { authenticate: () => Effect.die("the store was asked") })
      })
      for (const authorization of [
        "Bearer cgs_short",
        "Bearer ",
        `Bearer ${"x".repeat(4000)}`,
        "Basic YTpi"
      ]) {
        const { body, status } = yield* asked(`${url}/api/v1/runs`, { headers: { authorization } })
        assert.deepStrictEqual([status, body.error.code], [403, "authz_denied"])
      }
    })
  )

  it.effect("are told apart behind a trusted proxy, and only there", () =>
    Effect.gen(function* () {
      const limits = { unknownRequestsPerMinuteMax: 2 }
      const guess = { authorization: `Bearer cgs_${"A".repeat(43)}` }
      for (const [trustedProxies, status] of [
        [["127.0.0.1", "10.0.0.9"], 200],
        [[], 429],
        [["10.0.0.9"], 429]
      ] as const) {
        const server = yield* serve({ trustedProxies, limits })
        const get = (address: string, headers: Record<string, string>) =>
          asked(`${server.url}/api/v1/runs`, { headers: { ...headers, "x-forwarded-for": address } })
        for (let n = 0; n < 3; n++) yield* get(`198.51.100.${n}, 192.0.2.1, 10.0.0.9`, guess)
        const { token } = yield* Effect.orDie(server.grant())
        const ours = yield* get("192.0.2.2", { authorization: `Bearer ${token}` })
        assert.deepStrictEqual([trustedProxies, ours.status], [trustedProxies, status])
        // The caller may have written what is before its address.
        const { token: theirs } = yield* Effect.orDie(server.grant())
        const stranger = yield* get("192.0.2.2, 192.0.2.1", { authorization: `Bearer ${theirs}` })
        assert.strictEqual(stranger.status, 429)
      }
    })
  )

  it("have the address that the nearest trusted proxy names", () => {
    const trusted = new Set(["10.0.0.1", "10.0.0.2"])
    for (const [remote, forwarded, expected] of [
      ["192.0.2.1", "192.0.2.9", "192.0.2.1"],
      ["10.0.0.1", undefined, "10.0.0.1"],
      ["10.0.0.1", "192.0.2.9", "192.0.2.9"],
      ["::ffff:10.0.0.1", "192.0.2.9,10.0.0.2", "192.0.2.9"],
      ["10.0.0.1", "192.0.2.8, 2001:db8::1 ", "2001:db8::1"],
      ["10.0.0.1", "unknown", "10.0.0.1"],
      ["10.0.0.1", "", "10.0.0.1"]
    ] as const)
      assert.strictEqual(UnknownCallers.callerOf(remote, forwarded, trusted), expected)
  })

  it("use bounded memory: few buckets, one for a whole /64, and the most recent tokens", () => {
    const known = UnknownCallers.make(2)
    for (const hash of ["a", "b", "a", "c"]) known.add(hash)
    assert.deepStrictEqual(
      ["a", "b", "c"].map((hash) => known.has(hash)),
      [true, false, true]
    )
    const { bucketOf, buckets } = UnknownCallers
    assert.strictEqual(bucketOf("2001:db8:1:2::1"), bucketOf("2001:db8:1:2:ffff:ffff:ffff:ffff"))
    assert.strictEqual(bucketOf("::ffff:192.0.2.1"), bucketOf("192.0.2.1"))
    for (const address of [undefined, "", "not an address", "192.0.2.9", "fe80::1%eth0"]) {
      assert.isTrue(bucketOf(address) >= 0 && bucketOf(address) < buckets)
    }
  })
})
