/** The pipe between the container of sockets and the gateway: one run cannot end the connections of another. */
import * as SocketTunnel from "../src/internal/carrier/SocketTunnel.ts"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { mkdtempSync, rmSync } from "node:fs"
import * as http2 from "node:http2"
import * as net from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { duplexPair } from "node:stream"

/** Echo server on its own socket. */
const echo = Effect.acquireRelease(
  Effect.callback<{ readonly path: string; readonly close: () => void }>((resume) => {
    const directory = mkdtempSync(join(tmpdir(), "cogni-tunnel-"))
    const server = net.createServer((socket) => socket.on("error", () => undefined).pipe(socket))
    const path = join(directory, "echo.sock")
    const close = () => {
      server.close()
      rmSync(directory, { recursive: true, force: true })
    }
    server.listen(path, () => resume(Effect.succeed({ path, close })))
  }),
  ({ close }) => Effect.sync(close)
)

/** Creates a tunnel and simulates the container, which answers every message of the control stream. */
const world = Effect.fnUntraced(function* (options: SocketTunnel.SocketTunnelOptions) {
  const { path } = yield* echo
  const [near, far] = duplexPair()
  const tunnel = yield* Effect.acquireRelease(
    Effect.sync(() => SocketTunnel.make(near, options)),
    (made) => Effect.sync(() => made.destroy())
  )
  const session = http2.connect("http://host", { createConnection: () => far })
  session.on("error", () => undefined)
  const control = session.request({ ":method": "POST", ":path": "/control" }, { endStream: false })
  control
    .on("error", () => undefined)
    .on("data", (line: Buffer) => {
      for (const asked of line.toString("utf8").trim().split("\n"))
        control.write(`${JSON.stringify({ id: (JSON.parse(asked) as { readonly id: number }).id })}\n`)
    })
  const connect = (slot: number) => {
    const stream = session.request({ ":method": "POST", ":path": `/${slot}` }, { endStream: false })
    return stream.on("error", () => undefined)
  }
  yield* Effect.promise(() => tunnel.ready)
  yield* Effect.promise(() => Promise.all([tunnel.open(0, path), tunnel.open(1, path)]))
  return { connect, session }
})

describe("SocketTunnel", () => {
  it.effect("keeps the connections of one slot while another slot aborts thousands", () =>
    Effect.gen(function* () {
      const { connect, session } = yield* world({ connectionsPerSecondMax: 1_000_000 })
      const stays = connect(1)
      const heard = (word: string) =>
        Effect.callback<string>((resume) => {
          stays.once("data", (said: Buffer) => resume(Effect.succeed(said.toString("utf8"))))
          session.once("close", () => resume(Effect.succeed("the pipe has ended")))
          stays.write(word)
        })
      assert.strictEqual(yield* heard("before"), "before")
      const breakOff = Effect.callback<void>((resume) => {
        const stream = connect(0)
        stream.once("response", () => stream.close(http2.constants.NGHTTP2_CANCEL))
        stream.once("close", () => resume(Effect.void))
      })
      for (let count = 0; count < 1500 && !session.closed; count++) yield* breakOff
      assert.strictEqual(yield* heard("after"), "after")
    }).pipe(Effect.scoped)
  )

  it.effect("refuses connections above a slot's rate, and serves other slots", () =>
    Effect.gen(function* () {
      const { connect } = yield* world({ connectionsPerSecondMax: 1 })
      const outcome = (slot: number) =>
        Effect.callback<number>((resume) => {
          const stream = connect(slot)
          stream.once("close", () => resume(Effect.succeed(stream.rstCode)))
          stream.once("data", () => stream.close(http2.constants.NGHTTP2_NO_ERROR))
          stream.write("x")
        })
      const ended = yield* Effect.forEach(Array.from({ length: 140 }), () => outcome(0))
      assert.include(ended, http2.constants.NGHTTP2_REFUSED_STREAM)
      assert.strictEqual(yield* outcome(1), http2.constants.NGHTTP2_NO_ERROR)
    }).pipe(Effect.scoped)
  )
})
