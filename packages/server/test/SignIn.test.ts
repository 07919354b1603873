/** Tests the sign-in of the page: a cookie that only this server's page can use, and the files of the page. */
import { assert, describe, it } from "@effect/vitest"
import { GrantStore, layerMemory as grantsMemory } from "@cogni/sandbox-graph-provider/grants/GrantStore"
import { GrantStoreUnavailable } from "@cogni/sandbox-graph-provider/grants/GrantError"
import { Effect, Layer } from "effect"
import { TestClock } from "effect/testing"
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { asked, lasting, question, serve, type WorldOptions } from "./ServerWorld.ts"

/** Signs in, and returns what a browser then has. */
const signedIn = Effect.fnUntraced(function* (
  options: WorldOptions = {},
  headers: Record<string, string> = {},
  over?: Parameters<Effect.Success<ReturnType<typeof serve>>["grant"]>[0]
) {
  const server = yield* serve(options)
  const { token } = yield* Effect.orDie(server.grant(over))
  const url = `${server.url}/api/v1/sign-in`
  const answer = yield* asked(url, {
    method: "POST",
    headers: { ...headers, authorization: `Bearer ${token}` }
  })
  const set = answer.headers.get("set-cookie") ?? ""
  return {
    server,
    token,
    url,
    answer,
    set,
    cookie: set.split(";")[0] ?? "",
    csrf: answer.body.csrf as string
  }
})

const valueOf = (cookie: string) => cookie.slice(cookie.indexOf("=") + 1)

/** A cookie that another server set, without TLS. */
const foreign = `cogni-sign-in=cgi_${"M".repeat(43)}`

