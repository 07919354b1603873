/** Runs the executor contract on the host, and tests what only the host can get wrong. */
import { type Executor } from "@cogni/sandbox-core/Executor"
import { entriesMax, fileBytesMax } from "@cogni/sandbox-core/ExecutorLimits"
import * as FilePath from "@cogni/sandbox-core/FilePath"
import type { SandboxError } from "@cogni/sandbox-core/SandboxError"
import type { FileRefused } from "@cogni/sandbox-core/SandboxReason"
import * as HostExecutor from "@cogni/sandbox-sessions/executor/HostExecutor"
import { ExecutorContract } from "@cogni/sandbox-sessions/testing"
import * as CommandBehaviour from "@cogni/sandbox-loop/testing/CommandBehaviour"
import * as CommandSubject from "../src/testing/CommandSubject.ts"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, layer } from "@effect/vitest"
import {
  ConfigProvider,
  Context,
  Duration,
  Effect,
  Exit,
  Fiber,
  Layer,
  Result,
  Schema,
  Scope,
  Stream
} from "effect"
import { spawn } from "node:child_process"
import { readdirSync, readFileSync } from "node:fs"
import {
  chmod,
  mkdir,
  mkdtemp,
  open,
  readFile,
  readlink,
  realpath,
  rename,
  rm,
  stat,
  symlink,
  truncate,
  utimes,
  writeFile
} from "node:fs/promises"
import { createServer } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as WorkspaceFiles from "@cogni/sandbox-host-files/WorkspaceFiles"
import * as Pace from "../../../test/harness/Pace.ts"

const { interruptedAfter, problemOf, reasonOf, until } = CommandSubject

const limits = { outputBytesMax: 64 * 1024 ** 2, outputRetainedBytesMax: 4 * 1024 ** 2 }

const directory = Effect.acquireRelease(
  Effect.promise(async () => realpath(await mkdtemp(join(tmpdir(), "cogni-test-")))),
  (path) => Effect.promise(() => rm(path, { recursive: true, force: true }))
)

ExecutorContract.suite(
  "host",
  Layer.succeed(
    CommandSubject.Executors,
    CommandSubject.Executors.of({
      words: CommandBehaviour.shell,
      open: (given) =>
        Effect.flatMap(directory, (workspace) =>
          HostExecutor.make({ workspace, limits: { ...limits, ...given } }).pipe(
            Effect.provide(NodeServices.layer)
          )
        )
    })
  ),
  ["hasLinks"]
)

/** An executor, and a directory outside of its workspace. */
class Host extends Context.Service<Host, { readonly executor: Executor; readonly outside: string }>()(
  "test/Host"
) {
  static readonly layer = Layer.effect(
    Host,
    Effect.gen(function* () {
      const [workspace, outside] = yield* Effect.all([directory, directory])
      yield* Effect.promise(() => writeFile(join(outside, "secret"), "secret"))
      return Host.of({ executor: yield* HostExecutor.make({ workspace, limits }), outside })
    })
  ).pipe(Layer.provideMerge(NodeServices.layer))
}

const isRoot = process.getuid?.() === 0

/** Returns the IDs of processes with this argument, without zombies. */
const alive = (word: string): ReadonlyArray<string> =>
  readdirSync("/proc").filter((pid) => {
    if (!/^\d+$/u.test(pid)) return false
    try {
      return readFileSync(`/proc/${pid}/cmdline`, "latin1").split("\0").includes(word)
    } catch {
      return false
    }
  })

let words = 0
/** Returns a duration for sleep(1) that no other process uses. */
const sleepWord = () => `${9000 + ++words}.${process.pid}`

const descriptors = () => readdirSync("/proc/self/fd").length

const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes)

const inWorkspace = Effect.map(Host, ({ executor, outside }) => ({
  executor,
  outside,
  files: executor.files,
  workspace: executor.workspace,
  at: (name: string) => join(executor.workspace, name)
}))

