/** The bounds of one run, without sockets and without a clock. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { EventEmitter } from "node:events"
import * as Allowance from "../src/internal/policy/Allowance.ts"
import * as DescriptorLimit from "../src/internal/shards/DescriptorLimit.ts"
import * as ProcessorMeter from "../src/internal/gateway/ProcessorMeter.ts"
import * as RunConnections from "../src/internal/gateway/RunConnections.ts"
import * as RunGate from "../src/internal/gateway/RunGate.ts"
import * as RunShare from "../src/internal/gateway/RunShare.ts"
import * as ShardCounters from "../src/internal/shards/ShardCounters.ts"
import * as ToolPort from "../src/internal/gateway/ToolPort.ts"

describe("Allowance", () => {
  it("gives what is left, refills over time, and never exceeds its burst", () => {
    const allowance = Allowance.make(10, 5)
    assert.deepStrictEqual(
      [1, 2, 3, 4, 5, 6].map(() => allowance.take(0)),
      [true, true, true, true, true, false]
    )
    assert.isTrue(allowance.take(100))
    assert.isFalse(allowance.take(100))
    assert.isTrue(allowance.take(10_000, 5))
    assert.isFalse(allowance.take(10_000))
  })

  it("returns how long a debt lasts", () => {
    const allowance = Allowance.make(100, 100)
    allowance.charge(0, 150)
    assert.strictEqual(allowance.waitMillis(0), 500)
    assert.strictEqual(allowance.waitMillis(250), 250)
    assert.strictEqual(allowance.waitMillis(500), 0)
  })

  it("does not refill when the clock goes back", () => {
    const allowance = Allowance.make(1, 1)
    assert.isTrue(allowance.take(5000))
    assert.isFalse(allowance.take(0))
    assert.isFalse(allowance.take(5000))
  })
})

describe("RunGate", () => {
  const gate = () =>
    RunGate.make({
      requestsPerSecondMax: 10,
      connectionsPerSecondMax: 5,
      connectionsMax: 8,
      processorShareMax: 0.25
    })

  it("serves requests within the rate, slows some over it, and hangs up on the rest", () => {
    const run = gate()
    const verdicts = Array.from({ length: 100 }, () => run.arrived(0))
    assert.strictEqual(verdicts.filter((verdict) => verdict === "serve").length, 10)
    assert.strictEqual(
      verdicts.filter((verdict) => verdict === "slow").length,
      RunGate.slowAnswersPerSecondMax
    )
    assert.strictEqual(verdicts.at(-1), "hang_up")
    assert.strictEqual(run.arrived(1000), "serve")
  })

  it("bounds new connections per second", () => {
    const run = gate()
    assert.strictEqual(Array.from({ length: 20 }, () => run.connected(0)).filter(Boolean).length, 8)
    assert.strictEqual(Array.from({ length: 20 }, () => run.connected(1000)).filter(Boolean).length, 5)
  })

  it("pauses a run that has used up its processor time until the time is available again", () => {
    const run = gate()
    run.worked(0, RunGate.processorBurstMillis)
    assert.strictEqual(run.pauseMillis(0), 0)
    run.worked(0, 100)
    assert.strictEqual(run.pauseMillis(0), 400)
    assert.strictEqual(run.pauseMillis(400), 0)
    run.worked(400, 60_000)
    assert.strictEqual(run.pauseMillis(400), RunGate.pauseMillisMax)
  })
})

describe("ProcessorMeter", () => {
  it("does not charge a run for exempt work of its thread", async () => {
    const meter = ProcessorMeter.make()
    const { promise, resolve } = Promise.withResolvers<number>()
    meter.note({ worked: resolve, hold: () => undefined })
    const until = ProcessorMeter.threadMillis() + 300
    meter.exempt(() => {
      while (ProcessorMeter.threadMillis() < until);
    })
    assert.isBelow(await promise, 150)
  })
})

describe("RunConnections", () => {
  const socketOf = () =>
    Object.assign(new EventEmitter(), { destroyed: false, pause: () => undefined, resume: () => undefined })

  it("serves requests in turn, and drops the rest when their connection closes", () => {
    const connections = RunConnections.make()
    const socket = socketOf()
    connections.add(socket as never)
    const responses = [1, 2, 3, 4].map(() => new EventEmitter())
    const served: Array<number> = []
    responses.forEach((response, index) =>
      connections.inTurn({ socket } as never, response as never, () => served.push(index))
    )
    assert.deepStrictEqual(served, [0])
    responses[0]!.emit("close")
    assert.deepStrictEqual(served, [0, 1])
    socket.destroyed = true
    socket.emit("close")
    responses[1]!.emit("close")
    responses[2]!.emit("close")
    assert.deepStrictEqual(served, [0, 1])
  })
})

describe("RunShare", () => {
  const MiB = 1024 * 1024
  const limits = { totalMax: 512 * MiB, wholeMax: 32 * MiB }
  const made = (counters: ShardCounters.ShardCounters, slot: number, runs: () => number) =>
    RunShare.make({ limits, runs, counters, slot, field: "heldKiB", unit: 1024 })

  it("leaves every other run room for a whole body, whatever one run takes", () => {
    const counters = ShardCounters.make(4)
    const [greedy, other, third] = [0, 1, 2].map((slot) => made(counters, slot, () => 3))
    let taken = 0
    while (greedy!.take(MiB)) taken += 1
    assert.strictEqual(taken, Math.floor(512 / 3))
    assert.isTrue(other!.take(32 * MiB))
    assert.isTrue(third!.take(32 * MiB))
  })

  it("keeps all runs together within the total", () => {
    const counters = ShardCounters.make(8)
    const runs = Array.from({ length: 200 }, (_, index) => made(counters, index % 8, () => 200))
    let total = 0
    for (const run of runs) while (run.take(64 * 1024)) total += 64 * 1024
    assert.isAtMost(total, limits.totalMax)
    assert.isAtLeast(total, 0.9 * limits.totalMax)
  })

  it("limits one run to its own bound, however much is left", () => {
    const counters = ShardCounters.make(1)
    const run = RunShare.make({
      limits: { totalMax: 1024, wholeMax: 5, runMax: 5 },
      runs: () => 1,
      counters,
      slot: 0,
      field: "connections",
      unit: 1
    })
    let taken = 0
    while (run.take(1)) taken += 1
    assert.strictEqual(taken, 5)
  })

  it("returns everything when its run ends, and ignores later calls", () => {
    const counters = ShardCounters.make(2)
    const [ending, other] = [0, 0].map((slot) => made(counters, slot, () => 2))
    assert.isTrue(ending!.take(200 * MiB))
    assert.isTrue(other!.take(100 * MiB))
    const others = 68 * 1024
    ending!.release()
    assert.strictEqual(counters.total("heldKiB"), others)
    assert.isFalse(ending!.take(1))
    ending!.give(200 * MiB)
    assert.strictEqual(counters.total("heldKiB"), others)
  })

  it("returns what a run held, and what the runs of an ended shard held", () => {
    const counters = ShardCounters.make(2)
    const run = made(counters, 0, () => 1)
    assert.isTrue(run.take(300 * MiB))
    run.give(300 * MiB)
    assert.strictEqual(counters.total("heldKiB"), 0)
    assert.isTrue(run.take(300 * MiB))
    assert.isAbove(counters.total("heldKiB"), 0)
    counters.clear(0)
    assert.strictEqual(counters.total("heldKiB"), 0)
  })
})

describe("DescriptorLimit", () => {
  it("reads the soft limit, and reserves a part for the host process", () => {
    const soft = (value: string) =>
      `Limit                     Soft Limit           Hard Limit           Units     \nMax open files            ${value}                 4096                 files     \n`
    assert.strictEqual(DescriptorLimit.parse(soft("1024")), 1024)
    assert.strictEqual(DescriptorLimit.parse(soft("unlimited")), Number.MAX_SAFE_INTEGER)
    assert.strictEqual(DescriptorLimit.parse("nothing"), 1024)
    assert.strictEqual(DescriptorLimit.connectionsOf(1024), 256)
    assert.strictEqual(DescriptorLimit.connectionsOf(64), 16)
    assert.strictEqual(DescriptorLimit.connectionsOf(Number.MAX_SAFE_INTEGER), 65_536)
    assert.isAtLeast(DescriptorLimit.connectionsMax(), 16)
  })
})

describe("ToolPort", () => {
  const request = (body: string) => ({
    requestId: "r",
    method: "POST",
    path: "/tool/exec",
    query: "",
    headers: { "content-type": "application/json", "x-other": "1" },
    body: Buffer.from(body)
  })
  const answer = { status: 200, headers: {}, body: "{}" }

  const present: ToolPort.ToolCaller = { isGone: () => false, whenGone: () => undefined }

  const asked = (port: ToolPort.ToolPort, body: string) =>
    Effect.forkScoped(port.handle(request(body), present), { startImmediately: true })

  it.live("limits concurrent and waiting calls, and refuses the rest at once", () =>
    Effect.gen(function* () {
      const sent: Array<number> = []
      const port = ToolPort.make({ send: (serial) => sent.push(serial), gone: () => undefined })
      const answers = yield* Effect.replicateEffect(
        asked(port, "{}"),
        ToolPort.concurrentMax + ToolPort.waitingMax + 5
      )
      const refused = yield* Fiber.joinAll(answers.slice(-5))
      assert.deepStrictEqual(
        refused.map(({ status }) => status),
        [503, 503, 503, 503, 503]
      )
      assert.strictEqual(sent.length, ToolPort.concurrentMax)
      port.answered(sent[0]!, answer)
      assert.deepStrictEqual(yield* Fiber.join(answers[0]!), answer)
      yield* Effect.eventually(reached(sent, ToolPort.concurrentMax + 1))
      // An interrupted call leaves its turn to the next one.
      yield* Fiber.interrupt(answers[1]!)
      yield* Effect.eventually(reached(sent, ToolPort.concurrentMax + 2))
    })
  )

  const reached = (sent: ReadonlyArray<number>, count: number) =>
    Effect.filterOrFail(
      Effect.delay(
        Effect.sync(() => sent.length),
        1
      ),
      (length) => length === count
    )

  it.live("does not send a call whose client has gone, and tells when one goes later", () =>
    Effect.gen(function* () {
      const told: Array<string> = []
      const port = ToolPort.make({
        send: (serial) => told.push(`send ${serial}`),
        gone: (serial) => told.push(`gone ${serial}`)
      })
      let leave = () => undefined as void
      const caller = { isGone: () => false, whenGone: (then: () => void) => (leave = then) }
      yield* Effect.forkScoped(port.handle(request("{}"), caller), { startImmediately: true })
      leave()
      assert.deepStrictEqual(told, ["send 1", "gone 1"])
      assert.strictEqual((yield* port.handle(request("{}"), { ...caller, isGone: () => true })).status, 503)
      assert.strictEqual(told.length, 2)
    })
  )

  it.live("limits the bytes that it sends at once, and refuses calls that are too large or too deep", () =>
    Effect.gen(function* () {
      let bytes = 0
      const port = ToolPort.make({
        send: (_serial, { body, headers }) => {
          bytes += body.byteLength
          assert.deepStrictEqual(Object.keys(headers), ["content-type"])
        },
        gone: () => undefined
      })
      yield* Effect.replicateEffect(asked(port, `"${"x".repeat(200 * 1024)}"`), 10)
      assert.isAbove(bytes, 0)
      assert.isAtMost(bytes, 2 * ToolPort.bytesMax)
      assert.strictEqual(
        (yield* port.handle(request(`"${"x".repeat(ToolPort.bytesMax)}"`), present)).status,
        413
      )
      assert.strictEqual((yield* port.handle(request("[".repeat(100)), present)).status, 400)
    })
  )
})
