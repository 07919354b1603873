/**
 * Port that stores threads: their history, the sessions that agents can continue, and who is working in them.
 *
 * A holder has a thread for some seconds, and renews that while it works. Only the holder can change a thread, so that
 * two turns, or a turn and a removal, never work in it at once, whichever processes they are of.
 */
import { Clock, Context, Effect, Layer } from "effect"
import { ThreadBusy, ThreadLimitReached, ThreadLost, type ThreadsUnavailable } from "./ThreadError.ts"
import {
  type FilesName,
  type KeptSession,
  newStoreId,
  type Thread,
  type ThreadKey,
  type ThreadName,
  type ThreadTurn,
  turnBytes
} from "./Thread.ts"
import { listedMax, holdSeconds, type HistoryPart, type Hold, type EndedTurn } from "./Thread.ts"

export class ThreadStore extends Context.Service<
  ThreadStore,
  {
    /** Random name of this store, which the names of its threads' files contain. */
    readonly id: string
    /** Holds a thread, and creates it if it does not exist and the account may have one more. */
    readonly claim: (
      name: ThreadName,
      hold: Hold,
      threadsPerAccountMax: number
    ) => Effect.Effect<Thread, ThreadBusy | ThreadLimitReached | ThreadsUnavailable>
    /** Holds a thread that exists. Returns `undefined` if it does not. */
    readonly claimKnown: (hold: Hold) => Effect.Effect<Thread | undefined, ThreadBusy | ThreadsUnavailable>
    readonly renew: (hold: Hold) => Effect.Effect<void, ThreadLost | ThreadsUnavailable>
    /** Ends a hold. A thread without turns and files is forgotten. */
    readonly release: (hold: Hold) => Effect.Effect<void, ThreadsUnavailable>
    /**
     * Records that a turn begins on a host, with these files. Until it has ended, its agent has no session to continue,
     * and the size of the files is not known: it is 0. The size of files that were measured is at least 1.
     */
    readonly begin: (
      hold: Hold,
      turn: { readonly agent: string; readonly host: string; readonly files: FilesName }
    ) => Effect.Effect<void, ThreadLost | ThreadsUnavailable>
    /** Records a turn that ended. */
    readonly end: (hold: Hold, ended: EndedTurn) => Effect.Effect<void, ThreadLost | ThreadsUnavailable>
    /** Records the size of the files after a turn that did not end. */
    readonly resize: (
      hold: Hold,
      workspaceBytes: number
    ) => Effect.Effect<void, ThreadLost | ThreadsUnavailable>
    /** Records that the thread has no files, and forgets all sessions. With `history: false`, forgets the thread. */
    readonly forget: (
      hold: Hold,
      options: { readonly history: boolean }
    ) => Effect.Effect<void, ThreadLost | ThreadsUnavailable>
    /** The newest turns that the limits allow, oldest first. */
    readonly history: (
      key: ThreadKey,
      part?: HistoryPart
    ) => Effect.Effect<ReadonlyArray<ThreadTurn>, ThreadsUnavailable>
    readonly sessionOf: (
      key: ThreadKey,
      agent: string
    ) => Effect.Effect<KeptSession | undefined, ThreadsUnavailable>
    /** Sums the sizes of files that threads have, for each account. Files of no thread are not part of it. */
    readonly sizesOf: (
      names: ReadonlyArray<FilesName>
    ) => Effect.Effect<ReadonlyArray<AccountFiles>, ThreadsUnavailable>
    readonly find: (key: ThreadKey) => Effect.Effect<Thread | undefined, ThreadsUnavailable>
    /** Last used first, at most {@link listedMax}. */
    readonly list: (filter: {
      readonly billingAccountId?: string | undefined
    }) => Effect.Effect<ReadonlyArray<Thread>, ThreadsUnavailable>
    /** All accounts that have threads. */
    readonly accounts: Effect.Effect<ReadonlyArray<string>, ThreadsUnavailable>
  }
>()("@cogni/sandbox-graph-provider/ThreadStore") {}

/** The size of several sets of files of one account. */
interface AccountFiles {
  readonly billingAccountId: string
  readonly count: number
  readonly bytes: number
  /** Number of those whose size is not known: a turn is using them, or its host died before it measured them. */
  readonly unmeasured: number
}

interface Row {
  thread: Thread
  held?: { readonly holder: string; readonly untilMillis: number }
  readonly turns: Array<ThreadTurn>
  readonly sessions: Map<string, KeptSession>
}

const isoOf = (millis: number): string => new Date(millis).toISOString()

/** Returns the newest turns that a part allows. Pure. */
const partOf = (
  turns: ReadonlyArray<ThreadTurn>,
  { after = 0, before = Infinity, bytesMax = Infinity, turnsMax = Infinity }: HistoryPart
): ReadonlyArray<ThreadTurn> => {
  const end = Math.min(turns.length, before - 1)
  let from = end
  let bytes = 0
  while (from > after && end - from < turnsMax) {
    const turn = turns[from - 1]
    bytes += turn === undefined ? 0 : turnBytes(turn)
    if (bytes > bytesMax && from < end) break
    from -= 1
  }
  return turns.slice(from, end)
}

