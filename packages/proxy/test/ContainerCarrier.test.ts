/** Containers of sockets that fail to start, that die, and that runs wait for. */
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

/** Simulates the program in a container, which answers each message of the host on its control stream. */
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
  /** Makes the containers answer. */
  readonly answers?: boolean
  /** The program in each container; by default it never ends. */
  readonly program?: MemoryContainerRuntime.Program
  readonly images?: ReadonlySet<string>
  /** When the pipe to the first container breaks. */
  readonly breaks?: Effect.Effect<void>
}

/** Creates a carrier in the scope of its own gateway, and lists its resources on the engine. */
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

/** Lets the other fibers and Node's streams continue. */
const turn = Effect.andThen(
  Effect.yieldNow,
  Effect.promise(() => new Promise(setImmediate))
)

/** Waits until a fiber of the gateway has released all resources. */
const settled = (held: Effect.Effect<ReadonlyArray<string>>) =>
  Effect.repeat(Effect.andThen(turn, held), {
    until: (names) => names.length === 0,
    times: 1000
  })

describe("a container of sockets", () => {
  it.effect("leaves no volume, and does not count, if it cannot be created", () =>
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

  it.effect("leaves nothing, and does not count, if it exits at once", () =>
    Effect.gen(function* () {
      const { carrier, held } = yield* world({ program: () => Effect.succeed(3), containersMax: 1 })
      for (let run = 1; run <= 3; run++) {
        const error = yield* Effect.flip(Effect.scoped(carrier.acquire()))
        assert.strictEqual(error._tag, "ProxyFailed")
        assert.include(error.message, "did not start")
        assert.deepStrictEqual(yield* settled(held), [])
      }
    }).pipe(Effect.scoped)
  )

  it.effect("keeps its volumes after it dies until its last run has released them", () =>
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

  it.effect("leaves nothing if it dies without leased slots, and is replaced for the next run", () =>
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

  it.effect("fails its runs if it becomes unreachable, and is replaced for the next run", () =>
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
      assert.include((yield* Effect.flip(socket.failure)).message, "can no longer be reached")
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
      // A later run neither creates a container nor waits for one.
      assert.isTrue(Exit.hasInterrupts(yield* Effect.exit(Effect.scoped(carrier.acquire()))))
    })
  )

  it.effect("does not block an interrupted run if it does not start", () =>
    Effect.gen(function* () {
      const { carrier, containersTotal } = yield* world({})
      const runs = yield* Effect.forEach([1, 2], () => Effect.forkChild(Effect.scoped(carrier.acquire())))
      yield* Await.until(
        "a container was made",
        Effect.sync(() => containersTotal() === 1)
      )
      // The test clock stands still: a wait that is not interrupted never ends.
      yield* Fiber.interruptAll(runs)
    }).pipe(Effect.scoped)
  )

  it.effect("is awaited by many runs at the same time if it does not start", () =>
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
        assert.include(error.message, "did not start within 60 s")
      // A run may come too late for the first container.
      assert.isBelow(containersTotal(), runs.length)
      assert.deepStrictEqual(yield* settled(held), [])
    }).pipe(Effect.scoped)
  )

  it.effect("leases each slot to one run, and refuses runs above containersMax", () =>
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
      assert.include(error.message, "all 2 gateway containers are in use")
      yield* Scope.close(runs, Exit.void)
      yield* Effect.scoped(carrier.acquire())
      assert.strictEqual(containersTotal(), 2)
    }).pipe(Effect.scoped)
  )
})
