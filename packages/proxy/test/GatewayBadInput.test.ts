/**
 * Malformed input from an agent or an upstream, byte for byte. Each has a typed outcome, none affects another run, and
 * the gateway works as before afterwards.
 */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import * as net from "node:net"
import * as AuditLog from "../src/AuditLog.ts"
import * as Budget from "../src/internal/policy/Budget.ts"
import * as Gateway from "./GatewaySocket.ts"

const body = JSON.stringify(Gateway.chat())

/** Builds a request from the lines of its head and a payload. */
const raw = (head: ReadonlyArray<string>, payload: string | Buffer = body): Buffer =>
  Buffer.concat([
    Buffer.from(`${head.join("\r\n")}\r\n\r\n`, "latin1"),
    typeof payload === "string" ? Buffer.from(payload, "utf8") : payload
  ])

const post = "POST /v1/chat/completions HTTP/1.1"
const host = "Host: localhost"
const json = "Content-Type: application/json"
const length = (payload: string | Buffer = body) => `Content-Length: ${Buffer.byteLength(payload)}`
const plain = (...headers: ReadonlyArray<string>) => raw([post, host, json, length(), ...headers])
const withBody = (payload: string | Buffer) => raw([post, host, json, length(payload)], payload)

type Row = readonly [
  name: string,
  bytes: Buffer,
  statuses: ReadonlyArray<number | undefined>,
  reaches?: "reaches"
]

const deep = (levels: number) => `${"[".repeat(levels)}${"]".repeat(levels)}`

const rows: ReadonlyArray<Row> = [
  // Unusual and invalid bodies.
  ["an empty body", withBody(""), [400]],
  ["truncated JSON", withBody(body.slice(0, -3)), [400]],
  ["data after the JSON", withBody(`${body}{}`), [400]],
  ["not an object", withBody("[1]"), [400]],
  ["NaN", withBody('{"model":"contract-model","messages":[],"temperature":NaN}'), [400]],
  ["a number out of range", withBody('{"messages":[],"temperature":1e999}'), [400]],
  ["a byte order mark", withBody(`\ufeff${body}`), [400]],
  ["UTF-16", withBody(Buffer.from(body, "utf16le")), [400]],
  ["invalid UTF-8", withBody(Buffer.from('{"messages":[],"x":"\xff\xfe"}', "latin1")), [400]],
  ["excessive nesting", withBody(`{"messages":[],"x":${deep(200_000)}}`), [400]],
  ["brackets that never close", withBody("[".repeat(100_000)), [400]],
  ["duplicate keys", withBody(`{"user":"a","user":"b",${body.slice(1)}`), [200], "reaches"],
  ["__proto__", withBody(`{"__proto__":{"user":"evil"},${body.slice(1)}`), [200], "reaches"],
  [
    "NUL and a lone surrogate",
    withBody('{"messages":[{"role":"user","content":"\\u0000 \\ud83d"}]}'),
    [200],
    "reaches"
  ],
  // Headers that describe the body.
  ["no content type", raw([post, host, length()]), [415]],
  ["a form", raw([post, host, "Content-Type: application/x-www-form-urlencoded", length()]), [415]],
  ["JSON by name only", raw([post, host, "Content-Type: application/jsonp", length()]), [415]],
  ["compressed", plain("Content-Encoding: gzip"), [415]],
  ["a charset", raw([post, host, `${json}; charset=utf-8`, length()]), [200], "reaches"],
  ["a length of 100 MiB", raw([post, host, json, "Content-Length: 104857600"], "{"), [413, 400, 408]],
  // Request smuggling.
  ["length and chunks", raw([post, host, json, length(), "Transfer-Encoding: chunked"], "0\r\n\r\n"), [400]],
  ["two lengths", plain("Content-Length: 0"), [400]],
  ["a length with a sign", raw([post, host, json, "Content-Length: +5"], "{}   "), [400]],
  ["chunked twice", raw([post, host, json, "Transfer-Encoding: chunked, chunked"], "0\r\n\r\n"), [400]],
  ["an unknown encoding", raw([post, host, json, "Transfer-Encoding: cow"], "0\r\n\r\n"), [400, 501]],
  ["invalid chunk sizes", raw([post, host, json, "Transfer-Encoding: chunked"], "zz\r\n\r\n"), [400]],
  ["folded headers", plain("X-A: 1", " Authorization: evil"), [400, 200]],
  ["a space before the colon", plain("Authorization : evil"), [400]],
  ["a bare CR", plain("X-A: 1\rAuthorization: evil"), [400]],
  ["NUL in a header", plain("X-A: \0"), [400]],
  ["bytes beyond ASCII in a name", plain("X-\xe9: 1"), [400]],
  ["no colon", plain("evil"), [400]],
  ["bare line feeds", Buffer.from(`${post}\n${host}\n${json}\n${length()}\n\n${body}`), [400, 200]],
  [
    "200 headers",
    plain(...Array.from({ length: 200 }, (_, index) => `X-${index}: evil`)),
    [200, 431],
    "reaches"
  ],
  ["a header of 20 kB", plain(`X-A: ${"a".repeat(20_000)}`), [431]],
  ["a target of 20 kB", raw([`POST /${"a".repeat(20_000)} HTTP/1.1`, host, length()]), [431, 400]],
  ["no host", raw([post, json, length()]), [400]],
  // Other requests.
  ["HTTP/1.0", raw(["POST /v1/chat/completions HTTP/1.0", host, json, length()]), [200], "reaches"],
  ["HTTP/0.9", Buffer.from("GET /key/info\r\n\r\n"), [400, 403]],
  ["HTTP/2's opening", Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), [400]],
  ["TLS", Buffer.from([0x16, 3, 1, 0, 5, 1, 0, 0, 1, 0]), [400]],
  ["CONNECT", Buffer.from("CONNECT evil:443 HTTP/1.1\r\nHost: evil\r\n\r\n"), [405]],
  ["a proxy's target", raw(["POST http://evil/v1/chat/completions HTTP/1.1", host, json, length()]), [403]],
  ["an upgrade", plain("Connection: Upgrade", "Upgrade: websocket"), [200, 403, 426], "reaches"],
  ["another method", raw(["DELETE /v1/chat/completions HTTP/1.1", host]), [405]],
  ["an unknown method", raw(["EVIL /v1/chat/completions HTTP/1.1", host]), [400]],
  ["a path that is not allowed", raw(["POST /key/generate HTTP/1.1", host, json, length()]), [403]]
]

