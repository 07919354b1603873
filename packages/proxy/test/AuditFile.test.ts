/** The audit of a run on disk: confirmed entries are written, and failures are reported. */
import { afterEach, assert, describe, it, vi } from "@effect/vitest"
import { Arbitrary, Deferred, Effect, Exit, Fiber, Scope } from "effect"
import * as fs from "node:fs"
import { open } from "node:fs/promises"
import * as os from "node:os"
import * as path from "node:path"
import { Worker } from "node:worker_threads"
import { AuditEntry } from "../src/AuditEntry.ts"
import * as AuditLog from "../src/AuditLog.ts"
import * as AuditFile from "../src/internal/audit/AuditFile.ts"

const runId = "run-4f7k2m9q0x1z"
const MiB = 1024 * 1024
const digest = "0".repeat(64)

const totals = {
  usage: {
    calls: 0,
    inputTokens: 0,
    outputTokens: 0,
    cacheReadTokens: 0,
    cacheWriteTokens: 0,
    callsWithoutUsage: 0,
    callsWithoutCost: 0
  },
  callsTotal: 0,
  toolCallsTotal: 0,
  refusedTotal: 0
}

const answered = (path: string): AuditEntry => ({
  type: "request.answered",
  requestId: "r",
  method: "GET",
  path,
  status: 200
})

const ended = (body?: string): AuditEntry => ({
  type: "call.ended",
  requestId: "r",
  callId: "c",
  status: 200,
  outcome: "completed",
  responseBytes: 0,
  responseDigest: digest,
  durationMs: 1,
  ...(body === undefined ? {} : { body })
})

const directory = Effect.acquireRelease(
  Effect.sync(() => fs.mkdtempSync(path.join(os.tmpdir(), "audit-file-"))),
  (made) => Effect.sync(() => fs.rmSync(made, { recursive: true, force: true }))
)

/** Opens an audit in this scope. `failure` fails with the first problem that the audit reports. */
const acquire = Effect.fnUntraced(function* (options: Partial<AuditFile.AuditFileOptions> = {}) {
  const parent = yield* directory
  const failed = yield* Deferred.make<never, AuditFile.AuditFailed>()
  const onFailure = (problem: AuditFile.AuditProblem) =>
    void Deferred.doneUnsafe(failed, Effect.fail(new AuditFile.AuditFailed(problem)))
  const file = yield* AuditFile.open({ parent, runId, bytesMax: 64 * MiB, onFailure, ...options })
  return { ...file, failure: Deferred.await(failed) }
})

const append = (file: AuditFile.AuditFile, ...entries: ReadonlyArray<AuditEntry>) =>
  Effect.forEach(entries, file.append, { concurrency: "unbounded" })

const close = (file: AuditFile.AuditFile) => file.close(totals)

const verify = (file: AuditFile.AuditFile, ended = true) =>
  AuditLog.verify(fs.readFileSync(file.path), { runId, head: file.head(), ended })

const types = (file: AuditFile.AuditFile) =>
  fs
    .readFileSync(file.path, "utf8")
    .split("\n")
    .slice(0, -1)
    .map((line) => JSON.parse(line).type as string)

/** Returns the prototype of file handles, so that tests can replace `write`. */
const handles = Effect.promise(async () => {
  const handle = await open(os.devNull, "w")
  await handle.close()
  return Object.getPrototypeOf(handle) as { write: (...args: ReadonlyArray<unknown>) => Promise<unknown> }
})

const noSpace = Object.assign(new Error("ENOSPC: no space left on device, write"), { code: "ENOSPC" })

/** Moves the clock forward, past the next check of the file. */
const later = () => {
  const now = performance.now.bind(performance)
  vi.spyOn(performance, "now").mockImplementation(() => now() + 2000)
}

afterEach(() => void vi.restoreAllMocks())