/** Ways for a child to detach without leaving its process group, as shell lines. */
const escapes: Readonly<Record<string, (sleep: string) => string>> = {
  "is in the background": (sleep) => `${sleep} &`,
  "has lost its parent": (sleep) => `(${sleep} &)`,
  "has cleared its environment, lost its parent and holds no pipe": (sleep) =>
    `(env -i ${sleep} > /dev/null 2>&1 &)`,
  "ignores signals": (sleep) => `trap '' HUP INT TERM; ${sleep} &`
}

layer(Host.layer, { excludeTestServices: true })("a command on the host that is killed", (it) => {
  it.effect("does not see the end of its input, so that it takes no part for the whole", () =>
    Effect.gen(function* () {
      const { at, executor } = yield* inWorkspace
      const concludes = 'echo ready; while read -r line; do :; done; : >"$0"'
      for (let round = 0; round < 30; round++) {
        yield* Effect.scoped(
          Effect.gen(function* () {
            const { output } = yield* executor.spawn(["sh", "-c", concludes, at(`concluded-${round}`)], {
              stdin: Stream.concat(Stream.succeed(new Uint8Array(1000)), Stream.never)
            })
            yield* Stream.runDrain(Stream.take(output, 1))
          })
        )
      }
      const names = readdirSync(executor.workspace)
      assert.deepStrictEqual(
        names.filter((name) => name.startsWith("concluded-")),
        []
      )
    })
  )
})