/** Asserts that the audit is whole and does not contain the key. */
const sound = Effect.fnUntraced(function* (gateway: Effect.Success<ReturnType<typeof Gateway.make>>) {
  const traffic = yield* gateway.endpoint.finish
  const log = yield* gateway.audit
  const verdict = AuditLog.verify(Buffer.from(log), {
    runId: gateway.runId,
    head: traffic.auditHead,
    ended: true
  })
  assert.strictEqual(verdict._tag, "Whole", JSON.stringify(verdict))
  assert.notInclude(log, Gateway.key.slice(-8))
  return { traffic, log }
})

/** Connects and acts on the connection. Returns everything that it received until it closed. */
const speak = (socketPath: string, act: (socket: net.Socket) => void) =>
  Effect.callback<string>((resume) => {
    let text = ""
    const socket = net.connect({ path: socketPath, allowHalfOpen: true }, () => act(socket))
    socket.on("data", (data) => {
      text += data.toString("latin1")
    })
    socket.on("error", () => undefined)
    socket.on("end", () => socket.end())
    socket.on("close", () => resume(Effect.succeed(text)))
  })

/** Upstream that sends as long as its client reads. `stalled` returns the bytes sent once the client has stopped. */
const endless = Effect.gen(function* () {
  let bytes = 0
  const piece = Buffer.alloc(256 * 1024, "x")
  const server = yield* Effect.acquireRelease(
    Effect.callback<ReturnType<typeof createServer>>((resume) => {
      const made = createServer((request, response) => {
        request.resume()
        response.writeHead(200, { "content-type": "text/event-stream" })
        const send = () => {
          while (bytes < 200_000_000) {
            bytes += piece.byteLength
            if (!response.write(piece)) return
          }
        }
        response.on("drain", send)
        send()
      }).listen(0, "127.0.0.1", () => resume(Effect.succeed(made)))
    }),
    (made) =>
      Effect.callback<void>((resume) => {
        made.close(() => resume(Effect.void))
        made.closeAllConnections()
      })
  )
  const stalled = Effect.callback<number>((resume) => {
    let seen = -1
    const timer = setInterval(() => {
      if (bytes > 0 && bytes === seen) {
        clearInterval(timer)
        resume(Effect.succeed(bytes))
      }
      seen = bytes
    }, 200)
  })
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, stalled }
})

