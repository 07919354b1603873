/**
 * Bad input to sessions on real Docker: extreme commands, files, names, numbers and floods. Each fails with its own
 * error in bounded time, and the session continues where it can.
 */
import { assert, layer } from "@effect/vitest"
import { stdinBytesMax } from "@cogni/sandbox-core/ExecutorLimits"
import type { Reason, SandboxError } from "@cogni/sandbox-core/SandboxError"
import type { FileProblem } from "@cogni/sandbox-core/SandboxReason"
import { argumentBytesMax, argumentsBytesMax } from "@cogni/sandbox-core/SpecFields"
import type { SessionSandbox } from "@cogni/sandbox-sessions/sandbox/DockerSandbox"
import * as HostSessionWorkspaces from "@cogni/sandbox-sessions/sandbox/HostSessionWorkspaces"
import * as ProcessTable from "../../packages/loop/src/ProcessTable.ts"
import * as SessionId from "../../packages/sessions/src/sandbox/SessionId.ts"
import { Effect, Exit, Ref, Scope, Stream } from "effect"
import { existsSync, readdirSync } from "node:fs"
import { join } from "node:path"
import * as LeakCheck from "../harness/LeakCheck.ts"
import * as OutOfTheWay from "../harness/OutOfTheWay.ts"
import * as RunHarness from "../harness/RunHarness.ts"
import * as SessionHarness from "../harness/SessionHarness.ts"
import * as Pace from "../harness/Pace.ts"

const { said } = SessionHarness

const MiB = 1024 ** 2

const options = { excludeTestServices: true } as const

/** Opens a session in a new manager, with its own limits. */
const session = (limits: SessionHarness.Limits = {}) =>
  Effect.flatMap(SessionHarness.manager({ settings: SessionHarness.settingsWith(limits) }), (manager) =>
    manager.getOrCreate("chat")
  )

/** Asserts that the request fails with this reason, that `fix` matches its message, and that the session continues. */
const refused = Effect.fnUntraced(function* <A>(
  sandbox: SessionSandbox,
  asked: Effect.Effect<A, SandboxError>,
  tag: Reason["_tag"],
  fix: RegExp
) {
  const { value } = yield* SessionHarness.within(20, Effect.flip(asked))
  assert.strictEqual(value.reason._tag, tag, value.message)
  assert.match(value.message, fix)
  assert.strictEqual(yield* said(sandbox, "echo alive"), "alive")
})

const problemOf = <A>(asked: Effect.Effect<A, SandboxError>): Effect.Effect<FileProblem> =>
  Effect.flatMap(SessionHarness.within(20, Effect.orDie(Effect.flip(asked))), ({ value }) =>
    value.reason._tag === "FileRefused" ? Effect.succeed(value.reason.problem) : Effect.die(value)
  )

const percentile = (millis: ReadonlyArray<number>, share: number) =>
  millis.toSorted((one, other) => one - other)[Math.ceil(millis.length * share) - 1]!

