/**
 * Which session has which container: one each, made when it is first needed, ended when nobody has needed it for long.
 *
 * A session is in use for as long as the scope it was asked in is open; then it is idle. However many ask for a session
 * at once, it gets one container. The layer's end destroys all of them.
 */
import type { RunId } from "@cogni/sandbox-core/RunId"
import { ContainerFailed, SandboxError } from "@cogni/sandbox-core/SandboxError"
import {
  Cause,
  Clock,
  Context,
  Data,
  Deferred,
  Duration,
  Effect,
  Equal,
  Exit,
  Fiber,
  Layer,
  Scope
} from "effect"
import { DockerSandbox, type SandboxSettings, type SessionSandbox } from "./DockerSandbox.ts"
import * as SessionId from "./SessionId.ts"
import { SessionWorkspaces } from "./SessionWorkspaces.ts"

export interface ManagerOptions {
  readonly settings: SandboxSettings
  /** Containers at one time; 20 when left out. */
  readonly sessionsMax?: number | undefined
  /** How long a session that nobody uses keeps its container; 900 when left out. */
  readonly idleSeconds?: number | undefined
  /** When there are as many as there may be: say so, or end the one that has been idle longest, if one is. */
  readonly whenFull?: "refuse" | "evict_idle" | undefined
}

export interface SessionView {
  readonly sessionId: SessionId.SessionId
  /** Absent while its container is being made. */
  readonly runId?: RunId | undefined
  readonly startedAt: Date
  /** How many have asked for it and not let go. */
  readonly users: number
  /** Absent where somebody uses it. */
  readonly idleSeconds?: number | undefined
}

/** The session gets no sandbox, and nothing was made for it. */
export class SessionRefused extends Data.TaggedError("SessionRefused")<{
  readonly sessionId: string
  readonly reason: "full" | "invalid_id" | "closing"
  readonly detail: string
  readonly remedy: string
}> {
  override get message(): string {
    return `the session ${JSON.stringify(this.sessionId.slice(0, 80))} gets no sandbox: ${this.detail}. ${this.remedy}`
  }
}

export class SandboxManager extends Context.Service<
  SandboxManager,
  {
    /**
     * The session's sandbox, in use until the scope closes. One that has ended is replaced by a fresh one; so is one
     * that nobody uses, and that is held otherwise than the options say by now.
     */
    readonly getOrCreate: (
      sessionId: string
    ) => Effect.Effect<SessionSandbox, SandboxError | SessionRefused, Scope.Scope>
    /** End a session's container, whoever uses it. Settles when nothing of it is left. */
    readonly destroy: (sessionId: string) => Effect.Effect<void>
    readonly destroyAll: Effect.Effect<void>
    readonly list: Effect.Effect<ReadonlyArray<SessionView>>
  }
>()("@cogni/sandbox-sessions/SandboxManager") {}

interface Entry {
  readonly sessionId: SessionId.SessionId
  readonly scope: Scope.Closeable
  readonly startedMs: number
  /** How its container is held. */
  readonly settings: SandboxSettings
  readonly opened: Deferred.Deferred<SessionSandbox, SandboxError>
  readonly closed: Deferred.Deferred<void>
  /** Makes the container, and then waits for its end. Of no caller: the first that asked may go while others wait. */
  opening: Fiber.Fiber<void> | undefined
  sandbox: SessionSandbox | undefined
  users: number
  /** When the last user let go. */
  idleSinceMs: number | undefined
  /** Somebody waits for it to have been idle for long: one, however often it is used. */
  isWatched: boolean
  isClosing: boolean
}

export const defaults = { sessionsMax: 20, idleSeconds: 900, whenFull: "refuse" } as const

/** How many containers are ended at one time. */
const closesConcurrentMax = 8

