/**
 * Effects of one run's floods on other runs of the gateway: floods of every kind, beside a run that expects answers.
 *
 * Checks statuses and counts, and compares how long the main thread was blocked with a quiet gateway.
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

/** Sends the same bytes repeatedly on `connections` connections from a separate thread, until the scope ends. */
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

/** Sends requests of the victim in sequence. Returns their statuses and the longest delay of the main thread. */
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
    ["requests above its rate", models, 32],
    ["pipelined requests", Buffer.concat(Array.from({ length: 2000 }, () => models)), 4],
    ["bytes that are not HTTP", Buffer.from("\0\r\n\r\n"), 64],
    ["bodies that are slow to parse", heavy, 16]
  ]
  for (const [what, bytes, connections] of floods) {
    it.live(`does not block other runs or the main thread with ${what}`, () =>
      Effect.gen(function* () {
        const gateway = yield* Gateway.make()
        const victim = yield* Gateway.openRun(gateway.proxy)
        assert.strictEqual((yield* victim.send(Gateway.http(Gateway.chat()))).status, 200)
        const quiet = yield* victimised(victim)
        yield* flood(gateway.socketPath, bytes, connections)
        const { statuses, stoodStillMillis } = yield* victimised(victim)
        assert.deepStrictEqual(statuses, all200)
        assert.isBelow(stoodStillMillis, Math.max(1500, 20 * quiet.stoodStillMillis))
        // The audit of the flood has a bounded number of lines.
        const { callsTotal } = yield* gateway.endpoint.finish
        assert.isBelow((yield* gateway.audit).split("\n").length, 60 * 20 + 3 * callsTotal)
      })
    )
  }

  it.live("does not block other runs of a shared thread", () =>
    Effect.gen(function* () {
      const gateway = yield* Gateway.make({ shardsMax: 1 })
      const victim = yield* Gateway.openRun(gateway.proxy)
      assert.strictEqual((yield* victim.send(Gateway.http(Gateway.chat()))).status, 200)
      yield* flood(gateway.socketPath, Buffer.concat(Array.from({ length: 200 }, () => health)), 32)
      yield* flood(gateway.socketPath, heavy, 8)
      // Each call takes a second: the victim shares its thread with what keeps all processors busy.
      const { statuses } = yield* victimised(victim, 8)
      assert.deepStrictEqual(statuses, all200.slice(0, 8))
    })
  )

  it.live("is disconnected if its bodies stall, and takes no memory of other runs", () =>
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
      ).pipe(Effect.timeout("5 minutes"))
      // Bodies above the run's share are answered with 503, the others with 408 because they took too long.
      assert.isAbove(closed.filter((text) => text.startsWith("HTTP/1.1 408")).length, 0)
      assert.isAbove(closed.filter((text) => text.startsWith("HTTP/1.1 503")).length, 0)
    })
  )

  it.live("holds no more connections than its own bound, however many are left", () =>
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
      ).pipe(Effect.timeout("5 minutes"))
      assert.strictEqual((yield* gateway.send(health)).status, undefined)
      for (const socket of open) socket.destroy()
    })
  )

  it.live("takes no connections of other runs", () =>
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
      ).pipe(Effect.timeout("5 minutes"))
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
