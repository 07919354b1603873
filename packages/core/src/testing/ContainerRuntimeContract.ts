/**
 * The contract of every `ContainerRuntime`. The one in memory passes it in `core/test`, and the real ones in
 * `test/integration`, so that the fake cannot diverge from them.
 *
 * Behaviours are named; a fixture maps each to an argv. Runs on the live clock.
 */
import { assert, it } from "@effect/vitest"
import { Deferred, Duration, Effect, Exit, Fiber, type Layer, Stream } from "effect"
import { type Container, ContainerRuntime, type ContainerSpec } from "../ContainerRuntime.ts"
import type { MemoryOptions } from "../MemoryContainerRuntime.ts"
import { mismatches, type User } from "../Posture.ts"
import * as RunId from "../RunId.ts"
import * as Behaviours from "./Behaviour.ts"
import { type Behaviour, started, written } from "./Behaviour.ts"
import * as SupervisedContainerContract from "./SupervisedContainerContract.ts"
import * as WaitingContainerContract from "./WaitingContainerContract.ts"

/** Parts of the contract that depend on the backend. */
interface Fixture {
  readonly image: string
  readonly missingImage: string
  readonly user: User
  /** False if the runtime has no waiting sandboxes (default true). */
  readonly waits?: boolean | undefined
  /** An argv with this behaviour, for a container and for an `exec`. */
  readonly argv: (behaviour: Behaviour) => readonly [string, ...Array<string>]
}

/** Argv for any image with a POSIX shell and coreutils. */
export const shell = Behaviours.shell

/** For `MemoryContainerRuntime`, together with {@link memoryOptions}. */
const memoryFixture: Fixture = {
  image: "memory/contract",
  missingImage: "memory/missing",
  user: { userId: 1000, groupId: 1000 },
  argv: Behaviours.argv
}

export const memoryOptions: MemoryOptions = {
  images: new Set([memoryFixture.image]),
  program: Behaviours.program
}

/** Waits until the program prints `ready`. The rest of its output is read and dropped, so that it does not block. */
const untilReady = Effect.fnUntraced(function* (container: Container) {
  const ready = yield* Deferred.make<void>()
  yield* Effect.forkScoped(
    Stream.runForEach(container.output, (chunk) =>
      written([chunk], "stdout").includes("ready") ? Deferred.succeed(ready, undefined) : Effect.void
    )
  )
  yield* Deferred.await(ready)
})