const makeMemory = Effect.sync(() => {
  const rows = new Map<ThreadKey, Row>()
  const shown = (row: Row, now: number): Thread => ({
    ...row.thread,
    isBusy: row.held !== undefined && row.held.untilMillis > now
  })

  const take = (row: Row, holder: string, now: number) => {
    if (row.held !== undefined && row.held.untilMillis > now && row.held.holder !== holder) {
      const retrySeconds = Math.ceil((row.held.untilMillis - now) / 1000)
      return Effect.fail(new ThreadBusy({ retrySeconds }))
    }
    row.held = { holder, untilMillis: now + holdSeconds * 1000 }
    return Effect.succeed(shown(row, now))
  }

  /** Changes a thread if the hold has not ended. */
  const asHolder = ({ holder, key }: Hold, change: (row: Row, now: number) => void) =>
    Effect.flatMap(Clock.currentTimeMillis, (now) => {
      const row = rows.get(key)
      if (row?.held?.holder !== holder || row.held.untilMillis <= now) return Effect.fail(new ThreadLost())
      change(row, now)
      return Effect.void
    })

  return ThreadStore.of({
    id: newStoreId(),
    claim: Effect.fn("ThreadStore.claim")(function* (name, { holder, key }, threadsPerAccountMax) {
      const now = yield* Clock.currentTimeMillis
      const known = rows.get(key)
      if (known !== undefined) return yield* take(known, holder, now)
      const own = [...rows.values()].filter(
        ({ thread }) => thread.billingAccountId === name.billingAccountId
      ).length
      if (own >= threadsPerAccountMax)
        return yield* new ThreadLimitReached({ limit: "threads", max: threadsPerAccountMax })
      const at = isoOf(now)
      const row: Row = {
        thread: {
          key,
          ...name,
          createdAt: at,
          usedAt: at,
          turns: 0,
          historyBytes: 0,
          workspaceBytes: 0,
          isBusy: true
        },
        turns: [],
        sessions: new Map()
      }
      rows.set(key, row)
      return yield* take(row, holder, now)
    }),
    claimKnown: ({ holder, key }) =>
      Effect.flatMap(Clock.currentTimeMillis, (now): Effect.Effect<Thread | undefined, ThreadBusy> => {
        const row = rows.get(key)
        return row === undefined ? Effect.succeed(undefined) : take(row, holder, now)
      }),
    renew: (hold) =>
      asHolder(hold, (row, now) => {
        row.held = { holder: hold.holder, untilMillis: now + holdSeconds * 1000 }
      }),
    release: ({ holder, key }) =>
      Effect.sync(() => {
        const row = rows.get(key)
        if (row?.held?.holder !== holder) return
        delete row.held
        if (row.thread.turns === 0 && row.thread.host === undefined) rows.delete(key)
      }),
    begin: (hold, { agent, files, host }) =>
      asHolder(hold, (row, now) => {
        row.sessions.delete(agent)
        row.thread = { ...row.thread, host, files, workspaceBytes: 0, usedAt: isoOf(now) }
      }),
    end: (hold, { sessionId, turn, workspaceBytes }) =>
      asHolder(hold, (row, now) => {
        const at = isoOf(now)
        row.turns.push({ ...turn, at })
        const { historyBytes, turns } = row.thread
        row.thread = {
          ...row.thread,
          usedAt: at,
          turns: turns + 1,
          historyBytes: historyBytes + turnBytes(turn),
          workspaceBytes
        }
        if (sessionId !== undefined) row.sessions.set(turn.agent, { sessionId, turns: turns + 1 })
      }),
    resize: (hold, workspaceBytes) =>
      asHolder(hold, (row) => {
        row.thread = { ...row.thread, workspaceBytes }
      }),
    forget: (hold, { history }) =>
      asHolder(hold, (row) => {
        row.sessions.clear()
        const { files: _files, host: _host, ...rest } = row.thread
        row.thread = { ...rest, workspaceBytes: 0 }
        if (!history) rows.delete(hold.key)
      }),
    history: (key, part = {}) => Effect.sync(() => partOf(rows.get(key)?.turns ?? [], part)),
    sessionOf: (key, agent) => Effect.sync(() => rows.get(key)?.sessions.get(agent)),
    sizesOf: (names) =>
      Effect.sync(() => {
        const asked = new Set(names)
        const own = [...rows.values()]
          .map(({ thread }) => thread)
          .filter(({ files }) => files !== undefined && asked.has(files))
        return [...Map.groupBy(own, ({ billingAccountId }) => billingAccountId)].map(
          ([billingAccountId, threads]) => ({
            billingAccountId,
            count: threads.length,
            bytes: threads.reduce((sum, { workspaceBytes }) => sum + workspaceBytes, 0),
            unmeasured: threads.filter(({ workspaceBytes }) => workspaceBytes === 0).length
          })
        )
      }),
    find: (key) =>
      Effect.map(Clock.currentTimeMillis, (now) => {
        const row = rows.get(key)
        return row === undefined ? undefined : shown(row, now)
      }),
    accounts: Effect.sync(() => [
      ...new Set([...rows.values()].map(({ thread }) => thread.billingAccountId))
    ]),
    list: ({ billingAccountId }) =>
      Effect.map(Clock.currentTimeMillis, (now) =>
        [...rows.values()]
          .map((row) => shown(row, now))
          .filter((thread) => billingAccountId === undefined || thread.billingAccountId === billingAccountId)
          .toSorted((a, b) => (a.usedAt < b.usedAt ? 1 : a.usedAt > b.usedAt ? -1 : a.key < b.key ? -1 : 1))
          .slice(0, listedMax)
      )
  })
})

/** Threads of this process alone. */
export const layerMemory: Layer.Layer<ThreadStore> = Layer.effect(ThreadStore, makeMemory)
