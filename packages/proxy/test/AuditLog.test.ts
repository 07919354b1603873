/** Verification of an audit's chain: every change is detected and located. */
import { assert, describe, it } from "@effect/vitest"
import type { AuditHead } from "@cogni/sandbox-core/RunFigures"
import { Arbitrary, Schema } from "effect"
import { createHash } from "node:crypto"
import { AuditEntry, type RunClosed } from "../src/AuditEntry.ts"
import * as AuditLog from "../src/AuditLog.ts"

const runId = "run-4f7k2m9q0x1z"
const at = "2026-01-01T00:00:00.000Z"

const opened: AuditEntry = {
  type: "run.opened",
  runId,
  proxy: "gateway",
  upstream: "http://127.0.0.1:4000",
  carrier: "host directory",
  models: ["m"],
  identity: { billingAccountId: "acct-42", attempt: 0 },
  tools: [],
  canaries: "off"
}

const answered = (path: string): AuditEntry => ({
  type: "request.answered",
  requestId: "r",
  method: "GET",
  path,
  status: 200
})

const closed: RunClosed = {
  type: "run.closed",
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

interface Log {
  readonly lines: ReadonlyArray<string>
  readonly head: AuditHead
}

const write = (entries: ReadonlyArray<AuditEntry>, of = runId): Log => {
  let head = AuditLog.genesis(of)
  const lines = entries.map((entry) => {
    const next = AuditLog.append(head, at, entry)
    head = next.head
    return next.line
  })
  return { lines, head }
}

const bytesOf = (lines: ReadonlyArray<string>) => Buffer.from(lines.join(""), "utf8")

const verify = (lines: ReadonlyArray<string>, expected: Partial<AuditLog.Expected> = {}) =>
  AuditLog.verify(bytesOf(lines), { runId, ended: true, ...expected })

const log = write([opened, answered("/a"), answered("/b"), answered("/c"), answered("/d"), closed])
const lineOf = (number: number) => log.lines[number - 1]!
const without = (number: number) => log.lines.filter((_, index) => index !== number - 1)

/** Entries that can occur between the first and the last. */
const Between = Arbitrary.schema(AuditEntry).pipe(
  Arbitrary.filter(({ type }) => type !== "run.opened" && type !== "run.closed")
)

const anyLog = Arbitrary.array(Between, { maxLength: 8 }).pipe(
  Arbitrary.map((between) => write([opened, ...between, closed]))
)

const natural = Arbitrary.schema(Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 2 ** 31 })))

const problemOf = (verdict: AuditLog.Verdict): AuditLog.Problem => {
  assert.strictEqual(verdict._tag, "Broken")
  return (verdict as Extract<AuditLog.Verdict, { _tag: "Broken" }>).problem
}

const assertProblem = (
  verdict: AuditLog.Verdict,
  kind: AuditLog.ProblemKind,
  line: number,
  lines: ReadonlyArray<string>
) => {
  const problem = problemOf(verdict)
  const { length: offset } = bytesOf(lines.slice(0, line - 1))
  assert.deepStrictEqual({ ...problem, detail: "" }, { kind, line, offset, detail: "" }, problem.detail)
  assert.match(problem.detail, /\S+ \S+/u)
}

describe("a verdict before the end", () => {
  it.prop(
    "is that of the bytes so far, and changes no later one",
    [anyLog, natural, Schema.Boolean],
    ([{ lines }, chosen, isMoved]) => {
      const moved = isMoved ? [...lines.slice(1), ...lines.slice(0, 1)] : lines
      const bytes = bytesOf(moved)
      const expected = { runId, ended: false }
      const verifier = AuditLog.makeVerifier(expected)
      const size = 1 + (chosen % 400)
      for (let from = 0; from < bytes.length; from += size) {
        verifier.push(bytes.subarray(from, from + size))
        assert.deepStrictEqual(verifier.end(), AuditLog.verify(bytes.subarray(0, from + size), expected))
      }
    }
  )
})

