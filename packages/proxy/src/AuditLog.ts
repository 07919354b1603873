/**
 * Verifies the hash chain of an audit: each line contains the hash of the previous line, so a line that is changed,
 * removed, inserted or moved breaks the chain. Pure.
 *
 *     {"seq":7,"at":…,"type":…, …,"prev":"<hash of line 6>","hash":"<SHA-256 of this line before ,"hash":>"}⏎
 *
 * The chain begins with a hash of the run ID. A chain alone cannot show that its end is missing. So the run's record
 * stores its head, and the last entry of a run that has ended is `run.closed`. Anyone who can write both the audit and
 * the record can forge both; where that matters, store the head elsewhere.
 */
import type { AuditHead } from "@cogni/sandbox-core/RunFigures"
import type { AuditLine } from "./AuditEntry.ts"
import { append, genesis, lineBytesMax, relativePath } from "./internal/audit/AuditChain.ts"
import { decode, type Look, lookAt } from "./internal/audit/AuditRow.ts"
import { makeRows, type Place, type Row } from "./internal/ByteRows.ts"

/** Ways in which an audit differs from what was written. */
export type ProblemKind =
  /** A line's bytes do not match its hash, or it does not follow from the previous line. */
  | "changed"
  /** Entries are missing at the beginning or in the middle. */
  | "removed"
  /** There is an extra line: made up, or a copy of another. */
  | "inserted"
  /** A line comes before one that it follows. */
  | "reordered"
  /** The last line is incomplete. */
  | "cut"
  /** Whole entries are missing at the end. */
  | "truncated"
  /** A line is not an entry. */
  | "unreadable"
  /** The audit may be intact, but it belongs to another run. */
  | "not_of_this_run"
  | "continued_after_close"

/** The first place at which an audit differs from what was written. */
export interface Problem {
  readonly kind: ProblemKind
  /** Counts from 1. */
  readonly line: number
  /** Offset of the beginning of that line, in bytes. */
  readonly offset: number
  /** Explanation for people. */
  readonly detail: string
}

export type Verdict =
  | {
      readonly _tag: "Whole"
      readonly head: AuditHead
      /** The last entry is `run.closed`. */
      readonly closed: boolean
      /** Whether a head was given to compare with. Without one, a missing end cannot be detected. */
      readonly headKnown: boolean
      /** Bytes of a line that is still being written; always 0 if the run has ended. */
      readonly unfinishedBytes: number
    }
  | {
      readonly _tag: "Broken"
      readonly problem: Problem
      /** Head of the intact beginning of the chain. */
      readonly sound: AuditHead
    }

/** Run, head and state that an audit is verified against. */
export interface Expected {
  readonly runId: string
  /** Head in the run's record. */
  readonly head?: AuditHead | undefined
  /** The run has ended. Before that, the last entry may be missing and the last line incomplete. */
  readonly ended: boolean
}

/** A place between two lines of an audit, and what is known of the lines before it. */
export interface Passage {
  /** Number of the next line, from 1. */
  readonly number: number
  /** Offset of the next line, in bytes. */
  readonly offset: number
  /** Head of the intact beginning of the chain. */
  readonly head: AuditHead
  /** The last entry was `run.closed`. */
  readonly closed: boolean
  /** Whether all lines before it are intact. */
  readonly sound: boolean
}

/** A line that the verifier has read. */
export interface Seen {
  readonly number: number
  /** `undefined` if it cannot be read. */
  readonly line: AuditLine | undefined
  /** Whether this line and all lines before it are intact. */
  readonly sound: boolean
}

/** A line that a reader has passed. */
export interface Passed extends Seen {
  /** The place before this line, from which {@link makeReader} can read again. */
  readonly before: Passage
}

export interface Verifier {
  /** Adds the next bytes of the audit, split at any point. */
  readonly push: (bytes: Uint8Array) => void
  /** Returns the verdict, as if the audit ended here. More bytes may follow. */
  readonly end: () => Verdict
}

export { append, genesis, lineBytesMax, relativePath }

/** Verifies a whole audit. */
export const verify = (bytes: Uint8Array, expected: Expected): Verdict => {
  const verifier = makeVerifier(expected)
  verifier.push(bytes)
  return verifier.end()
}

/**
 * Verifies an audit piece by piece, and keeps at most one line in memory.
 *
 * Reads on after the first problem, because later lines distinguish an inserted line from a changed one, and a moved
 * line from a removed one.
 */
export const makeVerifier = (expected: Expected, onLine?: (seen: Seen) => void): Verifier =>
  verifierFrom(beginningOf(expected.runId), expected, onLine)

/** The place before the first line. */
const beginningOf = (runId: string): Passage => ({
  number: 1,
  offset: 0,
  head: genesis(runId),
  closed: false,
  sound: true
})

/**
 * Reads the lines of an audit from a place, and not those before it: they are as intact as they were when the place was
 * reached. So it has no verdict.
 */
export const makeReader = (
  expected: Expected,
  onLine: (passed: Passed) => void,
  from = beginningOf(expected.runId)
): Pick<Verifier, "push"> => verifierFrom(from, expected, onLine)

