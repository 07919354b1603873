/** Tests that pages and bodies of an audit are read from their place in a real file, whatever is before them. */
import { assert, describe, it } from "@effect/vitest"
import { RunId } from "@cogni/sandbox-core/RunId"
import { Deferred, Effect, Fiber } from "effect"
import { mkdirSync, readFileSync, writeFileSync } from "node:fs"
import { dirname } from "node:path"
import * as AuditPlaces from "../src/internal/AuditPlaces.ts"
import { callStarted, toolCalled } from "./AuditDrafts.ts"
import * as AuditFile from "./AuditFile.ts"

/** Size of one piece of a reading, and so the least that a page can cost. */
const pieceBytes = 256 * 1024

const pageLines = 50
const linesTotal = 12_000

/** Every tenth entry is a call, whose body is long. */
const draftOf = (entry: number): AuditFile.Draft =>
  entry % 10 === 0
    ? callStarted(`call-${entry}`, `${entry} ${"x".repeat(500)}`)
    : toolCalled(`r-${entry}`, `tool-${entry}`)

const world = Effect.gen(function* () {
  const file = yield* AuditFile.make("run-auditplaces1")
  const places = AuditPlaces.make(file.readOn)
  const run = { runId: file.runId, outcome: { status: "interrupted" as const } }
  const live = { runId: file.runId, outcome: { status: "running" as const } }
  const page = Effect.fnUntraced(function* (after: number, of: Parameters<typeof places.lines>[0] = run) {
    const found: Array<Shown> = []
    yield* places.lines(
      of,
      after,
      ({ line, number, sound }) => {
        if (found.length <= pageLines) found.push([number, sound, line?.type])
      },
      () => found.length > pageLines
    )
    return found.slice(0, pageLines)
  })
  return {
    ...file,
    page,
    live,
    body: (entry: number, of: typeof live | typeof run = run) =>
      places.body(of, "call.started", `call-${entry}`),
    append: (count: number) => file.append(count, draftOf)
  }
})

type Shown = readonly [number: number, sound: boolean, type: string | undefined]

const numbersFrom = (first: number, sound = true) =>
  Array.from({ length: pageLines }, (_, at): Shown => [
    first + at,
    sound,
    (first + at) % 10 === 0 ? "call.started" : "tool.called"
  ])

describe("a page of an audit", () => {
  it.effect("costs one piece of the file at any place, forwards and back", () =>
    Effect.gen(function* () {
      const { append, bytes, page } = yield* world
      const size = append(linesTotal)
      assert.isAbove(size, 10 * pieceBytes)
      let after = 0
      for (; after < linesTotal; after += pageLines)
        assert.deepStrictEqual(yield* page(after), numbersFrom(after + 1))
      assert.deepStrictEqual(
        bytes.filter((count) => count > pieceBytes),
        []
      )
      bytes.length = 0
      for (; after > 0; after -= pageLines * 40)
        assert.deepStrictEqual(yield* page(after - pageLines), numbersFrom(after - pageLines + 1))
      assert.deepStrictEqual(
        bytes.filter((count) => count > pieceBytes),
        []
      )
    })
  )

  it.effect("in the middle costs what is before it once, and a piece afterwards", () =>
    Effect.gen(function* () {
      const { append, bytes, page } = yield* world
      const size = append(linesTotal)
      assert.deepStrictEqual(yield* page(11_000), numbersFrom(11_001))
      assert.isAtLeast(bytes[0]!, size / 2)
      for (const after of [11_000, 10_990, 7_000, 300]) {
        assert.deepStrictEqual(yield* page(after), numbersFrom(after + 1))
        assert.isAtMost(bytes.at(-1)!, pieceBytes)
      }
    })
  )

  it.effect("knows that a line before it is not intact, without reading it again", () =>
    Effect.gen(function* () {
      const { append, bytes, page, path } = yield* world
      append(5_000)
      writeFileSync(path, readFileSync(path, "utf8").replace('"tool-1003"', '"tool-9003"'))
      assert.deepStrictEqual(yield* page(0), numbersFrom(1))
      const [changed] = yield* page(1002)
      assert.deepStrictEqual(changed, [1003, false, "tool.called"])
      assert.deepStrictEqual(yield* page(4000), numbersFrom(4001, false))
      assert.deepStrictEqual(yield* page(4050), numbersFrom(4051, false))
      assert.isAtMost(bytes.at(-1)!, pieceBytes)
    })
  )

  it.effect("is read from the beginning if the run has ended and its file was written since", () =>
    Effect.gen(function* () {
      const { append, body, page, path } = yield* world
      append(5_000)
      assert.deepStrictEqual(yield* page(4000), numbersFrom(4001))
      assert.isDefined(yield* body(4000))
      writeFileSync(path, readFileSync(path, "utf8").replace('"tool-1003"', '"tool-9003"'))
      assert.deepStrictEqual(yield* page(4000), numbersFrom(4001, false))
      assert.isUndefined(yield* body(4000), "a body that is not intact")
      assert.isDefined(yield* body(1000))
    })
  )

  it.effect("is read on while the file of a run under way grows, and again when the run has ended", () =>
    Effect.gen(function* () {
      const { append, body, bytes, live, page } = yield* world
      const first = append(5_000)
      assert.deepStrictEqual(yield* page(4950, live), numbersFrom(4951))
      const more = append(50)
      assert.deepStrictEqual(yield* page(5_000, live), numbersFrom(5001))
      assert.isAtMost(bytes.at(-1)!, pieceBytes)
      assert.include(yield* body(5_050, live), "5050 x")
      assert.isAtMost(bytes.at(-1)!, pieceBytes)
      bytes.length = 0
      assert.deepStrictEqual(yield* page(5_000), numbersFrom(5001))
      assert.deepStrictEqual(bytes, [first + more])
    })
  )
})