describe("a line", () => {
  it("is one object whose hash covers everything before it, including the previous line's hash", () => {
    const [first, second] = log.lines as [string, string]
    const sha256 = (text: string) => createHash("sha256").update(text).digest("hex")
    const genesis = sha256(`cogni-sandbox audit 1\n${runId}\n`)
    const before = `{"seq":1,"at":"${at}","type":"run.opened","runId":"${runId}","proxy":"gateway"`
    assert.isTrue(first.startsWith(before), first)
    assert.strictEqual(JSON.parse(first).prev, genesis)
    const [covered, hash] = second.split(',"hash":"') as [string, string]
    assert.strictEqual(hash, `${sha256(covered)}"}\n`)
    assert.isTrue(covered.endsWith(`,"prev":"${JSON.parse(first).hash}"`))
    assert.deepStrictEqual(log.head, { entries: 6, hash: JSON.parse(lineOf(6)).hash })
  })

  it("stays one line of UTF-8, whatever an agent has sent", () => {
    const said = 'a\nb\r\u2028\0\ud800"}\n{"seq":2'
    const { lines } = write([opened, answered(said), closed])
    assert.strictEqual(bytesOf(lines).filter((byte) => byte === 10).length, 3)
    assert.strictEqual(JSON.parse(lines[1]!).path, said)
    assert.strictEqual(verify(lines)._tag, "Whole")
  })
})

describe("an unchanged audit", () => {
  it.prop("is accepted with any entries", [anyLog], ([{ head, lines }]) => {
    assert.deepStrictEqual(verify(lines, { head }), {
      _tag: "Whole",
      head,
      closed: true,
      headKnown: true,
      unfinishedBytes: 0
    })
  })

  it.prop(
    "has the same verdict for any split into pieces, changed or not",
    [anyLog, Arbitrary.array(natural), natural],
    (input) => {
      const [{ head, lines }, cuts, change] = input
      const bytes = bytesOf(lines)
      if (change % 2 === 1) bytes[change % bytes.length]! ^= 1
      const places = [...new Set(cuts.map((cut) => cut % bytes.length))].toSorted((a, b) => a - b)
      const expected = { runId, head, ended: true }
      const verifier = AuditLog.makeVerifier(expected)
      for (const [index, place] of [0, ...places].entries())
        // A plain array, as a reader of files passes it.
        verifier.push(new Uint8Array(bytes.subarray(place, places[index])))
      assert.deepStrictEqual(verifier.end(), AuditLog.verify(bytes, expected))
    }
  )

  it("is accepted if its pieces are overwritten after they were read", () => {
    const verifier = AuditLog.makeVerifier({ runId, head: log.head, ended: true })
    const piece = Buffer.alloc(7)
    const bytes = bytesOf(log.lines)
    for (let from = 0; from < bytes.length; from += piece.length) {
      const length = bytes.copy(piece, 0, from)
      verifier.push(piece.subarray(0, length))
      piece.fill(0)
    }
    assert.strictEqual(verifier.end()._tag, "Whole")
  })

  it("can be verified while it grows: without a last entry, without a head, with half a line", () => {
    const lines = log.lines.slice(0, 3)
    const live = { ended: false }
    const whole = { _tag: "Whole", head: write([opened, answered("/a"), answered("/b")]).head, closed: false }
    assert.deepStrictEqual(verify(lines, live), { ...whole, headKnown: false, unfinishedBytes: 0 } as never)
    assert.deepStrictEqual(verify([...lines, lineOf(4).slice(0, 50)], live), {
      ...whole,
      headKnown: false,
      unfinishedBytes: 50
    } as never)
    // The audit has grown since its head was read.
    const { head } = write([opened, answered("/a")])
    assert.deepStrictEqual(verify(lines, { ...live, head }), {
      ...whole,
      headKnown: true,
      unfinishedBytes: 0
    } as never)
    assert.strictEqual(verify([], live)._tag, "Whole")
  })

  it("reports each of its lines during verification", () => {
    const seen: Array<AuditLog.Seen> = []
    const verifier = AuditLog.makeVerifier({ runId, ended: true }, (one) => seen.push(one))
    verifier.push(bytesOf([lineOf(1), lineOf(2).replace("/a", "/x"), "nonsense\n", lineOf(3)]))
    assert.deepStrictEqual(
      seen.map(({ line, number, sound }) => [number, line?.type, sound]),
      [
        [1, "run.opened", true],
        [2, "request.answered", false],
        [3, undefined, false],
        [4, "request.answered", false]
      ]
    )
  })
})

