/**
 * What one run can do to the others through the gateway: floods of every kind, beside a run that wants its answers.
 *
 * Compared are counts and order, and how long the main thread stood still, against the flood's own length.
 */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as net from "node:net"
import { monitorEventLoopDelay } from "node:perf_hooks"
import { Worker } from "node:worker_threads"
import * as Gateway from "./GatewaySocket.ts"

const health = Gateway.http("", { method: "GET", path: "/health" })
const models = Gateway.http("", { method: "GET", path: "/v1/models" })
const digits = "99999999999999999"
const vast = Gateway.chat({
  tools: [
    {
      type: "function",
      function: { name: "x", parameters: { type: "object", x: `${digits}${",1".repeat(90_000)}` } }
    }
  ]
})
const heavy = Gateway.http(JSON.stringify(vast).replace(/"(9{17}[^"]*)"/u, "[$1]"))

/** The same bytes over and over, on so many connections, from a thread of its own, until the scope ends. */
const flood = (socketPath: string, bytes: Buffer, connections: number) =>
  Effect.acquireRelease(
    Effect.callback<Worker>((resume) => {
      const worker = new Worker(
        `const { parentPort, workerData: { socketPath, bytes, connections } } = require("node:worker_threads")
         const net = require("node:net")
         let sent = 0
         const open = () => {
           const socket = net.connect(socketPath)
           const write = () => { while (socket.write(bytes)) if (++sent % 64 === 0) return setImmediate(write) }
           socket.on("connect", write).on("drain", write).on("data", () => {}).on("error", () => {})
           socket.on("close", () => setTimeout(open, 1))
         }
         for (let index = 0; index < connections; index++) open()
         parentPort.postMessage("flooding")`,
        { eval: true, workerData: { socketPath, bytes, connections } }
      )
      worker.once("message", () => resume(Effect.succeed(worker)))
    }),
    (worker) => Effect.promise(() => worker.terminate())
  )

/** So many requests of the victim, one after the other, and the longest time in which the main thread did nothing. */
const victimised = Effect.fnUntraced(function* (
  victim: { readonly send: (bytes: Buffer) => Effect.Effect<Gateway.Answer> },
  times = 20
) {
  const delay = monitorEventLoopDelay({ resolution: 5 })
  delay.enable()
  const answers = yield* Effect.forEach(Array.from({ length: times }), () =>
    victim.send(Gateway.http(Gateway.chat()))
  )
  delay.disable()
  return { statuses: answers.map(({ status }) => status), stoodStillMillis: delay.max / 1e6 }
})

const all200 = Array.from({ length: 20 }, () => 200)

