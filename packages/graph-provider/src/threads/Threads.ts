/**
 * Turns of threads: what an agent receives so that it remembers, and what is kept when it has answered.
 *
 * A turn holds its thread from its opening to its end. An agent with sessions of its own continues the one that the
 * last turn left. If that turn failed or its host died, the session may contain what the history does not: then the
 * agent begins a new one, and receives the history as text.
 */
import * as SandboxPlace from "@cogni/sandbox-core/SandboxPlace"
import { Clock, Context, Deferred, Effect, Layer, Metric, Schedule, type Scope } from "effect"
import * as HostShare from "./HostShare.ts"
import * as Thread from "./Thread.ts"
import * as ThreadError from "./ThreadError.ts"
import { ThreadFiles } from "./ThreadFiles.ts"
import { ThreadStore } from "./ThreadStore.ts"
import { type Hold, type HistoryPart, holdSeconds } from "./Thread.ts"
import * as ThreadSweep from "./ThreadSweep.ts"
import type { AskedTurn, OpenTurn, Swept } from "./OpenTurn.ts"

/** Directory of the agents' sessions, below the one that belongs to the agent and not to its work. */
const sessionsPath = `${SandboxPlace.target}/.cogni/sessions`

/** Metric of what {@link Thread.ThreadLimits} allows all accounts together. */
const hostBytes = Metric.gauge("sandbox_thread_files_bytes", {
  description:
    "Bytes of the files of all threads on this host when the last turn was opened or the last sweep ended; those of a running turn, and others that are not measured, count as 2 GiB"
})

/** Seconds without a renewal after which a turn ends. The rest of its hold is the time to stop its container. */
const unrenewedSecondsMax = holdSeconds - 5

export interface Options {
  /** False: threads are removed only by {@link ThreadsShape.sweep}, for a process that ends with its turn. */
  readonly sweepsAfterTurns?: boolean
}

type Removal =
  | ThreadError.ThreadBusy
  | ThreadError.ThreadFilesFailed
  | ThreadError.ThreadLost
  | ThreadError.ThreadNotFound
  | ThreadError.ThreadsUnavailable

export interface ThreadsShape {
  /** Opens the next turn of a thread, and holds the thread until the scope closes. */
  readonly open: (asked: AskedTurn) => Effect.Effect<OpenTurn, ThreadError.ThreadRefusal, Scope.Scope>
  readonly list: (filter: {
    readonly billingAccountId?: string | undefined
  }) => Effect.Effect<ReadonlyArray<Thread.Thread>, ThreadError.ThreadsUnavailable>
  /** Returns a thread and its newest turns that the limits allow, oldest first. An account finds only its own. */
  readonly find: (
    key: Thread.ThreadKey,
    billingAccountId?: string,
    part?: Omit<HistoryPart, "after">
  ) => Effect.Effect<
    {
      readonly thread: Thread.Thread
      readonly turns: ReadonlyArray<Thread.ThreadTurn>
      /** Number of the turns before these. */
      readonly earlier: number
    },
    ThreadError.ThreadNotFound | ThreadError.ThreadsUnavailable
  >
  /**
   * Removes the files and sessions of a thread that no turn is using and, unless it is only reset, its history. Files
   * on another host are removed by the next sweep there.
   */
  readonly remove: (
    key: Thread.ThreadKey,
    options: { readonly history: "remove" | "keep"; readonly billingAccountId?: string | undefined }
  ) => Effect.Effect<void, Removal>
  /** Removes what the limits no longer allow, of all accounts. */
  readonly sweep: (options?: {
    readonly dryRun?: boolean
  }) => Effect.Effect<Swept, ThreadError.ThreadsUnavailable>
}

const unsupported = new ThreadError.ThreadUnsupported({
  detail: "this host does not remember threads. Send the whole conversation in messages, without remember"
})

/** The default remembers nothing. */
export const Threads = Context.Reference<ThreadsShape>("@cogni/sandbox-graph-provider/Threads", {
  defaultValue: () => ({
    open: () => Effect.fail(unsupported),
    list: () => Effect.succeed([]),
    find: () => Effect.fail(new ThreadError.ThreadNotFound()),
    remove: () => Effect.fail(new ThreadError.ThreadNotFound()),
    sweep: () => Effect.succeed({ expired: [], emptied: [], orphans: [], failed: [] })
  })
})

