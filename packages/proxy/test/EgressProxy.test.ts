import { assert, describe, it } from "@effect/vitest"
import { Effect, Redacted, Result, Stream } from "effect"
import { execFileSync } from "node:child_process"
import * as fs from "node:fs"
import * as http from "node:http"
import * as https from "node:https"
import * as net from "node:net"
import * as path from "node:path"
import * as tls from "node:tls"
import type { AddressInfo } from "node:net"
import * as LiteLlmRows from "../../../test/harness/LiteLlmRows.ts"
import * as EgressProxy from "../src/EgressProxy.ts"
import * as LiteLlmRunKeys from "../src/LiteLlmRunKeys.ts"
import * as LiteLlmSpendRows from "../src/LiteLlmSpendRows.ts"
import * as Gateway from "./GatewaySocket.ts"

const password = "planted-8c2e"

const through = (url: string, noProxy?: string, host = "api.example.com") =>
  EgressProxy.resolve({ url: Redacted.make(url), noProxy }, { host, port: 443 })

describe("the proxy of an upstream", () => {
  it("is the given one, unless the upstream is on the list", () => {
    assert.strictEqual(Result.getOrThrow(through("http://proxy:3128")), "http://proxy:3128/")
    for (const noProxy of [
      "*",
      "api.example.com",
      "EXAMPLE.com",
      ".example.com",
      "*.example.com",
      "localhost, example.com",
      "a b api.example.com:443"
    ])
      assert.isUndefined(Result.getOrThrow(through("http://proxy:3128", noProxy)), noProxy)
    for (const noProxy of [
      "",
      "ample.com",
      "api.example.com.evil",
      "api.example.com:8443",
      "x.api.example.com"
    ])
      assert.isDefined(Result.getOrThrow(through("http://proxy:3128", noProxy)), noProxy)
    assert.isUndefined(Result.getOrThrow(through("http://proxy:3128", "[::1]:443", "::1")))
    assert.isUndefined(Result.getOrThrow(through("http://proxy:3128", "::1", "::1")))
  })

  it.each(["proxy:3128", "socks5://proxy", "http://proxy/path", "http://proxy/?a=b"])(
    "is refused if it is %s, without its password",
    (url) => {
      const refused = through(url.replace("//", `//user:${password}@`))
      if (Result.isSuccess(refused)) return assert.fail("it was accepted")
      assert.include(refused.failure.message, "Write it as http://")
      assert.notInclude(`${refused.failure} ${JSON.stringify(refused.failure)}`, password)
    }
  )
})

describe("the user and password of a proxy", () => {
  it("are refused at the start if no connection could decode them", () => {
    const refused = through("http://user:50%off@proxy:3128")
    if (Result.isSuccess(refused)) return assert.fail("it was accepted")
    assert.include(refused.failure.message, "a % that is not written as %25")
    assert.notInclude(`${refused.failure} ${JSON.stringify(refused.failure)}`, "off@")
    assert.isDefined(Result.getOrThrow(through("http://user:50%25off@proxy:3128")))
  })
})

interface Tunnels {
  readonly url: string
  readonly asked: ReadonlyArray<{ readonly target: string; readonly authorization: string | undefined }>
}

/** HTTP proxy that opens tunnels, or answers with this status. */
const tunnels = (status = 200) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.callback<{ readonly server: http.Server; readonly asked: Array<Tunnels["asked"][number]> }>(
        (resume) => {
          const asked: Array<Tunnels["asked"][number]> = []
          const server = http.createServer((_request, response) => void response.writeHead(500).end())
          server.on("connect", (request: http.IncomingMessage, client: net.Socket) => {
            asked.push({
              target: request.url ?? "",
              authorization: request.headers["proxy-authorization"]
            })
            client.on("error", () => undefined)
            if (status !== 200) return void client.end(`HTTP/1.1 ${status} No\r\n\r\n`)
            const { hostname, port } = new URL(`http://${request.url}`)
            const outer = net.connect(Number(port), hostname, () => {
              client.write("HTTP/1.1 200 OK\r\n\r\n")
              outer.pipe(client)
              client.pipe(outer)
            })
            outer.on("error", () => client.destroy())
            client.on("close", () => outer.destroy())
          })
          server.listen(0, "127.0.0.1", () => resume(Effect.succeed({ server, asked })))
        }
      ),
      ({ server }) =>
        Effect.sync(() => {
          server.close()
          server.closeAllConnections()
        })
    ),
    ({ asked, server }): Tunnels => ({
      asked,
      url: `http://user:${password}@127.0.0.1:${(server.address() as AddressInfo).port}`
    })
  )

const listening = (server: net.Server) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.callback<net.Server>((resume) => {
        server.listen(0, "127.0.0.1", () => resume(Effect.succeed(server)))
      }),
      () => Effect.sync(() => server.close())
    ),
    () => (server.address() as AddressInfo).port
  )

/** Certificate of `localhost`, signed by itself. */
const certificate = Effect.map(Gateway.directory, (directory) => {
  const [keyPath, certPath] = ["key.pem", "cert.pem"].map((name) => path.join(directory, name)) as [
    string,
    string
  ]
  const request =
    "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
  execFileSync(
    "openssl",
    [...request.split(" "), "-addext", "subjectAltName=DNS:localhost", "-keyout", keyPath, "-out", certPath],
    { stdio: "ignore" }
  )
  return { cert: fs.readFileSync(certPath, "utf8"), key: fs.readFileSync(keyPath, "utf8") }
})