describe("a change of one byte", () => {
  const small = write([answered("/"), closed])
  const bytes = bytesOf(small.lines)
  const expected = { runId, head: small.head, ended: true }
  const undetected = (make: (place: number, byte: number) => Uint8Array | undefined) => {
    const found: Array<readonly [place: number, byte: number]> = []
    for (let place = 0; place <= bytes.length; place++)
      for (let byte = 0; byte < 256; byte++) {
        const changed = make(place, byte)
        if (changed !== undefined && AuditLog.verify(changed, expected)._tag === "Whole")
          found.push([place, byte])
      }
    return found
  }

  it("is detected for every byte and every other value", () => {
    assert.strictEqual(AuditLog.verify(bytes, expected)._tag, "Whole")
    const found = undetected((place, byte) =>
      place === bytes.length || bytes[place] === byte ? undefined : bytes.with(place, byte)
    )
    assert.deepStrictEqual(found, [])
  })

  it("is detected for every inserted byte at every position", () => {
    const found = undetected((place, byte) =>
      Buffer.concat([bytes.subarray(0, place), Uint8Array.of(byte), bytes.subarray(place)])
    )
    assert.deepStrictEqual(found, [])
  })

  it("is detected for every removed byte", () => {
    const found = undetected((place, byte) =>
      byte > 0 || place === bytes.length
        ? undefined
        : Buffer.concat([bytes.subarray(0, place), bytes.subarray(place + 1)])
    )
    assert.deepStrictEqual(found, [])
  })

  it.prop(
    "is detected in any audit: one byte changed, inserted or removed",
    [anyLog, natural, natural],
    ([{ head, lines }, place, byte]) => {
      const whole = bytesOf(lines)
      const here = place % whole.length
      const value = byte % 256
      const rest = whole.subarray(here)
      const start = whole.subarray(0, here)
      const changes = [
        [Uint8Array.of(value === rest[0] ? value ^ 1 : value), rest.subarray(1)],
        [Uint8Array.of(value), rest],
        [rest.subarray(1)]
      ]
      for (const change of changes)
        assert.strictEqual(
          AuditLog.verify(Buffer.concat([start, ...change]), { runId, head, ended: true })._tag,
          "Broken"
        )
    }
  )

  it("is detected in the case of a hash's letters", () => {
    const line = lineOf(6)
    const from = line.indexOf('"hash":"')
    const upper = line.slice(0, from) + line.slice(from).toUpperCase().replace('"HASH"', '"hash"')
    assert.notStrictEqual(upper, line)
    assertProblem(verify([...without(6), upper]), "changed", 6, log.lines)
  })

  it("is reported in its own line", () => {
    for (const number of [1, 2, 3, 4, 5, 6]) {
      const lines = log.lines.with(number - 1, lineOf(number).replace('"type":"r', '"type":"R'))
      assertProblem(verify(lines, { head: log.head }), "changed", number, lines)
    }
  })
})

describe("lines", () => {
  it("are listed if they are missing, wherever they were", () => {
    for (const number of [1, 2, 3, 4, 5]) {
      const lines = without(number)
      assertProblem(verify(lines), "removed", number, lines)
      assert.include(problemOf(verify(lines)).detail, `entry ${number} is missing`)
    }
    const lines = [...log.lines.slice(0, 1), ...log.lines.slice(4)]
    assertProblem(verify(lines), "removed", 2, lines)
    assert.include(problemOf(verify(lines)).detail, "entries 2 to 4 are missing")
  })

  it("are reported as inserted, not changed, if they occur twice", () => {
    for (const from of [1, 2, 3, 4, 5])
      for (const to of [1, 2, 3, 4, 5]) {
        const lines = log.lines.toSpliced(to, 0, lineOf(from))
        // A copy right before its original is the same as one right after it.
        assertProblem(verify(lines), "inserted", to + 1 === from ? from + 1 : to + 1, lines)
      }
  })

  it("are reported as reordered, not removed, if they were moved", () => {
    for (const from of [1, 2, 3, 4, 5, 6])
      for (const to of [1, 2, 3, 4, 5, 6]) {
        if (from === to) continue
        const lines = without(from).toSpliced(to - 1, 0, lineOf(from))
        const { kind } = problemOf(verify(lines, { head: log.head }))
        assert.strictEqual(kind, "reordered", `${from} to ${to}`)
      }
  })

  it("are reported as inserted, not changed, if they are forged", () => {
    for (const line of [
      "nonsense\n",
      "\n",
      lineOf(3).replace("/b", "/x"),
      write([opened], "other").lines[0]!
    ])
      for (const after of [1, 2, 5]) {
        const lines = log.lines.toSpliced(after, 0, line)
        assertProblem(verify(lines), "inserted", after + 1, lines)
      }
  })

  it("are unreadable if they are not an entry", () => {
    const lines = log.lines.with(2, "nonsense\n")
    assertProblem(verify(lines), "unreadable", 3, lines)
    const unknown = write([opened, { type: "run.danced" } as never, closed])
    assertProblem(verify(unknown.lines), "unreadable", 2, unknown.lines)
  })

  it("are reported if they follow the last entry", () => {
    for (const more of [lineOf(6), "\n", "x", AuditLog.append(log.head, at, answered("/e")).line])
      assertProblem(verify([...log.lines, more]), "continued_after_close", 7, [...log.lines, more])
  })

  it.prop(
    "cannot be removed, duplicated or swapped undetected in any audit",
    [anyLog, natural, natural],
    ([{ head, lines }, first, second]) => {
      const [a, b] = [first % lines.length, second % lines.length]
      const expected = { head }
      assert.strictEqual(verify(lines.toSpliced(a, 1), expected)._tag, "Broken")
      assert.strictEqual(verify(lines.toSpliced(a, 0, lines[b]!), expected)._tag, "Broken")
      if (a !== b)
        assert.strictEqual(verify(lines.with(a, lines[b]!).with(b, lines[a]!), expected)._tag, "Broken")
    }
  )
})