describe("a run that floods its socket", () => {
  const floods: ReadonlyArray<readonly [what: string, bytes: Buffer, connections: number]> = [
    ["health checks", health, 32],
    ["requests over its rate", models, 32],
    ["requests sent ahead on one connection", Buffer.concat(Array.from({ length: 2000 }, () => models)), 4],
    ["what is not HTTP", Buffer.from("\0\r\n\r\n"), 64],
    ["bodies that are costly to read", heavy, 16]
  ]
  for (const [what, bytes, connections] of floods) {
    it.live(`with ${what} keeps no other run waiting, and not the main thread`, () =>
      Effect.gen(function* () {
        const gateway = yield* Gateway.make()
        const victim = yield* Gateway.openRun(gateway.proxy)
        assert.strictEqual((yield* victim.send(Gateway.http(Gateway.chat()))).status, 200)
        const quiet = yield* victimised(victim)
        yield* flood(gateway.socketPath, bytes, connections)
        const { statuses, stoodStillMillis } = yield* victimised(victim)
        assert.deepStrictEqual(statuses, all200)
        assert.isBelow(stoodStillMillis, Math.max(1500, 20 * quiet.stoodStillMillis))
        // What it did is on record in a bounded number of lines.
        const { callsTotal } = yield* gateway.endpoint.finish
        assert.isBelow((yield* gateway.audit).split("\n").length, 60 * 20 + 3 * callsTotal)
      })
    )
  }

  it.live("in a thread that it shares with others keeps them not waiting either", () =>
    Effect.gen(function* () {
      const gateway = yield* Gateway.make({ shardsMax: 1 })
      const victim = yield* Gateway.openRun(gateway.proxy)
      assert.strictEqual((yield* victim.send(Gateway.http(Gateway.chat()))).status, 200)
      yield* flood(gateway.socketPath, Buffer.concat(Array.from({ length: 200 }, () => health)), 32)
      yield* flood(gateway.socketPath, heavy, 8)
      const { statuses } = yield* victimised(victim)
      assert.deepStrictEqual(statuses, all200)
    })
  )

  it.live("with bodies that it does not go on sending is dropped, and takes no other run's room", () =>
    Effect.gen(function* () {
      const gateway = yield* Gateway.make({
        heldBytesMax: 8_000_000,
        requestBytesMax: 1_000_000,
        bodyProgressSecondsMax: 1
      })
      const victim = yield* Gateway.openRun(gateway.proxy)
      const body = Buffer.alloc(990_000, " ")
      const closed: Array<string> = []
      for (let index = 0; index < 16; index++) {
        const socket = net.connect(gateway.socketPath)
        let text = ""
        socket.on("data", (data) => (text += data.toString("latin1")))
        socket.on("error", () => undefined)
        socket.on("close", () => closed.push(text))
        socket.write(Gateway.http("x".repeat(999_000)).subarray(0, 200))
        socket.write(body)
      }
      const large = Gateway.http(Gateway.chat({ messages: [{ role: "user", content: "x".repeat(900_000) }] }))
      const statuses: Array<number | undefined> = []
      for (let index = 0; index < 5; index++) statuses.push((yield* victim.send(large)).status)
      assert.deepStrictEqual(statuses, [200, 200, 200, 200, 200])
      yield* Effect.eventually(
        Effect.filterOrFail(
          Effect.sync(() => closed.length),
          (length) => length === 16
        )
      ).pipe(Effect.timeout("30 seconds"))
      // Those over the run's share are told so; the others are told that they took too long.
      assert.isAbove(closed.filter((text) => text.startsWith("HTTP/1.1 408")).length, 0)
      assert.isAbove(closed.filter((text) => text.startsWith("HTTP/1.1 503")).length, 0)
    })
  )

  it.live("with connections holds no more than its own bound, however many are left", () =>
    Effect.gen(function* () {
      const gateway = yield* Gateway.make({
        connectionsMax: 5,
        connectionsTotalMax: 1000,
        connectionsPerSecondMax: 1_000_000
      })
      const open = new Set<net.Socket>()
      let closed = 0
      for (let index = 0; index < 60; index++) {
        const socket = net.connect(gateway.socketPath)
        open.add(socket)
        socket.on("error", () => undefined)
        socket.on("close", () => {
          open.delete(socket)
          closed += 1
        })
      }
      yield* Effect.eventually(
        Effect.filterOrFail(
          Effect.sync(() => closed),
          (count) => count === 55
        )
      ).pipe(Effect.timeout("10 seconds"))
      assert.strictEqual((yield* gateway.send(health)).status, undefined)
      for (const socket of open) socket.destroy()
    })
  )

  it.live("with connections takes no other run's, and its socket stops listening for a while", () =>
    Effect.gen(function* () {
      const gateway = yield* Gateway.make({
        connectionsMax: 40,
        connectionsTotalMax: 64,
        connectionsPerSecondMax: 1000
      })
      const victim = yield* Gateway.openRun(gateway.proxy)
      const open = new Set<net.Socket>()
      for (let index = 0; index < 200; index++) {
        const socket = net.connect(gateway.socketPath)
        open.add(socket)
        socket.on("error", () => undefined)
        socket.on("close", () => open.delete(socket))
      }
      yield* Effect.eventually(
        Effect.filterOrFail(
          Effect.sync(() => open.size),
          (size) => size <= 40
        )
      ).pipe(Effect.timeout("10 seconds"))
      const answers = yield* Effect.forEach(
        Array.from({ length: 12 }),
        () => victim.send(Gateway.http(Gateway.chat())),
        { concurrency: "unbounded" }
      )
      assert.deepStrictEqual(
        answers.map(({ status }) => status),
        answers.map(() => 200)
      )
      for (const socket of open) socket.destroy()
    })
  )
})
