/** Tests that the audit of a run under way is read on, not again, from a real file. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { appendFileSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs"
import { dirname } from "node:path"
import * as LiveAudits from "../src/internal/LiveAudits.ts"
import * as AuditFile from "./AuditFile.ts"
import { toolCalled } from "./AuditDrafts.ts"

/** A run's audit in a file that grows, and its shared reading. */
const world = Effect.gen(function* () {
  const file = yield* AuditFile.make("run-liveaudit001")
  const { readOn, runId } = file
  const live = LiveAudits.make(readOn)
  return {
    ...file,
    live,
    append: (count: number) => file.append(count, (entry) => toolCalled(`r-${entry - 1}`, `tool-${entry}`)),
    read: Effect.map(live.read(runId), (reached) => {
      assert(typeof reached !== "string")
      const { verdict } = reached
      const entries = verdict._tag === "Whole" ? verdict.head.entries : verdict.problem.kind
      return { entries, tools: reached.calls.tools().total }
    })
  }
})

describe("the audit of a run under way", () => {
  it.effect("is read from where the last reader stopped, whatever it has before", () =>
    Effect.gen(function* () {
      const { append, bytes, read } = yield* world
      const first = append(20_000)
      assert.deepStrictEqual(yield* read, { entries: 20_000, tools: 20_000 })
      const next = append(3)
      const all = yield* Effect.all([read, read], { concurrency: "unbounded" })
      assert.deepStrictEqual(all, [
        { entries: 20_003, tools: 20_003 },
        { entries: 20_003, tools: 20_003 }
      ])
      assert.deepStrictEqual(bytes, [first, next, 0])
    })
  )

  it.effect("may end in a line that is still being written", () =>
    Effect.gen(function* () {
      const { append, path, read } = yield* world
      append(2)
      const whole = readFileSync(path)
      writeFileSync(path, whole.subarray(0, -40))
      assert.deepStrictEqual(yield* read, { entries: 1, tools: 1 })
      assert.deepStrictEqual(yield* read, { entries: 1, tools: 1 })
      appendFileSync(path, whole.subarray(-40))
      assert.deepStrictEqual(yield* read, { entries: 2, tools: 2 })
    })
  )

  it.effect("is read from its beginning if it became shorter, or is another file of the same size", () =>
    Effect.gen(function* () {
      const { append, bytes, path, read } = yield* world
      append(4)
      assert.strictEqual((yield* read).entries, 4)
      const whole = readFileSync(path)
      writeFileSync(path, whole.subarray(0, whole.indexOf(10) + 1))
      assert.deepStrictEqual(yield* read, { entries: 1, tools: 1 })
      writeFileSync(`${path}.new`, Buffer.from(whole.toString().replace("tool-3", "tool-9")))
      renameSync(`${path}.new`, path)
      assert.strictEqual((yield* read).entries, "changed")
      assert.deepStrictEqual(bytes, [whole.length, whole.indexOf(10) + 1, whole.length])
    })
  )

  it.effect("has its changes found by the verdict of the ended run, also of what was read before", () =>
    Effect.gen(function* () {
      const { append, final, path, read } = yield* world
      append(4)
      yield* read
      writeFileSync(path, readFileSync(path, "utf8").replace("tool-2", "tool-9"))
      append(1)
      // Read on, and so not seen yet.
      assert.strictEqual((yield* read).entries, 5)
      const verdict = yield* final
      assert.containSubset(verdict, { _tag: "Broken", problem: { kind: "changed", line: 2 } })
    })
  )

  it.effect("is read again after a reading that failed in the middle", () =>
    Effect.gen(function* () {
      const { append, read, tear } = yield* world
      append(3)
      tear(true)
      assert.propertyVal(yield* Effect.flip(read), "_tag", "AuditUnreadable")
      tear(false)
      assert.deepStrictEqual(yield* read, { entries: 3, tools: 3 })
    })
  )

  it.effect("is read on after a reading that was refused before it began", () =>
    Effect.gen(function* () {
      const { append, bytes, read, refuse } = yield* world
      const first = append(100)
      yield* read
      refuse(true)
      yield* Effect.flip(read)
      refuse(false)
      const next = append(2)
      assert.deepStrictEqual(yield* read, { entries: 102, tools: 102 })
      assert.deepStrictEqual(bytes, [first, next])
    })
  )

  it.effect("is remembered of a few runs, and forgotten of one that has ended", () =>
    Effect.gen(function* () {
      const { append, bytes, fileOf, live, read, runId } = yield* world
      const size = append(3)
      yield* read
      live.forget(runId)
      yield* read
      for (let n = 0; n < 16; n++) {
        const other = `run-liveother${n + 1000}`
        mkdirSync(dirname(fileOf(other)), { recursive: true })
        writeFileSync(fileOf(other), "")
        yield* live.read(other)
      }
      yield* read
      assert.deepStrictEqual(
        bytes.filter((count) => count > 0),
        [size, size, size]
      )
    })
  )
})
