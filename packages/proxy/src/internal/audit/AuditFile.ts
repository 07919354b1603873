/**
 * The audit of one run on the disk of the host: only ever appended to, in the order in which things happened.
 *
 * What is under way is written together, so that a busy run costs no more writes than a quiet one. When a line cannot
 * be written, or somebody else has touched the file, the run's way out has failed: it must not go on unobserved. When
 * the file is full, no call begins any more; how those that had begun ended is still written down.
 */
import { attempt, messageOf } from "@cogni/sandbox-host-files/Attempt"
import * as OwnFiles from "@cogni/sandbox-host-files/OwnFiles"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import type { AuditHead } from "@cogni/sandbox-core/RunResult"
import type { RunClosed } from "../../AuditEntry.ts"
import * as AuditChain from "./AuditChain.ts"
import type { AuditDraft } from "./AuditChain.ts"

export interface AuditFileOptions {
  /** A directory of this run only. */
  readonly parent: string
  readonly runId: string
  readonly bytesMax: number
  /** Something could not be written down. */
  readonly onFailure: (problem: AuditProblem) => void
  /** Goes on with an audit whose writer has ended without closing it. */
  readonly resume?: Resumed | undefined
}

/** Where an audit stands that is to be continued. */
export interface Resumed {
  readonly head: AuditHead
  /** Of whole lines; what follows them is cut off. */
  readonly bytes: number
}

/** Why an audit cannot be made or written. Plain, so that it can be sent to another thread. */
export interface AuditProblem {
  readonly detail: string
  readonly remedy: string
}

/** The audit cannot be made. */
export class AuditFailed extends Data.TaggedError("AuditFailed")<AuditProblem> {
  override get message(): string {
    return this.detail
  }
}

/** Entries are written in the order in which they are given. */
export interface AuditFile {
  readonly path: string
  /** Give an entry, and go on. */
  readonly note: (entry: AuditDraft) => void
  /** Succeeds when the entry is written; with false when it cannot be. */
  readonly append: (entry: AuditDraft) => Effect.Effect<boolean>
  /** Of what is written. */
  readonly head: () => AuditHead
  /** Nothing is being written. */
  readonly settled: Effect.Effect<void>
  /** Write the last entry, and see it on the disk. What is given after it is not written. */
  readonly close: (totals: Omit<RunClosed, "type">) => Effect.Effect<void>
}

/** Kept below the bound for how that ends which had begun: some thousand entries without bodies. */
const reservedBytesMax = 1024 * 1024

/** Of that, kept for the last entry. */
const closingBytes = 4096

/** How often it is looked at whether somebody else has touched the file, while it is being written. */
const lookMillis = 1000

/** Open a run's audit, which must not be there yet. It is let go of with the scope, when all that was given is written. */
export const open = Effect.fnUntraced(function* (
  options: AuditFileOptions
): Effect.fn.Return<AuditFile, AuditFailed, Scope.Scope> {
  const file = yield* Effect.acquireRelease(
    attempt(() => openFile(options), notMade),
    ({ handle }) => Effect.promise(() => handle.close().catch(() => undefined))
  )
  const fail = options.onFailure
  const writer = makeWriter(
    file,
    options.resume ?? { head: AuditChain.genesis(options.runId), bytes: 0 },
    fail
  )
  yield* Effect.addFinalizer(() => Effect.promise(writer.settled))

  const bounds = boundsOf(options.bytesMax)
  let isFull = false
  let isClosed = false

  const give = (entry: AuditDraft, done: (isWritten: boolean) => void): void => {
    if (isClosed || (isFull && begins(entry))) return done(false)
    const bound = begins(entry) ? bounds.beginning : bounds.ending
    if (writer.write(entry, bound, done) || writer.write(withoutBody(entry), bound, done)) return
    isFull = true
    fail({
      detail: `the run's audit is full, at ${options.bytesMax} bytes: another call would go by unwritten`,
      remedy: "Give the agent less to do in one run, or see in the audit what it kept asking for"
    })
    done(false)
  }

  return {
    path: file.path,
    note: (entry) => give(entry, ignore),
    append: (entry) =>
      Effect.callback((resume) => give(entry, (isWritten) => resume(Effect.succeed(isWritten)))),
    head: writer.head,
    settled: Effect.promise(writer.settled),
    close: (totals) =>
      Effect.suspend(() => {
        if (!isClosed) writer.write({ type: "run.closed", ...totals }, options.bytesMax, ignore)
        isClosed = true
        return Effect.promise(writer.sync)
      })
  }
})

const ignore = () => undefined

/** Up to where what begins something may be written, and what says how it ended. */
const boundsOf = (bytesMax: number) => {
  const ending = bytesMax - closingBytes
  return { beginning: ending - Math.min(reservedBytesMax, Math.floor(bytesMax / 4)), ending }
}

