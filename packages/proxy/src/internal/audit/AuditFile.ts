/**
 * Writes the audit of one run to the host's disk. Entries are only appended, in the order of their events.
 *
 * Pending entries are written together, so that a busy run needs no more writes than a quiet one. If a line cannot be
 * written, or another process changed the file, the run's proxy fails: the run must not continue unobserved. If the
 * file is full, no further call may begin, but the ends of open calls are still written.
 */
import { attempt, messageOf } from "@cogni/sandbox-host-files/Attempt"
import * as OwnFiles from "@cogni/sandbox-host-files/OwnFiles"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import type { AuditHead } from "@cogni/sandbox-core/RunFigures"
import type { RunClosed } from "../../AuditEntry.ts"
import * as AuditChain from "./AuditChain.ts"
import type { AuditDraft } from "./AuditChain.ts"

export interface AuditFileOptions {
  /** Directory of this run only. */
  readonly parent: string
  readonly runId: string
  readonly bytesMax: number
  /** Called when an entry could not be written. */
  readonly onFailure: (problem: AuditProblem) => void
  /** Continues an audit whose writer ended without closing it. */
  readonly resume?: Resumed | undefined
}

/** State of an audit that is continued. */
interface Resumed {
  readonly head: AuditHead
  /** Size of the complete lines. The rest of the file is cut off. */
  readonly bytes: number
}

/** Why an audit cannot be created or written. Plain data, so that it can be sent to another thread. */
export interface AuditProblem {
  readonly detail: string
  readonly remedy: string
}

/** The audit cannot be created. */
export class AuditFailed extends Data.TaggedError("AuditFailed")<AuditProblem> {
  override get message(): string {
    return this.detail
  }
}

/** An open audit. Entries are written in the order of their calls. */
export interface AuditFile {
  readonly path: string
  /** Queues an entry without waiting for it. */
  readonly note: (entry: AuditDraft) => void
  /** Succeeds with true when the entry is written, and with false if it cannot be written. */
  readonly append: (entry: AuditDraft) => Effect.Effect<boolean>
  /** Returns the head of the written entries. */
  readonly head: () => AuditHead
  /** Waits until nothing is being written. */
  readonly settled: Effect.Effect<void>
  /** Writes the last entry and flushes it to the disk. Entries after it are not written. */
  readonly close: (totals: Omit<RunClosed, "type">) => Effect.Effect<void>
}

/** Bytes below the bound that are reserved for the ends of open calls: some thousand entries without bodies. */
const reservedBytesMax = 1024 * 1024

/** Part of the reserved bytes for the last entry. */
const closingBytes = 4096

/** Interval of checks whether another process changed the file, while it is being written. */
const lookMillis = 1000

/** Opens a run's audit, which must not exist yet unless it is resumed. The scope closes it after the last write. */
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
      detail: `the run's audit is full, at ${options.bytesMax} bytes: another call would not be recorded`,
      remedy: "Give the agent less to do in one run, or check the audit for repeated requests"
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

/** Returns the size up to which entries may begin something, and up to which they may end something. */
const boundsOf = (bytesMax: number) => {
  const ending = bytesMax - closingBytes
  return { beginning: ending - Math.min(reservedBytesMax, Math.floor(bytesMax / 4)), ending }
}

/** Returns whether an entry begins something that can still be refused. All other entries record past events. */
const begins = ({ type }: AuditDraft): boolean =>
  type === "call.started" ||
  type === "package.started" ||
  type === "request.answered" ||
  type === "request.refused"

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
  /** Queues an entry. Returns false without queueing it if the file would exceed this size. */
  readonly write: (entry: AuditDraft, bytesMax: number, done: (isWritten: boolean) => void) => boolean
  readonly head: () => AuditHead
  /** Flushes the file to the disk and checks that no other process changed it. */
  readonly sync: () => Promise<void>
  /** Waits until nothing is being written. */
  readonly settled: () => Promise<void>
}

interface Pending {
  /** A buffer, which is outside the heap of the thread, because many long lines may wait for a disk. */
  readonly line: Buffer
  readonly head: AuditHead
  readonly done: (isWritten: boolean) => void
}

const makeWriter = (file: OpenFile, start: Resumed, onFailure: (problem: AuditProblem) => void): Writer => {
  /** State after all queued entries. */
  let taken = start
  /** Head of the entries in the file. */
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
      remedy: "Do not change the run's directory during the run, and make sure that its disk has free space"
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
    // A full disk may have stored only a part. Complete lines count as written.
    let end = 0
    for (const { done: tell, head, line } of batch) {
      end += done === bytes.byteLength ? 0 : line.byteLength
      const whole = end <= done
      if (whole) written = head
      tell(whole && !broken)
    }
  }

  const drain = async () => {
    // Wait one microtask, so that entries of the same turn are written together.
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

/** Throws if another process truncated, changed, removed or replaced the file. */
const untouched = async ({ handle, path: name }: OpenFile, bytes: number): Promise<void> => {
  const [ours, there] = await Promise.all([handle.stat(), fs.lstat(name).catch(() => undefined)])
  if (there === undefined || there.ino !== ours.ino || there.dev !== ours.dev)
    throw new TypeError("it was removed or replaced by another file")
  if (ours.size !== bytes) throw new TypeError("another process truncated it or wrote to it")
}

const notMade = (cause: string): AuditFailed =>
  new AuditFailed({
    detail: `the run's audit cannot be created: ${cause}`,
    remedy: "Make the run's directory writable, and make sure that its disk has free space"
  })

/** Opens or creates the file, which only this user can read. */
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
