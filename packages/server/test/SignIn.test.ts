/** Tests the sign-in of the page: a cookie that only this server's page can use, and the files of the page. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
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

describe("sign-in", () => {
  it.effect("keeps the token where no script can read it, and returns it to no caller", () =>
    Effect.gen(function* () {
      const { answer, set, token } = yield* signedIn()
      assert.strictEqual(answer.status, 200)
      assert.deepStrictEqual(set.split("; ").toSorted(), [
        "HttpOnly",
        "Max-Age=43200",
        "Path=/api/v1",
        "SameSite=Strict",
        `cogni-grant=${token}`
      ])
      assert.notInclude(JSON.stringify(answer.body), token)
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
        const { answer, cookie, csrf, server, set, token, url } = yield* signedIn({}, tls)
        assert.deepStrictEqual(set.split("; ").toSorted(), [
          "HttpOnly",
          "Max-Age=43200",
          "Path=/",
          "SameSite=Strict",
          "Secure",
          `__Host-cogni-grant=${token}`
        ])
        const other = yield* server.caller({ userId: "mallory", billingAccountId: "evil" })
        const whoIs = (sent: string) => asked(url, { headers: { ...tls, cookie: sent } })
        for (const sent of [cookie, `cogni-grant=${other.token}; ${cookie}`]) {
          const { body, status } = yield* whoIs(sent)
          assert.deepStrictEqual([status, body.grant?.id], [200, answer.body.grant.id])
        }
        const { body } = yield* whoIs(`cogni-grant=${other.token}`)
        assert.strictEqual(body.error.reason, "GrantMissing")
        const page = { ...tls, cookie, "x-cogni-csrf": csrf }
        const out = yield* asked(url, { method: "DELETE", headers: page })
        assert.match(
          out.headers.get("set-cookie") ?? "",
          /^__Host-cogni-grant=;.*Max-Age=0.*Path=\/;.*Secure/u
        )
      }
    })
  )

  it.effect("refuses two cookies, of which another server of this host set one", () =>
    Effect.gen(function* () {
      const { cookie, csrf, server, url } = yield* signedIn()
      const other = yield* server.caller({ userId: "mallory", billingAccountId: "evil" })
      const foreign = `cogni-grant=${other.token}`
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
      assert.match(out.headers.get("set-cookie") ?? "", /^cogni-grant=;.*Max-Age=0/u)
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
      assert.match(out.headers.get("set-cookie") ?? "", /^cogni-grant=;.*Max-Age=0/u)
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

  it.effect("reports a cookie that holds no token", () =>
    Effect.gen(function* () {
      const { url } = yield* serve()
      for (const value of ["", "x", "cgs_short", `cgs_${"A".repeat(43)}`]) {
        const { body, status } = yield* asked(`${url}/api/v1/sign-in`, {
          headers: { cookie: `cogni-grant=${value}` }
        })
        assert.deepStrictEqual([status, body.error.reason], [403, "GrantNotFound"])
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
