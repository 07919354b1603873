/**
 * Directories of the host in sandboxes that waited: bound into them, seen from inside, from the engine and from the
 * host. Whatever happens to the sandbox, the directory keeps its files.
 */
import { assert, layer } from "@effect/vitest"
import * as SandboxPool from "@cogni/sandbox-core/SandboxPool"
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import type { SandboxSpecInput } from "@cogni/sandbox-core/SandboxSpec"
import { sourceAt } from "@cogni/sandbox-core/WaitingSandbox"
import * as RunId from "@cogni/sandbox-core/RunId"
import * as DockerApi from "@cogni/sandbox-docker/DockerApi"
import * as HostOwner from "@cogni/sandbox-docker/HostOwner"
import * as WaitingRemains from "@cogni/sandbox-docker/WaitingRemains"
import * as GitCredentials from "@cogni/sandbox-git-relay/GitCredentials"
import { GitRelay } from "@cogni/sandbox-git-relay/GitRelay"
import * as HostGitRelay from "@cogni/sandbox-git-relay/HostGitRelay"
import * as PullRequests from "@cogni/sandbox-git-relay/forge/PullRequests"
import * as HostTree from "@cogni/sandbox-host-files/HostTree"
import { Duration, Effect, Layer } from "effect"
import { execFileSync } from "node:child_process"
import {
  chownSync,
  closeSync,
  existsSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  symlinkSync,
  writeFileSync
} from "node:fs"
import { dirname, join } from "node:path"
import * as DirectoryBinder from "../../packages/docker/src/internal/container/DirectoryBinder.ts"
import * as Await from "../harness/Await.ts"
import { docker } from "../harness/Docker.ts"
import * as GitOrigin from "../harness/GitOrigin.ts"
import * as Images from "../harness/Images.ts"
import * as Pace from "../harness/Pace.ts"
import * as BoundDirectory from "../harness/pool/BoundDirectory.ts"
import * as HungDirectory from "../harness/pool/HungDirectory.ts"
import * as RunHarness from "../harness/RunHarness.ts"

const report = Effect.flatMap(SandboxPool.SandboxPool, (pool) => pool.report)

/** Waits until sandboxes are ready for runs in directories of the usual user. */
const ready = (count = 1) =>
  Await.until(
    `${count} sandboxes wait`,
    Effect.map(report, ({ waiting }) => {
      const fitting = waiting.filter(
        ({ shape, supervised }) => !supervised && !/ 400\d | \d+:\d+$/u.test(shape)
      )
      return fitting.length >= count
    })
  )

/** Makes a directory of the caller with a file in it. */
const given = Effect.fnUntraced(function* (name: string, owner = 1000) {
  const path = join(yield* RunHarness.Directory, "given", name)
  mkdirSync(path, { recursive: true })
  writeFileSync(join(path, "own.txt"), `of ${name}\n`)
  for (const one of [path, join(path, "own.txt")]) chownSync(one, owner, owner)
  return path
})

const run = (path: string, line: string, more: Partial<SandboxSpecInput> = {}) =>
  SandboxRunner.SandboxRunner.use((runner) =>
    runner.run({
      image: Images.runtime,
      argv: ["sh", "-c", line],
      workspace: { type: "directory", path },
      ...more
    })
  )

/** Runs an effect, and asserts how many of its runs got a waiting sandbox. */
const withHits = <A, E, R>(count: number, effect: Effect.Effect<A, E, R>) =>
  Effect.gen(function* () {
    yield* ready()
    const before = (yield* report).hits
    const value = yield* effect
    assert.strictEqual((yield* report).hits - before, count)
    return value
  })

/** Everything that a program can read about its workspace and its mounts, without the host's own directories. */
const survey = [
  // Without a model, the empty directory for the socket is mounted nevertheless.
  `awk '$5 != "/llm-sock" { line = "mount " $5 " " $6 " " ($5 == "/workspace" ? $4 : ""); sub(/.* - /, ""); print line, $1 }' /proc/self/mountinfo | sort`,
  "ls -lan --time-style=+ /workspace /workspace/.cogni /cogni | sed 's/^total .*//'",
  "for p in /proc/[0-9]*; do readlink $p/cwd; done | sort -u",
  "pwd; cat own.txt; cat .cogni/prompt.txt; touch .cogni/x 2>&1; stat -c '%d %i %u %g %a' . own.txt",
  "ulimit -a; df . | tail -1 | awk '{print $6}'; env | sort | grep -v -e HOSTNAME"
].join("; echo; ")