/** Something that need not happen: all else has happened already. */
const begins = ({ type }: AuditDraft): boolean =>
  type === "call.started" || type === "request.answered" || type === "request.refused"

const withoutBody = (entry: AuditDraft): AuditDraft => {
  if (!("body" in entry)) return entry
  const { body: _, ...rest } = entry
  return rest
}

interface OpenFile {
  readonly path: string
  readonly handle: fs.FileHandle
}

interface Writer {
  /** False where the file would grow over this bound: it is not taken then. */
  readonly write: (entry: AuditDraft, bytesMax: number, done: (isWritten: boolean) => void) => boolean
  readonly head: () => AuditHead
  /** See on the disk what is written, untouched. */
  readonly sync: () => Promise<void>
  /** Nothing is being written. */
  readonly settled: () => Promise<void>
}

interface Pending {
  /** Bytes, which lie outside the heap of a thread: many long lines may wait for a disk. */
  readonly line: Buffer
  readonly head: AuditHead
  readonly done: (isWritten: boolean) => void
}

const makeWriter = (file: OpenFile, start: Resumed, onFailure: (problem: AuditProblem) => void): Writer => {
  /** Of all that is taken. */
  let taken = start
  /** Of all that is in the file. */
  let written = start.head
  let bytesWritten = start.bytes
  let broken = false
  let lookedMs = performance.now()
  let queue: Array<Pending> = []
  let writing: Promise<void> | undefined

  const fail = (cause: unknown) => {
    broken = true
    onFailure({
      detail: `the run's audit cannot be written: ${messageOf(cause)}`,
      remedy: "Leave the run's directory alone while the run lives, and see that its disk has space"
    })
  }

  const writeBatch = async (batch: ReadonlyArray<Pending>) => {
    const bytes = Buffer.concat(batch.map(({ line }) => line))
    let done = 0
    try {
      const now = performance.now()
      if (now - lookedMs >= lookMillis) {
        lookedMs = now
        await untouched(file, bytesWritten)
      }
      while (done < bytes.byteLength)
        done += (await file.handle.write(bytes, done, bytes.byteLength - done)).bytesWritten
    } catch (cause) {
      fail(cause)
    }
    bytesWritten += done
    // A disk that is full may have taken a part: what is whole of it is written.
    let end = 0
    for (const { done: tell, head, line } of batch) {
      end += done === bytes.byteLength ? 0 : line.byteLength
      const whole = end <= done
      if (whole) written = head
      tell(whole && !broken)
    }
  }

  const drain = async () => {
    // What comes in the same turn goes along.
    await Promise.resolve()
    for (let batch = queue; batch.length > 0; batch = queue) {
      queue = []
      if (broken) for (const { done } of batch) done(false)
      else await writeBatch(batch)
    }
    writing = undefined
  }

  return {
    write: (entry, bytesMax, done) => {
      const next = AuditChain.append(taken.head, new Date().toISOString(), entry)
      const line = Buffer.from(next.line, "utf8")
      if (taken.bytes + line.byteLength > bytesMax || line.byteLength > AuditChain.lineBytesMax) return false
      taken = { head: next.head, bytes: taken.bytes + line.byteLength }
      queue.push({ line, head: next.head, done })
      writing ??= drain()
      return true
    },
    head: () => written,
    sync: async () => {
      await writing
      if (broken) return
      try {
        await untouched(file, bytesWritten)
        await file.handle.sync()
      } catch (cause) {
        fail(cause)
      }
    },
    settled: async () => void (await writing)
  }
}

/** Nobody else has cut it, written to it, removed it, or put another in its place. */
const untouched = async ({ handle, path: name }: OpenFile, bytes: number): Promise<void> => {
  const [ours, there] = await Promise.all([handle.stat(), fs.lstat(name).catch(() => undefined)])
  if (there === undefined || there.ino !== ours.ino || there.dev !== ours.dev)
    throw new TypeError("it was removed, or another file was put in its place")
  if (ours.size !== bytes) throw new TypeError("it was cut or written to by another")
}

const notMade = (cause: string): AuditFailed =>
  new AuditFailed({
    detail: `the run's audit cannot be made: ${cause}`,
    remedy: "Make the run's directory writable, and see that its disk has space"
  })

/** Only this user can read it. */
const openFile = async ({ parent, resume }: AuditFileOptions): Promise<OpenFile> => {
  const file = path.join(parent, AuditChain.relativePath)
  if (resume !== undefined) {
    const handle = await OwnFiles.openLog(file)
    await handle.truncate(resume.bytes)
    return { path: file, handle }
  }
  await fs.mkdir(path.dirname(file), { mode: 0o700 })
  return { path: file, handle: await OwnFiles.openNewLog(file) }
}
