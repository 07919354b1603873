import * as Await from "../../../test/harness/Await.ts"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Fiber, Result, Scope } from "effect"
import { execFileSync } from "node:child_process"
import * as fs from "node:fs"
import * as net from "node:net"
import * as os from "node:os"
import * as path from "node:path"
import * as tls from "node:tls"
import { vi } from "vitest"
import * as HostRelay from "../src/internal/nginx/HostRelay.ts"
import * as Upstream from "../src/Upstream.ts"

const owner = { userId: process.getuid?.() ?? 0, groupId: process.getgid?.() ?? 0 }
const address = (url: string) => Result.getOrThrow(Upstream.address({ type: "host", url }))

const temporary = Effect.acquireRelease(
  Effect.sync(() => fs.mkdtempSync(path.join(os.tmpdir(), "relay-test-"))),
  (directory) => Effect.sync(() => fs.rmSync(directory, { recursive: true, force: true }))
)

/** Server on a free port that passes every connection to `handle`. */
const listen = (
  handle: (socket: net.Socket) => void,
  make = net.createServer as (handle: (socket: net.Socket) => void) => net.Server
) =>
  Effect.acquireRelease(
    Effect.promise(
      () =>
        new Promise<{ server: net.Server; sockets: Set<net.Socket>; port: number }>((resolve) => {
          const sockets = new Set<net.Socket>()
          const server = make((socket) => {
            sockets.add(socket)
            socket.once("close", () => sockets.delete(socket))
            socket.on("error", () => undefined)
            handle(socket)
          })
          server.listen(0, "127.0.0.1", () =>
            resolve({ server, sockets, port: (server.address() as net.AddressInfo).port })
          )
        })
    ),
    ({ server, sockets }) =>
      Effect.sync(() => {
        for (const socket of sockets) socket.destroy()
        server.close()
      })
  )

const halfOpen = (handle: (socket: net.Socket) => void) => net.createServer({ allowHalfOpen: true }, handle)

/** Writes, ends its own side if `end` is set, and reads to the end. */
const exchange = (socketPath: string, text: string | Buffer, end = true) =>
  Effect.promise(
    () =>
      new Promise<Buffer>((resolve) => {
        const chunks: Array<Buffer> = []
        const socket = net.connect({ path: socketPath, allowHalfOpen: true })
        socket.on("data", (chunk) => chunks.push(chunk))
        socket.on("error", () => undefined)
        socket.on("close", () => resolve(Buffer.concat(chunks)))
        socket.on("end", () => socket.end())
        socket.write(text)
        if (end) socket.end()
      })
  )

const isSo = (what: () => boolean) => Await.until(String(what), Effect.sync(what))