describe("sign-in", () => {
  it.effect("keeps a secret of its own where no script can read it, and returns it to no caller", () =>
    Effect.gen(function* () {
      const { answer, cookie, set, token } = yield* signedIn()
      assert.strictEqual(answer.status, 200)
      assert.deepStrictEqual(set.split("; ").toSorted(), [
        "HttpOnly",
        "Max-Age=43200",
        "Path=/api/v1",
        "SameSite=Strict",
        cookie
      ])
      assert.match(cookie, /^cogni-sign-in=cgi_[\w-]{43}$/u)
      for (const secret of [token, valueOf(cookie)]) assert.notInclude(JSON.stringify(answer.body), secret)
      assert.deepInclude(answer.body.grant, { userId: "user", billingAccountId: "acct", expiresAt: null })
      assert.strictEqual(answer.headers.get("cache-control"), "no-store")
    })
  )

  it.effect(
    "sends the cookie only over HTTPS behind a TLS proxy, and not longer than the grant is valid",
    () =>
      Effect.gen(function* () {
        yield* TestClock.setTime(1_000_000)
        const { set } = yield* signedIn(
          { limits: { signInSecondsMax: 5000 } },
          { "x-forwarded-proto": "https" },
          { expiresAt: new Date(1_000_000 + 60_000) }
        )
        assert.include(set, "; Secure")
        assert.include(set, "Max-Age=60;")
      })
  )

  it.effect("gets with TLS a cookie that no other server of the domain can set", () =>
    Effect.gen(function* () {
      // One proxy names the protocol, one of several proxies does, or only the browser's page does.
      for (const tls of [
        { "x-forwarded-proto": "https" },
        { "x-forwarded-proto": "https, http" },
        { origin: "https://sandbox.example.com" }
      ]) {
        const { answer, cookie, csrf, set, url } = yield* signedIn({}, tls)
        assert.deepStrictEqual(set.split("; ").toSorted(), [
          "HttpOnly",
          "Max-Age=43200",
          "Path=/",
          "SameSite=Strict",
          "Secure",
          cookie
        ])
        assert.match(cookie, /^__Host-cogni-sign-in=cgi_/u)
        const whoIs = (sent: string) => asked(url, { headers: { ...tls, cookie: sent } })
        for (const sent of [cookie, `${foreign}; ${cookie}`]) {
          const { body, status } = yield* whoIs(sent)
          assert.deepStrictEqual([status, body.grant?.id], [200, answer.body.grant.id])
        }
        const { body } = yield* whoIs(foreign)
        assert.strictEqual(body.error.reason, "GrantMissing")
        const page = { ...tls, cookie, "x-cogni-csrf": csrf }
        const out = yield* asked(url, { method: "DELETE", headers: page })
        assert.match(
          out.headers.get("set-cookie") ?? "",
          /^__Host-cogni-sign-in=;.*Max-Age=0.*Path=\/;.*Secure/u
        )
      }
    })
  )

  it.effect("refuses two cookies, of which another server of this host set one", () =>
    Effect.gen(function* () {
      const { cookie, csrf, url } = yield* signedIn()
      for (const sent of [
        `${foreign}; ${cookie}`,
        `${cookie};${foreign}`,
        `a=b; ${cookie} ; ${foreign}`,
        `${cookie}; __Host-${foreign}`
      ])
        for (const method of ["GET", "DELETE"]) {
          const { body, headers, status } = yield* asked(url, {
            method,
            headers: { cookie: sent, "x-cogni-csrf": csrf }
          })
          assert.deepStrictEqual([status, body.error?.reason], [403, "CookieDoubled"])
          assert.isNull(headers.get("set-cookie"))
        }
    })
  )

  it.effect("lets the page use the whole API with its header", () =>
    Effect.gen(function* () {
      const { cookie, csrf, server, url } = yield* signedIn()
      const page = { cookie, "x-cogni-csrf": csrf, "sec-fetch-site": "same-origin" }
      assert.strictEqual((yield* asked(`${server.url}/api/v1/runs`, { headers: page })).status, 200)
      // The page learns the header's value at each visit.
      assert.strictEqual((yield* asked(url, { headers: { cookie } })).body.csrf, csrf)
      const out = yield* asked(url, { method: "DELETE", headers: page })
      assert.strictEqual(out.status, 204)
      assert.match(out.headers.get("set-cookie") ?? "", /^cogni-sign-in=;.*Max-Age=0/u)
    })
  )

  it.effect("refuses every request that another page could cause, and starts and cancels nothing", () =>
    Effect.gen(function* () {
      const { cookie, csrf, server, token } = yield* signedIn({ program: lasting })
      const running = yield* (yield* server.caller()).open(question)
      const path = `/api/v1/runs/${running.runId}`
      const forged: ReadonlyArray<Record<string, string>> = [
        { cookie },
        { cookie, "x-cogni-csrf": "" },
        { cookie, "x-cogni-csrf": "1" },
        { cookie, "x-cogni-csrf": `${csrf.slice(0, -1)}${csrf.endsWith("0") ? "1" : "0"}` },
        { cookie, "x-cogni-csrf": token },
        { cookie, "x-cogni-csrf": csrf, "sec-fetch-site": "cross-site" },
        { cookie, "x-cogni-csrf": csrf, "sec-fetch-site": "same-site" }
      ]
      for (const headers of forged) {
        const asks = [
          ["DELETE", path],
          ["GET", "/api/v1/runs"],
          ["POST", "/api/v1/ai/chat"],
          ["POST", "/api/v1/sign-in"],
          ["DELETE", "/api/v1/sign-in"]
        ] as const
        for (const [method, where] of asks) {
          const {
            body,
            headers: answered,
            status
          } = yield* asked(`${server.url}${where}`, { method, headers })
          assert.deepStrictEqual(
            [method, where, status, body.error.reason],
            [method, where, 403, "RequestForged"]
          )
          assert.isNull(answered.get("set-cookie"))
          assert.notInclude(JSON.stringify(body), csrf)
        }
      }
      assert.lengthOf(yield* server.roster.list, 1)
      const elsewhere = { cookie, "sec-fetch-site": "cross-site" }
      assert.strictEqual((yield* asked(`${server.url}/api/v1/sign-in`, { headers: elsewhere })).status, 403)
      // No answer permits another origin to read it.
      const preflight = yield* asked(`${server.url}/api/v1/runs`, {
        method: "OPTIONS",
        headers: { origin: "https://evil.example", "access-control-request-method": "GET" }
      })
      assert.isNull(preflight.headers.get("access-control-allow-origin"))
    })
  )

  it.effect("ends with the grant", () =>
    Effect.gen(function* () {
      const { answer, cookie, csrf, server, url } = yield* signedIn()
      yield* server.grants.revoke(answer.body.grant.id)
      const after = yield* asked(`${server.url}/api/v1/runs`, { headers: { cookie, "x-cogni-csrf": csrf } })
      assert.deepStrictEqual([after.status, after.body.error.reason], [403, "GrantRevoked"])
      assert.strictEqual((yield* asked(url, { headers: { cookie } })).status, 403)
      // The browser can still remove the cookie.
      const out = yield* asked(url, { method: "DELETE", headers: { cookie, "x-cogni-csrf": csrf } })
      assert.strictEqual(out.status, 204)
      assert.match(out.headers.get("set-cookie") ?? "", /^cogni-sign-in=;.*Max-Age=0/u)
    })
  )

  it.effect(
    "gives away nothing that outlives it: a copied cookie is no token, and opens no other sign-in",
    () =>
      Effect.gen(function* () {
        yield* TestClock.setTime(1_000_000)
        const { cookie, csrf, server, token, url } = yield* signedIn({ limits: { signInSecondsMax: 60 } })
        const page = { cookie, "x-cogni-csrf": csrf }
        const runs = (headers: Record<string, string>) => asked(`${server.url}/api/v1/runs`, { headers })
        const asToken = yield* runs({ authorization: `Bearer ${valueOf(cookie)}` })
        assert.deepStrictEqual([asToken.status, asToken.body.error.reason], [403, "GrantNotFound"])
        const again = yield* asked(url, { method: "POST", headers: page })
        assert.deepStrictEqual([again.status, again.body.error.reason], [403, "TokenRequired"])
        assert.isNull(again.headers.get("set-cookie"))
        yield* TestClock.adjust("59 seconds")
        assert.strictEqual((yield* runs(page)).status, 200)
        yield* TestClock.adjust("1 second")
        assert.strictEqual((yield* runs(page)).body.error.reason, "SignInEnded")
        assert.strictEqual((yield* runs({ authorization: `Bearer ${token}` })).status, 200)
      })
  )

  it.effect("is over after a sign-out, also for a copy of the cookie", () =>
    Effect.gen(function* () {
      const { cookie, csrf, server, token, url } = yield* signedIn()
      const page = { cookie, "x-cogni-csrf": csrf }
      // Another browser with the same grant stays signed in.
      const other = yield* asked(url, { method: "POST", headers: { authorization: `Bearer ${token}` } })
      assert.strictEqual((yield* asked(url, { method: "DELETE", headers: page })).status, 204)
      const copy = yield* asked(`${server.url}/api/v1/runs`, { headers: page })
      assert.deepStrictEqual([copy.status, copy.body.error.reason], [403, "SignInEnded"])
      const stays = (other.headers.get("set-cookie") ?? "").split(";")[0] ?? ""
      assert.strictEqual((yield* asked(url, { headers: { cookie: stays } })).status, 200)
    })
  )

  it.effect("ends the sign-in that it replaces in a browser", () =>
    Effect.gen(function* () {
      const { cookie, token, url } = yield* signedIn()
      yield* asked(url, { method: "POST", headers: { authorization: `Bearer ${token}`, cookie } })
      const { body, status } = yield* asked(url, { headers: { cookie } })
      assert.deepStrictEqual([status, body.error.reason], [403, "SignInEnded"])
    })
  )

  it.effect("says so if the store did not end it, and removes the cookie anyway", () =>
    Effect.gen(function* () {
      const down = new GrantStoreUnavailable({ detail: "is down", remedy: "Start it" })
      const failing = Layer.effect(
        GrantStore,
        Effect.map(GrantStore, (store) => GrantStore.of({ ...store, closeSignIn: () => Effect.fail(down) }))
      ).pipe(Layer.provide(grantsMemory))
      const { cookie, csrf, url } = yield* signedIn({ grants: failing })
      const out = yield* asked(url, { method: "DELETE", headers: { cookie, "x-cogni-csrf": csrf } })
      assert.deepStrictEqual([out.status, out.body.error.reason], [503, "SignOutUnconfirmed"])
      assert.match(out.headers.get("set-cookie") ?? "", /^cogni-sign-in=;.*Max-Age=0/u)
    })
  )

  it.effect("limits sign-outs with made-up cookies, before the store is asked about them", () =>
    Effect.gen(function* () {
      const { csrf, cookie, url } = yield* signedIn({ limits: { unknownRequestsPerMinuteMax: 3 } })
      const statuses = yield* Effect.forEach([1, 2, 3, 4], () =>
        Effect.map(
          asked(url, { method: "DELETE", headers: { cookie, "x-cogni-csrf": csrf } }),
          (answer) => answer.status
        )
      )
      assert.deepStrictEqual(statuses, [204, 204, 503, 503])
    })
  )

  it.effect("ends a sign-in that was in use, however many unknown tokens come from its address", () =>
    Effect.gen(function* () {
      const { cookie, csrf, server, url } = yield* signedIn({ limits: { unknownRequestsPerMinuteMax: 3 } })
      const runs = `${server.url}/api/v1/runs`
      assert.strictEqual((yield* asked(runs, { headers: { cookie, "x-cogni-csrf": csrf } })).status, 200)
      const unknown = asked(runs, { headers: { authorization: `Bearer cgs_${"A".repeat(43)}` } })
      for (let flood = 0; flood < 4; flood++) yield* unknown
      assert.strictEqual((yield* unknown).status, 429)
      const page = { cookie, "x-cogni-csrf": csrf }
      assert.strictEqual((yield* asked(url, { method: "DELETE", headers: page })).status, 204)
      // It is unknown from now on.
      assert.strictEqual((yield* asked(url, { method: "DELETE", headers: page })).status, 503)
      assert.strictEqual((yield* asked(runs, { headers: page })).status, 429)
    })
  )

  it.effect("removes no cookie that the request did not send", () =>
    Effect.gen(function* () {
      const { url } = yield* serve()
      const out = yield* asked(url.concat("/api/v1/sign-in"), {
        method: "DELETE",
        headers: { "sec-fetch-site": "cross-site" }
      })
      assert.deepStrictEqual([out.status, out.headers.get("set-cookie")], [204, null])
    })
  )

  it.effect("reports a cookie that holds no sign-in, such as the token of a grant", () =>
    Effect.gen(function* () {
      const server = yield* serve()
      const { url } = server
      const { token } = yield* Effect.orDie(server.grant())
      for (const value of ["", "x", "cgi_short", `cgi_${"A".repeat(43)}`, token]) {
        const { body, status } = yield* asked(`${url}/api/v1/sign-in`, {
          headers: { cookie: `cogni-sign-in=${value}` }
        })
        assert.deepStrictEqual([status, body.error.reason], [403, "SignInEnded"])
      }
    })
  )
})