describe("the body of a call", () => {
  it.effect("costs one piece after all calls were passed once, also if it was not kept", () =>
    Effect.gen(function* () {
      const { append, body, bytes } = yield* world
      const size = append(linesTotal)
      assert.include(yield* body(linesTotal), `${linesTotal} x`)
      assert.deepStrictEqual(bytes, [size])
      bytes.length = 0
      for (const entry of [10, 6_000, linesTotal]) assert.include(yield* body(entry), `${entry} x`)
      assert.isUndefined(yield* body(7))
      assert.deepStrictEqual(
        bytes.filter((count) => count > pieceBytes),
        []
      )
    })
  )

  it.effect("is found after a slow reading of a run that was forgotten, and looked at again, meanwhile", () =>
    Effect.gen(function* () {
      const file = yield* AuditFile.make("run-auditplaces1")
      file.append(6_000, draftOf)
      const reached = yield* Deferred.make<void>()
      const gate = yield* Deferred.make<void>()
      let isSlow = false
      const places = AuditPlaces.make((...args: Parameters<typeof file.readOn>) =>
        Effect.suspend(() => {
          const reading = file.readOn(...args)
          if (!isSlow) return reading
          isSlow = false
          return Effect.andThen(
            Deferred.succeed(reached, undefined),
            Effect.andThen(Deferred.await(gate), reading)
          )
        })
      )
      const of = (runId: string) => ({
        runId: RunId.make(runId),
        outcome: { status: "interrupted" as const }
      })
      const page = Effect.fnUntraced(function* (runId: string, after: number) {
        let lines = 0
        yield* places.lines(
          of(runId),
          after,
          () => void (lines += 1),
          () => lines > pageLines
        )
      })
      yield* page(file.runId, 5_000)
      isSlow = true
      const slow = yield* Effect.forkChild(page(file.runId, 5_000))
      yield* Deferred.await(reached)
      for (let index = 10; index < 26; index += 1) {
        const other = `run-auditother${index}`
        mkdirSync(dirname(file.fileOf(other)), { recursive: true })
        writeFileSync(file.fileOf(other), "{}\n")
        yield* page(other, 0)
      }
      yield* page(file.runId, 0)
      yield* Deferred.succeed(gate, undefined)
      yield* Fiber.join(slow)
      for (const entry of [10, 4_000, 5_900])
        assert.include(
          (yield* places.body(of(file.runId), "call.started", `call-${entry}`)) ?? "missing",
          `${entry} x`
        )
    })
  )

  it.effect("is found beyond the calls whose places are remembered", () =>
    Effect.gen(function* () {
      const { append, body } = yield* world
      append(25_000)
      for (const entry of [25_000, 24_990, 10]) assert.include(yield* body(entry), `${entry} x`)
      assert.isUndefined(yield* body(7))
    })
  )
})