describe("AuditFile", () => {
  it.effect("writes confirmed entries in order, in a file that only this user can read", () =>
    Effect.gen(function* () {
      const file = yield* acquire()
      for (const name of ["/a", "/b"]) {
        assert.deepStrictEqual(yield* append(file, answered(name)), [true])
        assert.include(fs.readFileSync(file.path, "utf8"), `"path":"${name}"`)
      }
      yield* close(file)
      assert.deepStrictEqual(types(file), ["request.answered", "request.answered", "run.closed"])
      assert.strictEqual(file.head().entries, 3)
      assert.strictEqual(verify(file)._tag, "Whole")
      assert.strictEqual(fs.statSync(file.path).mode & 0o777, 0o600)
      assert.strictEqual(fs.statSync(path.dirname(file.path)).mode & 0o777, 0o700)
    })
  )

  it.effect.prop(
    "is whole for any entries, appended one by one or at the same time",
    [Arbitrary.array(Arbitrary.array(Arbitrary.schema(AuditEntry), { maxLength: 4 }), { maxLength: 4 })],
    ([groups]) =>
      Effect.gen(function* () {
        const file = yield* acquire()
        const mine = groups.map((group) =>
          group.map((entry): AuditEntry =>
            entry.type === "run.opened"
              ? { ...entry, runId }
              : entry.type === "run.closed"
                ? answered("/")
                : entry
          )
        )
        for (const group of mine)
          assert.deepStrictEqual(
            yield* append(file, ...group),
            group.map(() => true)
          )
        yield* close(file)
        assert.deepStrictEqual(types(file), [...mine.flat().map(({ type }) => type), "run.closed"])
        assert.strictEqual(verify(file)._tag, "Whole")
      }).pipe(Effect.scoped),
    { arbitrary: { runs: 30 } }
  )

  it.effect("writes concurrent entries in one batch", () =>
    Effect.gen(function* () {
      const write = vi.spyOn(yield* handles, "write")
      const file = yield* acquire()
      yield* append(file, ...Array.from({ length: 100 }, (_, index) => answered(`/${index}`)))
      assert.strictEqual(write.mock.calls.length, 1)
      assert.strictEqual(file.head().entries, 100)
      assert.strictEqual(verify(file, false)._tag, "Whole")
    })
  )

  it.effect("fails if a file, a directory or a link already exists at its path", () =>
    Effect.gen(function* () {
      const parent = yield* directory
      const elsewhere = yield* directory
      for (const plant of [
        () => fs.mkdirSync(path.join(parent, "audit")),
        () => fs.symlinkSync(elsewhere, path.join(parent, "audit")),
        () => fs.writeFileSync(path.join(parent, "audit"), "")
      ]) {
        plant()
        const problem = yield* Effect.flip(acquire({ parent }))
        assert.instanceOf(problem, AuditFile.AuditFailed)
        assert.include(problem.message, "the run's audit cannot be created")
        fs.rmSync(path.join(parent, "audit"), { recursive: true })
      }
      assert.deepStrictEqual(fs.readdirSync(elsewhere), [])
    })
  )

  it.effect("refuses entries after its last one", () =>
    Effect.gen(function* () {
      const file = yield* acquire()
      const [first, late, again] = yield* Effect.all(
        [file.append(answered("/a")), Effect.andThen(close(file), file.append(ended())), close(file)],
        { concurrency: "unbounded" }
      )
      assert.deepStrictEqual([first, late, again], [true, false, undefined])
      assert.deepStrictEqual(types(file), ["request.answered", "run.closed"])
    })
  )

  it.effect("finishes pending writes and closes its handle when its scope closes", () =>
    Effect.gen(function* () {
      const parent = yield* directory
      const scope = yield* Scope.make()
      const file = yield* acquire({ parent, bytesMax: MiB }).pipe(Scope.provide(scope))
      const writing = yield* Effect.forkChild(file.append(answered("/a")), { startImmediately: true })
      yield* Scope.close(scope, Exit.void)
      assert.isTrue(yield* Fiber.join(writing))
      assert.deepStrictEqual(types(file), ["request.answered"])
      const held = fs.readdirSync("/proc/self/fd").flatMap((fd) => {
        try {
          return [fs.readlinkSync(`/proc/self/fd/${fd}`)]
        } catch {
          return []
        }
      })
      assert.notInclude(held, file.path)
    })
  )
})

describe("a full audit", () => {
  it.effect("refuses new calls, reports that it is full, and has room for the ends of open calls", () =>
    Effect.gen(function* () {
      const bytesMax = 64 * 1024
      const file = yield* acquire({ bytesMax })
      let begun = 0
      while ((yield* append(file, answered("/".repeat(300))))[0]) begun += 1
      assert.isAbove(begun, 30)
      const problem = yield* Effect.flip(file.failure)
      assert.include(problem.message, `the run's audit is full, at ${bytesMax} bytes`)

      // A small entry is refused too.
      assert.deepStrictEqual(yield* append(file, answered("/"), ended(), answered("/")), [false, true, false])
      // A body that does not fit is omitted, but the end of the call is written.
      assert.deepStrictEqual(yield* append(file, ended("x".repeat(bytesMax))), [true])
      while ((yield* append(file, ended()))[0]);
      yield* close(file)
      assert.strictEqual(types(file).at(-1), "run.closed")
      assert.isAtMost(fs.statSync(file.path).size, bytesMax)
      assert.strictEqual(verify(file)._tag, "Whole")
    })
  )

  it.effect("counts entries that are not written yet", () =>
    Effect.gen(function* () {
      const bytesMax = 64 * 1024
      const file = yield* acquire({ bytesMax })
      const written = yield* append(file, ...Array.from({ length: 1000 }, () => answered("/")))
      assert.isTrue(written.includes(false))
      assert.isAtMost(fs.statSync(file.path).size, bytesMax)
      assert.strictEqual(verify(file, false)._tag, "Whole")
    })
  )
})