describe("the page's files", () => {
  const built = Effect.acquireRelease(
    Effect.sync(() => {
      const parent = mkdtempSync(join(tmpdir(), "cogni-page-"))
      const directory = join(parent, "page")
      mkdirSync(join(directory, "assets"), { recursive: true })
      writeFileSync(join(directory, "index.html"), "<!doctype html>page")
      writeFileSync(join(directory, "assets", "app-1.js"), "app()")
      writeFileSync(join(parent, "secret"), "secret")
      return { directory, parent }
    }),
    ({ parent }) => Effect.sync(() => rmSync(parent, { recursive: true }))
  ).pipe(Effect.map(({ directory }) => directory))

  it.effect("need no grant, and run nothing but themselves", () =>
    Effect.gen(function* () {
      const { url } = yield* serve({ page: yield* built })
      const html = { headers: { accept: "text/html" } }
      for (const path of ["/sandbox/", "/sandbox", "/sandbox/runs/run-12345678"]) {
        const { body, headers, status } = yield* asked(`${url}${path}`, html)
        assert.deepStrictEqual([path, status, body], [path, 200, "<!doctype html>page"])
        const policy = headers.get("content-security-policy") ?? ""
        assert.notInclude(policy, "unsafe")
        assert.include(policy, "default-src 'none'; script-src 'self'; style-src 'self'")
        assert.strictEqual(headers.get("cache-control"), "no-cache")
        assert.strictEqual(headers.get("x-content-type-options"), "nosniff")
      }
      const asset = yield* asked(`${url}/sandbox/assets/app-1.js`)
      assert.deepStrictEqual([asset.status, asset.body], [200, "app()"])
      assert.include(asset.headers.get("cache-control"), "immutable")
      assert.include(asset.headers.get("content-type"), "text/javascript")
      const head = yield* asked(`${url}/sandbox/`, { method: "HEAD", headers: { accept: "text/html" } })
      assert.deepStrictEqual([head.status, head.body], [200, ""])
    })
  )

  it.effect("are never kept as missing: another server may have them after an update", () =>
    Effect.gen(function* () {
      const { url } = yield* serve({ page: yield* built })
      for (const headers of [{ accept: "*/*" }, { accept: "text/html" }]) {
        const missing = yield* asked(`${url}/sandbox/assets/app-2.js`, { headers })
        assert.deepStrictEqual([missing.status, missing.headers.get("cache-control")], [404, "no-store"])
      }
      // A path without an extension is no address of the page either.
      const odd = yield* asked(`${url}/sandbox/assets/app`, { headers: { accept: "text/html" } })
      assert.deepStrictEqual([odd.status, odd.headers.get("cache-control")], [404, "no-store"])
      const etag = (yield* asked(`${url}/sandbox/assets/app-1.js`)).headers.get("etag") ?? ""
      const again = yield* asked(`${url}/sandbox/assets/app-1.js`, { headers: { "if-none-match": etag } })
      assert.strictEqual(again.status, 304)
      assert.include(again.headers.get("cache-control"), "immutable")
    })
  )

  it.effect("are all of the host that can be read", () =>
    Effect.gen(function* () {
      const { url } = yield* serve({ page: yield* built })
      for (const path of [
        "/sandbox/assets/none.js",
        "/sandbox/..%2fsecret",
        "/sandbox/%2e%2e/secret",
        "/sandbox/assets/..%2f..%2fsecret",
        "/sandbox//etc/passwd",
        "/sandbox/%00"
      ]) {
        const { body, status } = yield* asked(`${url}${path}`)
        assert.deepStrictEqual([path, status], [path, 404])
        assert.notInclude(String(body), "secret")
      }
    })
  )

  it.effect("are reported as missing by a checkout without a build", () =>
    Effect.gen(function* () {
      const { url } = yield* serve({ page: "/nonexistent/page" })
      const { body, status } = yield* asked(`${url}/sandbox/`)
      assert.deepStrictEqual([status, body.error.reason], [503, "PageNotBuilt"])
    })
  )

  it.effect("are not served by a server without a page", () =>
    Effect.gen(function* () {
      const { url } = yield* serve()
      assert.strictEqual((yield* asked(`${url}/sandbox/`)).status, 404)
    })
  )
})
