/** A faulty shard ends alone: its runs fail with a message, their audits are closed, and other runs continue. */
import { assert, describe, it } from "@effect/vitest"
import * as MemoryContainerRuntime from "@cogni/sandbox-core/MemoryContainerRuntime"
import * as UsageObserver from "@cogni/sandbox-core/UsageObserver"
import { Effect, Logger, Redacted } from "effect"
import * as net from "node:net"
import * as AuditLog from "../src/AuditLog.ts"
import * as GatewayLlmProxy from "../src/GatewayLlmProxy.ts"
import * as Gateway from "./GatewaySocket.ts"
import * as ShardFaults from "./ShardFaults.ts"

const hanging = [{ _tag: "Hang" }] as const

/** Opens a call that reaches the upstream and is not answered. */
const openCall = Effect.fnUntraced(function* (
  gateway: Effect.Success<ReturnType<typeof Gateway.make>>,
  run: { readonly socketPath: string },
  body = Gateway.chat({ max_tokens: 500 })
) {
  const before = (yield* gateway.upstream.received).length
  const socket = yield* Effect.acquireRelease(
    Effect.sync(() => net.connect(run.socketPath)),
    (open) => Effect.sync(() => open.destroy())
  )
  socket.on("error", () => undefined)
  socket.write(Gateway.http(body))
  yield* Effect.eventually(
    Effect.filterOrFail(gateway.upstream.received, (received) => received.length > before)
  ).pipe(Effect.timeout("5 minutes"))
})

const models = Gateway.http("", { method: "GET", path: "/v1/models" })

const faults: ReadonlyArray<readonly [what: string, expression: string, says: RegExp]> = [
  ["crashes", "setTimeout(() => { throw new TypeError('planted') })", /failed with TypeError/u],
  ["exits", "process.exit(7)", /ended with code 7/u],
  [
    "exceeds its memory",
    "{ const kept = []; for (;;) kept.push(Array.from({ length: 1000 }, () => ({ kept }))) }",
    /needed more than 64 MiB of memory/u
  ],
  ["hangs", "for (;;);", /sent no heartbeat for 3 s/u]
]

/** Counts the refusals in an audit, including suppressed ones. */
const refusalsTold = (log: string): number =>
  log
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line))
    .filter(({ type }) => type === "request.refused")
    .reduce((sum, { suppressed = 0 }) => sum + 1 + suppressed, 0)

