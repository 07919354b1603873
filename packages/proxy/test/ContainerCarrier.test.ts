/** Containers of sockets that do not start, that die, and that are waited for. */
import * as Await from "../../../test/harness/Await.ts"
import type { Container } from "@cogni/sandbox-core/ContainerRuntime"
import * as MemoryContainerRuntime from "@cogni/sandbox-core/MemoryContainerRuntime"
import type { RunId } from "@cogni/sandbox-core/RunId"
import * as ContainerCarrier from "../src/internal/carrier/ContainerCarrier.ts"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, Queue, Scope, Stream } from "effect"
import { TestClock } from "effect/testing"
import * as http2 from "node:http2"
import { duplexPair } from "node:stream"

/** What is in the container: it lets the host's words pass, and answers each on its control stream. */
const inhabited = (
  container: Container,
  breaks: Effect.Effect<void>
): Effect.Effect<Container, never, Scope.Scope> =>
  Effect.gen(function* () {
    const [near, far] = duplexPair()
    const output = yield* Queue.unbounded<{ readonly channel: "stdout"; readonly bytes: Uint8Array }>()
    near.on("data", (bytes: Uint8Array) => Queue.offerUnsafe(output, { channel: "stdout", bytes }))
    const session = http2.connect("http://host", { createConnection: () => far })
    session.on("error", () => undefined)
    const control = session.request({ ":method": "POST", ":path": "/control" }, { endStream: false })
    control
      .on("error", () => undefined)
      .on("data", (line: Buffer) => {
        for (const asked of line.toString("utf8").trim().split("\n"))
          control.write(`${JSON.stringify({ id: (JSON.parse(asked) as { readonly id: number }).id })}\n`)
      })
    yield* Effect.addFinalizer(() => Effect.sync(() => session.destroy()))
    const nonsense = { channel: "stdout", bytes: Buffer.from("this is not HTTP/2".repeat(100)) } as const
    yield* Effect.forkScoped(Effect.andThen(breaks, Queue.offer(output, nonsense)))
    return {
      ...container,
      output: Stream.fromQueue(output),
      send: (bytes) => Effect.sync(() => near.write(bytes))
    } satisfies Container
  })

interface WorldOptions extends Partial<ContainerCarrier.ContainerCarrierOptions> {
  /** The containers speak. */
  readonly answers?: boolean
  /** Of the pretend program in each container; forever, when left out. */
  readonly program?: MemoryContainerRuntime.Program
  readonly images?: ReadonlySet<string>
  /** When the pipe to the first container breaks. */
  readonly breaks?: Effect.Effect<void>
}

/** A carrier in the scope of its own gateway, and what it holds on the engine. */
const world = Effect.fnUntraced(function* (given: WorldOptions) {
  const { answers = false, breaks = Effect.never, images, program, ...options } = given
  const memory = yield* MemoryContainerRuntime.make({ images, program: program ?? (() => Effect.never) })
  const runIds = new Set<RunId>()
  const runtime: typeof memory = {
    ...memory,
    acquire: (spec) => {
      const ending = runIds.size === 1 ? breaks : Effect.never
      return answers
        ? Effect.flatMap(memory.acquire(spec), (container) => inhabited(container, ending))
        : memory.acquire(spec)
    },
    acquireVolume: (spec) => {
      runIds.add(spec.runId)
      return memory.acquireVolume(spec)
    }
  }
  const carrier = yield* ContainerCarrier.make({ image: "gateway", runtime, slotsMax: 2, ...options })
  const held = Effect.suspend(() =>
    Effect.map(Effect.forEach([...runIds], memory.leftovers), (names) => names.flat())
  ).pipe(Effect.orDie)
  return { carrier, held, containersTotal: () => runIds.size }
})

/** The other fibers and the streams of Node get on. */
const turn = Effect.andThen(
  Effect.yieldNow,
  Effect.promise(() => new Promise(setImmediate))
)

/** What is released, is so by a fiber of the gateway. */
const settled = (held: Effect.Effect<ReadonlyArray<string>>) =>
  Effect.repeat(Effect.andThen(turn, held), {
    until: (names) => names.length === 0,
    times: 1000
  })