layer(RunHarness.layer(), options)("a command", (it) => {
  it.effect("is refused in an invalid working directory, and can start outside the workspace", () =>
    Effect.gen(function* () {
      const sandbox = yield* session()
      yield* sandbox.exec("mkdir -p deep/er; ln -s deep/er link; ln -s /nowhere gone; touch file")
      const here = (workingDirectory: string) => said(sandbox, "pwd -P", { workingDirectory })
      // The working directory does not limit what a command can see. Other settings do.
      assert.strictEqual(yield* here("/workspace/deep/../../tmp"), "/tmp")
      assert.strictEqual(yield* here("/workspace/link"), "/workspace/deep/er")
      for (const path of ["deep", "../tmp", "", "/tmp/a\nb", "/tmp/a\0b", `/${"a".repeat(5000)}`]) {
        yield* refused(sandbox, here(path), "InvalidSpec", /workingDirectory: Expected an absolute path/u)
      }
      for (const path of ["/absent", "/workspace/gone", "/workspace/file", `/${"a".repeat(4094)}`]) {
        yield* refused(sandbox, here(path), "CommandRefused", /Check that the working directory exists/u)
      }
    })
  )

  it.effect("is refused if its arguments are larger than the kernel allows", () =>
    Effect.gen(function* () {
      const sandbox = yield* session()
      yield* refused(sandbox, sandbox.exec(`true ${"a".repeat(MiB)}`), "InvalidSpec", /send it on stdin/u)
      yield* refused(
        sandbox,
        sandbox.exec(["true", "a".repeat(200_000)]),
        "InvalidSpec",
        /argv\.1.*131071 bytes/u
      )
      const count = (argument: string, times: number) =>
        Effect.map(
          sandbox.exec(["sh", "-c", "echo $#", "sh", ...Array.from({ length: times }, () => argument)]),
          ({ output }) => Number(output.stdout.text)
        )
      assert.strictEqual(yield* count("a".repeat(2000), 100), 100)
      assert.strictEqual(yield* count("a".repeat(argumentBytesMax), 11), 11)
      for (const [argument, times] of [
        ["a".repeat(100_000), 16] as const,
        ["a".repeat(100_000), 60] as const
      ]) {
        assert.isAbove(argument.length * times, argumentsBytesMax)
        yield* refused(sandbox, count(argument, times), "CommandRefused", /1572864 bytes in total.*stdin/su)
      }
      const script = `: ${"a".repeat(MiB)}\necho through\n`
      const { output } = yield* sandbox.exec(["sh"], { stdin: script })
      assert.strictEqual(output.stdout.text, "through\n")
    })
  )

  it.effect("is refused with an invalid environment, and gets an unusual one unchanged", () =>
    Effect.gen(function* () {
      const sandbox = yield* session()
      const names = [
        "A=B",
        "",
        "1A",
        "A B",
        "A\0",
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "COGNI_HOLD",
        "a".repeat(129)
      ]
      for (const name of names) {
        yield* refused(sandbox, said(sandbox, "env", { env: { [name]: "x" } }), "InvalidSpec", /env/u)
      }
      yield* refused(sandbox, said(sandbox, "env", { env: { A: "a\0b" } }), "InvalidSpec", /without NUL/u)
      yield* refused(sandbox, sandbox.exec(["echo", "a\0b"]), "InvalidSpec", /without NUL/u)
      const odd = { A: "=a=b\n'\"$(id) \u{1f600}", _: "", PATH: "/nowhere", IFS: "x" }
      const { output } = yield* sandbox.exec(["/usr/bin/env", "-0"], { env: odd })
      assert.includeMembers(output.stdout.text.split("\0"), [`A=${odd.A}`, "PATH=/nowhere", "IFS=x"])
    })
  )

  it.effect("accepts stdin up to its limit, and is refused with one byte more", () =>
    Effect.gen(function* () {
      const sandbox = yield* session()
      const most = new Uint8Array(stdinBytesMax)
      for (let at = 0; at < most.length; at += 4099) most[at] = at % 251
      assert.strictEqual(yield* said(sandbox, "cat | wc -c", { stdin: most }), `${stdinBytesMax}`)
      // Unread input does not delay the end.
      assert.strictEqual(yield* said(sandbox, "exec <&-; echo over", { stdin: most }), "over")
      const more = sandbox.exec("cat", { stdin: new Uint8Array(stdinBytesMax + 1) })
      yield* refused(sandbox, more, "InvalidSpec", /give it as a stream, or put it into a file/u)
    })
  )

  it.effect("is refused if 64 commands are running", () =>
    Effect.gen(function* () {
      const sandbox = yield* session({ processesMax: 256, memoryBytesMax: 256 * MiB })
      const scopes = yield* Effect.forEach(
        Array.from({ length: 64 }),
        () => Effect.tap(Scope.make(), (scope) => Scope.provide(sandbox.spawn("sleep 300"), scope)),
        { concurrency: "unbounded" }
      )
      const error = yield* Effect.flip(sandbox.exec("true"))
      assert.strictEqual(error.reason._tag, "CommandRefused")
      assert.match(error.message, /64 commands are already running.*Wait until one ends/su)
      // File access runs a command of ours, so it fails too, at once.
      const file = yield* SessionHarness.within(2, Effect.flip(sandbox.files.list(".")))
      assert.strictEqual(file.value.reason._tag, "FileRefused")
      assert.include(file.value.message, "64 commands are already running")
      const { millis } = yield* SessionHarness.within(
        30,
        Effect.forEach(scopes, (scope) => Scope.close(scope, Exit.void), { concurrency: "unbounded" })
      )
      assert.isBelow(millis, 15_000)
      assert.strictEqual(yield* said(sandbox, "cat /proc/[0-9]*/comm | grep -c sleep"), "0 (1)")
    })
  )
})