layer(Host.layer, { excludeTestServices: true })("leftovers of a command on the host", (it) => {
  it.effect("are killed after a timeout, unless they left the process group", () =>
    Effect.gen(function* () {
      const { executor } = yield* Host
      const left = yield* Effect.forEach(
        Object.entries(escapes),
        Effect.fnUntraced(function* ([way, escape]) {
          const word = sleepWord()
          const line = `${escape(`sleep ${word}`)}\nwhile :; do sleep 0.1; done`
          const running = yield* Effect.forkChild(reasonOf(executor.exec(line, { timeoutSecondsMax: 1 })))
          yield* until(
            `a child that ${way} runs`,
            Effect.sync(() => alive(word).length > 0)
          )
          assert.strictEqual((yield* Fiber.join(running))._tag, "CommandTimedOut")
          return [way, alive(word)] as const
        }),
        { concurrency: "unbounded" }
      )
      assert.deepStrictEqual(
        left.filter(([, pids]) => pids.length > 0),
        []
      )
    })
  )

  it.effect("survive a timeout outside of the process group, and do not delay it", () =>
    Effect.gen(function* () {
      const { executor } = yield* Host
      const word = sleepWord()
      const running = yield* Effect.forkChild(
        reasonOf(executor.exec(`setsid sleep ${word} & sleep 1000`, { timeoutSecondsMax: 1 }))
      )
      yield* until(
        "the child runs",
        Effect.sync(() => alive(word).length > 0)
      )
      assert.strictEqual((yield* Fiber.join(running))._tag, "CommandTimedOut")
      const survivors = alive(word)
      assert.strictEqual(survivors.length, 1)
      for (const pid of survivors) process.kill(Number(pid), "SIGKILL")
    })
  )

  it.effect("do not include unrelated processes", () =>
    Effect.gen(function* () {
      const { executor } = yield* Host
      const [mine, strangers] = [sleepWord(), sleepWord()]
      const scope = yield* Scope.make()
      yield* Scope.provide(scope)(executor.spawn(["sleep", mine]))
      yield* until(
        "the command runs",
        Effect.sync(() => alive(mine).length > 0)
      )
      const stranger = spawn("sleep", [strangers], { cwd: executor.workspace, stdio: "ignore" })
      yield* Scope.close(scope, Exit.void)
      assert.deepStrictEqual([alive(mine), alive(strangers).length], [[], 1])
      stranger.kill("SIGKILL")
    })
  )

  it.effect("survive a command that ended by itself, until the executor closes", () =>
    Effect.gen(function* () {
      const kept = sleepWord()
      yield* Effect.gen(function* () {
        const executor = yield* HostExecutor.make({ workspace: yield* directory, limits })
        const { exitCode } = yield* executor.exec(`sleep ${kept} &`)
        assert.strictEqual(exitCode, 0)
        yield* until(
          "the child runs",
          Effect.sync(() => alive(kept).length === 1)
        )
      }).pipe(Effect.scoped)
      assert.deepStrictEqual(alive(kept), [])
    })
  )

  it.effect("are killed if the command was sent an ending signal", () =>
    Effect.gen(function* () {
      const { executor } = yield* Host
      const word = sleepWord()
      yield* Effect.gen(function* () {
        const running = yield* executor.spawn(
          `trap 'exit 0' TERM; (trap '' TERM; sleep ${word}) & while :; do sleep 0.1; done`
        )
        yield* until(
          "the child runs",
          Effect.sync(() => alive(word).length > 0)
        )
        yield* running.signal("SIGTERM")
        assert.deepStrictEqual(yield* running.exit, { exitCode: 0 })
        assert.strictEqual(alive(word).length, 1)
      }).pipe(Effect.scoped)
      assert.deepStrictEqual(alive(word), [])
    })
  )

  it.effect("can write after the command has ended, without blocking or a broken pipe", () =>
    Effect.gen(function* () {
      const { executor } = yield* Host
      const line = "(sleep 0.3; head -c 4000000 /dev/zero; echo $? > wrote) & echo said"
      const { output } = yield* executor.exec(line)
      assert.strictEqual(output.stdout.text, "said\n")
      const wrote = Effect.map(Effect.exit(executor.files.read("wrote")), Exit.isSuccess)
      yield* until("the child has written", wrote)
      assert.strictEqual(text(yield* executor.files.read("wrote")), "0\n")
    })
  )

  it.effect("do not keep the output open, however much they write", () =>
    Effect.gen(function* () {
      const { executor } = yield* Host
      const word = sleepWord()
      const { exitCode, output } = yield* executor.exec(`sh -c 'yes' ${word} & exit 6`)
      assert.strictEqual(exitCode, 6)
      assert.isBelow(output.stdout.bytes, 8 * 1024 ** 2)
      for (const pid of alive(word)) process.kill(Number(pid), "SIGKILL")
    })
  )

  it.effect("include no open descriptors in this process", () =>
    Effect.gen(function* () {
      const { executor } = yield* Host
      yield* executor.exec("true")
      const before = descriptors()
      for (let index = 0; index < 20; index++) {
        yield* executor.exec("cat; echo err >&2", { stdin: "in" })
        yield* executor.exec(["no-such-program"])
        yield* Effect.exit(executor.exec("true", { workingDirectory: join(executor.workspace, "nowhere") }))
      }
      yield* until(
        "the descriptors are closed",
        Effect.sync(() => descriptors() <= before)
      )
    })
  )

  it.effect("do not exist after an interrupted start", () =>
    Effect.gen(function* () {
      const { executor } = yield* Host
      const before = descriptors()
      const word = sleepWord()
      yield* Effect.forEach(Array.from({ length: 40 }), (_, index) =>
        interruptedAfter(executor.exec(["sleep", word], { stdin: "in" }), index / 5)
      )
      assert.deepStrictEqual(alive(word), [])
      yield* until(
        "the descriptors are closed",
        Effect.sync(() => descriptors() <= before)
      )
    })
  )
})

const variables = Effect.fnUntraced(function* (executor: Executor) {
  const { output } = yield* executor.exec(["env", "-0"])
  const entries = output.stdout.text.split("\0").filter((entry) => entry !== "")
  return new Map(
    entries.map((entry) => [entry.slice(0, entry.indexOf("=")), entry.slice(entry.indexOf("=") + 1)])
  )
})

