/** A sandbox over real Docker keeps the same contract as the one in memory, and as the host. */
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import { CommandBehaviour, CommandSubject, ExecutorContract } from "@cogni/sandbox-sessions/testing"
import { assert, layer } from "@effect/vitest"
import { Context, Effect, Exit, Fiber, Layer, Scope } from "effect"
import * as Images from "../harness/Images.ts"
import * as RunHarness from "../harness/RunHarness.ts"

const { reasonOf, until } = CommandSubject

const open = (runner: SandboxRunner.SandboxRunner["Service"], limits: CommandSubject.SubjectLimits = {}) =>
  runner.open({ image: Images.runtime, limits: { runtimeSecondsMax: 600, ...limits } })

ExecutorContract.suite(
  "docker",
  Layer.effect(
    CommandSubject.Executors,
    Effect.map(SandboxRunner.SandboxRunner, (runner) =>
      CommandSubject.Executors.of({ words: CommandBehaviour.shell, open: (limits) => open(runner, limits) })
    )
  ).pipe(Layer.provide(RunHarness.layer()))
)

class Opened extends Context.Service<Opened, SandboxRunner.Sandbox>()("test/Opened") {
  static readonly layer = Layer.effect(Opened, Effect.flatMap(SandboxRunner.SandboxRunner, open)).pipe(
    Layer.provide(RunHarness.layer())
  )
}

let words = 0
/** How long a sleep(1) sleeps whom nobody else starts. */
const sleepWord = () => `${9000 + ++words}.5`

/** Who was started with this word among its arguments, as another command of the sandbox sees it. */
const alive = Effect.fnUntraced(function* (word: string) {
  const sandbox = yield* Opened
  const { output } = yield* sandbox.exec(
    `for found in /proc/[0-9]*; do tr '\\0' '\\n' < "$found/cmdline" 2> /dev/null | grep -qx -e "$WORD" && echo "$found"; done; true`,
    { env: { WORD: word } }
  )
  return output.stdout.text.split("\n").filter((line) => line !== "")
})

/** Ways for a child to get away, given what it runs. */
const escapes: Readonly<Record<string, (sleep: string) => string>> = {
  "is in the background": (sleep) => `${sleep} &`,
  "has left the session": (sleep) => `setsid ${sleep} > /dev/null 2>&1 &`,
  "has left the session, and lost its parent": (sleep) => `(setsid ${sleep} > /dev/null 2>&1 &)`,
  "has forked twice": (sleep) => `setsid sh -c '(setsid ${sleep} > /dev/null 2>&1 &)' > /dev/null 2>&1`,
  "has cleared its environment": (sleep) => `env -i ${sleep} > /dev/null 2>&1 &`,
  "has cleared its environment, left the session, lost its parent, and holds no pipe": (sleep) =>
    `(setsid env -i ${sleep} > /dev/null 2>&1 < /dev/null &)`,
  "ignores what it is told": (sleep) => `trap '' HUP INT TERM; setsid ${sleep} > /dev/null 2>&1 &`
}

layer(Opened.layer, { excludeTestServices: true, timeout: "2 minutes" })(
  "what is left of a command in a sandbox",
  (it) => {
    it.effect.each(Object.keys(escapes))("is gone after a time-out, though it %s", (way) =>
      Effect.gen(function* () {
        const sandbox = yield* Opened
        const word = sleepWord()
        const line = `${escapes[way]!(`sleep ${word}`)}\nwhile :; do sleep 0.1; done`
        const running = yield* Effect.forkChild(reasonOf(sandbox.exec(line, { timeoutSecondsMax: 2 })))
        yield* until(
          "its child runs",
          Effect.map(alive(word), (pids) => pids.length > 0)
        )
        assert.strictEqual((yield* Fiber.join(running))._tag, "CommandTimedOut")
        assert.deepStrictEqual(yield* alive(word), [])
      })
    )

    it.effect("is gone though it forks again and again, each time into a session of its own", () =>
      Effect.gen(function* () {
        const sandbox = yield* Opened
        const word = "wanderer"
        yield* sandbox.files.write(
          "wander",
          `sleep 0.01\n(setsid env -i sh wander ${word} > /dev/null 2>&1 &)\n`
        )
        const scope = yield* Scope.make()
        yield* Scope.provide(scope)(sandbox.spawn(`sh wander ${word} & sleep 1000`))
        yield* until(
          "it wanders",
          Effect.map(alive(word), (pids) => pids.length > 0)
        )
        yield* Scope.close(scope, Exit.void)
        assert.deepStrictEqual(yield* alive(word), [])
      })
    )

    it.effect("lives on where it ended by itself", () =>
      Effect.gen(function* () {
        const sandbox = yield* Opened
        const word = sleepWord()
        const { exitCode } = yield* sandbox.exec(`setsid sleep ${word} > /dev/null 2>&1 & true`)
        assert.strictEqual(exitCode, 0)
        yield* until(
          "it runs",
          Effect.map(alive(word), (pids) => pids.length === 1)
        )
      })
    )
  }
)