const odd = `
mkfifo fifo; mkdir -p dir; echo inside > dir/in; ln -s dir/in good
ln -s /etc/passwd out; ln -s ../etc/passwd up; ln -s / root; ln -s loop loop; ln -s gone dangling; ln -s /dev/zero zero
(socat UNIX-LISTEN:socket /dev/null &)
echo closed > closed; chmod 0 closed
until [ -S socket ]; do sleep 0.01; done
`

layer(RunHarness.layer(), options)("a file", (it) => {
  it.effect("is refused without a wait if it is not a regular file or lies outside the workspace", () =>
    Effect.gen(function* () {
      const sandbox = yield* session()
      yield* sandbox.exec(odd)
      const { files } = sandbox
      assert.strictEqual(new TextDecoder().decode(yield* files.read("good")), "inside\n")
      const expected: ReadonlyArray<readonly [string, FileProblem, FileProblem]> = [
        ["fifo", "not_a_file", "not_a_file"],
        ["socket", "not_a_file", "not_a_file"],
        ["dir", "not_a_file", "not_a_file"],
        [".", "not_a_file", "not_a_file"],
        ["out", "outside_workspace", "outside_workspace"],
        ["up", "outside_workspace", "outside_workspace"],
        ["zero", "outside_workspace", "outside_workspace"],
        ["root/etc/passwd", "outside_workspace", "outside_workspace"],
        ["root/tmp/new", "not_found", "outside_workspace"],
        ["/dev/zero", "outside_workspace", "outside_workspace"],
        ["/proc/self/environ", "outside_workspace", "outside_workspace"],
        ["../etc/passwd", "outside_workspace", "outside_workspace"],
        ["dir/../../etc/passwd", "outside_workspace", "outside_workspace"],
        ["loop", "unreadable", "unreadable"],
        ["fifo/in", "not_a_directory", "not_a_directory"],
        ["a\0b", "invalid_path", "invalid_path"],
        ["a".repeat(256), "invalid_path", "invalid_path"],
        ["a/".repeat(2500), "invalid_path", "invalid_path"]
      ]
      for (const [path, read, written] of expected) {
        assert.strictEqual(yield* problemOf(files.read(path)), read, `read ${path.slice(0, 50)}`)
        assert.strictEqual(yield* problemOf(files.write(path, "new")), written, `write ${path.slice(0, 50)}`)
      }
      assert.strictEqual(yield* problemOf(files.read("closed")), "permission_denied")
      assert.strictEqual(yield* problemOf(files.read("dangling")), "not_found")
      assert.strictEqual(yield* problemOf(files.list("root")), "outside_workspace")
      assert.strictEqual(yield* problemOf(files.list("fifo")), "not_a_directory")
      assert.strictEqual(yield* said(sandbox, "ls -A /tmp; ls -A | grep -c '^\\.cogni-'"), "0 (1)")
    })
  )

  it.effect(
    "is too large if it is sparse with 10 GB or grows while it is read, and the session continues",
    () =>
      Effect.gen(function* () {
        const sandbox = yield* session({ workspaceBytesMax: 20 * 1024 * MiB, memoryBytesMax: 64 * MiB })
        yield* sandbox.exec("truncate -s 10G sparse")
        assert.strictEqual(yield* problemOf(sandbox.files.read("sparse")), "too_large")
        yield* sandbox.exec("truncate -s 5M some")
        assert.strictEqual(yield* problemOf(sandbox.files.read("some", { bytesMax: MiB })), "too_large")
        yield* sandbox.spawn("while :; do head -c 1000000; done < /dev/zero > growing")
        const { millis } = yield* SessionHarness.within(30, Effect.exit(sandbox.files.read("growing")))
        assert.isBelow(millis, 20_000)
        assert.strictEqual(yield* said(sandbox, "echo alive"), "alive")
      })
  )

  it.effect("is listed with any name, and a directory with too many files is not listed", () =>
    Effect.gen(function* () {
      const sandbox = yield* session()
      const names = [
        "a\nb",
        "q\"'`$(id)\\",
        " ",
        "-rf",
        "\u{1f600}",
        "a\tb",
        "\u001b[31m",
        "a".repeat(255),
        ".hidden"
      ]
      for (const name of names) yield* sandbox.files.write(`odd/${name}`, name)
      // A name that is not valid UTF-8 is listed with replacement characters, and cannot be read by that name.
      yield* sandbox.exec(["perl", "-e", 'open my $f, ">", "odd/\\xff\\xfe" or die'])
      const listed = yield* sandbox.files.list("odd")
      assert.sameMembers(
        listed.map(({ name }) => name),
        [...names, "\ufffd\ufffd"]
      )
      for (const name of names) {
        assert.strictEqual(new TextDecoder().decode(yield* sandbox.files.read(`odd/${name}`)), name)
      }
      assert.strictEqual(yield* problemOf(sandbox.files.read("odd/\ufffd\ufffd")), "not_found")

      yield* sandbox.exec("mkdir many; cd many; seq 10000 | xargs touch")
      assert.strictEqual((yield* sandbox.files.list("many")).length, 10_000)
      yield* sandbox.exec("cd many; seq 10001 20000 | xargs touch")
      assert.strictEqual(yield* problemOf(sandbox.files.list("many")), "too_large")
      assert.strictEqual(yield* said(sandbox, "ls many | wc -l"), "20000")
    })
  )

  it.effect("ends the session with DiskFull if it exceeds the limit, and the next session is new", () =>
    Effect.gen(function* () {
      const settings = SessionHarness.settingsWith({ workspaceBytesMax: 4 * MiB })
      const manager = yield* SessionHarness.manager({ settings })
      const sandbox = yield* manager.getOrCreate("chat")
      const full = "head -c 3000000 /dev/zero > one; head -c 3000000 /dev/zero > two; sleep 60"
      const { value } = yield* SessionHarness.within(30, Effect.flip(sandbox.exec(full)))
      assert.strictEqual(value.reason._tag, "DiskFull", value.message)
      assert.strictEqual((yield* Effect.flip(sandbox.files.write("x", "x"))).reason._tag, "DiskFull")
      const next = yield* manager.getOrCreate("chat")
      assert.notStrictEqual(next.runId, sandbox.runId)
      assert.deepStrictEqual(yield* next.files.list("."), [])
    })
  )

  it.effect("counts towards the limit of a persistent workspace across containers", () =>
    Effect.gen(function* () {
      const settings = SessionHarness.settingsWith({ workspaceBytesMax: 4 * MiB })
      const manager = yield* SessionHarness.manager({ settings, keeps: true })
      const write = (name: string, seconds: number) => `head -c 3000000 /dev/zero > ${name}; sleep ${seconds}`
      const first = yield* manager.getOrCreate("chat")
      assert.strictEqual(yield* said(first, write("one", 2.5)), "")
      yield* manager.destroy("chat")
      const second = yield* manager.getOrCreate("chat")
      const { value } = yield* SessionHarness.within(30, Effect.flip(second.exec(write("two", 200))))
      assert.strictEqual(value.reason._tag, "DiskFull", value.message)
      const third = yield* manager.getOrCreate("chat")
      assert.strictEqual(yield* said(third, "ls; rm one; sleep 2.5; ls"), "one\ntwo\ntwo")
    })
  )

  it.effect("counts towards the limit even if it is moved during each measurement", () =>
    Effect.gen(function* () {
      const sandbox = yield* session({ workspaceBytesMax: 4 * MiB })
      const hiding = yield* sandbox.spawn(["perl", "-e", OutOfTheWay.program])
      yield* Stream.runHead(hiding.output)
      const write =
        'cd "$(readlink big)"; for i in 1 2 3 4 5; do head -c 3000000 /dev/zero > $i; sleep 1; done; sleep 200'
      const { value } = yield* SessionHarness.within(30, Effect.flip(sandbox.exec(write)))
      assert.strictEqual(value.reason._tag, "DiskFull", value.message)
    })
  )

  it.effect("is refused if it is larger than the workspace limit, and leaves nothing", () =>
    Effect.gen(function* () {
      const sandbox = yield* session({ workspaceBytesMax: 4 * MiB })
      assert.strictEqual(yield* problemOf(sandbox.files.write("big", new Uint8Array(8 * MiB))), "no_space")
      assert.strictEqual(yield* said(sandbox, "ls -A"), "")
    })
  )
})