const around = {
  PATH: "/usr/local/bin:/usr/bin:/bin",
  HOME: "/home/agent",
  LANG: "C.UTF-8",
  ANTHROPIC_API_KEY: "sk-secret",
  HTTPS_PROXY: "http://user:secret@proxy",
  LD_PRELOAD: "/tmp/secret.so",
  NODE_OPTIONS: "--require=/tmp/secret.js"
}

layer(Host.layer, { excludeTestServices: true })("a command on the host", (it) => {
  it.effect("gets only harmless variables of this program's environment", () =>
    Effect.gen(function* () {
      const executor = yield* HostExecutor.make({ workspace: yield* directory, limits })
      const given = yield* variables(executor)
      assert.deepStrictEqual(Object.fromEntries(given), {
        PATH: around.PATH,
        HOME: around.HOME,
        LANG: around.LANG
      })
    }).pipe(Effect.provide(ConfigProvider.layer(ConfigProvider.fromUnknown(around))))
  )

  it.effect("gets exactly the given variables", () =>
    Effect.gen(function* () {
      const env = { PATH: around.PATH, WORD: "mine" }
      const given = yield* variables(yield* HostExecutor.make({ workspace: yield* directory, env, limits }))
      assert.deepStrictEqual(Object.fromEntries(given), env)
    })
  )

  it.effect.prop(
    "receives its arguments unchanged",
    [Schema.Array(Schema.String.check(Schema.isMaxLength(200)))],
    ([strings]) =>
      Effect.gen(function* () {
        const { executor } = yield* Host
        // An argument must be well-formed UTF-8 without NUL.
        const argv = strings.map((string) => string.replaceAll("\0", "").toWellFormed())
        const { output } = yield* executor.exec(["printf", "%s\\0", "first", ...argv])
        assert.deepStrictEqual(output.stdout.text.split("\0"), ["first", ...argv, ""])
      }),
    { arbitrary: { runs: 40, seed: 20_261_121 } }
  )

  it.effect("blocks until its output is read", () =>
    Effect.gen(function* () {
      const { at, executor } = yield* inWorkspace
      const running = yield* executor.spawn("echo $$ > pid; exec yes")
      const written = Effect.promise(async () => {
        const pid = (await readFile(at("pid"), "utf8").catch(() => "")).trim()
        if (pid === "") return 0
        const io = await readFile(`/proc/${pid}/io`, "utf8").catch(() => "")
        return Number(/^wchar: (\d+)$/mu.exec(io)?.[1] ?? 0)
      })
      let last = 0
      let same = 0
      yield* until(
        "the command stops writing",
        Effect.map(written, (bytes) => {
          same = bytes > 0 && bytes === last ? same + 1 : 0
          last = bytes
          return same === 10
        })
      )
      assert.isBelow(last, 1024 ** 2)
      // The number of buffered chunks depends on the load of the machine.
      yield* running.output.pipe(
        Stream.takeUntilEffect(() => Effect.map(written, (bytes) => bytes > last)),
        Stream.runDrain
      )
    }).pipe(Effect.scoped)
  )

  it.effect("has complete output when it ends, although a child still holds its pipes", () =>
    Effect.gen(function* () {
      const { executor } = yield* Host
      const word = sleepWord()
      const line = `sleep ${word} & head -c 150000 /dev/zero; head -c 150000 /dev/zero >&2`
      for (let turn = 0; turn < 20; turn++) {
        const running = yield* executor.spawn(line)
        // The output is read only now, while most of it is still in the kernel.
        yield* running.exit
        const chunks = yield* Stream.runCollect(running.output)
        const said = { stdout: 0, stderr: 0 }
        for (const { bytes, channel } of chunks) said[channel] += bytes.byteLength
        assert.deepStrictEqual(said, { stdout: 150_000, stderr: 150_000 })
      }
      for (const pid of alive(word)) process.kill(Number(pid), "SIGKILL")
    }).pipe(Effect.scoped)
  )

  it.effect("starts only inside the workspace, also through links", () =>
    Effect.gen(function* () {
      const { at, executor, outside, workspace } = yield* inWorkspace
      yield* Effect.promise(async () => {
        await mkdir(at("real"))
        await symlink("real", at("inside"))
        await symlink(outside, at("outside"))
        await mkdir(at("closed"), { mode: 0o600 })
      })
      const { output } = yield* executor.exec(["pwd", "-P"], { workingDirectory: at("inside") })
      assert.strictEqual(output.stdout.text, `${at("real")}\n`)
      for (const place of ["/", outside, at("outside"), at(".."), `${workspace}x`]) {
        const reason = yield* reasonOf(executor.exec("touch seen", { workingDirectory: place }))
        assert.strictEqual(reason._tag, "CommandRefused", place)
        assert.include(reason.message, "leads out of the workspace")
      }
      assert.deepStrictEqual(readdirSync(outside), ["secret"])
    })
  )

  it.effect("is refused if its arguments exceed the kernel's limit", () =>
    Effect.gen(function* () {
      const { executor } = yield* Host
      const argument = "x".repeat(120 * 1024)
      const reason = yield* reasonOf(executor.exec(["true", ...Array.from({ length: 64 }, () => argument)]))
      assert.strictEqual(reason._tag, "CommandRefused")
      assert.include(reason.message, "exceed the kernel's limit")
    })
  )

  it.effect("requires an absolute path to a directory, or to a link to one, as its workspace", () =>
    Effect.gen(function* () {
      const { outside, workspace } = yield* inWorkspace
      for (const wrong of ["relative", join(outside, "absent"), join(outside, "secret")]) {
        const reason = yield* reasonOf(HostExecutor.make({ workspace: wrong, limits }))
        assert.strictEqual(reason._tag, "CommandRefused", wrong)
      }
      const alias = join(outside, "alias")
      yield* Effect.promise(() => symlink(workspace, alias))
      const executor = yield* HostExecutor.make({ workspace: alias, limits })
      assert.strictEqual(executor.workspace, workspace)
      yield* executor.files.write(`${alias}/by-alias`, "x")
      assert.strictEqual(text(yield* executor.files.read(`${workspace}/by-alias`)), "x")
      const { output } = yield* executor.exec("pwd", { workingDirectory: alias })
      assert.strictEqual(output.stdout.text, `${workspace}\n`)
      yield* Effect.promise(() => rm(alias))
    })
  )
})