describe("a gateway behind the proxy of a company", () => {
  it.live("reaches its upstream through one tunnel, with the proxy's password and without showing it", () =>
    Effect.gen(function* () {
      const { asked, url } = yield* tunnels()
      const gateway = yield* Gateway.make({
        egressProxy: { url: Redacted.make(url) },
        script: [{ _tag: "Answer" }]
      })
      for (let index = 0; index < 3; index++)
        assert.strictEqual((yield* gateway.send(Gateway.http(Gateway.chat()))).status, 200)
      assert.deepStrictEqual(asked, [
        {
          target: new URL(gateway.upstream.url).host,
          authorization: `Basic ${Buffer.from(`user:${password}`).toString("base64")}`
        }
      ])
      const received = JSON.stringify(yield* gateway.upstream.received)
      const traffic = JSON.stringify(yield* gateway.endpoint.finish)
      for (const text of [received, traffic, yield* gateway.audit]) {
        assert.notInclude(text, password)
        assert.notInclude(text, Buffer.from(`user:${password}`).toString("base64"))
      }
    })
  )

  it.live(
    "makes TLS with the upstream within the tunnel, trusts only its own authorities, and bounds the handshake",
    () =>
      Effect.gen(function* () {
        const { asked, url } = yield* tunnels()
        const { cert, key } = yield* certificate
        const upstream = yield* listening(
          https.createServer({ cert, key }, (_request, response) => void response.end('{"ok":true}'))
        )
        const silent = yield* listening(net.createServer((socket) => socket.on("error", () => undefined)))
        const statusOf = Effect.fnUntraced(function* (port: number, authorities: ReadonlyArray<string>) {
          const gateway = yield* Gateway.make({
            url: `https://localhost:${port}`,
            egressProxy: { url: Redacted.make(url) },
            certificateAuthorities: authorities,
            connectSecondsMax: 1
          })
          // Twice: the second call uses the connection of the first.
          yield* gateway.send(Gateway.http(Gateway.chat()))
          const { status } = yield* gateway.send(Gateway.http(Gateway.chat()))
          const { calls } = yield* gateway.endpoint.finish
          return [status, calls[1]!.outcome]
        })
        assert.deepStrictEqual(yield* statusOf(upstream, [cert]), [200, "completed"])
        assert.deepStrictEqual(
          asked.map(({ target }) => target),
          [`localhost:${upstream}`]
        )
        assert.deepStrictEqual(yield* statusOf(upstream, tls.rootCertificates.slice(0, 1)), [
          502,
          "upstream_unreachable"
        ])
        assert.deepStrictEqual(yield* statusOf(silent, [cert]), [504, "upstream_timeout"])
      })
  )

  it.live("asks LiteLLM for keys and rows through it too", () =>
    Effect.gen(function* () {
      const { asked, url } = yield* tunnels()
      const double = yield* LiteLlmRows.acquire
      const options = {
        url: double.url,
        key: Redacted.make(LiteLlmRows.adminKey),
        egressProxy: { url: Redacted.make(url) }
      }
      const rows = Result.getOrThrow(LiteLlmSpendRows.make(options))
      const found = yield* Stream.runCollect(rows.rowsOf({ _tag: "Calls", calls: [{ callId: "call-1" }] }))
      assert.lengthOf(found, 0)
      const owners = {
        self: () => ({ bootId: "boot", processId: 1, startTicks: 1 }),
        isOrphaned: () => false
      }
      const keys = yield* LiteLlmRunKeys.make({ ...options, deployment: "test", owners })
      yield* Effect.flip(keys.reap)
      const { host } = new URL(double.url)
      assert.deepStrictEqual(
        asked.map(({ target }) => target),
        [host, host]
      )
      assert.deepStrictEqual(
        double.requests.map((target) => target.split("?")[0]),
        ["/spend/logs", "/key/list"]
      )
      const refused = LiteLlmSpendRows.make({ ...options, egressProxy: { url: Redacted.make("socks5://p") } })
      assert.isTrue(Result.isFailure(refused))
    })
  )

  it.live("goes around it for an upstream on the list", () =>
    Effect.gen(function* () {
      const { asked, url } = yield* tunnels()
      const gateway = yield* Gateway.make({
        egressProxy: { url: Redacted.make(url), noProxy: "127.0.0.1" },
        script: [{ _tag: "Answer" }]
      })
      assert.strictEqual((yield* gateway.send(Gateway.http(Gateway.chat()))).status, 200)
      assert.deepStrictEqual(asked, [])
    })
  )

  it.live("does not send a call if the proxy refuses the tunnel", () =>
    Effect.gen(function* () {
      const { asked, url } = yield* tunnels(407)
      const gateway = yield* Gateway.make({
        egressProxy: { url: Redacted.make(url) },
        script: [{ _tag: "Answer" }]
      })
      const answer = yield* gateway.send(Gateway.http(Gateway.chat()))
      assert.strictEqual(answer.status, 502)
      assert.isAbove(asked.length, 0)
      assert.deepStrictEqual(yield* gateway.upstream.received, [])
      const { calls, usage } = yield* gateway.endpoint.finish
      assert.strictEqual(calls[0]!.outcome, "upstream_unreachable")
      assert.strictEqual(usage?.callsWithoutUsage, 0)
    })
  )
})
