/**
 * Executor contract: descriptions and removals in a workspace with links and special files, which commands create. A
 * capability, because a workspace in memory has none.
 */
import type { Executor } from "@cogni/sandbox-core/Executor"
import { quoted } from "@cogni/sandbox-core/testing/Behaviour"
import { assert } from "@effect/vitest"
import { Effect, Exit, Fiber } from "effect"
import { problemOf, type Promises } from "./CommandSubject.ts"

/** Runs a shell line that must succeed, and returns what it says. */
const does = Effect.fnUntraced(function* (executor: Executor, line: string) {
  const { exitCode, output } = yield* executor.exec(`set -e; ${line}`)
  assert.strictEqual(exitCode, 0, output.stderr.text)
  return output.stdout.text.trim()
})

/** A directory outside of the workspace with the file `kept`. It is removed when the scope closes. */
const outside = (executor: Executor) =>
  Effect.acquireRelease(does(executor, "d=$(mktemp -d); echo precious > $d/kept; echo $d"), (path) =>
    Effect.ignore(does(executor, `rm -rf ${quoted(path)}`))
  )

const precious = (executor: Executor, path: string) => does(executor, `cat ${quoted(path)}/kept`)

export const promises: Promises = {
  "stat follows links inside the workspace": ({ executor }) =>
    Effect.gen(function* () {
      const { files } = executor
      yield* does(
        executor,
        "mkdir -p s/real; printf 12345 > s/real/file; cd s; ln -s real/file short; ln -s real directory; ln -s ../s/short longer"
      )
      for (const name of ["short", "longer"]) {
        const { bytes, name: named, type } = yield* files.stat(`s/${name}`)
        assert.deepStrictEqual([named, type, bytes], [name, "file", 5])
      }
      const { name, type } = yield* files.stat("s/directory")
      assert.deepStrictEqual([name, type], ["directory", "directory"])
      assert.strictEqual((yield* files.stat("s/directory/file")).bytes, 5)
    }),

  "stat refuses a link that leaves the workspace, and finds nothing behind a dangling one": ({ executor }) =>
    Effect.gen(function* () {
      const { files } = executor
      const away = yield* outside(executor)
      yield* does(
        executor,
        `mkdir -p o; cd o; ln -s ${quoted(away)} absolute; ln -s ${quoted(away)}/kept file; ln -s ../../../../../../../../../../etc/passwd relative; ln -s nowhere dangling; ln -s loop loop`
      )
      for (const name of ["absolute", "absolute/kept", "file", "relative"]) {
        assert.strictEqual(yield* problemOf(files.stat(`o/${name}`)), "outside_workspace", name)
      }
      assert.strictEqual(yield* problemOf(files.stat("o/dangling")), "not_found")
      assert.isTrue(Exit.isFailure(yield* Effect.exit(files.stat("o/loop"))))
    }).pipe(Effect.scoped),

  "stat and remove do not open special files": ({ executor }) =>
    Effect.gen(function* () {
      const { files } = executor
      yield* does(executor, "mkdir -p special; mkfifo special/fifo")
      const { name, type } = yield* files.stat("special/fifo")
      assert.deepStrictEqual([name, type], ["fifo", "other"])
      yield* files.remove("special/fifo")
      assert.deepStrictEqual(yield* files.list("special"), [])
    }),

  "remove removes a link, never its target": ({ executor }) =>
    Effect.gen(function* () {
      const { files } = executor
      const away = yield* outside(executor)
      const make = `mkdir -p l/real; echo x > l/real/file; cd l; ln -sfn real/file file; ln -sfn real directory; ln -sfn ${quoted(away)} away; ln -sfn nowhere dangling; ln -sfn . self`
      for (const options of [{}, { recursive: true }]) {
        yield* does(executor, make)
        for (const name of ["file", "directory/", "away", "dangling", "self"]) {
          yield* files.remove(`l/${name}`, options)
        }
        assert.deepStrictEqual(
          (yield* files.list("l")).map(({ name }) => name),
          ["real"]
        )
        assert.strictEqual((yield* files.stat("l/real/file")).bytes, 2)
      }
      assert.strictEqual(yield* precious(executor, away), "precious")
    }).pipe(Effect.scoped),

  "remove does not leave the workspace through a link in the path": ({ executor }) =>
    Effect.gen(function* () {
      const { files } = executor
      const away = yield* outside(executor)
      yield* does(
        executor,
        `mkdir -p p/real; echo x > p/real/file; cd p; ln -s ${quoted(away)} away; ln -s real in`
      )
      for (const options of [{}, { recursive: true }]) {
        assert.strictEqual(yield* problemOf(files.remove("p/away/kept", options)), "outside_workspace")
      }
      assert.strictEqual(yield* precious(executor, away), "precious")
      yield* files.remove("p/in/file")
      assert.deepStrictEqual(yield* files.list("p/real"), [])
    }).pipe(Effect.scoped),

  "a recursive removal follows no link, and removes closed and deep directories": ({ executor }) =>
    Effect.gen(function* () {
      const { files } = executor
      const away = yield* outside(executor)
      yield* does(
        executor,
        `mkdir -p r/closed/inside r/$(printf 'd/%.0s' $(seq 100)); echo x > r/closed/inside/file; chmod 0 r/closed/inside r/closed; cd r; ln -s ${quoted(away)} away; ln -s ${quoted(away)}/kept kept; mkfifo fifo; : > '-rf'; : > 'a\nb'`
      )
      yield* files.remove("r", { recursive: true })
      assert.strictEqual(yield* problemOf(files.stat("r")), "not_found")
      assert.strictEqual(yield* precious(executor, away), "precious")
    }).pipe(Effect.scoped),

  "a recursive removal stays inside while its directories are replaced by links": ({ executor }) =>
    Effect.gen(function* () {
      const { files } = executor
      const away = yield* outside(executor)
      const swapping = yield* Effect.forkChild(
        executor.exec(
          `while [ ! -e stop ]; do mkdir -p w/x; : > w/x/file; mv -T w/x w/y 2> /dev/null; ln -sfn ${quoted(away)} w/x; rm -rf w/x w/y; done 2> /dev/null; true`
        )
      )
      yield* Effect.forEach(
        Array.from({ length: 30 }),
        () => Effect.exit(files.remove("w", { recursive: true })),
        { discard: true }
      )
      yield* files.write("stop", "")
      yield* Fiber.join(swapping)
      yield* Effect.exit(files.remove("w", { recursive: true }))
      yield* files.remove("stop")
      assert.strictEqual(yield* problemOf(files.stat("w")), "not_found")
      assert.strictEqual(yield* precious(executor, away), "precious")
    }).pipe(Effect.scoped)
}