describe("HostRelay", () => {
  it.live("forwards bytes in both directions, and half-closes", () =>
    Effect.gen(function* () {
      const upstream = yield* listen((socket) => {
        const chunks: Array<Buffer> = []
        socket.on("data", (chunk: Buffer) => chunks.push(chunk))
        // Answers only after the other side has ended, which a relay without half-close never does.
        socket.on("end", () => socket.end(`got ${Buffer.concat(chunks)}`))
      }, halfOpen)
      const relay = yield* HostRelay.acquire({ address: address(`http://127.0.0.1:${upstream.port}`), owner })
      assert.strictEqual((yield* exchange(relay.socketPath, "hello")).toString(), "got hello")
      assert.strictEqual(relay.accepted(), 1)
      yield* isSo(() => relay.open() === 0)
    })
  )

  it.live("applies back-pressure for a slow reader, and loses nothing", () =>
    Effect.gen(function* () {
      const size = 64 * 1024 * 1024
      const block = Buffer.alloc(1024 * 1024, 7)
      let written = 0
      const upstream = yield* listen((socket) => {
        const more = () => {
          while (written < size) {
            written += block.length
            if (!socket.write(block)) return void socket.once("drain", more)
          }
          socket.end()
        }
        more()
      })
      const relay = yield* HostRelay.acquire({ address: address(`http://127.0.0.1:${upstream.port}`), owner })
      const socket = net.connect({ path: relay.socketPath })
      socket.pause()
      yield* Effect.sleep("300 millis")
      assert.isBelow(written, size / 2)
      const read = yield* Effect.promise(
        () =>
          new Promise<number>((resolve) => {
            let total = 0
            socket.on("data", (chunk: Buffer) => (total += chunk.length))
            socket.on("end", () => resolve(total))
            socket.resume()
          })
      )
      assert.strictEqual(read, size)
    })
  )

  it.live("closes the connection when the upstream refuses, and reports why", () =>
    Effect.gen(function* () {
      const relay = yield* HostRelay.acquire({ address: address("http://127.0.0.1:1"), owner })
      assert.strictEqual((yield* exchange(relay.socketPath, "hello", false)).length, 0)
      assert.include(relay.lastFailure(), "ECONNREFUSED")
    })
  )

  it.live("closes the connection when the upstream resets it in the middle of an answer", () =>
    Effect.gen(function* () {
      const upstream = yield* listen((socket) => {
        socket.write("half")
        setTimeout(() => socket.resetAndDestroy(), 50)
      })
      const relay = yield* HostRelay.acquire({ address: address(`http://127.0.0.1:${upstream.port}`), owner })
      assert.strictEqual((yield* exchange(relay.socketPath, "x", false)).toString(), "half")
      yield* isSo(() => relay.open() === 0)
    })
  )

  it.live("ends the upstream's connection when the client disconnects", () =>
    Effect.gen(function* () {
      const upstream = yield* listen((socket) => void socket.write("."), halfOpen)
      const relay = yield* HostRelay.acquire({ address: address(`http://127.0.0.1:${upstream.port}`), owner })
      const socket = net.connect({ path: relay.socketPath })
      yield* isSo(() => upstream.sockets.size === 1)
      const [outer] = upstream.sockets
      socket.destroy()
      yield* isSo(() => outer!.readableEnded || outer!.destroyed)
    })
  )

  it.live("times out if the upstream does not complete the TLS handshake", () =>
    Effect.gen(function* () {
      // Accepts the connection but never starts TLS.
      const upstream = yield* listen(() => undefined)
      const relay = yield* HostRelay.acquire({
        address: address(`https://127.0.0.1:${upstream.port}`),
        owner,
        connectSecondsMax: 0.2
      })
      assert.strictEqual((yield* exchange(relay.socketPath, "x", false)).length, 0)
      assert.include(relay.lastFailure(), "no connection to 127.0.0.1")
    })
  )

  it.live("refuses connections above its limit", () =>
    Effect.gen(function* () {
      const upstream = yield* listen(() => undefined)
      const relay = yield* HostRelay.acquire({
        address: address(`http://127.0.0.1:${upstream.port}`),
        owner,
        connectionsMax: 2
      })
      const kept = [net.connect({ path: relay.socketPath }), net.connect({ path: relay.socketPath })]
      yield* isSo(() => upstream.sockets.size === 2)
      assert.strictEqual((yield* exchange(relay.socketPath, "x", false)).length, 0)
      assert.strictEqual(relay.accepted(), 3)
      for (const socket of kept) socket.destroy()
      yield* isSo(() => relay.open() === 0)
    })
  )

  it.live("limits the bytes per second of requests, and loses none", () =>
    Effect.gen(function* () {
      const upstream = yield* listen((socket) => {
        let bytes = 0
        socket.on("data", (chunk: Buffer) => {
          bytes += chunk.byteLength
        })
        socket.on("end", () => socket.end(`got ${bytes}`))
      }, halfOpen)
      const relay = yield* HostRelay.acquire({
        address: address(`http://127.0.0.1:${upstream.port}`),
        owner,
        bytesPerSecondMax: 1_000_000
      })
      const began = performance.now()
      const answer = yield* exchange(relay.socketPath, Buffer.alloc(3_000_000))
      assert.strictEqual(answer.toString(), "got 3000000")
      // The bytes of one second are allowed as a burst.
      assert.isAtLeast(performance.now() - began, 1500)
    })
  )

  it.live("limits the bytes per second of answers", () =>
    Effect.gen(function* () {
      const upstream = yield* listen((socket) => socket.end(Buffer.alloc(3_000_000)))
      const relay = yield* HostRelay.acquire({
        address: address(`http://127.0.0.1:${upstream.port}`),
        owner,
        bytesPerSecondMax: 1_000_000
      })
      const began = performance.now()
      assert.strictEqual((yield* exchange(relay.socketPath, "x")).byteLength, 3_000_000)
      assert.isAtLeast(performance.now() - began, 1500)
    })
  )

  it.live("closes an upstream's connection that stays open too long after the proxy has hung up", () =>
    Effect.gen(function* () {
      const upstream = yield* listen((socket) => void socket.resume(), halfOpen)
      const ended = Promise.withResolvers<void>()
      upstream.server.on("connection", (socket: net.Socket) => socket.once("end", ended.resolve))
      const relay = yield* HostRelay.acquire({ address: address(`http://127.0.0.1:${upstream.port}`), owner })
      yield* Effect.acquireRelease(
        Effect.sync(() => vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] })),
        () => Effect.sync(() => vi.useRealTimers())
      )
      const cut = exchange(relay.socketPath, "x")
      const fiber = yield* Effect.forkChild(cut)
      yield* Effect.promise(() => ended.promise)
      assert.strictEqual(relay.open(), 1)
      vi.advanceTimersByTime(10_000)
      vi.useRealTimers()
      const answer = yield* Fiber.join(fiber).pipe(Effect.timeout("5 minutes"))
      assert.strictEqual(answer.byteLength, 0)
    })
  )

  it.live("refuses new connections above its rate", () =>
    Effect.gen(function* () {
      const upstream = yield* listen((socket) => socket.end("answer"))
      const relay = yield* HostRelay.acquire({
        address: address(`http://127.0.0.1:${upstream.port}`),
        owner,
        connectionsMax: 5,
        connectionsPerSecondMax: 0.01
      })
      const answers: Array<string> = []
      for (let index = 0; index < 8; index++)
        answers.push((yield* exchange(relay.socketPath, "x")).toString())
      assert.deepStrictEqual(answers, [...Array.from({ length: 5 }, () => "answer"), "", "", ""])
      assert.strictEqual(relay.lastFailure(), "too many new connections in a second")
    })
  )

  it.live("closes every stream and leaves no file when its scope closes", () =>
    Effect.gen(function* () {
      const upstream = yield* listen((socket) => void socket.resume().write("."))
      const parent = yield* temporary
      const scope = yield* Scope.make()
      const relay = yield* HostRelay.acquire({
        address: address(`http://127.0.0.1:${upstream.port}`),
        owner,
        parent
      }).pipe(Scope.provide(scope))
      const closed = exchange(relay.socketPath, "x", false)
      const fiber = yield* Effect.forkChild(closed)
      yield* isSo(() => relay.open() === 1)
      yield* Scope.close(scope, Exit.void)
      yield* isSo(() => fiber.pollUnsafe() !== undefined && upstream.sockets.size === 0)
      assert.deepStrictEqual(fs.readdirSync(parent), [])
    })
  )

  it.live("gives the socket to its owner only, in the run's directory if the path is short enough", () =>
    Effect.gen(function* () {
      const parent = yield* temporary
      const relay = yield* HostRelay.acquire({ address: address("http://127.0.0.1:1"), owner, parent })
      assert.strictEqual(path.dirname(relay.directory), parent)
      assert.strictEqual(fs.statSync(relay.directory).mode & 0o777, 0o700)
      assert.strictEqual(fs.statSync(relay.socketPath).mode & 0o777, 0o600)
      assert.strictEqual(fs.statSync(relay.socketPath).uid, owner.userId)

      const deep = path.join(parent, "d".repeat(90))
      fs.mkdirSync(deep)
      const elsewhere = yield* HostRelay.acquire({
        address: address("http://127.0.0.1:1"),
        owner,
        parent: deep
      })
      assert.notInclude(elsewhere.directory, deep)
      assert.isAtMost(Buffer.byteLength(elsewhere.socketPath), 107)
    })
  )

  it.live("uses TLS only with an upstream whose certificate it trusts", () =>
    Effect.gen(function* () {
      const directory = yield* temporary
      const file = (name: string) => path.join(directory, name)
      execFileSync(
        "openssl",
        [
          ..."req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost -addext".split(
            " "
          ),
          "subjectAltName=DNS:localhost",
          "-keyout",
          file("key.pem"),
          "-out",
          file("cert.pem")
        ],
        { stdio: "ignore" }
      )
      const cert = fs.readFileSync(file("cert.pem"), "utf8")
      const names: Array<unknown> = []
      const upstream = yield* listen(
        (socket) => {
          names.push((socket as tls.TLSSocket & { readonly servername?: unknown }).servername)
          socket.once("data", (data: Buffer) => socket.end(`got ${data}`))
        },
        (handle) => tls.createServer({ cert, key: fs.readFileSync(file("key.pem")) }, handle)
      )
      const at = address(`https://localhost:${upstream.port}`)
      const trusting = yield* HostRelay.acquire({ address: at, owner, certificateAuthorities: [cert] })
      assert.strictEqual((yield* exchange(trusting.socketPath, "hello", false)).toString(), "got hello")
      assert.deepStrictEqual(names, ["localhost"])

      const wary = yield* HostRelay.acquire({ address: at, owner })
      assert.strictEqual((yield* exchange(wary.socketPath, "hello", false)).length, 0)
      assert.match(wary.lastFailure() ?? "", /self-signed certificate/u)

      const other = yield* HostRelay.acquire({
        address: address(`https://127.0.0.1:${upstream.port}`),
        owner,
        certificateAuthorities: [cert]
      })
      assert.strictEqual((yield* exchange(other.socketPath, "hello", false)).length, 0)
      assert.match(other.lastFailure() ?? "", /does not match certificate/u)
    })
  )
})