describe("GatewayLlmProxy with malformed input", () => {
  it.live.each([2.0001, 3.333])(
    "starts with a limit of %s seconds, which is no whole number of milliseconds",
    (seconds) => Effect.scoped(Gateway.make({ requestSecondsMax: seconds, headerSecondsMax: seconds }))
  )

  it.live("answers every malformed request and serves the next request normally", () =>
    Effect.gen(function* () {
      const gateway = yield* Gateway.make({ requestSecondsMax: 3, headerSecondsMax: 3 })
      const problems: Array<string> = []
      for (const [name, bytes, statuses, reaches] of rows) {
        const before = (yield* gateway.upstream.received).length
        const answer = yield* gateway.send(bytes, { idleMillis: 40 })
        const after = (yield* gateway.upstream.received).length
        const arrived = after - before
        if (!statuses.includes(answer.status)) problems.push(`${name}: ${answer.status ?? "nothing"}`)
        if (answer.status === 200 ? arrived !== 1 : arrived !== 0)
          problems.push(`${name}: ${arrived} arrived`)
        if (reaches === undefined && answer.status === 200 && !statuses.includes(200))
          problems.push(`${name}: passed`)
      }
      assert.deepStrictEqual(problems, [])
      for (const { headers } of yield* gateway.upstream.received) {
        const sent = JSON.stringify(headers)
        assert.notInclude(sent, "evil")
        assert.strictEqual(headers.filter(([name]) => name.toLowerCase() === "authorization").length, 1)
      }
      assert.strictEqual((yield* gateway.send(Gateway.http(Gateway.chat()))).status, 200)
      const { log } = yield* sound(gateway)
      assert.include(log, '"type":"request.refused"')
    })
  )

  it.live("answers pipelined requests in order", () =>
    Effect.gen(function* () {
      const gateway = yield* Gateway.make()
      const one = Gateway.http(Gateway.chat())
      const models = Gateway.http("", { method: "GET", path: "/v1/models" })
      const answer = yield* gateway.send(Buffer.concat([one, models, one, models]), { answers: 4 })
      const statuses = [...answer.text.matchAll(/HTTP\/1\.1 (\d{3})/gu)].map(([, status]) => status)
      assert.deepStrictEqual(statuses, ["200", "200", "200", "200"])
      assert.isBelow(answer.text.indexOf('{"ok":true}'), answer.text.indexOf('"object":"list"'))
      yield* sound(gateway)
    })
  )

  it.live("answers 408 and hangs up if a request arrives too slowly or never ends", () =>
    Effect.gen(function* () {
      const gateway = yield* Gateway.make({ requestSecondsMax: 1, headerSecondsMax: 1 })
      const [header, part] = yield* Effect.all(
        [
          speak(gateway.socketPath, (socket) => socket.write(`${post}\r\nHost: x\r\nX-A:`)),
          speak(gateway.socketPath, (socket) => socket.write(plain().subarray(0, -5)))
        ],
        { concurrency: "unbounded" }
      )
      assert.match(header, /^HTTP\/1\.1 408 /u)
      assert.match(part, /^HTTP\/1\.1 408 /u)
      assert.deepStrictEqual(yield* gateway.upstream.received, [])
      yield* sound(gateway)
    })
  )

  it.live("serves requests while 450 of 500 connections are idle", () =>
    Effect.gen(function* () {
      const gateway = yield* Gateway.make({ connectionsMax: 512 })
      const silent: Array<net.Socket> = []
      yield* Effect.callback<void>((resume) => {
        let open = 0
        for (let index = 0; index < 450; index++) {
          const socket = net.connect(gateway.socketPath, () => {
            open += 1
            if (open === 450) resume(Effect.void)
          })
          socket.on("error", () => undefined)
          silent.push(socket)
        }
      })
      const answers = yield* Effect.forEach(
        Array.from({ length: 50 }),
        () => gateway.send(Gateway.http(Gateway.chat())),
        { concurrency: "unbounded" }
      )
      assert.deepStrictEqual(
        answers.map(({ status }) => status),
        answers.map(() => 200)
      )
      const other = yield* Gateway.openRun(gateway.proxy)
      assert.strictEqual((yield* other.send(Gateway.http(Gateway.chat()))).status, 200)
      for (const socket of silent) socket.destroy()
      yield* sound(gateway)
    })
  )

  it.live("ends only the connection of a client that disconnects before its answer", () =>
    Effect.gen(function* () {
      const gateway = yield* Gateway.make({
        script: [{ _tag: "SlowStream", events: 50, pauseMillis: 1 }],
        requestsPerSecondMax: 100_000,
        concurrentCallsMax: 10_000
      })
      const openings = [
        Buffer.from("CONNECT evil:443 HTTP/1.1\r\nHost: evil\r\n\r\n"),
        Buffer.from("\0\r\n\r\n"),
        plain("Connection: Upgrade", "Upgrade: websocket"),
        plain(),
        Gateway.http(Gateway.chat({ stream: true }))
      ]
      yield* Effect.forEach(
        Array.from({ length: 200 }, (_, index) => openings[index % openings.length]!),
        (bytes) =>
          Effect.callback<void>((resume) => {
            const socket = net.connect(gateway.socketPath, () => {
              for (let index = 0; index < 20; index++) socket.write(bytes)
              socket.destroy()
            })
            socket.on("error", () => undefined)
            socket.on("close", () => resume(Effect.void))
          }),
        { concurrency: 20 }
      )
      assert.strictEqual((yield* gateway.send(Gateway.http(Gateway.chat()))).status, 200)
      yield* sound(gateway)
    })
  )

  it.live("applies back-pressure to the upstream of an agent that does not read", () =>
    Effect.gen(function* () {
      const upstream = yield* endless
      const gateway = yield* Gateway.make({ url: upstream.url })
      const socket = net.connect(gateway.socketPath)
      socket.pause()
      socket.write(Gateway.http(Gateway.chat({ stream: true })))
      // The upstream has filled the buffers on the way, and waits.
      const stalled = yield* upstream.stalled
      assert.isAbove(stalled, 0)
      assert.isBelow(stalled, 16_000_000)
      const other = yield* Gateway.openRun(gateway.proxy)
      assert.strictEqual(
        (yield* other.send(Gateway.http("", { method: "GET", path: "/v1/models" }))).status,
        200
      )
      socket.destroy()
      yield* sound(gateway)
    })
  )

  it.live("refuses an excessively nested tool call over HTTP and MCP", () =>
    Effect.gen(function* () {
      const gateway = yield* Gateway.make()
      for (const path of ["/tool/exec", "/mcp"]) {
        const answer = yield* gateway.send(
          Gateway.http(`{"tool":"core__get_current_time","args":${deep(100_000)}}`, { path })
        )
        assert.strictEqual(answer.status, 400, path)
      }
      yield* sound(gateway)
    })
  )

  it.live("ends the call of a client that closes its side, and records it as ended early", () =>
    Effect.gen(function* () {
      const gateway = yield* Gateway.make({ script: [{ _tag: "Hang" }] })
      yield* speak(gateway.socketPath, (socket) => socket.end(plain()))
      const { traffic } = yield* sound(gateway)
      assert.include(["client_aborted", "run_ended"], traffic.calls[0]?.outcome)
    })
  )

  it.live("passes a malformed event stream unchanged and counts its call as one without usage", () =>
    Effect.gen(function* () {
      const garbage = "data: {not json\n\nevent: x\ndata\n\n\0\xff data: [DONE"
      const gateway = yield* Gateway.make({
        script: [{ _tag: "Answer", headers: { "content-type": "text/event-stream" }, body: garbage }]
      })
      const answer = yield* gateway.send(
        Gateway.http(Gateway.chat({ stream: true, stream_options: { include_usage: true } }))
      )
      assert.strictEqual(answer.status, 200)
      assert.include(Buffer.from(answer.text, "latin1").toString("utf8"), "{not json")
      const { traffic } = yield* sound(gateway)
      assert.strictEqual(traffic.usage?.callsWithoutUsage, 1)
      assert.strictEqual(traffic.usage?.inputTokens, traffic.usage?.estimatedInputTokens)
      assert.strictEqual(traffic.usage?.estimatedOutputTokens, Budget.outputTokensDefault)
    })
  )

  it.live("ends an answer that is shorter than its declared length instead of waiting", () =>
    Effect.gen(function* () {
      const gateway = yield* Gateway.make({
        script: [{ _tag: "Answer", headers: { "content-length": "500" }, body: '{"ok":true}' }]
      })
      const answer = yield* gateway.send(Gateway.http(Gateway.chat()))
      assert.include([200, 502, undefined], answer.status)
      const { traffic } = yield* sound(gateway)
      assert.include(["upstream_cut", "client_aborted"], traffic.calls[0]?.outcome)
      assert.isFalse(traffic.calls[0]?.completed)
    })
  )

  it.live("removes the key from an upstream's error, and cuts off an error that is too large", () =>
    Effect.gen(function* () {
      const gateway = yield* Gateway.make({
        script: [
          {
            _tag: "Error",
            status: 400,
            body: `{"error":"${JSON.stringify(Gateway.key).slice(1, -1)} at HERE"}`
          },
          { _tag: "Error", status: 500, body: "x".repeat(3_000_000) },
          { _tag: "Answer" }
        ]
      })
      const shown = yield* gateway.send(Gateway.http(Gateway.chat()))
      assert.strictEqual(shown.status, 400)
      assert.include(shown.body, "[key] at HERE")
      assert.strictEqual((yield* gateway.send(Gateway.http(Gateway.chat()))).status, 502)
      const counted = yield* gateway.send(
        Gateway.http({ messages: [{ role: "user", content: "hi" }] }, { path: "/v1/messages/count_tokens" })
      )
      assert.strictEqual(counted.status, 200)
      const { traffic } = yield* sound(gateway)
      assert.deepStrictEqual(
        traffic.calls.map(({ outcome }) => outcome),
        ["completed", "upstream_cut", "completed"]
      )
      // Neither counting tokens nor a refusal of the upstream runs a model, even if the refusal is cut off.
      assert.strictEqual(traffic.usage?.callsWithoutUsage, 0)
    })
  )

  it.live("passes the upstream's 429 and its Retry-After to the agent", () =>
    Effect.gen(function* () {
      const gateway = yield* Gateway.make({
        script: [
          { _tag: "Error", status: 429, headers: { "retry-after": "7", "x-litellm-key-spend": "12" } },
          { _tag: "Error", status: 503 },
          { _tag: "Error", status: 429 }
        ]
      })
      const waiting = yield* gateway.send(Gateway.http(Gateway.chat()))
      assert.strictEqual(waiting.status, 429)
      assert.strictEqual(waiting.headers.get("retry-after"), "7")
      assert.isFalse(waiting.headers.has("x-litellm-key-spend"))
      assert.strictEqual((yield* gateway.send(Gateway.http(Gateway.chat()))).status, 503)
      const answer = yield* gateway.send(Gateway.http(Gateway.chat()))
      assert.strictEqual(answer.status, 429)
      assert.isFalse(answer.headers.has("retry-after"))
      assert.strictEqual(JSON.parse(answer.body).error.message, "scripted")
      const { traffic } = yield* sound(gateway)
      assert.strictEqual(traffic.usage?.callsWithoutUsage, 0)
    })
  )

  it.live("discards a chunked body that exceeds the maximum size", () =>
    Effect.gen(function* () {
      const gateway = yield* Gateway.make({ requestBytesMax: 1_000_000 })
      const piece = "x".repeat(65_536)
      const chunk = `${piece.length.toString(16)}\r\n${piece}\r\n`
      const before = process.memoryUsage().rss
      const large = raw([post, host, json, "Transfer-Encoding: chunked"], `${chunk.repeat(1600)}0\r\n\r\n`)
      // The rest of the body is discarded, so the next request on the connection is served.
      const next = Gateway.http("", { method: "GET", path: "/v1/models" })
      const answer = yield* gateway.send(Buffer.concat([large, next]), { answers: 2 })
      assert.strictEqual(answer.status, 413, answer.text.slice(0, 200))
      assert.match(answer.text, /HTTP\/1\.1 200 OK/u)
      // This process itself holds the 100 MiB once, to send them.
      assert.isBelow(process.memoryUsage().rss - before, 450e6)
      assert.deepStrictEqual(yield* gateway.upstream.received, [])
      assert.strictEqual((yield* gateway.send(Gateway.http(Gateway.chat()))).status, 200)
      yield* sound(gateway)
    })
  )

  it.live("limits the memory that all requests hold together", () =>
    Effect.gen(function* () {
      const gateway = yield* Gateway.make({ heldBytesMax: 1_000_000, script: [{ _tag: "Hang" }] })
      const large = Gateway.http(Gateway.chat({ messages: [{ role: "user", content: "x".repeat(600_000) }] }))
      const sockets = [net.connect(gateway.socketPath), net.connect(gateway.socketPath)]
      for (const socket of sockets) socket.on("error", () => undefined)
      sockets[0]!.write(large)
      yield* Effect.eventually(
        Effect.filterOrFail(gateway.upstream.received, (received) => received.length === 1)
      ).pipe(Effect.timeout("5 minutes"))
      const answer = yield* gateway.send(large)
      assert.strictEqual(answer.status, 503, answer.text.slice(0, 300))
      assert.strictEqual(answer.headers.get("retry-after"), "1")
      for (const socket of sockets) socket.destroy()
      yield* sound(gateway)
    })
  )
})
