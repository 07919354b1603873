/** The part of the contract of every `ContainerRuntime` about containers that accept commands. */
import { assert, it } from "@effect/vitest"
import { Deferred, Effect, type Layer, Queue, Stream } from "effect"
import type { Container, ContainerRuntime, ContainerSpec } from "../ContainerRuntime.ts"
import { supervisor } from "../SpecFields.ts"
import * as RunId from "../RunId.ts"
import { type Behaviour, started, written } from "./Behaviour.ts"

export interface Fixture {
  /** An agent's container. The contract replaces its argv. */
  readonly spec: (runId: RunId.RunId) => ContainerSpec
  readonly argv: (behaviour: Behaviour) => readonly [string, ...Array<string>]
}

export const suite = <E>(name: string, layer: Layer.Layer<ContainerRuntime, E>, fixture: Fixture): void => {
  const supervised = Effect.flatMap(RunId.generate, (runId) =>
    started({ ...fixture.spec(runId), argv: [supervisor], supervised: true })
  )

  const exec = (container: Container, behaviour: Behaviour) =>
    container.exec({ argv: fixture.argv(behaviour), env: {} })

  it.layer(layer, { excludeTestServices: true, timeout: "2 minutes" })(`supervised (${name})`, (it) => {
    it.effect("exec runs a command, and returns its exit code and both outputs", () =>
      Effect.gen(function* () {
        const container = yield* supervised
        const writing = yield* exec(container, { _tag: "Writes", stdout: "out", stderr: "err" })
        const chunks = yield* Stream.runCollect(writing.output)
        assert.deepStrictEqual([written(chunks, "stdout"), written(chunks, "stderr")], ["out", "err"])
        assert.deepStrictEqual(yield* writing.exit, {
          exitCode: 0,
          oomKilled: false,
          processesRefused: false
        })
        const failing = yield* exec(container, { _tag: "ExitsWith", exitCode: 5 })
        yield* Stream.runDrain(failing.output)
        assert.strictEqual((yield* failing.exit).exitCode, 5)
      })
    )

    it.effect("streams input to a command while it runs, and interrupts the stream with the command", () =>
      Effect.gen(function* () {
        const container = yield* supervised
        const argv = fixture.argv({ _tag: "EchoesStdin" })
        const pieces = yield* Queue.make<Uint8Array>()
        const echoing = yield* container.exec({
          argv,
          env: {},
          stdin: Stream.takeWhile(Stream.fromQueue(pieces), ({ byteLength }) => byteLength > 0)
        })
        yield* Queue.offer(pieces, Buffer.from("one"))
        yield* Queue.offer(pieces, Buffer.from("two"))
        yield* Queue.offer(pieces, new Uint8Array(0))
        assert.strictEqual(written(yield* Stream.runCollect(echoing.output), "stdout"), "onetwo")
        assert.strictEqual((yield* echoing.exit).exitCode, 0)

        const over = yield* Deferred.make<void>()
        const stdin = Stream.ensuring(
          Stream.concat(Stream.make(Buffer.from("begun")), Stream.never),
          Deferred.succeed(over, undefined)
        )
        yield* Effect.scoped(
          Effect.gen(function* () {
            const open = yield* container.exec({ argv, env: {}, stdin })
            yield* Stream.runHead(open.output)
          })
        )
        yield* Deferred.await(over)
      })
    )

    it.effect("ends a command when its scope closes, and accepts the next", () =>
      Effect.gen(function* () {
        const container = yield* supervised
        const exit = yield* Effect.scoped(
          Effect.gen(function* () {
            const running = yield* exec(container, { _tag: "IgnoresTerm" })
            yield* Stream.runHead(running.output)
            yield* running.signal("SIGTERM")
            return yield* running.exit.pipe(Effect.timeoutOption("300 millis"))
          })
        )
        assert.strictEqual(exit._tag, "None", "it had ended by itself")
        assert.strictEqual(
          (yield* (yield* exec(container, { _tag: "ExitsWith", exitCode: 3 })).exit).exitCode,
          3
        )
      })
    )

    it.effect("sends signals to a command, which end it", () =>
      Effect.gen(function* () {
        const container = yield* supervised
        const polite = yield* exec(container, { _tag: "ExitsOnTerm", exitCode: 42 })
        yield* Stream.runHead(polite.output)
        yield* polite.signal("SIGTERM")
        assert.strictEqual((yield* polite.exit).exitCode, 42)
        const stubborn = yield* exec(container, { _tag: "IgnoresTerm" })
        yield* Stream.runHead(stubborn.output)
        yield* stubborn.signal("SIGKILL")
        const { exitCode, signal } = yield* stubborn.exit
        assert.deepStrictEqual([exitCode, signal], [137, "SIGKILL"])
      })
    )

    it.effect("delivers everything to a slow reader, without delaying other commands", () =>
      Effect.gen(function* () {
        const bytes = 2 * 1024 ** 2 + 17
        const container = yield* supervised
        const slow = yield* exec(container, { _tag: "EchoesManyBytes", bytes })
        const quick = yield* exec(container, { _tag: "Writes", stdout: "out", stderr: "" })
        assert.strictEqual(written(yield* Stream.runCollect(quick.output), "stdout"), "out")
        let seen = 0
        yield* Stream.runForEach(slow.output, (chunk) =>
          Effect.andThen(
            Effect.sync(() => (seen += chunk.bytes.byteLength)),
            seen < 300_000 ? Effect.sleep("2 millis") : Effect.void
          )
        )
        assert.deepStrictEqual([seen, (yield* slow.exit).exitCode], [bytes, 0])
      })
    )
  })
}