/** Name of an agent in the history: its sessions are those of one personality. */
const agentKeyOf = ({ agent, personality }: AskedTurn): string =>
  personality === undefined ? agent.id : `${agent.id}/${personality}`

const decodeId = (threadId: string) =>
  Effect.mapError(
    Thread.decodeId(threadId),
    () =>
      new ThreadError.ThreadUnsupported({
        detail: "threadId is not a name of a thread. Use 1 to 200 characters without control characters"
      })
  )

/** A directory that cannot be measured counts as a full one. 0 would mean that it is not measured. */
const measuring = (files: ThreadFiles["Service"]) => (name: Thread.FilesName) =>
  files.bytesOf(name).pipe(
    Effect.map((bytes) => Math.max(1, bytes)),
    Effect.catch(({ message }) => Effect.as(Effect.logWarning(message), HostShare.unmeasuredBytes))
  )

/** The room for one more turn that the files of all threads leave on this host. */
const makeRoom = (
  store: ThreadStore["Service"],
  files: ThreadFiles["Service"],
  { bytesPerHostMax }: Pick<Thread.ThreadLimits, "bytesPerHostMax">
) => {
  const measured = measuring(files)

  /** Turns of this process that may begin, by their files, and that no store counts yet. */
  const opened = new Map<Thread.FilesName, HostShare.Use>()

  /** Measured sizes of files that no thread of this store has, until the next sweep. */
  const strays = new Map<Thread.FilesName, number>()

  /** Measures files of other stores, which no sweep of this one measures. One that takes long counts as full. */
  const measureOthers = (names: ReadonlyArray<Thread.FilesName>) =>
    Effect.forEach(
      names.filter((name) => Thread.ownerOf(name).storeId !== store.id && !strays.has(name)),
      (name) =>
        measured(name).pipe(
          Effect.timeoutOrElse({
            duration: "1 second",
            orElse: () => Effect.succeed(HostShare.unmeasuredBytes)
          }),
          Effect.map((bytes) => strays.set(name, bytes))
        ),
      { concurrency: 4, discard: true }
    )

  /**
   * Sizes of all threads' files on this host. Those that are not measured may be a full disk: of a running turn, of one
   * whose host died, and of no thread. `own` is held, and measured.
   */
  const usesHere = Effect.fnUntraced(function* (own?: Thread.Thread) {
    const names = yield* files.list
    yield* measureOthers(names)
    // A turn may open or begin while the store answers.
    const before = new Map(opened)
    const asked = names.filter((name) => name !== own?.files && !before.has(name) && !strays.has(name))
    const stored = yield* store.sizesOf(asked)
    const known = stored.reduce((sum, { count }) => sum + count, 0)
    const uses: ReadonlyArray<HostShare.Use> = [
      ...stored,
      ...new Map([...before, ...opened]).values(),
      ...names.flatMap((name) => {
        const bytes = strays.get(name)
        return bytes === undefined ? [] : [{ bytes, unmeasured: 0 }]
      }),
      { bytes: 0, unmeasured: asked.length - known },
      ...(own === undefined
        ? []
        : [{ billingAccountId: own.billingAccountId, bytes: own.workspaceBytes, unmeasured: 0 }])
    ]
    yield* Metric.update(hostBytes, HostShare.bytesOf(uses))
    return uses
  })

  /** Counts a turn from now until it begins. Fails if this host has no more room for one. */
  const admit = (thread: Thread.Thread, name: Thread.FilesName) =>
    Effect.acquireRelease(
      Effect.gen(function* () {
        const { billingAccountId, workspaceBytes: bytes } = thread
        const refusal = HostShare.refusalOf(yield* usesHere(thread), { billingAccountId, bytesPerHostMax })
        if (refusal !== undefined) return yield* refusal
        opened.set(name, { billingAccountId, bytes, unmeasured: 1 })
        return Effect.sync(() => opened.delete(name))
      }),
      (uncount) => uncount
    )

  return { admit, strays, usesHere }
}