/** Measures the largest memory growth of this process during an effect. */
const memoryGrowth = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.gen(function* () {
    const before = process.memoryUsage.rss()
    const most = yield* Ref.make(before)
    const watch = Effect.suspend(() =>
      Ref.update(most, (bytes) => Math.max(bytes, process.memoryUsage.rss()))
    )
    const value = yield* Effect.raceFirst(
      effect,
      Effect.andThen(watch, Effect.sleep("20 millis")).pipe(Effect.forever)
    )
    return { value, bytes: (yield* Ref.get(most)) - before }
  })

layer(RunHarness.layer(), options)("a flood", (it) => {
  it.effect("a flood of 300 MB is counted without being kept, and is ended at its limit", () =>
    Effect.gen(function* () {
      const sandbox = yield* session({ outputBytesMax: 2 * 1024 * MiB })
      const asked = sandbox.exec("yes | head -c 300000000", { outputRetainedBytesMax: 64 * 1024 })
      const { bytes, value } = yield* memoryGrowth(SessionHarness.within(240, asked))
      assert.strictEqual(value.value.output.stdout.bytes, 300_000_000)
      assert.strictEqual(value.value.output.stdout.text.length, 64 * 1024)
      assert.isBelow(bytes, 160 * MiB)
      yield* Effect.logInfo(
        `300 MB in ${Math.round(value.millis)} ms, memory +${Math.round(bytes / MiB)} MiB`
      )

      const limited = yield* session({ outputBytesMax: 8 * MiB })
      const error = yield* SessionHarness.within(30, Effect.flip(limited.exec("yes; echo never")))
      assert.strictEqual(error.value.reason._tag, "OutputLimitExceeded")
      assert.strictEqual(yield* said(limited, "cat /proc/[0-9]*/comm | grep -c yes"), "0 (1)")
    })
  )

  it.effect("a flood of background processes does not slow other commands", () =>
    Effect.gen(function* () {
      const sandbox = yield* session({ cpusMax: 2 })
      const table = yield* ProcessTable.make(sandbox)
      yield* table.start({ command: "yes" })
      const unread = yield* sandbox.spawn("yes")
      const read = yield* sandbox.spawn("yes | head -c 4000000000")
      yield* Effect.forkChild(Stream.runDrain(read.output))
      const millis: Array<number> = []
      for (let round = 0; round < 100; round++) {
        const before = performance.now()
        assert.strictEqual((yield* sandbox.exec(["true"], { timeoutSecondsMax: 300 })).exitCode, 0)
        millis.push(performance.now() - before)
      }
      const [p50, p99] = [percentile(millis, 0.5), percentile(millis, 0.99)]
      yield* Effect.logInfo(`beside floods: p50 ${p50.toFixed(1)} ms, p99 ${p99.toFixed(1)} ms`)
      assert.isBelow(p50, Pace.allowed(200))
      assert.isBelow(p99, Pace.allowed(2000))
      yield* unread.signal("SIGKILL")
    })
  )
})