describe("a shard", () => {
  for (const [what, expression, says] of faults) {
    it.live(
      `ends alone if it ${what}: its run fails, its open call is charged, and its audit is closed`,
      () =>
        Effect.gen(function* () {
          const gateway = yield* Gateway.make({
            script: hanging,
            shardsMax: 4,
            // A thread that fills its memory, or a busy machine, may be silent for longer than the one that hangs.
            shardSilentSecondsMax: what === "hangs" ? 3 : 100,
            shardHeapBytesMax: 64 * 1024 * 1024
          })
          assert.strictEqual((yield* gateway.send(models)).status, 200)
          const shards = yield* ShardFaults.acquire
          const lost = yield* Gateway.openRun(gateway.proxy)
          yield* openCall(gateway, lost)
          yield* openCall(gateway, gateway)
          yield* shards.evaluate(expression)

          const failure = yield* Effect.flip(lost.endpoint.failure).pipe(Effect.timeout("5 minutes"))
          assert.strictEqual(failure._tag, "ProxyFailed")
          assert.match(failure.message, says)
          const traffic = yield* lost.endpoint.finish
          assert.deepStrictEqual(
            traffic.calls.map(({ outcome }) => outcome),
            ["run_ended"]
          )
          assert.strictEqual(traffic.usage?.estimatedOutputTokens, 500)
          const log = yield* lost.audit
          const verdict = AuditLog.verify(Buffer.from(log), {
            runId: lost.runId,
            head: traffic.auditHead,
            ended: true
          })
          assert.strictEqual(verdict._tag, "Whole", JSON.stringify(verdict))
          const last = JSON.parse(log.trimEnd().split("\n").at(-1)!)
          assert.strictEqual(last.type, "run.closed")
          assert.match(last.failure, says)
          assert.notInclude(log + failure.message, Gateway.key.slice(-8))

          // The other run's call is still open, and the run continues.
          assert.strictEqual((yield* gateway.send(models)).status, 200)
          assert.strictEqual((yield* gateway.upstream.received)[1]!.cut, false)
          const next = yield* Gateway.openRun(gateway.proxy)
          assert.strictEqual((yield* next.send(models)).status, 200)
          const { calls } = yield* gateway.endpoint.finish
          assert.deepStrictEqual(
            calls.map(({ outcome }) => outcome),
            ["answered", "answered", "run_ended"]
          )
        }),
      400_000
    )
  }

  it.live("keeps the totals and the recorded calls of its run if it is lost", () =>
    Effect.gen(function* () {
      const gateway = yield* Gateway.make({ shardsMax: 4, requestsPerSecondMax: 10_000 })
      const shards = yield* ShardFaults.acquire
      const run = yield* Gateway.openRun(gateway.proxy)
      const refused = Gateway.http("", { method: "GET", path: "/v1/nothing" })
      yield* run.send(models)
      yield* run.send(refused)
      yield* run.send(Gateway.http("no JSON"))
      yield* run.send(Gateway.http(Gateway.chat()))
      yield* run.send(Buffer.from("\0\r\n\r\n"))
      const listed = (yield* run.endpoint.traffic).calls
      assert.deepStrictEqual(
        listed.map(({ outcome }) => outcome),
        ["answered", "refused", "refused", "completed"]
      )
      // There are too many at once to record each. A later entry counts them.
      const many = Buffer.concat(Array.from({ length: 16 }, () => refused))
      yield* Effect.replicateEffect(run.send(many), 4, { concurrency: 4 }).pipe(
        Effect.andThen(run.send(refused)),
        Effect.andThen(run.audit),
        Effect.filterOrFail((log) => log.includes('"suppressed":')),
        Effect.eventually,
        Effect.timeout("5 minutes")
      )
      const before = yield* run.send(refused).pipe(
        Effect.andThen(Effect.all([run.endpoint.traffic, run.audit])),
        Effect.filterOrFail(([traffic, log]) => refusalsTold(log) === traffic.callsTotal - 1),
        Effect.map(([traffic]) => traffic),
        Effect.eventually,
        Effect.timeout("5 minutes")
      )
      yield* shards.evaluate("process.exit(7)")
      yield* Effect.flip(run.endpoint.failure)
      const after = yield* run.endpoint.finish
      const last = JSON.parse((yield* run.audit).trimEnd().split("\n").at(-1)!)
      assert.strictEqual(last.callsTotal, before.callsTotal)
      assert.strictEqual(last.refusedTotal, refusalsTold(yield* run.audit))
      assert.strictEqual(after.callsTotal, before.callsTotal)
      const without = (call: (typeof listed)[number]) => ({ ...call, at: undefined })
      assert.deepStrictEqual(after.calls.slice(0, listed.length).map(without), listed.map(without))
    })
  )

  it.live("ends one of its runs without ending the others", () =>
    Effect.gen(function* () {
      const gateway = yield* Gateway.make({ shardsMax: 1 })
      const shards = yield* ShardFaults.acquire
      const others = yield* Effect.forEach([1, 2, 3], () => Gateway.openRun(gateway.proxy))
      assert.strictEqual(shards.shards.length, 0)
      for (const other of others) assert.strictEqual((yield* other.send(models)).status, 200)
      yield* others[0]!.endpoint.finish
      assert.strictEqual((yield* others[0]!.send(models)).status, undefined)
      assert.strictEqual((yield* others[1]!.send(models)).status, 200)
    })
  )

  it.live("returns the connections of its runs when it ends", () =>
    Effect.gen(function* () {
      const gateway = yield* Gateway.make({
        shardsMax: 4,
        connectionsMax: 16,
        connectionsTotalMax: 16,
        connectionsPerSecondMax: 1_000_000
      })
      const shards = yield* ShardFaults.acquire
      /** Counts the connections that stay open: the run's share, 4 of 16, and all 8 that no run has reserved. */
      const held = Effect.fnUntraced(function* (socketPath: string) {
        const open = new Set<net.Socket>()
        for (let index = 0; index < 12; index++) {
          const socket = yield* Effect.acquireRelease(
            Effect.sync(() => net.connect(socketPath)),
            (made) => Effect.sync(() => made.destroy())
          )
          open.add(socket)
          socket.on("error", () => undefined)
          socket.on("close", () => open.delete(socket))
          socket.write(models)
          yield* Effect.callback<void>((resume) => {
            socket.once("data", () => resume(Effect.void))
            socket.once("close", () => resume(Effect.void))
          })
        }
        return open.size
      })
      const lost = yield* Gateway.openRun(gateway.proxy)
      assert.strictEqual(yield* held(lost.socketPath), 12)
      yield* shards.evaluate("process.exit(7)")
      yield* Effect.flip(lost.endpoint.failure)
      yield* lost.endpoint.finish
      const next = yield* Gateway.openRun(gateway.proxy)
      assert.strictEqual(yield* held(next.socketPath), 12)
    })
  )

  it.live("has no more memory than its option allows", () =>
    Effect.gen(function* () {
      const shards = yield* ShardFaults.acquire
      yield* Gateway.make({ shardHeapBytesMax: 64 * 1024 * 1024 })
      assert.deepStrictEqual(
        shards.shards.map(({ resourceLimits }) => resourceLimits?.maxOldGenerationSizeMb),
        [64]
      )
    })
  )

  it.live("fails each run with a message if it cannot be started", () =>
    Effect.gen(function* () {
      // Any error of the constructor will do, because a test cannot exhaust the threads of the system.
      const gateway = yield* Effect.provide(
        GatewayLlmProxy.make({
          url: "http://127.0.0.1:1",
          key: Redacted.make(Gateway.key),
          certificateAuthorities: [(() => "not plain data") as never]
        }),
        [MemoryContainerRuntime.layer(), UsageObserver.layerNone]
      )
      for (const _ of [1, 2]) {
        const error = yield* Effect.flip(Gateway.begin(gateway))
        assert.strictEqual(error._tag, "ProxyFailed")
        assert.match(error.message, /a thread for the run cannot be started: .*cloned/u)
      }
    })
  )

  it.live("tells the agent and the operator of a fault of the host, not of a fault of the request", () =>
    Effect.gen(function* () {
      const logged: Array<string> = []
      const logger = Logger.make(({ message }) => void logged.push(String(message)))
      const shards = yield* ShardFaults.acquire
      const gateway = yield* Gateway.make().pipe(Effect.provide(Logger.layer([logger])))
      const large = Gateway.http(Gateway.chat({ messages: [{ role: "user", content: "x".repeat(300_000) }] }))
      assert.strictEqual((yield* gateway.send(Gateway.http(Gateway.chat()))).status, 200)
      yield* shards.evaluate(
        `process.getBuiltinModule("node:worker_threads").Worker = class { constructor() { throw new Error("no thread") } }
         process.getBuiltinModule("node:module").syncBuiltinESMExports()`
      )
      // Answered after the expression, because both go to the same thread in this order.
      assert.strictEqual((yield* gateway.send(Gateway.http(Gateway.chat()))).status, 200)
      for (const _ of [1, 2]) {
        const { body, headers, status } = yield* gateway.send(large)
        assert.strictEqual(status, 503)
        assert.match(body, /"code":"proxy_fault"/u)
        assert.strictEqual(headers.get("x-should-retry"), "false")
        assert.notMatch(body, /no thread/u)
      }
      assert.strictEqual((yield* gateway.send(Gateway.http(Gateway.chat()))).status, 200)
      yield* gateway.endpoint.finish
      assert.strictEqual(logged.length, 1, logged.join("\n"))
      assert.match(logged[0]!, /refused a request of run-.*cannot be started.*no thread.*ulimit/su)
    })
  )

  it.live("has no environment variables and no arguments of the host process", () =>
    Effect.gen(function* () {
      const shards = yield* ShardFaults.acquire
      const gateway = yield* Gateway.make()
      assert.strictEqual((yield* gateway.send(models)).status, 200)
      yield* shards.evaluate(
        "if (Object.keys(process.env).length > 0 || process.argv.length > 2) process.exit(9)"
      )
      assert.strictEqual((yield* gateway.send(Gateway.http(Gateway.chat()))).status, 200)
      yield* gateway.endpoint.finish
    })
  )
})
