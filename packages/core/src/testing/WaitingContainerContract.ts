/** The part of the contract of every `ContainerRuntime` about sandboxes that wait for a run, if it has them. */
import { assert, it } from "@effect/vitest"
import { Effect, type Layer, Stream } from "effect"
import { ContainerRuntime, type ContainerSpec } from "../ContainerRuntime.ts"
import { mismatches } from "../Posture.ts"
import * as RunId from "../RunId.ts"
import { ContainerFailed } from "../SandboxReason.ts"
import type { WaitingSpec } from "../WaitingSandbox.ts"
import { type Behaviour, written } from "./Behaviour.ts"

export interface Fixture {
  /** The container of a run. The contract replaces its argv. */
  readonly spec: (runId: RunId.RunId) => ContainerSpec
  readonly argv: (behaviour: Behaviour) => readonly [string, ...Array<string>]
}

/** Loads nothing, and becomes the program of its run. For every image that is built on the runtime image. */
const preload: ReadonlyArray<string> = [
  "node",
  "--input-type=module",
  "-e",
  'import { becomeProgram, receiveRun } from "/usr/local/lib/cogni/preload.mjs"; becomeProgram(receiveRun())'
]

const leftovers = (runId: RunId.RunId) => ContainerRuntime.use((runtime) => runtime.leftovers(runId))

const absent = new ContainerFailed({
  operation: "prepare",
  detail: "this runtime has no waiting sandboxes",
  remedy: "Set `waits: false` in the fixture"
})

const waitingOf = (
  waitingId: RunId.RunId,
  { image, limits, mounts, preload, supervised, user }: ContainerSpec
): WaitingSpec => ({ waitingId, waitSecondsMax: 60, image, limits, mounts, preload, supervised, user })

const prepared = Effect.fnUntraced(function* (spec: ContainerSpec) {
  const { prepare } = yield* ContainerRuntime
  if (prepare === undefined) return yield* absent
  const waitingId = yield* RunId.generate
  return { waitingId, waiting: yield* prepare(waitingOf(waitingId, spec)) }
})

export const suite = <E>(name: string, layer: Layer.Layer<ContainerRuntime, E>, fixture: Fixture): void => {
  const specOf = (behaviour: Behaviour) =>
    Effect.map(RunId.generate, (runId) => ({ ...fixture.spec(runId), argv: fixture.argv(behaviour) }))

  it.layer(layer, { excludeTestServices: true, timeout: "2 minutes" })(`waiting (${name})`, (it) => {
    it.effect(
      "runs the program of the run that gets it, and reports a posture without mismatches twice",
      () =>
        Effect.gen(function* () {
          const spec = yield* specOf({ _tag: "Writes", stdout: "it's \\n\n☃\n\n", stderr: " a\tb " })
          const { waiting } = yield* prepared(spec)
          assert.deepStrictEqual(mismatches(waiting.posture, spec), [])
          assert.isUndefined(yield* waiting.unusable)
          const container = yield* waiting.bind({ ...spec, env: { A: "1\n2" } })
          const posture = yield* container.start
          if (posture === undefined) return assert.fail("no posture")
          assert.deepStrictEqual(mismatches(posture, spec), [])
          yield* container.proceed
          const chunks = yield* Stream.runCollect(container.output)
          assert.deepStrictEqual(
            [written(chunks, "stdout"), written(chunks, "stderr")],
            ["it's \\n\n☃\n\n", " a\tb "]
          )
          assert.strictEqual((yield* container.exit).exitCode, 0)
        })
    )

    it.effect("belongs to its run from then on, under limits of the run, and is removed with its scope", () =>
      Effect.gen(function* () {
        const spec = yield* specOf({ _tag: "ExitsWith", exitCode: 7 })
        const { limits } = spec
        const waitingId = yield* Effect.scoped(
          Effect.gen(function* () {
            const { waiting, waitingId } = yield* prepared(spec)
            assert.isNotEmpty(yield* leftovers(waitingId))
            assert.deepStrictEqual(yield* leftovers(spec.runId), [], "before the run has it")
            const container = yield* waiting.bind({
              ...spec,
              limits: { ...limits, memoryBytesMax: 2 * limits.memoryBytesMax, processesMax: 48, cpusMax: 0.5 }
            })
            // Fails if the engine or the kernel has other limits.
            yield* container.start
            assert.isNotEmpty(yield* leftovers(spec.runId))
            yield* container.proceed
            yield* Stream.runDrain(container.output)
            assert.strictEqual((yield* container.exit).exitCode, 7)
            return waitingId
          })
        )
        assert.deepStrictEqual(yield* leftovers(spec.runId), [])
        assert.deepStrictEqual(yield* leftovers(waitingId), [])
      })
    )

    it.effect("serves one run: another that binds it fails, and so does one whose container exists", () =>
      Effect.gen(function* () {
        const runtime = yield* ContainerRuntime
        const spec = yield* specOf({ _tag: "ExitsWith", exitCode: 3 })
        const { waiting } = yield* prepared(spec)
        const container = yield* waiting.bind(spec)
        const second = yield* specOf({ _tag: "ExitsWith", exitCode: 4 })
        assert.strictEqual((yield* Effect.flip(waiting.bind(second)))._tag, "ContainerFailed")
        yield* container.start
        yield* container.proceed
        assert.strictEqual((yield* Effect.flip(runtime.acquire(spec)))._tag, "ContainerFailed")
        yield* Stream.runDrain(container.output)
        assert.strictEqual((yield* container.exit).exitCode, 3)

        yield* runtime.acquire(second)
        const other = yield* prepared(second)
        const doubled = Effect.flatMap(other.waiting.bind(second), ({ start }) => start)
        assert.strictEqual((yield* Effect.flip(doubled))._tag, "ContainerFailed")
      })
    )

    it.effect("serves only a run whose program it has loaded", () =>
      Effect.gen(function* () {
        const plain = yield* specOf({ _tag: "ExitsWith", exitCode: 3 })
        const loads = { ...plain, preload }
        const other = { ...plain, preload: [...preload, "other"] }
        for (const run of [plain, other]) {
          const { waiting } = yield* prepared(loads)
          assert.strictEqual((yield* Effect.flip(waiting.bind(run)))._tag, "ContainerFailed")
        }
        const { waiting } = yield* prepared(loads)
        const container = yield* waiting.bind(loads)
        yield* container.start
        yield* container.proceed
        yield* Stream.runDrain(container.output)
        assert.strictEqual((yield* container.exit).exitCode, 3)
      })
    )

    it.effect("leaves nothing behind if no run gets it", () =>
      Effect.gen(function* () {
        const spec = yield* specOf({ _tag: "SleepsForever" })
        const { waitingId } = yield* Effect.scoped(prepared(spec))
        assert.deepStrictEqual(yield* leftovers(waitingId), [])
      })
    )
  })
}
