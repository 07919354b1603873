/** Requests that Node's HTTP server answers or reads itself. The bounds of the run apply to them too. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as net from "node:net"
import { Worker } from "node:worker_threads"
import * as Pace from "../../../test/harness/Pace.ts"
import * as Gateway from "./GatewaySocket.ts"

const statusesOf = (text: string) =>
  [...text.matchAll(/HTTP\/1\.1 (\d{3})/gu)].map(([, status]) => Number(status))

/** Writes a head and then an endless body, as long as the other side reads. Counts the accepted pieces. */
const pour = (socketPath: string, head: string, connections: number) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const taken = new Int32Array(new SharedArrayBuffer(4))
      const worker = new Worker(
        `const { socketPath, head, connections, taken } = require("node:worker_threads").workerData
         const net = require("node:net")
         const piece = Buffer.alloc(64 * 1024, " ")
         for (let index = 0; index < connections; index++) {
           const socket = net.connect(socketPath)
           const write = () => socket.write(piece, (error) => {
             if (error) return
             Atomics.add(taken, 0, 1)
             write()
           })
           socket.on("connect", () => { socket.write(head); write() })
           socket.on("data", () => {}).on("error", () => {})
         }`,
        { eval: true, workerData: { socketPath, head, connections, taken } }
      )
      return { worker, taken: () => Atomics.load(taken, 0) }
    }),
    ({ worker }) => Effect.promise(() => worker.terminate())
  )

describe("a request that Node's server answers itself", () => {
  it.live("counts against the run's rate and is recorded if its Expect header is unknown", () =>
    Effect.gen(function* () {
      const gateway = yield* Gateway.make({ requestsPerSecondMax: 5 })
      const one = Gateway.http("", { method: "GET", path: "/health", headers: ["Expect: wonders"] })
      const { text } = yield* gateway.send(Buffer.concat(Array.from({ length: 40 }, () => one)))
      const statuses = statusesOf(text)
      assert.strictEqual(statuses[0], 417)
      assert.isAtMost(statuses.filter((status) => status === 417).length, 6)
      yield* gateway.endpoint.finish
      assert.include(yield* gateway.audit, '"status":417')
    })
  )

  it.live("counts against the run's rate and is recorded if it has no Host header", () =>
    Effect.gen(function* () {
      const gateway = yield* Gateway.make({ requestsPerSecondMax: 5, connectionsPerSecondMax: 1000 })
      const one = Buffer.from("GET /health HTTP/1.1\r\n\r\n")
      const answers = yield* Effect.forEach(Array.from({ length: 20 }), () => gateway.send(one), {
        concurrency: "unbounded"
      })
      assert.isTrue(answers.some(({ status }) => status === 400))
      assert.isAtMost(answers.filter(({ status }) => status === 400).length, 15)
      yield* gateway.endpoint.finish
      assert.include(yield* gateway.audit, '"status":400')
    })
  )
})

describe("the body of a refused request", () => {
  it.live("is charged to the run's processor time, and is not read without limit", () =>
    Effect.gen(function* () {
      const gateway = yield* Gateway.make({ processorShareMax: 0.01 })
      const head = [
        "POST /not/a/model HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        "Content-Length: 999999999999",
        "",
        ""
      ].join("\r\n")
      const { taken } = yield* pour(gateway.socketPath, head, 4)
      let before = -1
      yield* Effect.sync(taken).pipe(
        Effect.delay("500 millis"),
        Effect.filterOrFail((now) => {
          const stands = now > 0 && now === before
          before = now
          return stands
        }),
        Effect.eventually,
        Effect.timeout(Pace.hangMillis / 2)
      )
    })
  )
})

describe("a body that grows when it is rebuilt", () => {
  it.live("counts against the run's share of memory with its rebuilt size", () =>
    Effect.gen(function* () {
      const gateway = yield* Gateway.make({
        script: [{ _tag: "Hang" }],
        requestBytesMax: 1_000_000,
        heldBytesMax: 2_000_000
      })
      const text = JSON.stringify(
        Gateway.chat({ tools: [{ type: "function", function: { name: "x", parameters: { x: [0] } } }] })
      )
      const growing = text.replace("[0]", `[0${",1e20".repeat(30_000)}]`)
      let refused = 0
      for (let index = 0; index < 6; index++) {
        const socket = yield* Effect.acquireRelease(
          Effect.sync(() => net.connect(gateway.socketPath)),
          (open) => Effect.sync(() => open.destroy())
        )
        socket.on("error", () => undefined)
        socket.once("data", (data) => {
          if (data.toString("latin1").startsWith("HTTP/1.1 503")) refused += 1
        })
        socket.write(Gateway.http(growing))
      }
      const received = yield* gateway.upstream.received.pipe(
        Effect.filterOrFail(({ length }) => length + refused === 6),
        Effect.eventually,
        Effect.timeout("5 minutes")
      )
      const bytes = received.reduce((sum, { bodyBytes }) => sum + bodyBytes, 0)
      assert.isAbove(received.length, 0)
      assert.isAtMost(bytes, 2_000_000)
    })
  )
})
