/**
 * The chain of an audit: each line holds the hash of the one before, so that none can be changed, taken out, put in or
 * moved without the lines after it saying so. Pure.
 *
 *     {"seq":7,"at":…,"type":…, …,"prev":"<hash of line 6>","hash":"<SHA-256 of this line before ,"hash":>"}⏎
 *
 * The first line follows from the run's id. What a chain cannot tell by itself is that its end is missing: the run's
 * record has its head, and the last entry of a run that has ended is `run.closed`. Whoever can write both the audit and
 * the record can make both anew; keep the head elsewhere where that matters.
 */
import type { AuditHead } from "@cogni/sandbox-core/RunResult"
import type { AuditLine } from "./AuditEntry.ts"
import { append, genesis, lineBytesMax, relativePath } from "./internal/audit/AuditChain.ts"
import { decode, type Look, lookAt } from "./internal/audit/AuditRow.ts"
import { makeRows, type Place, type Row } from "./internal/ByteRows.ts"

/** How an audit is not what was written. */
export type ProblemKind =
  /** A line has other bytes than those that were hashed, or does not follow from the one before. */
  | "changed"
  /** Entries are missing at the beginning or in the middle. */
  | "removed"
  /** There is a line more than was written here: made up, or a copy of another. */
  | "inserted"
  /** A line stands before one that it follows. */
  | "reordered"
  /** The last line has no end. */
  | "cut"
  /** Whole entries are missing at the end. */
  | "truncated"
  /** A line is no entry at all. */
  | "unreadable"
  /** It may be whole, but it is another run's. */
  | "not_of_this_run"
  | "continued_after_close"

/** The first place at which an audit is not what was written. */
export interface Problem {
  readonly kind: ProblemKind
  /** Counts from 1. */
  readonly line: number
  /** In bytes, of that line's beginning. */
  readonly offset: number
  /** In plain words. */
  readonly detail: string
}

export type Verdict =
  | {
      readonly _tag: "Whole"
      readonly head: AuditHead
      /** The last entry is `run.closed`. */
      readonly closed: boolean
      /** Whether a head was given to hold it against; without one nobody can tell if its end is missing. */
      readonly headKnown: boolean
      /** Of a line that is being written just now; always 0 where the run has ended. */
      readonly unfinishedBytes: number
    }
  | {
      readonly _tag: "Broken"
      readonly problem: Problem
      /** How far its lines follow from each other. */
      readonly sound: AuditHead
    }

/** What an audit is held against. */
export interface Expected {
  readonly runId: string
  /** As the run's record has it. */
  readonly head?: AuditHead | undefined
  /** A run that has not ended may have no last entry, and a last line that is half-written. */
  readonly ended: boolean
}

/** A line as it passes by. */
export interface Seen {
  readonly number: number
  /** `undefined` where it cannot be read. */
  readonly line: AuditLine | undefined
  /** Whether it and all before it are what was written. */
  readonly sound: boolean
}

export interface Verifier {
  /** The next bytes of the audit, cut anywhere. */
  readonly push: (bytes: Uint8Array) => void
  /** There are no more. */
  readonly end: () => Verdict
}

export { append, genesis, lineBytesMax, relativePath }

/** The whole of it at once. */
export const verify = (bytes: Uint8Array, expected: Expected): Verdict => {
  const verifier = makeVerifier(expected)
  verifier.push(bytes)
  return verifier.end()
}

/**
 * Reads an audit piece by piece; remembers one line at most.
 *
 * After the first problem it reads on, because what follows tells a line that was put in from one that was changed, and
 * one that was moved from one that was taken out.
 */