const keep = [
  { image: Images.runtime, count: 2 },
  // As for a session, whose agent keeps its notes in `.cogni`.
  { image: Images.runtime, count: 1, supervised: true, memory: true }
]

/** Ends when the container is gone. */
const gone = (id: string) =>
  Await.until(
    "the container has ended",
    docker("inspect", "--format", "{{.State.Running}}", id).pipe(
      Effect.map((running) => running.trim() !== "true"),
      Effect.catchCause(() => Effect.succeed(true))
    )
  )

/** Mounts something until the scope closes. */
const mounted = (at: string, ...options: ReadonlyArray<string>) =>
  Effect.acquireRelease(
    Effect.sync(() => execFileSync("mount", [...options, at])),
    () => Effect.sync(() => execFileSync("umount", [at]))
  )

layer(RunHarness.layer(undefined, { keep }), { excludeTestServices: true, timeout: "5 minutes" })(
  "a directory in a sandbox that waited",
  (it) => {
    it.effect("looks from inside like that of a cold run, but for set-user-ID files and devices", () =>
      Effect.gen(function* () {
        const path = yield* given("looks")
        const inputs = [{ name: "prompt.txt", content: "hello" }]
        const warm = yield* withHits(1, run(path, survey, { inputs }))
        const cold = yield* withHits(0, run(path, survey, { inputs, limits: { filesOpenMax: 4000 } }))
        const seen = (text: string) =>
          text
            .replace("mount /workspace rw,nosuid,nodev,relatime", "mount /workspace rw,relatime")
            .replace(/^(nofiles .*) 4\d{3}$/mu, "$1")
            .split("\n")
        assert.include(warm.output.stdout.text, `mount /workspace rw,nosuid,nodev,relatime ${path} `)
        assert.deepStrictEqual(seen(warm.output.stdout.text), seen(cold.output.stdout.text))
        assert.include(warm.output.stdout.text, "of looks\n")
        assert.include(warm.output.stdout.text, "Read-only file system")
      })
    )

    it.effect("serves one run after the other, with the owner of its files, and keeps what they wrote", () =>
      Effect.gen(function* () {
        const path = yield* given("kept")
        const line = (number: number) => `cat *.txt; echo ${number} > ${number}.txt; exit ${number}`
        const first = yield* withHits(1, run(path, line(1)))
        const limits = { memoryBytesMax: 192 * 1024 ** 2, processesMax: 40, cpusMax: 0.5 }
        const second = yield* withHits(1, run(path, line(2), { limits }))
        assert.deepStrictEqual([first.exitCode, second.exitCode], [1, 2])
        assert.strictEqual(second.output.stdout.text, "1\nof kept\n")
        assert.deepStrictEqual(readdirSync(path).toSorted(), [".cogni", "1.txt", "2.txt", "own.txt"])
        assert.strictEqual(lstatSync(join(path, "2.txt")).uid, 1000)
        const [one, other] = yield* withHits(
          2,
          Effect.andThen(
            ready(2),
            Effect.all([run(path, "cat 2.txt; echo 3 > 3.txt"), run(path, "cat 2.txt")], { concurrency: 2 })
          )
        )
        assert.deepStrictEqual([one.output.stdout.text, other.output.stdout.text], ["2\n", "2\n"])
      })
    )

    it.effect("serves a directory of another user with a sandbox of that user", () =>
      Effect.gen(function* () {
        const path = yield* given("other-user", 4321)
        yield* withHits(0, run(path, "id -u"))
        const waits = Effect.map(report, ({ waiting }) =>
          waiting.some(({ shape }) => shape.endsWith(" 4321:4321"))
        )
        yield* Await.until("a sandbox of that user waits", waits)
        const { output } = yield* withHits(1, run(path, "id -u; id -g; echo x > mine"))
        assert.strictEqual(output.stdout.text, "4321\n4321\n")
        assert.strictEqual(lstatSync(join(path, "mine")).uid, 4321)
      })
    )

    it.effect("serves a sandbox that stays open: its commands and its files are in the directory", () =>
      Effect.gen(function* () {
        const path = yield* given("open")
        const runner = yield* SandboxRunner.SandboxRunner
        yield* Await.until(
          "an open sandbox waits",
          Effect.map(report, ({ waiting }) => waiting.some(({ supervised }) => supervised))
        )
        const before = (yield* report).hits
        yield* Effect.scoped(
          Effect.gen(function* () {
            const sandbox = yield* runner.open({
              image: Images.runtime,
              workspace: { type: "directory", path },
              memory: true
            })
            const { output } = yield* sandbox.exec(["sh", "-c", "pwd; cat own.txt; echo new > new.txt"])
            assert.strictEqual(output.stdout.text, "/workspace\nof open\n")
            yield* sandbox.files.write("written.txt", "by the host")
            // The place where its first process is, which is not readable from inside.
            const [inside] = (yield* docker(
              "ps",
              "-q",
              "--no-trunc",
              "--filter",
              `name=${sandbox.runId}`
            )).split("\n")
            const processId = (yield* docker("inspect", "--format", "{{.State.Pid}}", inside!)).trim()
            assert.strictEqual(
              lstatSync(`/proc/${processId}/cwd/.`, { bigint: true }).ino,
              lstatSync(path, { bigint: true }).ino
            )
          })
        )
        assert.strictEqual((yield* report).hits, before + 1)
        assert.deepStrictEqual(readdirSync(path).toSorted(), ["new.txt", "own.txt", "written.txt"])
        assert.strictEqual(readFileSync(join(path, "new.txt"), "utf8"), "new\n")
        assert.strictEqual(readFileSync(join(path, "written.txt"), "utf8"), "by the host")
      })
    )

    it.effect("leaves no process of the sandbox in the workspace that it replaced", () =>
      Effect.gen(function* () {
        const path = yield* given("places")
        const inodeOf = (at: string) => lstatSync(`${at}/.`, { bigint: true }).ino
        /** Where each process of a container is: in the directory, at the root, or elsewhere. */
        const places = (id: string) =>
          Effect.map(docker("top", id, "-eo", "pid,comm"), (text) =>
            text
              .trim()
              .split("\n")
              .slice(1)
              .map((line) => {
                const [processId, name] = line.trim().split(/\s+/u)
                const inode = inodeOf(`/proc/${processId}/cwd`)
                const isRoot = inode === inodeOf(`/proc/${processId}/root`)
                return `${name}: ${inode === inodeOf(path) ? "directory" : isRoot ? "root" : "elsewhere"}`
              })
              .toSorted()
          )
        yield* Effect.scoped(
          Effect.gen(function* () {
            // With a socket, so that the bridge stays.
            const env = { COGNI_SOCKET: "/llm-sock/llm.sock" }
            const { container } = yield* BoundDirectory.bound(path, "true", (spec) => ({ ...spec, env }))
            yield* container.start
            // The first process follows when the run starts.
            const held = ["cogni-init: elsewhere", "cogni-waiter: directory", "socat: root"]
            assert.deepStrictEqual(yield* places(container.id), held)
          })
        )
        yield* Effect.scoped(
          Effect.gen(function* () {
            const { container } = yield* BoundDirectory.bound(path, "exec sleep 60")
            yield* container.start
            yield* container.proceed
            const running = ["cogni-init: directory", "sleep: directory"]
            yield* Await.until(
              "its processes are in the directory",
              Effect.map(places(container.id), (found) => found.join() === running.join())
            )
          })
        )
      })
    )

    it.effect("lets no process write into the workspace that it replaced", () =>
      Effect.scoped(
        Effect.gen(function* () {
          const path = yield* given("replaced")
          const { container } = yield* BoundDirectory.bound(path, "true")
          const processId = (yield* docker("inspect", "--format", "{{.State.Pid}}", container.id)).trim()
          // As a loaded program can hold it.
          const held = yield* Effect.acquireRelease(
            Effect.sync(() => openSync(`/proc/${processId}/root/workspace`, "r")),
            (descriptor) => Effect.sync(() => closeSync(descriptor))
          )
          yield* container.start
          assert.throws(() => writeFileSync(`/proc/self/fd/${held}/left`, "x"), /EROFS/u)
        })
      )
    )

    it.effect("is seen on another file system, and not with mounts below it, as in a cold run", () =>
      Effect.gen(function* () {
        const path = yield* given("elsewhere")
        yield* mounted(path, "-t", "tmpfs", "-o", "mode=0777,size=8m", "tmpfs")
        writeFileSync(join(path, "own.txt"), "in memory\n")
        const { output } = yield* withHits(1, run(path, "cat own.txt; echo x > made; stat -f -c %T ."))
        assert.strictEqual(output.stdout.text, "in memory\ntmpfs\n")
        assert.strictEqual(readFileSync(join(path, "made"), "utf8"), "x\n")

        const above = yield* given("above")
        mkdirSync(join(above, "below"))
        yield* mounted(join(above, "below"), "-t", "tmpfs", "tmpfs")
        yield* ready()
        const { discarded } = yield* report
        const reasons = []
        for (const filesOpenMax of [undefined, 4001]) {
          const error = yield* Effect.flip(
            run(above, "true", filesOpenMax ? { limits: { filesOpenMax } } : {})
          )
          reasons.push([error.reason._tag, error.message.includes("/workspace/below is mounted")])
        }
        assert.deepStrictEqual(reasons, [
          ["PostureMismatch", true],
          ["PostureMismatch", true]
        ])
        assert.strictEqual((yield* report).discarded, discarded, "none is spent for them")
      })
    )

    it.effect("is never another one than the one that was opened", () =>
      Effect.gen(function* () {
        const [path, other] = [yield* given("opened"), yield* given("planted")]
        // The path leads to another directory when the sandbox gets it.
        const error = yield* Effect.scoped(
          Effect.gen(function* () {
            const { container } = yield* BoundDirectory.bound(path, "cat own.txt")
            renameSync(path, `${path}-moved`)
            renameSync(other, path)
            return yield* Effect.flip(container.start)
          })
        )
        assert.include(error.message, "its path leads to another directory")
        assert.strictEqual(readFileSync(join(path, "own.txt"), "utf8"), "of planted\n")
        assert.strictEqual(readFileSync(join(`${path}-moved`, "own.txt"), "utf8"), "of opened\n")
        // A link of an agent in the path, and at the place of the inputs.
        const base = yield* given("links")
        symlinkSync("/etc", join(base, "link"))
        const linked = yield* Effect.flip(run(join(base, "link"), "ls"))
        assert.strictEqual(linked.reason._tag, "WorkspaceFailed")
        symlinkSync("/etc", join(base, ".cogni"))
        assert.strictEqual((yield* Effect.flip(run(base, "ls"))).reason._tag, "WorkspaceFailed")
      })
    )

    it.effect("does not follow a link that an agent puts at the place of the inputs meanwhile", () =>
      Effect.scoped(
        Effect.gen(function* () {
          const path = yield* given("inputs")
          const { container } = yield* BoundDirectory.bound(path, "true")
          renameSync(join(path, ".cogni"), join(path, "moved"))
          symlinkSync("/tmp", join(path, ".cogni"))
          assert.include((yield* Effect.flip(container.start)).message, "could not be bound")
        })
      )
    )

    it.effect(
      "keeps its files if the sandbox is removed before its agent starts, and nothing is mounted on the host",
      () =>
        Effect.gen(function* () {
          const path = yield* given("never")
          const place = yield* Effect.scoped(
            Effect.gen(function* () {
              const { container, prepared } = yield* BoundDirectory.bound(path, "touch never")
              yield* container.start
              const own = sourceAt(prepared, "/workspace") ?? assert.fail("no workspace")
              // The engine knows the empty directory. On the host, it is one, also after it is removed.
              assert.include(yield* docker("inspect", container.id), own)
              assert.notInclude(yield* docker("inspect", container.id), path)
              assert.deepStrictEqual(readdirSync(own), [".cogni"])
              const mounts = readFileSync("/proc/self/mountinfo", "utf8")
              for (const one of [path, own]) assert.notInclude(mounts, `${one} `)
              const [processId] = (yield* docker(
                "inspect",
                "--format",
                "{{.State.Pid}}",
                container.id
              )).split("\n")
              assert.strictEqual(
                readFileSync(`/proc/${processId}/root/workspace/own.txt`, "utf8"),
                "of never\n"
              )
              // As a run does that cannot use its sandbox and starts cold, and as the end of the pool does.
              yield* prepared.clean
              yield* HostTree.remove(dirname(own))
              assert.isFalse(existsSync(own))
              assert.strictEqual(
                readFileSync(`/proc/${processId}/root/workspace/own.txt`, "utf8"),
                "of never\n"
              )
              return own
            })
          )
          assert.isFalse(existsSync(place))
          assert.deepStrictEqual(readdirSync(path).toSorted(), [".cogni", "own.txt"])
        })
    )

    it.effect(
      "keeps its files if the host process dies before the agent starts, and its remains are removed",
      () =>
        Effect.gen(function* () {
          const path = yield* given("crashed")
          const waiting = join(yield* RunHarness.Directory, "crashed-waiting")
          const { containerId, kill } = yield* BoundDirectory.start({ path, waiting })
          assert.lengthOf(readdirSync(waiting), 1)
          yield* kill
          yield* gone(containerId)
          yield* Effect.ignore(docker("rm", "-f", containerId))
          yield* WaitingRemains.reap(waiting)
          assert.deepStrictEqual(readdirSync(waiting), [])
          assert.deepStrictEqual(readdirSync(path).toSorted(), [".cogni", "own.txt"])
          assert.strictEqual((yield* run(path, "cat own.txt")).output.stdout.text, "of crashed\n")
        })
    )

    it.effect("is given up in time if its file system hangs, while those of other runs are bound", () =>
      Effect.gen(function* () {
        const path = join(yield* RunHarness.Directory, "given", "hung")
        const hung = yield* HungDirectory.acquire(path)
        const other = yield* BoundDirectory.bound(yield* given("beside-a-hung-one"), "true")
        const { container } = yield* BoundDirectory.bound(path, "true")
        const givenUp = Effect.gen(function* () {
          yield* hung.hang
          const [[took, error]] = yield* Effect.all(
            [Effect.timed(Effect.flip(container.start)), other.container.start],
            { concurrency: 2 }
          )
          assert.strictEqual(error._tag, "ContainerFailed", error.message)
          assert.include(error.message, "it took more than 2 s")
          assert.isBelow(Duration.toMillis(took), Pace.allowed(5000))
          // The kernel ends the process that waits for the file system only when that is gone.
          assert.isNotEmpty(yield* HungDirectory.grandchildren)
        })
        // Before the release of anything in the directory.
        yield* Effect.ensuring(givenUp, hung.end)
        yield* Await.until(
          "no process of the host waits for the directory",
          Effect.map(HungDirectory.grandchildren, (found) => found.length === 0)
        )
        assert.notInclude(yield* docker("exec", container.id, "cat", "/proc/mounts"), "hung")
      })
    )

    it.effect("is not bound into a sandbox whose workspace others have used", () =>
      Effect.scoped(
        Effect.gen(function* () {
          const path = yield* given("touched")
          const { container, prepared } = yield* BoundDirectory.bound(path, "true")
          writeFileSync(join(sourceAt(prepared, "/workspace")!, "planted"), "x")
          assert.include((yield* Effect.flip(container.start)).message, "others left 1 files in it")
        })
      )
    )

    it.effect("is not bound into the sandbox of another container, or into the host's own mounts", () =>
      Effect.gen(function* () {
        const path = yield* given("hosts")
        const { dev, ino } = lstatSync(path, { bigint: true })
        const api = yield* DockerApi.DockerApi
        const binder = yield* DirectoryBinder.make(api)
        assert.isUndefined(yield* binder.whyNot)
        const container = "0".repeat(64)
        const job = {
          path,
          device: String(dev),
          inode: String(ino),
          target: "/workspace",
          hasInputs: false,
          hasLoaded: false
        }
        const why = (processId: number, containerId: string) =>
          Effect.map(Effect.flip(binder.bind({ ...job, processId, containerId })), ({ message }) => message)
        assert.include(yield* why(process.pid, container), "is not of this container")
        // Every control group contains this text.
        assert.include(yield* why(process.pid, "/"), "its mounts are those of the host")
        assert.include(yield* why(2 ** 22 + 1, container), "No such file or directory")
      })
    )
  }
)

