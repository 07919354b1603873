/**
 * A thread: a conversation of one account whose files, history and agents' sessions are kept between its turns.
 *
 * The name of a thread comes from a caller, so it is never part of a path. Its key is: a digest of account and name, so
 * that no name of one account leads to a thread of another.
 */
import { Effect, Schema } from "effect"
import * as Hex from "effect/encoding/Hex"
import { RunId } from "@cogni/sandbox-core/RunId"
import type { Message } from "../agents/AgentFields.ts"

/** A name that a caller chooses. Two names are the same thread only if they are the same characters. */
export const ThreadId = Schema.String.check(
  Schema.isPattern(/^[^\p{Cc}\p{Cs}]{1,200}$/u, {
    expected: "1 to 200 characters, none of them a control character or half a character"
  })
).pipe(Schema.brand("@cogni/sandbox-graph-provider/ThreadId"))

export type ThreadId = typeof ThreadId.Type

export const decodeId = Schema.decodeUnknownEffect(ThreadId)

/** The first 128 bits of a SHA-256 in hexadecimal. */
export const ThreadKey = Schema.String.check(
  Schema.isPattern(/^[0-9a-f]{32}$/u, { expected: "32 hexadecimal digits" })
).pipe(Schema.brand("@cogni/sandbox-graph-provider/ThreadKey"))

export type ThreadKey = typeof ThreadKey.Type

/**
 * Name of one set of files of a thread: its key, the store that knows it, and 64 random bits. A reset thread gets a new
 * name, so no turn ever finds files that were removed, or left on another host.
 */
export const FilesName = Schema.String.check(
  Schema.isPattern(/^[0-9a-f]{32}-[0-9a-f]{32}$/u, { expected: "two times 32 hexadecimal digits" })
).pipe(Schema.brand("@cogni/sandbox-graph-provider/FilesName"))

export type FilesName = typeof FilesName.Type

const randomHex = (): string => Hex.encode(crypto.getRandomValues(new Uint8Array(8)))

/** Returns a name of a store: 64 random bits in hexadecimal. */
export const newStoreId = randomHex

export const newFilesName = (key: ThreadKey, storeId: string): FilesName =>
  FilesName.make(`${key}-${storeId}${randomHex()}`)

/** Returns the thread and the store of a set of files. */
export const ownerOf = (name: FilesName): { readonly key: ThreadKey; readonly storeId: string } => ({
  key: ThreadKey.make(name.slice(0, 32)),
  storeId: name.slice(33, 49)
})

/** The account and the name of a thread. */
export interface ThreadName {
  readonly billingAccountId: string
  readonly threadId: ThreadId
}

/** Returns the key of a thread. JSON separates account and name, whatever characters they have. */
export const keyOf = ({ billingAccountId, threadId }: ThreadName): Effect.Effect<ThreadKey> =>
  Effect.map(
    Effect.promise(() =>
      crypto.subtle.digest("SHA-256", new TextEncoder().encode(JSON.stringify([billingAccountId, threadId])))
    ),
    (digest) => ThreadKey.make(Hex.encode(new Uint8Array(digest, 0, 16)))
  )

/** One turn that ended with an answer. A turn without one is not part of the history. */
export const ThreadTurn = Schema.Struct({
  runId: RunId,
  /** The agent, and its personality if it has one: `openclaw` or `openclaw/reviewer`. */
  agent: Schema.String,
  asked: Schema.String,
  answered: Schema.String,
  /** When it ended, as an ISO date. */
  at: Schema.String
}).annotate({ identifier: "ThreadTurn" })

export type ThreadTurn = typeof ThreadTurn.Type

export const Thread = Schema.Struct({
  key: ThreadKey,
  billingAccountId: Schema.String,
  threadId: Schema.String,
  createdAt: Schema.String,
  /** When its last turn began or ended. */
  usedAt: Schema.String,
  turns: Schema.Int,
  historyBytes: Schema.Int,
  /** The host that has its files. Absent: it has none yet, or they were removed. */
  host: Schema.optionalKey(Schema.String),
  /** Its files, if it has any. */
  files: Schema.optionalKey(FilesName),
  /** Size of its files after the last turn, with the agents' sessions. 0 until that has been measured. */
  workspaceBytes: Schema.Int,
  /** True while a turn is running, or the thread is being removed. */
  isBusy: Schema.Boolean
}).annotate({ identifier: "Thread" })