layer(RunHarness.layer(), options)("sessions", (it) => {
  it.effect("stay in their directory if their IDs look like paths", () =>
    Effect.gen(function* () {
      const parent = yield* RunHarness.Directory
      const root = SessionHarness.workspacesOf(parent)
      const before = readdirSync(parent)
      const manager = yield* SessionHarness.manager({ keeps: true })
      for (const id of ["", "a\0b", "a\nb", "\u007f", "a".repeat(513), "\ud800"]) {
        const error = yield* Effect.flip(manager.getOrCreate(id))
        assert(error._tag === "SessionRefused", error.message)
        assert.strictEqual(error.reason, "invalid_id")
      }
      assert.isFalse(existsSync(root))

      const ids = [
        "../up",
        "..",
        ".",
        "/etc",
        "a/b/../../../c",
        "-rf",
        "$(id)",
        "%2e%2e",
        "\u{1f600}".repeat(256)
      ]
      const workspaces = HostSessionWorkspaces.make({ directory: root })
      const decoded = yield* Effect.forEach(ids, (id) => SessionId.decode(id))
      const sources = yield* Effect.forEach(decoded, (id) => workspaces.of(id))
      assert.strictEqual(new Set(sources.map((source) => JSON.stringify(source))).size, ids.length)
      const one = yield* manager.getOrCreate("../up")
      yield* one.exec("echo mine > mine")
      assert.strictEqual(readdirSync(root).length, ids.length)
      assert(readdirSync(root).every((name) => /^[0-9a-f]{32}$/u.test(name)))
      assert.sameMembers(readdirSync(parent), [...new Set([...before, "runs", "sessions"])])
      yield* manager.destroy("../up")
      yield* Effect.forEach(decoded, (id) => workspaces.forget(id))
      assert.deepStrictEqual(readdirSync(root), [])
      assert(existsSync(join(parent, "runs")))
    })
  )

  it.effect("are limited to 20 if 200 are requested at once, and the others are refused", () =>
    Effect.gen(function* () {
      const settings = SessionHarness.settingsWith({ memoryBytesMax: 32 * MiB, processesMax: 16 })
      const manager = yield* SessionHarness.manager({ settings })
      const most = yield* Ref.make(0)
      const watch = Effect.flatMap(LeakCheck.leftovers, (found) =>
        Ref.update(most, (count) =>
          Math.max(count, found.filter((name) => name.startsWith("container ")).length)
        )
      )
      yield* Effect.forkScoped(Effect.andThen(watch, Effect.sleep("20 millis")).pipe(Effect.forever))
      const ids = Array.from({ length: 200 }, (_, index) => `chat-${index}`)
      const asked = yield* Effect.forEach(ids, (id) => Effect.result(manager.getOrCreate(id)), {
        concurrency: "unbounded"
      })
      const opened = asked.flatMap((one) => (one._tag === "Success" ? [one.success] : []))
      const others = asked.flatMap((one) => (one._tag === "Failure" ? [one.failure] : []))
      assert.strictEqual(opened.length, 20)
      assert.deepStrictEqual(
        [...new Set(others.map((error) => (error._tag === "SessionRefused" ? error.reason : error.message)))],
        ["full"]
      )
      assert.match(others[0]!.message, /there are 20 sessions already.*raise sessions_max/su)
      assert.deepStrictEqual(
        yield* Effect.forEach(opened, (sandbox) => said(sandbox, "echo $0"), { concurrency: "unbounded" }),
        opened.map(() => "/bin/sh")
      )
      yield* watch
      assert.strictEqual(yield* Ref.get(most), 20)
      yield* manager.destroyAll
      assert.deepStrictEqual(yield* LeakCheck.leftovers, [])
    })
  )

  it.effect("never exceed the limit while they evict idle ones", () =>
    Effect.gen(function* () {
      const manager = yield* SessionHarness.manager({ sessionsMax: 2, whenFull: "evict_idle" })
      const most = yield* Ref.make(0)
      const watch = Effect.flatMap(LeakCheck.leftovers, (found) =>
        Ref.update(most, (count) =>
          Math.max(count, found.filter((name) => name.startsWith("container ")).length)
        )
      )
      yield* Effect.forkScoped(Effect.andThen(watch, Effect.sleep("10 millis")).pipe(Effect.forever))
      for (let round = 0; round < 6; round++) {
        yield* Effect.scoped(
          Effect.flatMap(manager.getOrCreate(`chat-${round}`), (sandbox) => sandbox.exec("true"))
        )
      }
      assert.strictEqual(yield* Ref.get(most), 2)
      assert.sameMembers(
        (yield* manager.list).map(({ sessionId }) => String(sessionId)),
        ["chat-4", "chat-5"]
      )
    })
  )

  it.effect("survive signals from inside to their supervisor", () =>
    Effect.gen(function* () {
      const manager = yield* SessionHarness.manager()
      const sandbox = yield* manager.getOrCreate("chat")
      for (const signal of ["STOP", "TSTP", "KILL", "TERM", "INT", "HUP", "USR1", "PIPE"]) {
        yield* Effect.exit(
          said(sandbox, `kill -${signal} 1; kill -${signal} -- -1; sleep 0.1`, { timeoutSecondsMax: 1 })
        )
        const { millis, value } = yield* SessionHarness.within(10, said(sandbox, "echo alive"))
        assert.strictEqual(value, "alive", signal)
        assert.isBelow(millis, 5000, signal)
      }
    })
  )

  it.effect("time out a command whose keeper was stopped from inside, and continue", () =>
    Effect.gen(function* () {
      const manager = yield* SessionHarness.manager()
      const sandbox = yield* manager.getOrCreate("chat")
      const { millis, value } = yield* SessionHarness.within(
        20,
        Effect.flip(said(sandbox, "kill -STOP $PPID; sleep 60", { timeoutSecondsMax: 1 }))
      )
      assert.strictEqual(value.reason._tag, "CommandTimedOut")
      assert.isBelow(millis, 6000)
      assert.notInclude(yield* said(sandbox, "cat /proc/[0-9]*/comm"), "sleep")
    })
  )
})