layer(Host.layer, { excludeTestServices: true })("files of a workspace on the host", (it) => {
  it.effect("follow a link inside the workspace, in any form", () =>
    Effect.gen(function* () {
      const { at, files, workspace } = yield* inWorkspace
      yield* files.write("links/target/file", "content")
      yield* Effect.promise(async () => {
        await symlink("target/file", at("links/relative"))
        await symlink(`${workspace}/links/target/file`, at("links/absolute"))
        await symlink("../links/./target", at("links/directory"))
        await symlink("directory/../target/file", at("links/up"))
        await symlink("relative", at("links/chain"))
      })
      for (const path of ["relative", "absolute", "directory/file", "up", "chain"]) {
        assert.strictEqual(text(yield* files.read(`links/${path}`)), "content", path)
      }
      assert.deepStrictEqual(
        (yield* files.list("links/directory")).map(({ name, type }) => [name, type]),
        [["file", "file"]]
      )
      assert.deepStrictEqual(
        (yield* files.list("links")).map(({ name, type }) => [name, type]),
        [
          ["absolute", "symlink"],
          ["chain", "symlink"],
          ["directory", "symlink"],
          ["relative", "symlink"],
          ["target", "directory"],
          ["up", "symlink"]
        ]
      )
    })
  )

  it.effect("are written through a link to its target", () =>
    Effect.gen(function* () {
      const { at, files } = yield* inWorkspace
      yield* files.write("written/target/file", "old")
      yield* Effect.promise(async () => {
        await symlink("target/file", at("written/link"))
        await symlink("target/new", at("written/dangling"))
        await symlink("target", at("written/directory"))
      })
      yield* files.write("written/link", "through")
      yield* files.write("written/dangling", "made")
      yield* files.write("written/directory/deeper/file", "below")
      assert.strictEqual(text(yield* files.read("written/target/file")), "through")
      assert.strictEqual(text(yield* files.read("written/target/new")), "made")
      assert.strictEqual(text(yield* files.read("written/target/deeper/file")), "below")
      assert.strictEqual(yield* Effect.promise(() => readlink(at("written/link"))), "target/file")
    })
  )

  it.effect("refuse a link out of the workspace, and create nothing there", () =>
    Effect.gen(function* () {
      const { at, files, outside, workspace } = yield* inWorkspace
      yield* Effect.promise(async () => {
        await mkdir(at("out/deep"), { recursive: true })
        await symlink(join(outside, "secret"), at("out/file"))
        await symlink(outside, at("out/directory"))
        await symlink(join(outside, "new"), at("out/dangling"))
        await symlink("../../..", at("out/deep/up"))
        await symlink(`../../${workspace.split("/").at(-1)}/out/deep`, at("out/back"))
        await symlink("/", at("out/root"))
        await symlink("file", at("out/chain"))
      })
      const paths = [
        "file",
        "directory/secret",
        "dangling",
        "deep/up/x",
        "back/x",
        "root/etc/passwd",
        "chain"
      ]
      for (const path of paths) {
        assert.strictEqual(yield* problemOf(files.read(`out/${path}`)), "outside_workspace", path)
        assert.strictEqual(yield* problemOf(files.write(`out/${path}`, "mine")), "outside_workspace", path)
      }
      for (const path of ["directory", "deep/up", "back", "root", "root/etc"]) {
        assert.strictEqual(yield* problemOf(files.list(`out/${path}`)), "outside_workspace", path)
      }
      assert.deepStrictEqual(readdirSync(outside), ["secret"])
      assert.strictEqual(readFileSync(join(outside, "secret"), "utf8"), "secret")
    })
  )

  it.effect("refuse link loops", () =>
    Effect.gen(function* () {
      const { at, files } = yield* inWorkspace
      yield* Effect.promise(async () => {
        await mkdir(at("loop"))
        await symlink("self", at("loop/self"))
        await symlink("b", at("loop/a"))
        await symlink("a", at("loop/b"))
      })
      for (const path of ["loop/self", "loop/a", "loop/a/below"]) {
        assert.strictEqual(yield* problemOf(files.read(path)), "invalid_path", path)
        assert.strictEqual(yield* problemOf(files.write(path, "x")), "invalid_path", path)
      }
    })
  )

  it.effect("never follow a link out of the workspace, even if it changes during access", () =>
    Effect.gen(function* () {
      const { executor, files, outside } = yield* inWorkspace
      yield* files.write("swap/real/secret", "mine")
      const swapping = yield* executor.spawn(
        // Ends also when the test is killed.
        'cd swap; while kill -0 $PPID; do ln -s real new; mv -T new d; ln -s "$OUTSIDE" new; mv -T new d; done',
        { env: { OUTSIDE: outside } }
      )
      yield* until(
        "the link is swapped",
        Effect.map(files.list("swap"), (entries) => entries.some(({ name }) => name === "d"))
      )
      const asked = { inside: 0, outside: 0 }
      const count = <A>(result: Result.Result<A, SandboxError>) => {
        if (Result.isSuccess(result)) return asked.inside++
        assert.strictEqual(result.failure.reason._tag, "FileRefused")
        assert.include(result.failure.message, "leads out of the workspace")
        return asked.outside++
      }
      while (asked.inside < 300 || asked.outside < 300) {
        const read = yield* Effect.result(files.read("swap/d/secret"))
        if (Result.isSuccess(read)) assert.strictEqual(text(read.success), "mine")
        count(read)
        count(yield* Effect.result(files.write("swap/d/written", "mine")))
      }
      yield* swapping.signal("SIGKILL")
      assert.deepStrictEqual(readdirSync(outside), ["secret"])
    }).pipe(Effect.scoped)
  )

  it.effect("never open a FIFO or a socket", () =>
    Effect.gen(function* () {
      const { at, executor, files } = yield* inWorkspace
      yield* executor.exec("mkdir special; mkfifo special/fifo; ln -s fifo special/link")
      const server = createServer()
      yield* Effect.acquireRelease(
        Effect.promise(() => new Promise<void>((resolve) => server.listen(at("special/socket"), resolve))),
        () => Effect.promise(() => new Promise((resolve) => server.close(resolve)))
      )
      const word = sleepWord()
      // The writer blocks until the FIFO is opened for reading.
      const writer = yield* executor.spawn(`sh -c 'echo x > special/fifo' ${word}`)
      yield* until(
        "the writer waits",
        Effect.sync(() => alive(word).length > 0)
      )
      for (const path of ["special/fifo", "special/link", "special/socket"]) {
        const [took, problem] = yield* Effect.timed(problemOf(files.read(path)))
        assert.strictEqual(problem, "not_a_file", path)
        assert.isBelow(Duration.toMillis(took), Pace.allowed(2000))
        assert.strictEqual(yield* problemOf(files.write(path, "x")), "not_a_file", path)
        assert.strictEqual(yield* problemOf(files.list(path)), "not_a_directory", path)
      }
      assert.strictEqual(alive(word).length, 1, "the FIFO was opened")
      yield* writer.signal("SIGKILL")
      assert.deepStrictEqual(
        (yield* files.list("special")).map(({ name, type }) => [name, type]),
        [
          ["fifo", "other"],
          ["link", "symlink"],
          ["socket", "other"]
        ]
      )
    }).pipe(Effect.scoped)
  )

  it.effect.skipIf(!isRoot)("never open a device", () =>
    Effect.gen(function* () {
      const { executor, files } = yield* inWorkspace
      const made = yield* executor.exec("mknod zero c 1 5")
      assert.strictEqual(made.exitCode, 0, made.output.stderr.text)
      assert.strictEqual(yield* problemOf(files.read("zero")), "not_a_file")
      assert.strictEqual(yield* problemOf(files.write("zero", "x")), "not_a_file")
    })
  )

  it.effect("refuse a sparse file of ten gigabytes before reading it", () =>
    Effect.gen(function* () {
      const { at, files } = yield* inWorkspace
      yield* files.write("sparse", "")
      yield* Effect.promise(() => truncate(at("sparse"), 10 * 1024 ** 3))
      const [took, problem] = yield* Effect.timed(problemOf(files.read("sparse")))
      assert.strictEqual(problem, "too_large")
      assert.isBelow(Duration.toMillis(took), Pace.allowed(1000))
    })
  )

  it.effect("are read to the end, or refused at the limit, if they have grown since the check", () =>
    Effect.gen(function* () {
      const { at, files } = yield* inWorkspace
      const content = "0123456789".repeat(100)
      yield* files.write("grown", content)
      const read = (size: number, bytesMax: number) =>
        Effect.tryPromise(async () => {
          const handle = await open(at("grown"))
          try {
            const stats = Object.assign(await handle.stat(), { size })
            return text(
              await WorkspaceFiles.readWhole(
                { handle, stats },
                bytesMax,
                FilePath.tooLarge("grown", bytesMax)
              )
            )
          } finally {
            await handle.close()
          }
        })
      for (const size of [0, 1, 999, 1000, 2000]) assert.strictEqual(yield* read(size, 1000), content)
      for (const bytesMax of [0, 1, 999]) {
        const { cause } = yield* Effect.flip(read(0, bytesMax))
        assert.strictEqual((cause as FileRefused).problem, "too_large")
      }
    })
  )

  it.effect("have the old or the new content after an interrupted write, without a leftover", () =>
    Effect.gen(function* () {
      const executor = yield* HostExecutor.make({ workspace: yield* directory, limits })
      const { files } = executor
      const large = new Uint8Array(fileBytesMax)
      yield* files.write("written", "old")
      for (let index = 0; index < 20; index++)
        yield* interruptedAfter(files.write("written", large), index / 2)
      yield* until(
        "the temporary file is removed",
        Effect.map(files.list("."), (entries) => entries.length === 1)
      )
      const { byteLength } = yield* files.read("written")
      assert.include([3, fileBytesMax], byteLength)
    })
  )

  it.effect("keep their permissions when they are overwritten, without a leftover", () =>
    Effect.gen(function* () {
      const { at, executor, files } = yield* inWorkspace
      yield* files.write("program", "#!/bin/sh\nexit 1\n")
      yield* Effect.promise(() => chmod(at("program"), 0o751))
      yield* files.write("program", "#!/bin/sh\nexit 7\n")
      assert.strictEqual((yield* Effect.promise(() => stat(at("program")))).mode & 0o777, 0o751)
      assert.strictEqual((yield* executor.exec([at("program")])).exitCode, 7)
      yield* problemOf(files.write("program/below", "x"))
      const names = (yield* files.list(".")).map(({ name }) => name)
      assert.deepStrictEqual(
        names.filter((name) => name.startsWith(".cogni-")),
        []
      )
    })
  )

  it.effect("are listed even if a name is not UTF-8", () =>
    Effect.gen(function* () {
      const { at, files } = yield* inWorkspace
      yield* Effect.promise(async () => {
        await mkdir(at("names"))
        await writeFile(Buffer.concat([Buffer.from(at("names/")), Buffer.from([0x61, 0xff])]), "12")
        await writeFile(at("names/b"), "1")
      })
      assert.deepStrictEqual(
        (yield* files.list("names")).map(({ bytes, name, type }) => [name, type, bytes]),
        [
          ["a\ufffd", "file", 2],
          ["b", "file", 1]
        ]
      )
    })
  )

  it.effect("refuse to list a directory over the limit on entries", () =>
    Effect.gen(function* () {
      const { executor, files } = yield* inWorkspace
      yield* executor.exec(`mkdir many; cd many; seq ${entriesMax} | xargs touch`)
      assert.strictEqual((yield* files.list("many")).length, entriesMax)
      yield* files.write("many/more", "")
      assert.strictEqual(yield* problemOf(files.list("many")), "too_large")
    })
  )

  it.effect("are listed with their times, up to the latest date that can be represented", () =>
    Effect.gen(function* () {
      // A file system in memory keeps any time.
      const workspace = yield* Effect.acquireRelease(
        Effect.promise(() => mkdtemp("/dev/shm/cogni-test-")),
        (path) => Effect.promise(() => rm(path, { recursive: true, force: true }))
      )
      const executor = yield* HostExecutor.make({ workspace, limits })
      yield* Effect.promise(async () => {
        await writeFile(join(workspace, "late"), "")
        await utimes(join(workspace, "late"), 1e13, 1e13)
      })
      assert.deepStrictEqual(
        (yield* executor.files.list(".")).map(({ modifiedAt, name }) => [name, modifiedAt]),
        [["late", "+275760-09-13T00:00:00.000Z"]]
      )
    })
  )

  it.effect("report a missing workspace as not_found, and work again when it returns", () =>
    Effect.gen(function* () {
      const workspace = yield* directory
      const executor = yield* HostExecutor.make({ workspace, limits })
      yield* Effect.promise(() => rename(workspace, `${workspace}.away`))
      assert.strictEqual(yield* problemOf(executor.files.list(".")), "not_found")
      assert.strictEqual((yield* reasonOf(executor.exec("true")))._tag, "CommandRefused")
      yield* Effect.promise(() => rename(`${workspace}.away`, workspace))
      assert.deepStrictEqual(yield* executor.files.list("."), [])
      assert.strictEqual((yield* executor.exec("true")).exitCode, 0)
    })
  )
})