describe("a missing end", () => {
  it("is detected at every byte, with the head of the record", () => {
    const bytes = bytesOf(log.lines)
    for (let length = 0; length < bytes.length; length++)
      for (const ended of [true, false]) {
        const { kind } = problemOf(
          AuditLog.verify(bytes.subarray(0, length), { runId, head: log.head, ended })
        )
        const whole = length === 0 || bytes[length - 1] === 10
        assert.strictEqual(kind, whole || !ended ? "truncated" : "cut")
      }
  })

  it("is detected without that head if the run has ended", () => {
    assertProblem(verify(log.lines.slice(0, 5)), "truncated", 6, log.lines)
    assertProblem(verify([]), "truncated", 1, log.lines)
  })

  it("is reported as a number of entries, with the head of the record", () => {
    assert.include(problemOf(verify(log.lines.slice(0, 2), { head: log.head })).detail, "4 of 6 entries")
  })
})

describe("a rewritten audit", () => {
  const anew = write([opened, answered("/x"), answered("/b"), answered("/c"), answered("/d"), closed])

  it("does not match the head of the record", () => {
    assert.strictEqual(verify(anew.lines)._tag, "Whole")
    assertProblem(verify(anew.lines, { head: log.head }), "changed", 6, anew.lines)
    assertProblem(verify(anew.lines, { head: log.head, ended: false }), "changed", 6, anew.lines)
  })

  it("cannot show another value to people than to programs", () => {
    const [first] = log.lines as [string]
    const prev = JSON.parse(first).hash as string
    const forged = (start: string) => {
      const covered = `${start},"type":"request.answered","requestId":"r","method":"GET","path":"/","status":200,"prev":"${prev}"`
      return `${covered},"hash":"${createHash("sha256").update(covered).digest("hex")}"}\n`
    }
    const live = { ended: false }
    assert.strictEqual(verify([first, forged(`{"seq":2,"at":"${at}"`)], live)._tag, "Whole")
    assertProblem(verify([first, forged(`{"seq":2,"at":"${at}","seq":9`)], live), "unreadable", 2, [first])
    assertProblem(verify([first, forged(`{"seq":9,"at":"${at}"`)], live), "removed", 2, [first])
  })

  it("is detected where its lines meet the original ones", () => {
    const lines = [...anew.lines.slice(0, 3), ...log.lines.slice(3)]
    assertProblem(verify(lines), "changed", 4, lines)
  })

  it("is detected if it is longer than the head of the record", () => {
    const { head } = write([opened, answered("/a")])
    assertProblem(verify(log.lines, { head }), "inserted", 7, log.lines)
  })
})

describe("the audit of another run", () => {
  it("is reported as not of this run", () => {
    assertProblem(verify(write([opened, closed], "run-another0000").lines), "not_of_this_run", 1, [])
    const claimed = write([{ ...opened, runId: "run-another0000" } as AuditEntry, closed])
    assertProblem(verify(claimed.lines), "not_of_this_run", 1, [])
    assertProblem(
      verify([], { ended: false, head: AuditLog.genesis("run-another0000") }),
      "not_of_this_run",
      1,
      []
    )
  })
})

describe("a line without an end", () => {
  it("is not buffered in memory", () => {
    const piece = new Uint8Array(64 * 1024).fill(120)
    const verifier = AuditLog.makeVerifier({ runId, ended: false })
    let held = 0
    const before = process.memoryUsage().arrayBuffers
    for (let bytes = 0; bytes < 128 * 1024 * 1024; bytes += piece.length) {
      verifier.push(piece)
      held = Math.max(held, process.memoryUsage().arrayBuffers - before)
    }
    assert.isBelow(held, 3 * AuditLog.lineBytesMax)
    assertProblem(verifier.end(), "unreadable", 1, [])
  })
})
