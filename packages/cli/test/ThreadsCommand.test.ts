/** Remembered threads on the command line, and their directories on disk. No test reaches an engine. */
import * as RunId from "@cogni/sandbox-core/RunId"
import { codex } from "@cogni/sandbox-graph-provider/agents/Codex"
import * as Thread from "@cogni/sandbox-graph-provider/threads/Thread"
import { Threads } from "@cogni/sandbox-graph-provider/threads/Threads"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer, Result } from "effect"
import { existsSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { DatabaseSync } from "node:sqlite"
import * as Cli from "../src/Cli.ts"
import * as HostThreads from "../src/HostThreads.ts"
import * as Output from "../src/Output.ts"
import * as ThreadRun from "../src/ThreadRun.ts"

const hostile = "../../etc \u202e\u{1F600}"

const place = Effect.gen(function* () {
  const stateDirectory = yield* Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-threads-"))),
    (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
  )
  const path = join(stateDirectory, "cogni.db")
  const settings = {
    stateDirectory,
    threads: Thread.defaultLimits,
    database: Result.succeed({ address: { _tag: "Sqlite" as const, path }, variable: undefined })
  }
  const context = yield* Layer.build(HostThreads.layer(settings))
  const threads = yield* Effect.provideContext(Effect.service(Threads), context)
  const key = yield* Thread.keyOf({ billingAccountId: "acme", threadId: Thread.ThreadId.make(hostile) })
  /** The directory of the thread's files, which its first turn creates. */
  const directoryOf = Effect.map(threads.find(key), ({ thread }) =>
    join(stateDirectory, "threads", thread.files ?? "")
  )
  const asked = { billingAccountId: "acme", threadId: hostile, agent: codex, asked: "word? \u001b[2J" }
  return {
    command: (...argv: ReadonlyArray<string>) =>
      Effect.gen(function* () {
        const memory = Output.makeMemory()
        const environment = { COGNI_STATE_DIR: stateDirectory, COGNI_THREAD_IDLE_DAYS_MAX: "1" }
        const code = yield* Cli.main({ argv: ["threads", ...argv], environment }).pipe(
          Effect.provide(Layer.merge(NodeServices.layer, memory.layer))
        )
        return { code, stdout: memory.said.stdout, stderr: memory.said.stderr }
      }),
    directoryOf,
    key,
    open: Effect.flatMap(RunId.generate, (runId) => threads.open({ ...asked, runId })),
    settings,
    threads
  }
})

/** A turn that leaves a file. */
const turn = Effect.fnUntraced(function* ({ directoryOf, open }: Effect.Success<typeof place>) {
  const { begin, end } = yield* open
  yield* begin
  writeFileSync(join(yield* directoryOf, "note.txt"), "x".repeat(5000))
  yield* end("walrus")
}, Effect.scoped)

describe("threads", () => {
  it.live("lists, shows, resets and removes a thread, and its directory on this host", () =>
    Effect.gen(function* () {
      const world = yield* place
      const { command, directoryOf, key } = world
      assert.include((yield* command("list")).stderr, "there are no remembered threads")
      yield* turn(world)
      const directory = yield* directoryOf
      const listed = yield* command("list")
      assert.strictEqual(listed.code, 0)
      assert.match(listed.stdout, new RegExp(`^${key} +acme +\\.\\./\\.\\./etc `, "mu"))
      assert.notInclude(listed.stdout, "\u202e")
      const [thread] = JSON.parse((yield* command("list", "--account", "acme", "--output", "json")).stdout)
      assert.isAtLeast(thread.workspaceBytes, 5000)
      assert.deepStrictEqual(
        JSON.parse((yield* command("list", "--account", "b", "--output", "json")).stdout),
        []
      )
      const shown = yield* command("show", key)
      assert.include(shown.stdout, "> word?")
      assert.include(shown.stdout, "walrus")
      assert.notInclude(shown.stdout, "\u001b")

      assert.strictEqual((yield* command("reset", key)).code, 0)
      assert.isFalse(existsSync(directory))
      assert.include((yield* command("list")).stdout, "no files")
      assert.include((yield* command("sweep")).stdout, "nothing to remove")
      assert.strictEqual((yield* command("remove", key, "--output", "json")).code, 0)
      const gone = yield* command("show", key)
      assert.deepStrictEqual([gone.code, gone.stdout], [66, ""])
      assert.include(gone.stderr, "no such thread")
      assert.strictEqual((yield* command("remove", "../..")).code, 64)
    })
  )

  it.live("removes nothing of a thread that a turn is using, and names the reason", () =>
    Effect.gen(function* () {
      const { command, directoryOf, key, open } = yield* place
      yield* Effect.scoped(
        Effect.gen(function* () {
          yield* (yield* open).begin
          const busy = yield* command("remove", key)
          assert.strictEqual(busy.code, 69)
          assert.include(busy.stderr, "a turn of this thread is running")
          assert.isTrue(existsSync(yield* directoryOf))
        })
      )
    })
  )

  it.live("says that the files are gone if their directory is missing, a file or a link", () =>
    Effect.gen(function* () {
      const world = yield* place
      const { directoryOf, open } = world
      yield* turn(world)
      const directory = yield* directoryOf
      const secret = join(world.settings.stateDirectory, "secret")
      mkdirSync(secret)
      for (const replace of [
        () => undefined,
        () => writeFileSync(directory, ""),
        () => symlinkSync(secret, directory)
      ]) {
        rmSync(directory, { recursive: true, force: true })
        replace()
        const refused = yield* Effect.flip(Effect.scoped(open))
        assert.strictEqual(refused._tag, "ThreadFilesLost")
      }
      yield* world.threads.remove(world.key, { history: "keep" })
      assert.isTrue(existsSync(secret))
    })
  )

  it.live("returns an answer that could not be recorded, with the reason", () =>
    Effect.gen(function* () {
      const { key, settings, threads } = yield* place
      const ended = { judged: Result.succeed({ text: "paid" }) }
      // The thread is removed by another process meanwhile: the hold has ended.
      const followed = () =>
        Effect.sync(() => {
          const database = new DatabaseSync(join(settings.stateDirectory, "cogni.db"))
          database.exec("DELETE FROM cogni_threads")
          database.close()
          return ended as never
        })
      const around = ThreadRun.around(
        {
          threadId: hostile,
          subject: { _tag: "Prompt", agent: codex, prompt: "?" },
          personality: undefined
        },
        { ...settings, billingAccountId: "acme" } as never,
        yield* RunId.generate,
        followed
      )
      const found = yield* around
      assert.strictEqual(found.ended, ended)
      assert.strictEqual(found.unrecorded?.exit, "unavailable")
      assert.strictEqual((yield* Effect.flip(threads.find(key)))._tag, "ThreadNotFound")
    })
  )

  it.live("allows as a workspace only the directory of a thread itself", () =>
    Effect.gen(function* () {
      const { settings } = yield* place
      const name = `${"0".repeat(32)}-${"1".repeat(32)}`
      const directory = join(settings.stateDirectory, "threads", name)
      const isThread = HostThreads.isThread(settings)
      assert.isTrue(isThread(directory))
      for (const path of [
        join(directory, "a"),
        join(directory, ".."),
        `${directory}/../../runs`,
        join(settings.stateDirectory, "threads"),
        join("/tmp", "threads", name),
        `${directory}/`
      ])
        assert.isFalse(isThread(path), path)
    })
  )
})

describe("--thread", () => {
  const prompt = { _tag: "Prompt", agent: codex, prompt: "?" } as const

  it("excludes a command, a workspace and a repository", () => {
    assert.isUndefined(Result.getOrThrow(ThreadRun.make({}, prompt)))
    assert.deepInclude(Result.getOrThrow(ThreadRun.make({ thread: "t" }, prompt)), { threadId: "t" })
    for (const [flags, subject] of [
      [{ thread: "t" }, { _tag: "Command", argv: ["true"] }],
      [{ thread: "t", workspace: "." }, prompt],
      [{ thread: "t", repo: "." }, prompt]
    ] as const) {
      const refused = ThreadRun.make(flags, subject)
      assert.isTrue(Result.isFailure(refused) && refused.failure.message.includes("--thread"))
    }
  })
})