const relay = Layer.unwrap(
  Effect.map(RunHarness.Directory, (directory) =>
    HostGitRelay.layer({
      directory: join(directory, "relays"),
      image: Images.runtime,
      owners: HostOwner,
      privateServers: "any"
    })
  )
).pipe(Layer.provide(Layer.mergeAll(GitCredentials.layerNone, PullRequests.layerNoop)))

layer(
  Layer.provideMerge(relay, RunHarness.layer(undefined, { keep: [{ image: Images.runtime, count: 1 }] })),
  {
    excludeTestServices: true,
    timeout: "3 minutes"
  }
)("a clone in a sandbox that waited", (it) => {
  it.effect("gives its commits to the relay", () =>
    Effect.gen(function* () {
      const url = join(yield* RunHarness.Directory, "origin.git")
      yield* GitOrigin.seed(url, { "README.md": "hello\n" })
      const relay = yield* GitRelay
      const runId = yield* RunId.generate
      yield* Effect.scoped(
        Effect.gen(function* () {
          const clone = yield* relay.clone({ runId, url })
          const line =
            "cd repo && cat README.md && echo new > NOTES.md && git add NOTES.md && git commit -qm notes"
          const { exitCode, output } = yield* withHits(1, run(clone.workspacePath, line))
          assert.deepStrictEqual([exitCode, output.stdout.text], [0, "hello\n"], output.stderr.text)
          yield* relay.push(yield* relay.check(yield* relay.collect(clone)))
          assert.isDefined(yield* GitOrigin.branchAt(url, clone.branch))
        })
      )
      // The clone is removed with everything in it.
      assert.deepStrictEqual(yield* relay.kept, [])
    })
  )
})