export const suite = <E>(
  name: string,
  layer: Layer.Layer<ContainerRuntime, E>,
  fixture: Fixture = memoryFixture
): void => {
  const specOf = (runId: RunId.RunId, behaviour: Behaviour, image = fixture.image): ContainerSpec => ({
    runId,
    role: "agent",
    image,
    argv: fixture.argv(behaviour),
    env: {},
    user: fixture.user,
    mounts: [],
    network: { mode: "none" },
    limits: {
      runtimeSecondsMax: 60,
      memoryBytesMax: 256 * 1024 ** 2,
      processesMax: 64,
      cpusMax: 1,
      temporaryBytesMax: 16 * 1024 ** 2,
      filesOpenMax: 1024,
      workspaceBytesMax: 16 * 1024 ** 2
    }
  })
  const exits = (exitCode: number): Behaviour => ({ _tag: "ExitsWith", exitCode })

  const acquired = (...asked: Parameters<typeof specOf>) =>
    ContainerRuntime.use((runtime) => runtime.acquire(specOf(...asked)))
  const leftovers = (runId: RunId.RunId) => ContainerRuntime.use((runtime) => runtime.leftovers(runId))
  const begun = (behaviour: Behaviour) =>
    Effect.flatMap(RunId.generate, (runId) => started(specOf(runId, behaviour)))

  SupervisedContainerContract.suite(name, layer, {
    spec: (runId) => specOf(runId, exits(0)),
    argv: fixture.argv
  })
  if (fixture.waits !== false) {
    WaitingContainerContract.suite(name, layer, {
      spec: (runId) => specOf(runId, exits(0)),
      argv: fixture.argv
    })
  }

  it.layer(layer, { excludeTestServices: true, timeout: "2 minutes" })(`ContainerRuntime (${name})`, (it) => {
    it.effect.each([0, 1, 7, 126, 255])("returns exit code %s as a value", (exitCode) =>
      Effect.gen(function* () {
        const container = yield* begun(exits(exitCode))
        yield* Stream.runDrain(container.output)
        const exit = yield* container.exit
        assert.strictEqual(exit.exitCode, exitCode)
        assert.isFalse(exit.oomKilled)
        assert.isFalse(exit.processesRefused)
        assert.deepStrictEqual(yield* container.exit, exit, "the exit can be asked for again")
      })
    )

    it.effect("delivers stdout and stderr separately, and in full", () =>
      Effect.gen(function* () {
        const stdout = `line 1\nit's "quoted" $HOME \\n ünï ☃\n${"o".repeat(20_000)}`
        const stderr = `warning: 100%\n${"e".repeat(20_000)}`
        const container = yield* begun({ _tag: "Writes", stdout, stderr })
        const chunks = yield* Stream.runCollect(container.output)
        assert.strictEqual(written(chunks, "stdout"), stdout)
        assert.strictEqual(written(chunks, "stderr"), stderr)
        assert.strictEqual((yield* container.exit).exitCode, 0)
      })
    )

    it.effect("does not run argv before proceed", () =>
      Effect.gen(function* () {
        const container = yield* acquired(yield* RunId.generate, {
          _tag: "Writes",
          stdout: "ran",
          stderr: ""
        })
        yield* container.start
        let seen = 0
        const reader = yield* Effect.forkScoped(
          Stream.runForEach(container.output, (chunk) => Effect.sync(() => (seen += chunk.bytes.byteLength)))
        )
        const early = yield* container.exit.pipe(Effect.timeoutOption("300 millis"))
        assert.strictEqual(early._tag, "None", "it had ended before proceed")
        assert.strictEqual(seen, 0, "it had written before proceed")
        yield* container.proceed
        yield* Fiber.join(reader)
        assert.strictEqual(seen, 3)
      })
    )

    it.effect("reports a posture without mismatches before proceed", () =>
      Effect.gen(function* () {
        const container = yield* acquired(yield* RunId.generate, exits(0))
        const posture = yield* container.start
        if (posture === undefined) return assert.fail("no posture")
        assert.deepStrictEqual(
          mismatches(posture, { user: fixture.user, network: { mode: "none" }, mounts: [] }),
          []
        )
      })
    )

    it.effect("fails with ImageNotFound for a missing image, and leaves nothing behind", () =>
      Effect.gen(function* () {
        const runId = yield* RunId.generate
        const error = yield* Effect.flip(Effect.scoped(acquired(runId, exits(0), fixture.missingImage)))
        assert.strictEqual(error._tag, "ImageNotFound")
        assert.include(error.message, fixture.missingImage)
        assert.deepStrictEqual(yield* leftovers(runId), [])
      })
    )

    it.effect("stop sends SIGTERM, and waits for the program to clean up", () =>
      Effect.gen(function* () {
        const container = yield* begun({ _tag: "ExitsOnTerm", exitCode: 42 })
        yield* untilReady(container)
        yield* container.stop(Duration.seconds(20))
        assert.strictEqual((yield* container.exit).exitCode, 42)
      })
    )

    it.effect("stop kills a program that ignores SIGTERM, but not before the grace is over", () =>
      Effect.gen(function* () {
        const container = yield* begun({ _tag: "IgnoresTerm" })
        yield* untilReady(container)
        const [took] = yield* Effect.timed(container.stop(Duration.seconds(1)))
        const exit = yield* container.exit
        assert.strictEqual(exit.exitCode, 137)
        assert.isFalse(exit.oomKilled, "killed by the host, not because memory ran out")
        assert.isAtLeast(Duration.toMillis(took), 900)
      })
    )

    it.effect("stop does nothing to a container that has ended, and its exit stays the same", () =>
      Effect.gen(function* () {
        const container = yield* begun(exits(3))
        yield* Stream.runDrain(container.output)
        yield* container.exit
        yield* container.stop(Duration.seconds(1))
        yield* container.stop(Duration.seconds(1))
        assert.strictEqual((yield* container.exit).exitCode, 3)
      })
    )

    it.effect("whilePaused returns the effect's outcome, and the container resumes", () =>
      Effect.gen(function* () {
        const container = yield* begun({ _tag: "ExitsOnTerm", exitCode: 42 })
        yield* untilReady(container)
        assert.strictEqual(yield* container.whilePaused(Effect.succeed("done")), "done")
        assert.strictEqual(yield* Effect.flip(container.whilePaused(Effect.fail("broken"))), "broken")
        yield* Effect.forkChild(container.whilePaused(Effect.never)).pipe(
          Effect.tap(() => Effect.sleep("50 millis")),
          Effect.flatMap(Fiber.interrupt)
        )
        yield* container.stop(Duration.seconds(20))
        assert.strictEqual((yield* container.exit).exitCode, 42)
        assert.strictEqual(yield* container.whilePaused(Effect.succeed("over")), "over")
      })
    )

    it.effect("delivers everything to a slow reader", () =>
      Effect.gen(function* () {
        const bytes = 4 * 1024 ** 2 + 17
        const container = yield* begun({ _tag: "EchoesManyBytes", bytes })
        let seen = 0
        let pauses = 0
        yield* Stream.runForEach(container.output, (chunk) => {
          seen += chunk.bytes.byteLength
          assert.isTrue(chunk.bytes.every((byte) => byte === 120))
          return pauses++ < 50 ? Effect.sleep("2 millis") : Effect.void
        })
        assert.strictEqual(seen, bytes)
        assert.strictEqual((yield* container.exit).exitCode, 0)
      })
    )

    it.effect("has leftovers while it exists, and none after its scope is closed", () =>
      Effect.gen(function* () {
        const runId = yield* RunId.generate
        yield* Effect.scoped(
          Effect.gen(function* () {
            yield* started(specOf(runId, { _tag: "SleepsForever" }))
            assert.isNotEmpty(yield* leftovers(runId))
            assert.deepStrictEqual(yield* leftovers(yield* RunId.generate), [], "of another run")
          })
        )
        assert.deepStrictEqual(yield* leftovers(runId), [])
      })
    )

    it.effect("removes a container that was never started, or never proceeded", () =>
      Effect.gen(function* () {
        const runId = yield* RunId.generate
        yield* Effect.scoped(acquired(runId, exits(0)))
        assert.deepStrictEqual(yield* leftovers(runId), [])
        yield* Effect.scoped(Effect.flatMap(acquired(runId, exits(0)), (container) => container.start))
        assert.deepStrictEqual(yield* leftovers(runId), [])
      })
    )

    it.effect("leaves nothing behind when the body fails", () =>
      Effect.gen(function* () {
        const runId = yield* RunId.generate
        const exit = yield* started(specOf(runId, { _tag: "SleepsForever" })).pipe(
          Effect.andThen(Effect.fail("planted")),
          Effect.scoped,
          Effect.exit
        )
        assert.isTrue(Exit.isFailure(exit))
        assert.deepStrictEqual(yield* leftovers(runId), [])
      })
    )

    it.effect.each([0, 1, 5, 20, 100])("leaves nothing behind when interrupted after %s ms", (millis) =>
      Effect.gen(function* () {
        const runId = yield* RunId.generate
        const fiber = yield* started(specOf(runId, { _tag: "SleepsForever" })).pipe(
          Effect.flatMap((container) => container.exit),
          Effect.scoped,
          Effect.forkChild({ startImmediately: true })
        )
        yield* Effect.sleep(Duration.millis(millis))
        yield* Fiber.interrupt(fiber)
        assert.deepStrictEqual(yield* leftovers(runId), [])
      })
    )

    it.effect("refuses a second container of the same run and role, and keeps the first", () =>
      Effect.gen(function* () {
        const runId = yield* RunId.generate
        const first = yield* acquired(runId, exits(4))
        const error = yield* Effect.flip(Effect.scoped(acquired(runId, exits(5))))
        assert.strictEqual(error._tag, "ContainerFailed")
        yield* first.start
        yield* first.proceed
        yield* Stream.runDrain(first.output)
        assert.strictEqual((yield* first.exit).exitCode, 4)
      })
    )

    it.effect("names a volume, attributes it to its run, and removes it with its scope", () =>
      Effect.gen(function* () {
        const runtime = yield* ContainerRuntime
        const runId = yield* RunId.generate
        const volume = runtime.acquireVolume({
          runId,
          role: "socket",
          owner: fixture.user,
          bytesMax: 64 * 1024,
          filesMax: 16,
          runtimeSecondsMax: 60
        })
        const source = yield* Effect.scoped(
          Effect.gen(function* () {
            const source = yield* volume
            assert.isTrue((yield* leftovers(runId)).some((left) => left.includes(source)))
            return source
          })
        )
        assert.isNotEmpty(source)
        assert.deepStrictEqual(yield* leftovers(runId), [])
        assert.strictEqual(yield* Effect.scoped(volume), source, "the name is free again")
      })
    )
  })
}