export const make = Effect.fnUntraced(function* (
  limits: Thread.ThreadLimits = Thread.defaultLimits,
  { sweepsAfterTurns = true }: Options = {}
) {
  const store = yield* ThreadStore
  const files = yield* ThreadFiles
  const scope = yield* Effect.scope

  const holderOf = (key: Thread.ThreadKey): Hold => ({ key, holder: crypto.randomUUID() })

  const release = (hold: Hold) =>
    store.release(hold).pipe(Effect.catch(({ message }) => Effect.logWarning(message)))

  /**
   * Renews a hold that was asked for at a time, until the scope closes. The returned effect fails before the hold can
   * end. It does not wait for a database that is silent.
   */
  const holding = Effect.fnUntraced(function* (hold: Hold, sinceMillis: number) {
    const lost = yield* Deferred.make<never, ThreadError.ThreadLost>()
    const lose = Deferred.fail(lost, new ThreadError.ThreadLost())
    let untilMillis = sinceMillis + unrenewedSecondsMax * 1000
    yield* Effect.flatMap(Clock.currentTimeMillis, (nowMillis) =>
      Effect.map(store.renew(hold), () => {
        untilMillis = nowMillis + unrenewedSecondsMax * 1000
      })
    ).pipe(
      Effect.retry({
        while: ({ _tag }) => _tag === "ThreadsUnavailable",
        schedule: Schedule.spaced("1 second")
      }),
      Effect.repeat(Schedule.spaced(`${holdSeconds / 3} seconds`)),
      Effect.catch(() => lose),
      Effect.forkScoped
    )
    yield* Effect.map(Clock.currentTimeMillis, (nowMillis) => Math.max(0, untilMillis - nowMillis)).pipe(
      Effect.tap(Effect.sleep),
      Effect.repeat({ while: (leftMillis) => leftMillis > 0 }),
      Effect.andThen(lose),
      Effect.forkScoped
    )
    return Deferred.await(lost)
  })

  /** Whether a thread has files on this host. The name of a host can change, so what is on its disk counts. */
  const isHere = ({ files: name }: Thread.Thread) =>
    name === undefined ? Effect.succeed(false) : files.exists(name)

  /** Fails if a thread cannot have one more turn here. */
  const check = Effect.fnUntraced(function* (thread: Thread.Thread) {
    const { historyBytes, host = "", turns } = thread
    if (turns >= Thread.turnsMax)
      return yield* new ThreadError.ThreadLimitReached({ limit: "turns", max: Thread.turnsMax })
    if (historyBytes >= Thread.historyBytesMax)
      return yield* new ThreadError.ThreadLimitReached({ limit: "bytes", max: Thread.historyBytesMax })
    if (thread.files !== undefined && !(yield* isHere(thread)))
      return yield* new ThreadError.ThreadFilesLost({ host, isHere: host === files.host })
  })

  const measured = measuring(files)
  const { admit, strays, usesHere } = makeRoom(store, files, limits)

  /** Measures the files of a held thread if a host died before it could. */
  const measuredOf = (thread: Thread.Thread) =>
    thread.files === undefined || thread.workspaceBytes > 0
      ? Effect.succeed(thread)
      : Effect.map(measured(thread.files), (workspaceBytes) => ({ ...thread, workspaceBytes }))

  const open = Effect.fn("Threads.open")(function* (asked: AskedTurn) {
    const name = { billingAccountId: asked.billingAccountId, threadId: yield* decodeId(asked.threadId) }
    const hold = holderOf(yield* Thread.keyOf(name))
    let state: "open" | "begun" | "ended" = "open"
    const sinceMillis = yield* Clock.currentTimeMillis
    const thread = yield* Effect.acquireRelease(store.claim(name, hold, limits.threadsPerAccountMax), () =>
      Effect.andThen(
        release(hold),
        Effect.suspend(() => (state === "open" ? Effect.void : sweepSoon(asked.billingAccountId)))
      )
    )
    const lost = yield* holding(hold, sinceMillis)
    yield* check(thread)
    const filesName = thread.files ?? Thread.newFilesName(hold.key, store.id)
    const uncount = yield* admit(yield* measuredOf(thread), filesName)
    const agent = agentKeyOf(asked)
    const ownsSessions = asked.agent.capabilities.sessions === true
    const kept = ownsSessions ? yield* store.sessionOf(hold.key, agent) : undefined
    const after = kept?.turns ?? 0
    const turns =
      thread.turns === after ? [] : yield* store.history(hold.key, { after, bytesMax: Thread.replayBytesMax })
    const sessionId = kept?.sessionId ?? crypto.randomUUID()
    // The files of a failed turn count, too. They are measured while the thread is still held.
    yield* Effect.addFinalizer(() =>
      state === "begun"
        ? Effect.ignore(
            Effect.flatMap(measured(filesName), (bytes) => store.resize(hold, bytes)),
            { log: "Warn" }
          )
        : Effect.void
    )
    return {
      messages: Thread.messagesOf(turns, asked.asked, Thread.replayBytesMax, thread.turns - after),
      session: ownsSessions
        ? { id: sessionId, isNew: kept === undefined, directory: `${sessionsPath}/${sessionId}` }
        : undefined,
      workspace: files.workspaceOf(filesName),
      begin: Effect.gen(function* () {
        yield* files.acquire(filesName)
        yield* store.begin(hold, { agent, host: files.host, files: filesName })
        state = "begun"
        yield* uncount
      }),
      end: Effect.fnUntraced(function* (answered: string) {
        const workspaceBytes = yield* measured(filesName)
        yield* store.end(hold, {
          turn: {
            runId: asked.runId,
            agent,
            asked: Thread.kept(asked.asked),
            answered: Thread.kept(answered)
          },
          workspaceBytes,
          ...(ownsSessions ? { sessionId } : {})
        })
        state = "ended"
      }),
      lost
    } satisfies OpenTurn
  })

  const found = Effect.fnUntraced(function* (key: Thread.ThreadKey, billingAccountId?: string) {
    const thread = yield* store.find(key)
    if (thread === undefined || (billingAccountId ?? thread.billingAccountId) !== thread.billingAccountId)
      return yield* new ThreadError.ThreadNotFound()
    return thread
  })

  /** Removes a thread, but not one that was used after it was planned. Returns whether it did. */
  const removing = (key: Thread.ThreadKey, history: "remove" | "keep", planned?: Thread.Thread) => {
    const hold = holderOf(key)
    return Effect.flatMap(Clock.currentTimeMillis, (sinceMillis) =>
      Effect.acquireUseRelease(
        store.claimKnown(hold),
        Effect.fnUntraced(function* (thread) {
          if (thread === undefined) return yield* new ThreadError.ThreadNotFound()
          if (planned !== undefined && planned.usedAt !== thread.usedAt) return false
          const removal =
            thread.files !== undefined && (yield* isHere(thread)) ? files.remove(thread.files) : Effect.void
          // The record comes first. If the removal is cut, the rest belongs to no thread, and a sweep removes it.
          if (thread.files !== undefined) yield* store.forget(hold, { history: true })
          yield* Effect.scoped(
            Effect.flatMap(holding(hold, sinceMillis), (lost) => Effect.raceFirst(removal, lost))
          )
          if (history === "remove") yield* store.forget(hold, { history: false })
          return true
        }),
        () => release(hold)
      )
    )
  }

  /** Measures files whose host died before it could. */
  const sized = Effect.fnUntraced(function* (thread: Thread.Thread, dryRun: boolean) {
    const { isBusy, key, usedAt } = thread
    if (isBusy) return thread
    const { workspaceBytes } = yield* measuredOf(thread)
    const hold = holderOf(key)
    if (!dryRun && workspaceBytes !== thread.workspaceBytes)
      yield* Effect.acquireUseRelease(
        store.claimKnown(hold),
        (now) => (now?.usedAt === usedAt ? store.resize(hold, workspaceBytes) : Effect.void),
        () => release(hold)
      ).pipe(Effect.catchTags({ ThreadBusy: () => Effect.void, ThreadLost: () => Effect.void }))
    return { ...thread, workspaceBytes }
  })

  /** Threads of an account, with those as of this host whose files are here. */
  const candidates = (billingAccountId: string, dryRun: boolean) =>
    Effect.flatMap(
      store.list({ billingAccountId }),
      Effect.forEach((thread) =>
        Effect.flatMap(
          Effect.orElseSucceed(isHere(thread), () => thread.host === files.host),
          (here) => (here ? sized({ ...thread, host: files.host }, dryRun) : Effect.succeed(thread))
        )
      )
    )

  const sweepAccount = Effect.fnUntraced(function* (billingAccountId: string, dryRun: boolean) {
    const threads = yield* candidates(billingAccountId, dryRun)
    const nowMillis = yield* Clock.currentTimeMillis
    const planned = ThreadSweep.plan(threads, limits, { host: files.host, nowMillis })
    if (dryRun) return { ...planned, failed: [] }
    const failed: Array<Swept["failed"][number]> = []
    const removed = (list: ReadonlyArray<Thread.Thread>, history: "remove" | "keep") =>
      Effect.filter(list, (thread) =>
        removing(thread.key, history, thread).pipe(
          // It was used, or removed, after it was planned.
          Effect.catchTags({
            ThreadBusy: () => Effect.succeed(false),
            ThreadNotFound: () => Effect.succeed(false)
          }),
          Effect.catch(({ message }) =>
            Effect.sync(() => {
              failed.push({ key: thread.key, reason: message })
              return false
            })
          )
        )
      )
    const expired = yield* removed(planned.expired, "remove")
    return { expired, emptied: yield* removed(planned.emptied, "keep"), failed }
  })

  const sweeping = new Set<string>()

  /** Sweeps an account beside its turns, one sweep at a time. */
  const sweepSoon = (billingAccountId: string) => {
    if (!sweepsAfterTurns || sweeping.has(billingAccountId)) return Effect.void
    sweeping.add(billingAccountId)
    return sweepAccount(billingAccountId, false).pipe(
      Effect.tap(({ failed }) =>
        Effect.forEach(failed, ({ key, reason }) =>
          Effect.logWarning(`thread ${key} was not removed: ${reason}`)
        )
      ),
      Effect.ignore({ log: "Warn" }),
      Effect.ensuring(Effect.sync(() => sweeping.delete(billingAccountId))),
      Effect.interruptible,
      Effect.forkIn(scope)
    )
  }

  /** Removes files of this store's threads that no thread has: a removal was cut, or took place on another host. */
  const sweepOrphans = Effect.fnUntraced(function* (dryRun: boolean) {
    const failed: Array<Swept["failed"][number]> = []
    const names = yield* files.list.pipe(
      Effect.catch(({ message }) => Effect.as(Effect.logWarning(message), []))
    )
    // Threads are looked up after the directories. A turn creates its directory while it holds its thread.
    const orphans = yield* Effect.filter(names, (name) => {
      const { key, storeId } = Thread.ownerOf(name)
      if (storeId !== store.id) return Effect.succeed(false)
      return Effect.map(
        store.find(key),
        (thread) => thread === undefined || (!thread.isBusy && thread.files !== name)
      )
    })
    if (dryRun) return { orphans, failed }
    strays.clear()
    const removed = yield* Effect.filter(orphans, (name) =>
      files.remove(name).pipe(
        Effect.as(true),
        Effect.catch(({ message }) =>
          Effect.map(measured(name), (bytes) => {
            strays.set(name, bytes)
            failed.push({ key: Thread.ownerOf(name).key, reason: message })
            return false
          })
        )
      )
    )
    return { orphans: removed, failed }
  })

  return {
    open,
    list: store.list,
    find: Effect.fn("Threads.find")(function* (key, billingAccountId, { before, ...part } = {}) {
      const thread = yield* found(key, billingAccountId)
      // A turn may have ended since.
      const end = Math.min(before ?? Infinity, thread.turns + 1)
      const turns = yield* store.history(key, { ...part, before: end })
      return { thread, turns, earlier: Math.max(0, end - 1 - turns.length) }
    }),
    remove: Effect.fn("Threads.remove")(function* (key, { billingAccountId, history }) {
      yield* found(key, billingAccountId)
      yield* removing(key, history)
    }),
    sweep: Effect.fn("Threads.sweep")(function* ({ dryRun = false } = {}) {
      const parts = yield* Effect.forEach(yield* store.accounts, (account) => sweepAccount(account, dryRun))
      const { failed, orphans } = yield* sweepOrphans(dryRun)
      yield* Effect.ignore(usesHere(), { log: "Warn" })
      return {
        expired: parts.flatMap(({ expired }) => expired),
        emptied: parts.flatMap(({ emptied }) => emptied),
        orphans,
        failed: [...parts.flatMap(({ failed }) => failed), ...failed]
      }
    })
  } satisfies ThreadsShape as ThreadsShape
})

export const layer = (
  limits?: Thread.ThreadLimits,
  options?: Options
): Layer.Layer<never, never, ThreadFiles | ThreadStore> => Layer.effect(Threads, make(limits, options))
