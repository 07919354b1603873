/** A gateway in front of an upstream whose answers are written by the test. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import * as http from "node:http"
import type { AddressInfo } from "node:net"
import * as net from "node:net"
import * as Pace from "../../../test/harness/Pace.ts"
import * as AuditLog from "../src/AuditLog.ts"
import * as Gateway from "./GatewaySocket.ts"

/** Waits for a fact, however slow the machine is. */
export const until = <A, E>(fact: Effect.Effect<A, E>, holds: (value: A) => boolean) =>
  Effect.eventually(Effect.filterOrFail(fact, holds)).pipe(Effect.timeout(Pace.hangMillis / 2), Effect.orDie)

/** A request as the upstream has it. */
export interface Asked {
  readonly callId: string
  readonly body: Record<string, any>
  readonly response: http.ServerResponse
  /** The gateway has cut it off. */
  readonly isCut: () => boolean
}

interface Upstream {
  readonly url: string
  readonly asked: ReadonlyArray<Asked>
  readonly close: () => void
}

const upstream = Effect.acquireRelease(
  Effect.callback<Upstream>((resume) => {
    const asked: Array<Asked> = []
    const server = http.createServer((request, response) => {
      const pieces: Array<Buffer> = []
      response.on("error", () => undefined)
      request.on("data", (piece: Buffer) => pieces.push(piece))
      request.on("end", () =>
        asked.push({
          callId: String(request.headers["x-litellm-call-id"]),
          body: JSON.parse(Buffer.concat(pieces).toString("utf8")),
          response,
          isCut: () => response.destroyed && !response.writableFinished
        })
      )
    })
    server.listen(0, "127.0.0.1", () => {
      const close = () => {
        server.close()
        server.closeAllConnections()
      }
      const { port } = server.address() as AddressInfo
      resume(Effect.succeed({ url: `http://127.0.0.1:${port}`, asked, close }))
    })
  }),
  ({ close }) => Effect.sync(close)
)

export const make = Effect.fnUntraced(function* (options: Gateway.Options = {}) {
  const { asked, url } = yield* upstream
  const gateway = yield* Gateway.make({ ...options, url })
  const calls = Effect.map(gateway.endpoint.traffic, (traffic) => traffic.calls)
  const entries = Effect.map(gateway.audit, (log) =>
    log
      .trimEnd()
      .split("\n")
      .map((line): Record<string, any> => JSON.parse(line))
  )
  /** Opens a connection and sends a request on it. */
  const connect = (request: Buffer) => {
    const socket = net.connect(gateway.socketPath)
    const told = { text: "", isClosed: false }
    socket.on("error", () => undefined)
    socket.on("data", (data) => (told.text += data.toString("latin1")))
    socket.on("close", () => (told.isClosed = true))
    socket.write(request)
    return { socket, told }
  }
  /** Opens a call, and waits until the upstream has it. */
  const opened = Effect.fnUntraced(function* (request: Buffer) {
    const before = asked.length
    const connection = connect(request)
    yield* until(
      Effect.sync(() => asked.length),
      (length) => length > before
    )
    return { ...asked[before]!, ...connection }
  })
  return {
    ...gateway,
    asked,
    calls,
    connect,
    opened,
    /** Opens a call whose agent then leaves, and waits until the gateway has noticed. */
    abandoned: Effect.fnUntraced(function* (request: Buffer) {
      const call = yield* opened(request)
      call.socket.destroy()
      yield* until(
        Effect.sync(() => call.told.isClosed),
        (isClosed) => isClosed
      )
      // The gateway answers this after it has noticed that the other connection is closed.
      yield* gateway.send(Gateway.http("", { method: "GET", path: "/health" }))
      return call
    }),
    entries,
    /** Waits until this many calls have ended. */
    ended: (count: number) => until(calls, ({ length }) => length === count),
    /** The traffic of the finished run, and the ends of its calls in its audit, which is whole. */
    finished: Effect.gen(function* () {
      const traffic = yield* gateway.endpoint.finish
      const verdict = AuditLog.verify(Buffer.from(yield* gateway.audit), {
        runId: gateway.runId,
        head: traffic.auditHead,
        ended: true
      })
      assert.strictEqual(verdict._tag, "Whole", JSON.stringify(verdict))
      return { traffic, ends: (yield* entries).filter(({ type }) => type === "call.ended") }
    })
  }
})
