/**
 * Executor contract: guarantees that only some executors give, by name. A container gives all of them. The host gives
 * those about files only, because there a command is a process group with sockets for its output.
 */
import type { Executor } from "@cogni/sandbox-core/Executor"
import { assert } from "@effect/vitest"
import { Effect, Exit, Fiber, Scope } from "effect"
import * as CommandLinks from "./CommandLinks.ts"
import { type Promises, reasonOf, until } from "./CommandSubject.ts"

export type Capability = "hasLinks" | "killsEscapees" | "opensOutputByName"

let words = 0
/** Returns an argument of sleep(1) that no other process has. */
const sleepWord = () => `${9000 + ++words}.5`

/** Lists the processes that have this word as an argument, as another command sees them. */
const alive = Effect.fnUntraced(function* (executor: Executor, word: string) {
  const { output } = yield* executor.exec(
    `for found in /proc/[0-9]*; do tr '\\0' '\\n' < "$found/cmdline" 2> /dev/null | grep -qx -e "$WORD" && echo "$found"; done; true`,
    { env: { WORD: word } }
  )
  return output.stdout.text.split("\n").filter((line) => line !== "")
})

/** Ways for a child to leave its process group, as shell lines. */
const escapes: Readonly<Record<string, (sleep: string) => string>> = {
  "has left the session": (sleep) => `setsid ${sleep} > /dev/null 2>&1 &`,
  "has left the session and lost its parent": (sleep) => `(setsid ${sleep} > /dev/null 2>&1 &)`,
  "has forked twice": (sleep) => `setsid sh -c '(setsid ${sleep} > /dev/null 2>&1 &)' > /dev/null 2>&1`,
  "has cleared its environment, left the session, lost its parent and holds no pipe": (sleep) =>
    `(setsid env -i ${sleep} > /dev/null 2>&1 < /dev/null &)`,
  "ignores signals": (sleep) => `trap '' HUP INT TERM; setsid ${sleep} > /dev/null 2>&1 &`
}

const killsEscapees: Promises = {
  ...Object.fromEntries(
    Object.entries(escapes).map(([way, escape]): [string, Promises[string]] => [
      `a timeout kills a child even if it ${way}`,
      ({ executor }) =>
        Effect.gen(function* () {
          const word = sleepWord()
          const line = `${escape(`sleep ${word}`)}\nwhile :; do sleep 0.1; done`
          const running = yield* Effect.forkChild(reasonOf(executor.exec(line, { timeoutSecondsMax: 2 })))
          yield* until(
            "the child runs",
            Effect.map(alive(executor, word), (pids) => pids.length > 0)
          )
          assert.strictEqual((yield* Fiber.join(running))._tag, "CommandTimedOut")
          assert.deepStrictEqual(yield* alive(executor, word), [])
        })
    ])
  ),

  "closing the scope kills a child that keeps forking into new sessions": ({ executor }) =>
    Effect.gen(function* () {
      const word = "wanderer"
      yield* executor.files.write(
        "wander",
        `sleep 0.01\n(setsid env -i sh wander ${word} > /dev/null 2>&1 &)\n`
      )
      const scope = yield* Scope.make()
      yield* Scope.provide(scope)(executor.spawn(`sh wander ${word} & sleep 1000`))
      yield* until(
        "the child keeps forking",
        Effect.map(alive(executor, word), (pids) => pids.length > 0)
      )
      yield* Scope.close(scope, Exit.void)
      assert.deepStrictEqual(yield* alive(executor, word), [])
    }),

  "a child that has left the session survives if its command ends by itself": ({ executor }) =>
    Effect.gen(function* () {
      const word = sleepWord()
      const { exitCode } = yield* executor.exec(`setsid sleep ${word} > /dev/null 2>&1 & true`)
      assert.strictEqual(exitCode, 0)
      yield* until(
        "the child runs",
        Effect.map(alive(executor, word), (pids) => pids.length === 1)
      )
    })
}

const opensOutputByName: Promises = {
  "/dev/stdout and /dev/stderr can be opened": ({ run }) =>
    Effect.gen(function* () {
      const { exitCode, output } = yield* run({ _tag: "WritesByName", stdout: "out", stderr: "err" })
      assert.deepStrictEqual([exitCode, output.stdout.text, output.stderr.text], [0, "out", "err"])
    })
}

export const promises: Readonly<Record<Capability, Promises>> = {
  hasLinks: CommandLinks.promises,
  killsEscapees,
  opensOutputByName
}