/** Options that are an effect are asked for each time they matter: those of the moment hold. */
export const make = Effect.fnUntraced(function* (options: ManagerOptions | Effect.Effect<ManagerOptions>) {
  const current = Effect.map(Effect.isEffect(options) ? options : Effect.succeed(options), (given) => ({
    settings: given.settings,
    sessionsMax: given.sessionsMax ?? defaults.sessionsMax,
    idleSeconds: given.idleSeconds ?? defaults.idleSeconds,
    whenFull: given.whenFull ?? defaults.whenFull
  }))
  const sandboxes = yield* DockerSandbox
  const workspaces = yield* SessionWorkspaces
  const scope = yield* Effect.scope
  const entries = new Map<SessionId.SessionId, Entry>()
  let isShut = false

  /** Once, whoever asks for it, and settled for all of them at the same time. */
  const close = (entry: Entry): Effect.Effect<void> =>
    Effect.suspend(() => {
      if (entry.isClosing) return Deferred.await(entry.closed)
      entry.isClosing = true
      return (entry.opening === undefined ? Effect.void : Fiber.interrupt(entry.opening)).pipe(
        // One that had not begun has told nobody.
        Effect.andThen(Deferred.fail(entry.opened, destroyed)),
        Effect.andThen(Scope.close(entry.scope, Exit.void)),
        Effect.ensuring(
          Effect.suspend(() => {
            if (entries.get(entry.sessionId) === entry) entries.delete(entry.sessionId)
            return Deferred.succeed(entry.closed, undefined)
          })
        ),
        // Whoever asked may go; what was begun must not stay half done.
        Effect.forkDetach({ startImmediately: true }),
        Effect.andThen(Deferred.await(entry.closed))
      )
    })

  const open = (entry: Entry): Effect.Effect<void> =>
    workspaces.of(entry.sessionId).pipe(
      Effect.mapError((reason) => new SandboxError({ reason })),
      Effect.flatMap((workspace) =>
        sandboxes.create({ sessionId: entry.sessionId, settings: entry.settings, workspace })
      ),
      Effect.provideService(Scope.Scope, entry.scope),
      Effect.onExit((exit) =>
        Effect.suspend(() => {
          if (Exit.isSuccess(exit)) entry.sandbox = exit.value
          return Effect.andThen(
            // Whoever hears of a failure and asks again must not find the same one.
            Exit.isSuccess(exit) ? Effect.void : Effect.forkDetach(close(entry), { startImmediately: true }),
            // Whoever waits was not interrupted, and must not take itself to have been.
            Exit.isFailure(exit) && Cause.hasInterruptsOnly(exit.cause)
              ? Deferred.fail(entry.opened, destroyed)
              : Deferred.done(entry.opened, exit)
          )
        })
      ),
      // One that ends by itself, or is ended from outside, makes room at once.
      Effect.flatMap(({ ended }) => ended),
      Effect.ignore,
      Effect.andThen(close(entry))
    )

  const blank = Effect.fnUntraced(function* (sessionId: SessionId.SessionId, settings: SandboxSettings) {
    return {
      sessionId,
      settings,
      scope: yield* Scope.make(),
      startedMs: yield* Clock.currentTimeMillis,
      opened: yield* Deferred.make<SessionSandbox, SandboxError>(),
      closed: yield* Deferred.make<void>(),
      opening: undefined,
      sandbox: undefined,
      users: 1,
      idleSinceMs: undefined,
      isWatched: false,
      isClosing: false
    } satisfies Entry as Entry
  })

  /** Ends an entry that has been idle for as long as it may; over as soon as somebody uses it when that is looked at. */
  const watchIdleness = (entry: Entry) =>
    Effect.gen(function* () {
      while (entry.idleSinceMs !== undefined && !entry.isClosing) {
        const { idleSeconds } = yield* current
        const leftMs = entry.idleSinceMs + idleSeconds * 1000 - (yield* Clock.currentTimeMillis)
        if (leftMs <= 0) return yield* close(entry)
        yield* Effect.raceFirst(Effect.sleep(Duration.millis(leftMs)), Deferred.await(entry.closed))
      }
      entry.isWatched = false
    })

  const letGo = (entry: Entry) =>
    Effect.gen(function* () {
      entry.users--
      if (entry.users > 0 || entry.isClosing) return
      entry.idleSinceMs = yield* Clock.currentTimeMillis
      if (entry.isWatched) return
      entry.isWatched = true
      yield* Effect.forkIn(watchIdleness(entry), scope)
    })

  const idlest = (): Entry | undefined =>
    [...entries.values()]
      .filter(({ idleSinceMs, isClosing }) => idleSinceMs !== undefined && !isClosing)
      .toSorted((one, other) => one.idleSinceMs! - other.idleSinceMs!)[0]

  /** The session's entry, with one user more; or why there can be none. Only its waiting can be interrupted. */
  const take = Effect.fnUntraced(function* (
    sessionId: SessionId.SessionId
  ): Effect.fn.Return<Entry, SessionRefused> {
    for (;;) {
      const { sessionsMax, settings, whenFull } = yield* current
      const fresh = yield* blank(sessionId, settings)
      // Nothing else runs between the look and the step.
      if (isShut) return yield* refusal.closing(sessionId)
      const found = entries.get(sessionId)
      // One that is held otherwise than it would be now is not handed on; who uses it already keeps it.
      const isOutdated = found?.users === 0 && !Equal.equals(found.settings, settings)
      if (found !== undefined && !found.isClosing && !isOutdated) {
        found.users++
        found.idleSinceMs = undefined
        return found
      }
      if (found === undefined && entries.size < sessionsMax) {
        entries.set(sessionId, fresh)
        fresh.opening = yield* Effect.forkDetach(Effect.interruptible(open(fresh)))
        return fresh
      }
      const leaving = found ?? (whenFull === "evict_idle" ? idlest() : undefined)
      if (leaving === undefined) return yield* refusal.full(sessionId, sessionsMax, whenFull)
      yield* Effect.interruptible(close(leaving))
    }
  })

  const getOrCreate = Effect.fn("SandboxManager.getOrCreate")(function* (asked: string) {
    const sessionId = yield* SessionId.decode(asked).pipe(Effect.mapError(() => refusal.invalid(asked)))
    const entry = yield* Effect.acquireRelease(take(sessionId), letGo)
    return yield* Deferred.await(entry.opened)
  })

  const destroyAll = Effect.suspend(() =>
    Effect.forEach([...entries.values()], close, { concurrency: closesConcurrentMax, discard: true })
  )
  yield* Effect.addFinalizer(() =>
    Effect.andThen(
      Effect.sync(() => {
        isShut = true
      }),
      destroyAll
    )
  )

  return SandboxManager.of({
    getOrCreate,
    destroy: (sessionId) =>
      Effect.suspend(() => {
        const entry = entries.get(sessionId as SessionId.SessionId)
        return entry === undefined ? Effect.void : close(entry)
      }),
    destroyAll,
    list: Effect.map(Clock.currentTimeMillis, (now) =>
      [...entries.values()]
        .filter(({ isClosing }) => !isClosing)
        .map(({ idleSinceMs, sandbox, sessionId, startedMs, users }) => ({
          sessionId,
          runId: sandbox?.runId,
          startedAt: new Date(startedMs),
          users,
          ...(idleSinceMs === undefined ? {} : { idleSeconds: (now - idleSinceMs) / 1000 })
        }))
    )
  })
})

export const layer = (
  options: ManagerOptions | Effect.Effect<ManagerOptions>
): Layer.Layer<SandboxManager, never, DockerSandbox | SessionWorkspaces> =>
  Layer.effect(SandboxManager, make(options))

const destroyed = new SandboxError({
  reason: new ContainerFailed({
    operation: "create",
    detail: "the session was ended while its sandbox was being made",
    remedy: "Ask for it again"
  })
})

const refusal = {
  full: (sessionId: string, sessionsMax: number, whenFull: "refuse" | "evict_idle") =>
    new SessionRefused({
      sessionId,
      reason: "full",
      detail: `there are ${sessionsMax} sessions already${whenFull === "refuse" ? "" : ", and all of them are in use"}`,
      remedy: "Try again when one has ended, or raise sessions_max"
    }),
  invalid: (sessionId: string) =>
    new SessionRefused({
      sessionId,
      reason: "invalid_id",
      detail: "an id has 1 to 512 characters, none of them a control character",
      remedy: "Give the session another id"
    }),
  closing: (sessionId: string) =>
    new SessionRefused({
      sessionId,
      reason: "closing",
      detail: "this process is shutting down",
      remedy: "Ask another one, or again when it is back"
    })
}
