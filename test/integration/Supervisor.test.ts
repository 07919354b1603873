/** The supervisor of an open sandbox, tested in a sandbox: what it must not lose, keep or wait for. */
import { assert, layer } from "@effect/vitest"
import { SandboxRunner } from "@cogni/sandbox-core/SandboxRunner"
import { Effect, Stream } from "effect"
import * as Images from "../harness/Images.ts"
import * as RunHarness from "../harness/RunHarness.ts"
import * as Pace from "../harness/Pace.ts"

const MiB = 1024 * 1024

/** Path of the supervisor's status file. The supervisor is the parent of a command's keeper. */
const supervisor = "/proc/$(sed -n 's/^PPid:[^0-9]*//p' /proc/$PPID/status)/status"

const opened = SandboxRunner.use((runner) => runner.open({ image: Images.runtime }))

layer(RunHarness.layer(), { excludeTestServices: true })("the supervisor", (it) => {
  it.effect("does not lose a signal that arrives during the start of its command", () =>
    Effect.gen(function* () {
      const sandbox = yield* opened
      for (let round = 0; round < 20; round++) {
        const { exit, signal } = yield* sandbox.spawn(["sleep", "30"])
        yield* signal("SIGTERM")
        const ended = yield* Effect.timeout(exit, "5 minutes")
        assert.deepStrictEqual(ended, { exitCode: 143, signal: "SIGTERM" })
      }
    }).pipe(Effect.scoped)
  )

  it.effect("ends a command with its process, even if its children still write", () =>
    Effect.gen(function* () {
      const sandbox = yield* opened
      const { durationMs, exitCode, output } = yield* sandbox.exec(
        "echo first; for i in 1 2 3 4 5 6 7 8; do (sleep 0.2; exec yes) & done; sleep 0.3; exit 3",
        { timeoutSecondsMax: 200 }
      )
      assert.strictEqual(exitCode, 3)
      assert.match(output.stdout.text, /^first\n/u)
      assert.isBelow(durationMs, Pace.allowed(10_000))
    }).pipe(Effect.scoped)
  )

  it.effect("does not keep input that a command never reads", () =>
    Effect.gen(function* () {
      const sandbox = yield* opened
      const residentBytes = Effect.map(
        sandbox.exec(`grep VmRSS ${supervisor}`),
        ({ output }) => Number(/\d+/u.exec(output.stdout.text)?.[0]) * 1024
      )
      const before = yield* residentBytes
      assert.isAbove(before, MiB)
      const closed = yield* sandbox.spawn("exec <&-; echo closed; sleep 30", {
        stdin: new Uint8Array(16 * MiB)
      })
      yield* Stream.runDrain(Stream.take(closed.output, 1))
      yield* Effect.sleep("1 second")
      assert.isBelow((yield* residentBytes) - before, 8 * MiB)
    }).pipe(Effect.scoped)
  )

  it.effect("kills a command before it ends its input, so that no command takes a part for the whole", () =>
    Effect.gen(function* () {
      const sandbox = yield* opened
      const concludes = '$| = 1; print "ready"; 1 while sysread STDIN, $_, 65536; open F, ">", $ARGV[0]'
      for (let round = 0; round < 10; round++) {
        yield* Effect.scoped(
          Effect.gen(function* () {
            const { output } = yield* sandbox.spawn(["perl", "-e", concludes, `concluded-${round}`], {
              stdin: Stream.concat(Stream.succeed(new Uint8Array(1000)), Stream.never)
            })
            yield* Stream.runDrain(Stream.take(output, 1))
          })
        )
      }
      const names = (yield* sandbox.files.list(".")).map(({ name }) => name)
      assert.deepStrictEqual(
        names.filter((name) => name.startsWith("concluded-")),
        []
      )
    }).pipe(Effect.scoped)
  )

  it.effect("keeps the old content of a file if writing the new one is interrupted", () =>
    Effect.gen(function* () {
      const { files } = yield* opened
      yield* files.write("file", "old")
      const content = new Uint8Array(16 * MiB)
      for (let round = 0; round < 20; round++) {
        yield* Effect.timeoutOption(files.write("file", content), `${5 * round} millis`)
        const { bytes } = yield* files.stat("file")
        assert.include([3, 16 * MiB], bytes)
        if (bytes !== 3) yield* files.write("file", "old")
      }
    }).pipe(Effect.scoped)
  )

  it.effect("leaves no process and no memory behind after 300 commands, 50 at a time", () =>
    Effect.gen(function* () {
      const sandbox = yield* opened
      const count = Effect.map(
        sandbox.exec(`set -- /proc/[0-9]*; echo $#; grep VmRSS ${supervisor}`),
        ({ output }) => [...output.stdout.text.matchAll(/\d+/gu)].map(Number)
      )
      yield* sandbox.exec("true")
      const [processes = 0, kib = 0] = yield* count
      yield* Effect.forEach(
        Array.from({ length: 300 }),
        (_, index) => sandbox.exec(["sh", "-c", "(true & true) & exit 0"]).pipe(Effect.as(index)),
        { concurrency: 50, discard: true }
      )
      yield* Effect.sleep("500 millis")
      const [processesAfter, kibAfter = 0] = yield* count
      assert.isAtMost(processesAfter ?? 0, processes)
      assert.isBelow(kibAfter - kib, 4096)
    }).pipe(Effect.scoped)
  )
})