const verifierFrom = (from: Passage, expected: Expected, onLine?: (passed: Passed) => void): Verifier => {
  let { closed, head } = from
  let found: Found | undefined = from.sound ? undefined : foundBefore(from)

  const fail = (kind: ProblemKind, row: Place, detail: string, more: Partial<Found> = {}) => {
    const { number: line, offset } = row
    found = { problem: { kind, line, offset, detail }, sound: head, resumed: false, settled: true, ...more }
  }

  /** Handles a line that follows from the previous one. */
  const accept = (row: Row, { hash, line }: Extract<Look, { readonly _tag: "Next" }>) => {
    if (found !== undefined) found.resumed = true
    else if (line === undefined)
      return fail("unreadable", row, `entry ${head.entries + 1} is not of a known form`)
    else if (line.type === "run.opened" && line.runId !== expected.runId)
      return fail("not_of_this_run", row, `this is the audit of ${line.runId}, not of ${expected.runId}`)
    head = { entries: head.entries + 1, hash }
    closed = line?.type === "run.closed"
    if (found === undefined && head.entries === expected.head?.entries && hash !== expected.head.hash)
      fail("changed", row, "it does not lead to the head in the run's record: the audit was rewritten")
  }

  /** Handles a line that does not follow from the previous one. */
  const refuse = (row: Row, look: Exclude<Look, { readonly _tag: "Next" }>) => {
    const seq = head.entries + 1
    if (look._tag === "Unreadable")
      return fail("unreadable", row, `entry ${seq} cannot be read: not a valid audit line`, open)
    if (look._tag === "Changed")
      return fail("changed", row, `entry ${seq} was changed: it does not match its hash`, open)
    const prev = { ...open, prev: look.prev }
    if (look.seq > seq) {
      const missing =
        look.seq === seq + 1 ? `entry ${seq} is missing` : `entries ${seq} to ${look.seq - 1} are missing`
      return fail("removed", row, missing, prev)
    }
    if (look.seq < seq) return fail("inserted", row, `entry ${look.seq} occurs a second time`, prev)
    if (seq === 1)
      return fail(
        "not_of_this_run",
        row,
        `the first entry does not belong to ${expected.runId}: its chain begins differently`
      )
    fail(
      "changed",
      row,
      `entry ${seq} does not follow from entry ${seq - 1}: one of them was rewritten`,
      prev
    )
  }

  /** Refines the first problem by the lines that came after it. */
  const settle = () => {
    if (found === undefined || found.settled) return
    found.settled = true
    if (!found.resumed) return
    const { line } = found.problem
    const [kind, detail] =
      found.prev === head.hash
        ? (["reordered", `line ${line} comes before entries that it follows`] as const)
        : (["inserted", `line ${line} was inserted: the entries around it follow each other`] as const)
    found.problem = { ...found.problem, kind, detail }
  }

  const follow = (row: Row): AuditLine | undefined => {
    if (found?.settled === true) return undefined
    const look: Look = closed ? { _tag: "Unreadable" } : lookAt(row, head)
    if (look._tag === "Next") accept(row, look)
    else if (found?.resumed === true) settle()
    else if (found === undefined && closed)
      fail("continued_after_close", row, "the audit continues after run.closed, the last entry")
    else if (found === undefined) refuse(row, look)
    return look._tag === "Next" ? look.line : undefined
  }

  const onRow = (row: Row) => {
    const { number, offset } = row
    const before: Passage = { number, offset, head, closed, sound: found === undefined }
    const line = follow(row)
    onLine?.({ number, before, line: line ?? decode(row.bytes), sound: found === undefined })
  }

  const rows = makeRows(lineBytesMax, onRow, from)

  const verdict = (): Verdict => {
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

  const end = (): Verdict => {
    const before = found === undefined ? undefined : { ...found }
    const reached = verdict()
    // Lines that are missing at this end may still come.
    found = before
    return reached
  }

  const atEnd = (rest: Place & { readonly bytes: number }) => {
    const { ended, head: known } = expected
    if (rest.bytes > 0 && closed)
      return fail("continued_after_close", rest, "the audit continues after run.closed, the last entry")
    if (rest.bytes > lineBytesMax)
      return fail("unreadable", rest, `entry ${head.entries + 1} cannot be read: not a valid audit line`)
    if (rest.bytes > 0 && ended)
      return fail("cut", rest, `the last line is incomplete: it breaks off after ${rest.bytes} bytes`)
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
        `there are ${head.entries} entries, but the run's record counts ${known.entries}`
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
  /** The `prev` hash of an intact line in the wrong place. */
  readonly prev?: string
  /** The expected line came later. */
  resumed: boolean
  /** No later line can refine the problem. */
  settled: boolean
}

const open: Partial<Found> = { settled: false }

/** Stands for a problem before a place, whatever it was: no later line is intact. */
const foundBefore = ({ head, number: line, offset }: Passage): Found => ({
  problem: { kind: "changed", line, offset, detail: "a line before this one is not intact" },
  sound: head,
  resumed: false,
  settled: true
})