export const makeVerifier = (expected: Expected, onLine?: (seen: Seen) => void): Verifier => {
  let head = genesis(expected.runId)
  let closed = false
  let found: Found | undefined

  const fail = (kind: ProblemKind, row: Place, detail: string, more: Partial<Found> = {}) => {
    const { number: line, offset } = row
    found = { problem: { kind, line, offset, detail }, sound: head, resumed: false, settled: true, ...more }
  }

  /** A line that follows from the one before. */
  const accept = (row: Row, { hash, line }: Extract<Look, { readonly _tag: "Next" }>) => {
    if (found !== undefined) found.resumed = true
    else if (line === undefined)
      return fail("unreadable", row, `entry ${head.entries + 1} is none that is known`)
    else if (line.type === "run.opened" && line.runId !== expected.runId)
      return fail("not_of_this_run", row, `this is the audit of ${line.runId}, not of ${expected.runId}`)
    head = { entries: head.entries + 1, hash }
    closed = line?.type === "run.closed"
    if (found === undefined && head.entries === expected.head?.entries && hash !== expected.head.hash)
      fail("changed", row, "it does not lead to the head that the run's record has: it was written anew")
  }

  /** Something else than the next line. */
  const refuse = (row: Row, look: Exclude<Look, { readonly _tag: "Next" }>) => {
    const seq = head.entries + 1
    if (look._tag === "Unreadable")
      return fail("unreadable", row, `entry ${seq} cannot be read: this is no line of an audit`, open)
    if (look._tag === "Changed")
      return fail("changed", row, `entry ${seq} is not what was written: it does not have its hash`, open)
    const prev = { ...open, prev: look.prev }
    if (look.seq > seq) {
      const missing =
        look.seq === seq + 1 ? `entry ${seq} is missing` : `entries ${seq} to ${look.seq - 1} are missing`
      return fail("removed", row, missing, prev)
    }
    if (look.seq < seq) return fail("inserted", row, `entry ${look.seq} is here a second time`, prev)
    if (seq === 1)
      return fail(
        "not_of_this_run",
        row,
        `the first entry is not of ${expected.runId}: its chain begins elsewhere`
      )
    fail(
      "changed",
      row,
      `entry ${seq} does not follow from entry ${seq - 1}: one of them was written anew`,
      prev
    )
  }

  /** Whether what came after the first problem explains it. */
  const settle = () => {
    if (found === undefined || found.settled) return
    found.settled = true
    if (!found.resumed) return
    const { line } = found.problem
    const [kind, detail] =
      found.prev === head.hash
        ? (["reordered", `line ${line} stands before entries that it follows`] as const)
        : (["inserted", `line ${line} was put in: the entries around it follow each other`] as const)
    found.problem = { ...found.problem, kind, detail }
  }

  const follow = (row: Row): AuditLine | undefined => {
    if (found?.settled === true) return undefined
    const look: Look = closed ? { _tag: "Unreadable" } : lookAt(row, head)
    if (look._tag === "Next") accept(row, look)
    else if (found?.resumed === true) settle()
    else if (found === undefined && closed)
      fail("continued_after_close", row, "there is more after run.closed, the last entry")
    else if (found === undefined) refuse(row, look)
    return look._tag === "Next" ? look.line : undefined
  }

  const onRow = (row: Row) => {
    const line = follow(row)
    onLine?.({ number: row.number, line: line ?? decode(row.bytes), sound: found === undefined })
  }

  const rows = makeRows(lineBytesMax, onRow)

  const end = (): Verdict => {
    const rest = rows.rest()
    settle()
    if (found === undefined) atEnd(rest)
    if (found !== undefined) return { _tag: "Broken", problem: found.problem, sound: found.sound }
    return {
      _tag: "Whole",
      head,
      closed,
      headKnown: expected.head !== undefined,
      unfinishedBytes: rest.bytes
    }
  }

  const atEnd = (rest: Place & { readonly bytes: number }) => {
    const { ended, head: known } = expected
    if (rest.bytes > 0 && closed)
      return fail("continued_after_close", rest, "there is more after run.closed, the last entry")
    if (rest.bytes > lineBytesMax)
      return fail("unreadable", rest, `entry ${head.entries + 1} cannot be read: this is no line of an audit`)
    if (rest.bytes > 0 && ended)
      return fail("cut", rest, `the last line has no end: what is there of it is ${rest.bytes} bytes`)
    if (known !== undefined && head.entries < known.entries)
      return fail(
        "truncated",
        rest,
        `${known.entries - head.entries} of ${known.entries} entries are missing at the end`
      )
    if (known !== undefined && ended && head.entries > known.entries)
      return fail(
        "inserted",
        rest,
        `there are ${head.entries} entries, and the run's record knows of ${known.entries}`
      )
    if (known?.entries === 0 && known.hash !== genesis(expected.runId).hash)
      return fail("not_of_this_run", rest, "the run's record has the head of another audit")
    if (ended && !closed)
      return fail(
        "truncated",
        rest,
        "the run has ended, and the last entry is not run.closed: the end is missing"
      )
  }

  return { push: rows.push, end }
}

interface Found {
  problem: Problem
  readonly sound: AuditHead
  /** Of a line that is whole in itself and stands in the wrong place: what it follows. */
  readonly prev?: string
  /** The line that was expected came later. */
  resumed: boolean
  /** Nothing that follows can say more. */
  settled: boolean
}

const open: Partial<Found> = { settled: false }