describe("a container of sockets", () => {
  it.effect("that cannot be made leaves no volume, and does not count", () =>
    Effect.gen(function* () {
      const { carrier, containersTotal, held } = yield* world({ images: new Set(), containersMax: 1 })
      for (let run = 1; run <= 3; run++) {
        const error = yield* Effect.flip(Effect.scoped(carrier.acquire()))
        assert.strictEqual(error._tag, "ImageNotFound")
        assert.deepStrictEqual(yield* settled(held), [])
        assert.strictEqual(containersTotal(), run)
      }
    }).pipe(Effect.scoped)
  )

  it.effect("that ends at once leaves nothing, and does not count", () =>
    Effect.gen(function* () {
      const { carrier, held } = yield* world({ program: () => Effect.succeed(3), containersMax: 1 })
      for (let run = 1; run <= 3; run++) {
        const error = yield* Effect.flip(Effect.scoped(carrier.acquire()))
        assert.strictEqual(error._tag, "ProxyFailed")
        assert.include(error.message, "did not begin")
        assert.deepStrictEqual(yield* settled(held), [])
      }
    }).pipe(Effect.scoped)
  )

  it.effect("that dies keeps its volumes until its last run has let go of them, and then nothing", () =>
    Effect.gen(function* () {
      const dies = yield* Deferred.make<number>()
      const { carrier, held } = yield* world({ answers: true, program: () => Deferred.await(dies) })
      const run = yield* Scope.make()
      const socket = yield* carrier.acquire().pipe(Scope.provide(run))
      yield* socket.open
      yield* Deferred.succeed(dies, 3)
      assert.include((yield* Effect.flip(socket.failure)).message, "ended with exit code 3")
      yield* Effect.repeat(turn, { times: 20 })
      assert.include(yield* held, socket.mounts[0]!.source)
      yield* Scope.close(run, Exit.void)
      assert.deepStrictEqual(yield* settled(held), [])
    }).pipe(Effect.scoped)
  )

  it.effect("that dies while no run has a slot of it leaves nothing, and the next run gets another", () =>
    Effect.gen(function* () {
      const dies = yield* Deferred.make<number>()
      let isFirst = true
      const { carrier, containersTotal, held } = yield* world({
        answers: true,
        containersMax: 1,
        program: () => {
          const ending = isFirst ? Deferred.await(dies) : Effect.never
          isFirst = false
          return ending
        }
      })
      yield* Effect.scoped(carrier.acquire())
      yield* Deferred.succeed(dies, 3)
      assert.deepStrictEqual(yield* settled(held), [])
      yield* Effect.scoped(carrier.acquire())
      assert.strictEqual(containersTotal(), 2)
    }).pipe(Effect.scoped)
  )

  it.effect("that lives and cannot be reached fails its runs, and the next run gets another", () =>
    Effect.gen(function* () {
      const breaks = yield* Deferred.make<void>()
      const { carrier, containersTotal, held } = yield* world({
        answers: true,
        containersMax: 1,
        breaks: Deferred.await(breaks)
      })
      const run = yield* Scope.make()
      const socket = yield* carrier.acquire().pipe(Scope.provide(run))
      yield* socket.open
      yield* Deferred.succeed(breaks, undefined)
      yield* Effect.repeat(turn, { times: 50 })
      yield* TestClock.adjust("1 second")
      assert.include((yield* Effect.flip(socket.failure)).message, "cannot be reached any more")
      yield* Scope.close(run, Exit.void)
      assert.deepStrictEqual(yield* settled(held), [])
      yield* Effect.scoped(carrier.acquire())
      assert.strictEqual(containersTotal(), 2)
    }).pipe(Effect.scoped)
  )

  it.effect("is released with its gateway", () =>
    Effect.gen(function* () {
      const gateway = yield* Scope.make()
      const { carrier, held } = yield* world({ answers: true }).pipe(Scope.provide(gateway))
      yield* Effect.scoped(carrier.acquire())
      assert.lengthOf(yield* held, 3)
      yield* Scope.close(gateway, Exit.void)
      assert.deepStrictEqual(yield* held, [])
      // And none is made for a run that comes later, which does not wait for one either.
      assert.isTrue(Exit.hasInterrupts(yield* Effect.exit(Effect.scoped(carrier.acquire()))))
    })
  )

  it.effect("that does not begin keeps no interrupted run waiting", () =>
    Effect.gen(function* () {
      const { carrier, containersTotal } = yield* world({})
      const runs = yield* Effect.forEach([1, 2], () => Effect.forkChild(Effect.scoped(carrier.acquire())))
      yield* Await.until(
        "a container was made",
        Effect.sync(() => containersTotal() === 1)
      )
      // No time passes: a wait that is not broken off does not end.
      yield* Fiber.interruptAll(runs)
    }).pipe(Effect.scoped)
  )

  it.effect("that does not begin is waited for by many runs together, and not by one after another", () =>
    Effect.gen(function* () {
      const { carrier, containersTotal, held } = yield* world({})
      const runs = yield* Effect.forEach(Array.from({ length: 8 }), () =>
        Effect.forkChild(Effect.flip(Effect.scoped(carrier.acquire())))
      )
      yield* Effect.repeat(
        Effect.andThen(Effect.repeat(turn, { times: 50 }), TestClock.adjust("60 seconds")),
        { until: () => runs.every((run) => run.pollUnsafe() !== undefined), times: 100 }
      )
      for (const error of yield* Fiber.joinAll(runs))
        assert.include(error.message, "did not begin within 60 s")
      // A run may come too late for the first one.
      assert.isBelow(containersTotal(), runs.length)
      assert.deepStrictEqual(yield* settled(held), [])
    }).pipe(Effect.scoped)
  )

  it.effect("has a slot for one run, and over containersMax a run is refused", () =>
    Effect.gen(function* () {
      const { carrier, containersTotal } = yield* world({ answers: true, containersMax: 2 })
      const runs = yield* Scope.make()
      const sockets = yield* Effect.all(
        Array.from({ length: 4 }, () => carrier.acquire()),
        { concurrency: "unbounded" }
      ).pipe(Scope.provide(runs))
      assert.strictEqual(new Set(sockets.map(({ mounts }) => mounts[0]!.source)).size, 4)
      assert.strictEqual(containersTotal(), 2)
      const error = yield* Effect.flip(Effect.scoped(carrier.acquire()))
      assert.include(error.message, "all 2 containers of sockets are in use")
      yield* Scope.close(runs, Exit.void)
      yield* Effect.scoped(carrier.acquire())
      assert.strictEqual(containersTotal(), 2)
    }).pipe(Effect.scoped)
  )
})
