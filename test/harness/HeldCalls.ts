/**
 * Holds a file operation of the code under test, to interrupt that code meanwhile. A test file passes
 * {@link interposed} to `vi.mock("node:fs/promises", …)`.
 */
import { assert } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import type * as NodeFiles from "node:fs/promises"

const names = ["chmod", "copyFile", "mkdir", "open", "rm", "rmdir", "unlink"] as const

type Name = (typeof names)[number]

type Call = (path: unknown, ...rest: ReadonlyArray<unknown>) => Promise<unknown>

interface Held {
  readonly name: Name
  readonly path: string
  readonly begun: PromiseWithResolvers<void>
  readonly released: PromiseWithResolvers<void>
}

let held: Held | undefined

/** Turns of the event loop in which what does not wait ends. */
const turnsMax = 200

export const interposed = async (original: <T>() => Promise<T>): Promise<typeof NodeFiles> => {
  const real = await original<typeof NodeFiles>()
  const wrap =
    (name: Name): Call =>
    async (path, ...rest) => {
      const now = held
      if (now?.name === name && String(path).endsWith(now.path)) {
        held = undefined
        now.begun.resolve()
        await now.released.promise
      }
      return (real[name] as unknown as Call)(path, ...rest)
    }
  return { ...real, ...Object.fromEntries(names.map((name) => [name, wrap(name)])) }
}

/** Runs an effect until its next call of this operation, on a path that ends so, has begun. */
export const begin = Effect.fnUntraced(function* <A, E, R>(
  name: Name,
  path: string,
  effect: Effect.Effect<A, E, R>
) {
  const call: Held = { name, path, begun: Promise.withResolvers(), released: Promise.withResolvers() }
  held = call
  const fiber = yield* Effect.forkChild(effect)
  const early = Effect.flatMap(Fiber.await(fiber), (exit) =>
    Effect.die(new Error(`it ended before ${name} of ${path}: ${JSON.stringify(exit)}`))
  )
  yield* Effect.raceFirst(
    Effect.promise(() => call.begun.promise),
    early
  )
  return { fiber, release: Effect.sync(() => call.released.resolve()) }
})

/** Returns whether a fiber ends although the operation is held. */
export const endsEarly = Effect.fnUntraced(function* (fiber: Fiber.Fiber<unknown, unknown>) {
  for (let turn = 0; turn < turnsMax; turn++)
    yield* Effect.promise(() => new Promise((resolve) => setImmediate(resolve)))
  return fiber.pollUnsafe() !== undefined
})

/** Interrupts an effect while this operation is held. Requires the interruption to wait for it. */
export const interruptedDuring = Effect.fnUntraced(function* <A, E, R>(
  name: Name,
  path: string,
  effect: Effect.Effect<A, E, R>
) {
  const { fiber, release } = yield* begin(name, path, effect)
  const interrupting = yield* Effect.forkChild(Fiber.interrupt(fiber), { startImmediately: true })
  const isEarly = yield* endsEarly(interrupting)
  yield* release
  yield* Fiber.join(interrupting)
  assert.isFalse(isEarly, "the interruption did not wait for the operation")
})
