/**
 * Turns of threads: what an agent receives so that it remembers, and what is kept when it has answered.
 *
 * A turn holds its thread from its opening to its end. An agent with sessions of its own continues the one that the
 * last turn left. If that turn failed or its host died, the session may contain what the history does not: then the
 * agent begins a new one, and receives the history as text.
 */
import type { RunId } from "@cogni/sandbox-core/RunId"
import type { WorkspaceSource } from "@cogni/sandbox-core/SandboxSpec"
import * as Workspace from "@cogni/sandbox-core/Workspace"
import { Clock, Context, Effect, Fiber, Layer, Schedule, type Scope } from "effect"
import type { Agent, AgentSession, Message } from "../agents/Agent.ts"
import * as Thread from "./Thread.ts"
import * as ThreadError from "./ThreadError.ts"
import { ThreadFiles } from "./ThreadFiles.ts"
import { ThreadStore, holdSeconds } from "./ThreadStore.ts"
import * as ThreadSweep from "./ThreadSweep.ts"

/** Directory of the agents' sessions, below the one that belongs to the agent and not to its work. */
const sessionsPath = `${Workspace.target}/.cogni/sessions`

/** Size of a directory that cannot be measured: the default disk limit of a run. */
const unmeasuredBytes = 2 * 1024 ** 3

/** A turn that wants to begin. */
export interface AskedTurn {
  readonly billingAccountId: string
  readonly threadId: string
  readonly runId: RunId
  readonly agent: Pick<Agent, "id" | "capabilities">
  readonly personality?: string | undefined
  readonly asked: string
}

/** A turn that holds its thread. */
export interface OpenTurn {
  /** The agent's part of the conversation. */
  readonly messages: readonly [Message, ...ReadonlyArray<Message>]
  readonly session: AgentSession | undefined
  readonly workspace: WorkspaceSource
  /** Marks the turn as begun. From then on, only its end leaves a session to continue. */
  readonly begin: Effect.Effect<
    void,
    ThreadError.ThreadFilesFailed | ThreadError.ThreadLost | ThreadError.ThreadsUnavailable
  >
  /** Records the answer. */
  readonly end: (
    answered: string
  ) => Effect.Effect<void, ThreadError.ThreadLost | ThreadError.ThreadsUnavailable>
  /** Fails when the turn no longer holds its thread. Never succeeds. */
  readonly lost: Effect.Effect<never, ThreadError.ThreadLost>
}

type Removal =
  | ThreadError.ThreadBusy
  | ThreadError.ThreadFilesFailed
  | ThreadError.ThreadFilesLost
  | ThreadError.ThreadLost
  | ThreadError.ThreadNotFound
  | ThreadError.ThreadsUnavailable

/** The keys of threads that a sweep removed or emptied, and why others could not be. */
export interface Swept {
  readonly expired: ReadonlyArray<Thread.Thread>
  readonly emptied: ReadonlyArray<Thread.Thread>
  readonly failed: ReadonlyArray<{ readonly key: Thread.ThreadKey; readonly reason: string }>
}