export type Thread = typeof Thread.Type

/** The session that an agent can continue, and how many turns of the thread it contains. */
export interface KeptSession {
  readonly sessionId: string
  readonly turns: number
}

export const ThreadLimits = Schema.Struct({
  /** Threads that one account may have. */
  threadsPerAccountMax: Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 10_000 })),
  /** Bytes of all files of an account's threads. Above it, a sweep removes the files of those longest unused. */
  bytesPerAccountMax: Schema.Int.check(Schema.isGreaterThanOrEqualTo(0)),
  /**
   * Bytes of the files of all accounts' threads on one host. From it on, turns of accounts are refused that use more
   * than their share. From twice as many on, all turns are refused.
   */
  bytesPerHostMax: Schema.Int.check(Schema.isGreaterThanOrEqualTo(0)),
  /** Days without a turn after which a sweep removes a thread and its history. */
  idleDaysMax: Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 36_500 }))
})

export type ThreadLimits = typeof ThreadLimits.Type

export const defaultLimits: ThreadLimits = {
  threadsPerAccountMax: 100,
  bytesPerAccountMax: 20 * 1024 ** 3,
  bytesPerHostMax: 200 * 1024 ** 3,
  idleDaysMax: 30
}

/** Turns that the history of one thread can have. */
export const turnsMax = 1000

/** Bytes that the history of one thread can have. */
export const historyBytesMax = 16 * 1024 * 1024

/** Bytes of earlier turns that an agent without a session of its own receives as text. The oldest are left out. */
export const replayBytesMax = 256 * 1024

/** Characters of a request, and of an answer, that the history keeps. */
export const textCharsMax = 256 * 1024

/** Cuts a text for the history, and says so. */
export const kept = (text: string): string =>
  text.length <= textCharsMax
    ? text
    : `${text.slice(0, textCharsMax)}\n[cut after ${textCharsMax} characters]`

const bytesOf = (text: string): number => new TextEncoder().encode(text).byteLength

export const turnBytes = ({ answered, asked }: Pick<ThreadTurn, "answered" | "asked">): number =>
  bytesOf(asked) + bytesOf(answered)

/**
 * Returns the messages for an agent: the request, after those earlier turns that its session does not contain. Pure.
 * The newest turns come first into the limit, and a note says how many did not. `count` is the number of earlier
 * turns, if `unknown` contains only the newest.
 */
export const messagesOf = (
  unknown: ReadonlyArray<Pick<ThreadTurn, "answered" | "asked">>,
  asked: string,
  bytesMax: number = replayBytesMax,
  count: number = unknown.length
): readonly [Message, ...ReadonlyArray<Message>] => {
  const request: Message = { role: "user", content: asked }
  let bytes = 0
  const shown: Array<Message> = []
  let left = count
  for (const turn of unknown.toReversed()) {
    bytes += turnBytes(turn)
    if (bytes > bytesMax) break
    shown.unshift({ role: "user", content: turn.asked }, { role: "assistant", content: turn.answered })
    left -= 1
  }
  const note: ReadonlyArray<Message> =
    left === 0
      ? []
      : [{ role: "system", content: `${left} earlier turns of this conversation are left out here.` }]
  const [first, ...others] = [...note, ...shown, request]
  return [first ?? request, ...others]
}

/** Maximum number of threads in a list. */
export const listedMax = 10_000

/** How long a thread stays held without being renewed. Longer than a container lives without its host. */
export const holdSeconds = 30

/** Which turns of a history to read. Absent limits do not apply. */
export interface HistoryPart {
  /** Only turns after this number. The first turn has number 1. */
  readonly after?: number | undefined
  /** Only turns before this number. */
  readonly before?: number | undefined
  readonly turnsMax?: number | undefined
  /** One turn is returned even if it is larger. */
  readonly bytesMax?: number | undefined
}

export interface Hold {
  readonly key: ThreadKey
  /** Unique for each turn and each removal. */
  readonly holder: string
}

/** A turn that ended with an answer. */
export interface EndedTurn {
  readonly turn: Omit<ThreadTurn, "at">
  /** The session that contains this turn and all before it. Absent: the agent has none. */
  readonly sessionId?: string | undefined
  readonly workspaceBytes: number
}