describe("an audit that cannot be written", () => {
  it.effect("fails on a full disk, and its head covers the complete lines", () =>
    Effect.gen(function* () {
      const file = yield* acquire()
      yield* append(file, answered("/a"))
      const prototype = yield* handles
      const original = prototype.write
      let room = 700
      vi.spyOn(prototype, "write").mockImplementation(async function (this: unknown, bytes, from, length) {
        const part = Math.min(room, length as number)
        if (part === 0) throw noSpace
        room -= part
        return original.call(this, bytes, from, part)
      })
      const written = yield* append(file, answered("/b"), answered("/c"), answered("/d"), answered("/e"))
      assert.deepStrictEqual(written, [false, false, false, false])
      const problem = yield* Effect.flip(file.failure)
      assert.include(problem.message, "the run's audit cannot be written: ENOSPC")
      vi.restoreAllMocks()

      assert.deepStrictEqual(yield* append(file, answered("/f"), ended()), [false, false])
      yield* close(file)
      assert.strictEqual(file.head().entries, 1 + types(file).length - 1)
      assert.isAbove(file.head().entries, 1)
      const verdict = verify(file)
      assert.strictEqual(verdict._tag === "Broken" && verdict.problem.kind, "cut")
      assert.strictEqual(verify(file, false)._tag, "Whole")
    })
  )

  const touches: ReadonlyArray<readonly [what: string, touch: (name: string) => void, says: string]> = [
    ["was removed", (name) => fs.rmSync(name), "it was removed"],
    ["was replaced", replace, "replaced by another file"],
    ["was truncated", (name) => fs.truncateSync(name, 10), "another process truncated it or wrote to it"],
    [
      "was changed by another process",
      (name) => fs.appendFileSync(name, "x"),
      "another process truncated it or wrote to it"
    ]
  ]
  for (const [what, touch, says] of touches) {
    it.effect(`fails before the next line if its file ${what}`, () =>
      Effect.gen(function* () {
        const file = yield* acquire()
        yield* append(file, answered("/a"))
        touch(file.path)
        later()
        assert.deepStrictEqual(yield* append(file, answered("/b")), [false])
        const problem = yield* Effect.flip(file.failure)
        assert.include(problem.message, says)
        assert.strictEqual(file.head().entries, 1)
      })
    )

    it.effect(`fails when it closes, at the latest, if its file ${what}`, () =>
      Effect.gen(function* () {
        const file = yield* acquire()
        yield* append(file, answered("/a"))
        touch(file.path)
        yield* close(file)
        assert.include((yield* Effect.flip(file.failure)).message, says)
      })
    )
  }
})

describe("lines that are not written yet", () => {
  it.live("are outside the heap of their thread", () =>
    Effect.gen(function* () {
      const parent = yield* directory
      const entry = ended("x".repeat(MiB))
      const worker = new Worker(
        `const { effect, module, parent, entry, runId } = require("node:worker_threads").workerData
         Promise.all([import(effect), import(module)]).then(async ([Effect, { open }]) => {
           await Effect.runPromise(
             open({ parent, runId, bytesMax: 2 ** 30, onFailure: () => process.exit(1) }).pipe(
               Effect.flatMap((audit) =>
                 Effect.all(Array.from({ length: 96 }, () => audit.append(entry)), { concurrency: 96 })
               ),
               Effect.map((written) => written.every(Boolean) || process.exit(2)),
               Effect.scoped
             )
           )
           process.exit(0)
         })`,
        {
          eval: true,
          workerData: {
            effect: import.meta.resolve("effect/Effect"),
            module: new URL("../src/internal/audit/AuditFile.ts", import.meta.url).href,
            parent,
            entry,
            runId
          },
          execArgv: [],
          resourceLimits: { maxOldGenerationSizeMb: 64 }
        }
      )
      const outcome = yield* Effect.callback<string>((resume) => {
        worker.on("error", (error) => resume(Effect.succeed(String(error))))
        worker.on("exit", (code) => resume(Effect.succeed(`exit ${code}`)))
        return Effect.promise(() => worker.terminate())
      })
      assert.strictEqual(outcome, "exit 0")
    })
  )
})

function replace(name: string): void {
  const bytes = fs.readFileSync(name)
  fs.renameSync(name, `${name}.old`)
  fs.writeFileSync(name, bytes)
}