export interface ThreadsShape {
  /** Opens the next turn of a thread, and holds the thread until the scope closes. */
  readonly open: (asked: AskedTurn) => Effect.Effect<OpenTurn, ThreadError.ThreadRefusal, Scope.Scope>
  readonly list: (filter: {
    readonly billingAccountId?: string | undefined
  }) => Effect.Effect<ReadonlyArray<Thread.Thread>, ThreadError.ThreadsUnavailable>
  /** Returns a thread and its turns, oldest first. An account finds only its own. */
  readonly find: (
    key: Thread.ThreadKey,
    billingAccountId?: string
  ) => Effect.Effect<
    { readonly thread: Thread.Thread; readonly turns: ReadonlyArray<Thread.ThreadTurn> },
    ThreadError.ThreadNotFound | ThreadError.ThreadsUnavailable
  >
  /** Removes the files and sessions of a thread that no turn is using and, unless it is only reset, its history. */
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
    sweep: () => Effect.succeed({ expired: [], emptied: [], failed: [] })
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

export const make = Effect.fnUntraced(function* (limits: Thread.ThreadLimits = Thread.defaultLimits) {
  const store = yield* ThreadStore
  const files = yield* ThreadFiles

  const holderOf = (key: Thread.ThreadKey) => ({ key, holder: crypto.randomUUID() })

  const release = (hold: { readonly key: Thread.ThreadKey; readonly holder: string }) =>
    store.release(hold).pipe(Effect.catch(({ message }) => Effect.logWarning(message)))

  /** Renews a hold until it fails. A database that does not answer loses the thread once the hold has ended. */
  const holding = (hold: { readonly key: Thread.ThreadKey; readonly holder: string }) =>
    Effect.suspend(() => store.renew(hold)).pipe(
      Effect.retry({
        while: ({ _tag }) => _tag === "ThreadsUnavailable",
        schedule: Schedule.spaced("1 second"),
        times: holdSeconds / 3
      }),
      Effect.repeat(Schedule.spaced(`${holdSeconds / 3} seconds`)),
      Effect.mapError(() => new ThreadError.ThreadLost()),
      Effect.andThen(Effect.never)
    )

  /** Fails if a thread cannot have one more turn here. */
  const check = Effect.fnUntraced(function* ({ historyBytes, host, key, turns }: Thread.Thread) {
    if (turns >= Thread.turnsMax)
      return yield* new ThreadError.ThreadLimitReached({ limit: "turns", max: Thread.turnsMax })
    if (historyBytes >= Thread.historyBytesMax)
      return yield* new ThreadError.ThreadLimitReached({ limit: "bytes", max: Thread.historyBytesMax })
    if (host !== undefined && !(yield* files.exists(key)))
      return yield* new ThreadError.ThreadFilesLost({ host, isHere: host === files.host })
  })

  /** Whether another host has the files. The name of a host can change, so what is on its disk counts. */
  const isElsewhere = ({ host, key }: Thread.Thread) =>
    host === undefined || host === files.host
      ? Effect.succeed(false)
      : Effect.map(files.exists(key), (isHere) => !isHere)

  const open = Effect.fn("Threads.open")(function* (asked: AskedTurn) {
    const name = { billingAccountId: asked.billingAccountId, threadId: yield* decodeId(asked.threadId) }
    const hold = holderOf(yield* Thread.keyOf(name))
    let state: "open" | "begun" | "ended" = "open"
    const thread = yield* Effect.acquireRelease(
      store.claim(name, hold, limits.threadsPerAccountMax),
      Effect.fnUntraced(function* () {
        // The files of a failed turn count, too.
        if (state === "begun")
          yield* Effect.ignore(Effect.flatMap(measured(hold.key), (bytes) => store.resize(hold, bytes)))
        yield* release(hold)
        if (state !== "open")
          yield* Effect.ignore(sweepAccount(asked.billingAccountId, false), { log: "Warn" })
      })
    )
    yield* check(thread)
    const agent = agentKeyOf(asked)
    const ownsSessions = asked.agent.capabilities.sessions === true
    const kept = ownsSessions ? yield* store.sessionOf(hold.key, agent) : undefined
    const turns = thread.turns === (kept?.turns ?? 0) ? [] : yield* store.history(hold.key)
    const sessionId = kept?.sessionId ?? crypto.randomUUID()
    const lost = yield* Effect.forkScoped(holding(hold))
    return {
      messages: Thread.messagesOf(turns.slice(kept?.turns ?? 0), asked.asked),
      session: ownsSessions
        ? { id: sessionId, isNew: kept === undefined, directory: `${sessionsPath}/${sessionId}` }
        : undefined,
      workspace: files.workspaceOf(hold.key),
      begin: Effect.gen(function* () {
        yield* files.acquire(hold.key)
        yield* store.begin(hold, { agent, host: files.host })
        state = "begun"
      }),
      end: Effect.fnUntraced(function* (answered: string) {
        const workspaceBytes = yield* measured(hold.key)
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
      lost: Fiber.join(lost)
    } satisfies OpenTurn
  })

  /** A directory that cannot be measured counts as a full one. */
  const measured = (key: Thread.ThreadKey) =>
    files
      .bytesOf(key)
      .pipe(Effect.catch(({ message }) => Effect.as(Effect.logWarning(message), unmeasuredBytes)))

  const found = Effect.fnUntraced(function* (key: Thread.ThreadKey, billingAccountId?: string) {
    const thread = yield* store.find(key)
    if (thread === undefined || (billingAccountId ?? thread.billingAccountId) !== thread.billingAccountId)
      return yield* new ThreadError.ThreadNotFound()
    return thread
  })

  const remove: ThreadsShape["remove"] = Effect.fn("Threads.remove")(function* (
    key,
    { billingAccountId, history }
  ) {
    yield* found(key, billingAccountId)
    const hold = holderOf(key)
    yield* Effect.acquireUseRelease(
      store.claimKnown(hold),
      Effect.fnUntraced(function* (thread) {
        if (thread === undefined) return yield* new ThreadError.ThreadNotFound()
        const areElsewhere = yield* isElsewhere(thread)
        // The other host would keep files that no thread has.
        if (areElsewhere && history === "remove")
          return yield* new ThreadError.ThreadFilesLost({ host: thread.host ?? "", isHere: false })
        if (!areElsewhere) yield* Effect.raceFirst(files.remove(key), holding(hold))
        yield* store.forget(hold, { history: history === "keep" })
      }),
      () => release(hold)
    )
  })

  const sweepAccount = Effect.fnUntraced(function* (billingAccountId: string, dryRun: boolean) {
    const threads = yield* Effect.forEach(yield* store.list({ billingAccountId }), (thread) =>
      isElsewhere(thread).pipe(
        Effect.orElseSucceed(() => true),
        Effect.map((elsewhere) =>
          elsewhere || thread.host === undefined ? thread : { ...thread, host: files.host }
        )
      )
    )
    const nowMillis = yield* Clock.currentTimeMillis
    const planned = ThreadSweep.plan(threads, limits, { host: files.host, nowMillis })
    if (dryRun) return { ...planned, failed: [] }
    const failed: Array<Swept["failed"][number]> = []
    const removed = (list: ReadonlyArray<Thread.Thread>, history: "remove" | "keep") =>
      Effect.filter(list, ({ key }) =>
        remove(key, { history }).pipe(
          Effect.as(true),
          Effect.catch(({ message }) =>
            Effect.sync(() => {
              failed.push({ key, reason: message })
              return false
            })
          )
        )
      )
    const expired = yield* removed(planned.expired, "remove")
    return { expired, emptied: yield* removed(planned.emptied, "keep"), failed }
  })

  return {
    open,
    list: store.list,
    find: Effect.fn("Threads.find")(function* (key, billingAccountId) {
      const thread = yield* found(key, billingAccountId)
      return { thread, turns: yield* store.history(key) }
    }),
    remove,
    sweep: Effect.fn("Threads.sweep")(function* ({ dryRun = false } = {}) {
      const parts = yield* Effect.forEach(yield* store.accounts, (account) => sweepAccount(account, dryRun))
      return {
        expired: parts.flatMap(({ expired }) => expired),
        emptied: parts.flatMap(({ emptied }) => emptied),
        failed: parts.flatMap(({ failed }) => failed)
      }
    })
  } satisfies ThreadsShape as ThreadsShape
})

export const layer = (limits?: Thread.ThreadLimits): Layer.Layer<never, never, ThreadFiles | ThreadStore> =>
  Layer.effect(Threads, make(limits))
