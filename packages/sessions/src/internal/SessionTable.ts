/**
 * The sessions of a router: one for a key, one message of it at a time, and no more of them than there may be.
 *
 * What a session holds is made by its first message, kept while messages come, and closed when none has come for long,
 * when its room is needed, or with the table. A session that is being closed is waited for by whoever takes its key or
 * its room, so that no two hold the same. Every wait for a close is bounded.
 */
import { Clock, Deferred, Duration, Effect, Exit, Fiber, Option, Scope, Semaphore } from "effect"

/** What a session holds, and what it was made from. */
export interface Holding<A> {
  readonly value: A
  /** Where that of a message differs, another is made. */
  readonly fingerprint: string
}

interface Held<A> extends Holding<A> {
  readonly scope: Scope.Closeable
}

/** What was held by a session, on its way out: its key and its room are not free yet. */
interface Leaving {
  readonly done: Deferred.Deferred<void>
  /** By a session that has its room as soon as it is done. */
  isReserved: boolean
}

interface Session<A> {
  readonly key: string
  readonly lock: Semaphore.Semaphore
  /** Whose room this has: nothing is made here before that is done. */
  readonly room: Leaving | undefined
  held: Held<A> | undefined
  /** Messages that are answered or wait. */
  users: number
  lastUsedMs: number
}

export interface Bounds {
  readonly sessionsMax: number
  readonly whenFull: "refuse" | "evict_idle"
}

export interface SessionView {
  readonly key: string
  /** Messages that are answered or wait. */
  readonly messages: number
  /** Since the last one was answered; 0 while there are some. */
  readonly idleSeconds: number
}

/** Why a message is not answered: no room, too many before it, or the table ends. */
export type Refusal = "full" | "busy" | "stopping"

export interface Use<A, B, E> {
  readonly key: string
  readonly bounds: Bounds
  readonly fingerprint: string
  /** Closing the scope ends what was made. */
  readonly make: Effect.Effect<A, E, Scope.Scope>
  readonly with: (value: A) => Effect.Effect<B, E>
  /** Both together. */
  readonly within: { readonly secondsMax: number; readonly late: () => E }
}

export interface SessionTable<A> {
  readonly use: <B, E>(use: Use<A, B, E>, refused: (refusal: Refusal) => E) => Effect.Effect<B, E>
  /** Close what has been idle for longer. */
  readonly closeIdle: (idleSeconds: number) => Effect.Effect<void>
  readonly list: Effect.Effect<ReadonlyArray<SessionView>>
}

export interface TableOptions {
  /** Of one key, those that are answered and those that wait. */
  readonly messagesPerSessionMax: number
  readonly closeSecondsMax: number
}

/** Closing the scope ends messages that are under way, and closes all that sessions hold. */
export const make = Effect.fnUntraced(function* <A>({
  closeSecondsMax,
  messagesPerSessionMax
}: TableOptions) {
  const sessions = new Map<string, Session<A>>()
  const leaving = new Map<string, Leaving>()
  const stopping = yield* Deferred.make<void>()
  let isStopping = false

  const close = (key: string, scope: Scope.Closeable) => closeWithin(closeSecondsMax, key, scope)

  /**
   * What a session holds is no longer its own; the effect closes it, and must be run at once. It is closed by nobody's
   * fiber: whoever made it necessary may go.
   */
  const letGo = ({ held, key }: Session<A>): readonly [Leaving, Effect.Effect<unknown>] => {
    const left: Leaving = { done: Deferred.makeUnsafe<void>(), isReserved: false }
    leaving.set(key, left)
    return [
      left,
      (held === undefined ? Effect.void : close(key, held.scope)).pipe(
        Effect.ensuring(
          Effect.suspend(() => {
            if (leaving.get(key) === left) leaving.delete(key)
            return Deferred.succeed(left.done, undefined)
          })
        ),
        Effect.forkDetach({ startImmediately: true })
      )
    ]
  }

  const retire = (session: Session<A>): readonly [Leaving, Effect.Effect<unknown>] => {
    sessions.delete(session.key)
    const left = letGo(session)
    session.held = undefined
    return left
  }

  const isIdle = ({ users }: Session<A>) => users === 0

  const idle = () => [...sessions.values()].filter(isIdle)

  const longestIdle = () => idle().toSorted((a, b) => a.lastUsedMs - b.lastUsedMs)[0]

  /** Whose room a new session gets: nobody's, as there is some; that of one that leaves; or there is none. */
  const roomOf = ({
    sessionsMax,
    whenFull
  }: Bounds): readonly [Leaving | undefined, Effect.Effect<unknown>] | "full" => {
    const free = [...leaving.values()].filter(({ isReserved }) => !isReserved)
    if (sessions.size + free.length < sessionsMax) return [undefined, Effect.void]
    if (free[0] !== undefined) return [free[0], Effect.void]
    const victim = whenFull === "evict_idle" ? longestIdle() : undefined
    return victim === undefined ? "full" : retire(victim)
  }

  /** One user more of the session of this key. One step: nothing else runs between the look and what follows of it. */
  const admit = (key: string, bounds: Bounds): readonly [Session<A>, Effect.Effect<unknown>] | Refusal => {
    const found = sessions.get(key)
    if (found !== undefined) {
      if (found.users >= messagesPerSessionMax) return "busy"
      found.users += 1
      return [found, Effect.void]
    }
    const place = roomOf(bounds)
    if (place === "full") return place
    const [room, begin] = place
    if (room !== undefined) room.isReserved = true
    const session: Session<A> = {
      key,
      lock: Semaphore.makeUnsafe(1),
      room,
      held: undefined,
      users: 1,
      lastUsedMs: 0
    }
    sessions.set(key, session)
    return [session, begin]
  }

  const release = (session: Session<A>) =>
    Effect.map(Clock.currentTimeMillis, (now) => {
      const { held, key, room } = session
      session.users -= 1
      session.lastUsedMs = now
      // One that holds nothing is none: nothing could be made.
      if (session.users > 0 || held !== undefined || sessions.get(key) !== session) return
      sessions.delete(key)
      for (const left of [room, leaving.get(key)]) if (left !== undefined) left.isReserved = false
    })

  const hold = <B, E>(session: Session<A>, { fingerprint, key, make }: Use<A, B, E>): Effect.Effect<A, E> =>
    Effect.uninterruptibleMask((restore) =>
      Effect.gen(function* () {
        if (session.held?.fingerprint === fingerprint) return session.held.value
        if (session.held !== undefined) {
          const [left, begin] = letGo(session)
          left.isReserved = true
          session.held = undefined
          yield* begin
        }
        for (const left of [session.room, leaving.get(key)]) {
          if (left !== undefined) yield* restore(Deferred.await(left.done))
        }
        const scope = yield* Scope.make()
        const value = yield* restore(Scope.provide(make, scope)).pipe(Effect.onError(() => close(key, scope)))
        session.held = { value, fingerprint, scope }
        return value
      })
    )

  const use: SessionTable<A>["use"] = (asked, refused) => {
    const stopped = Effect.andThen(
      Deferred.await(stopping),
      Effect.suspend(() => Effect.fail(refused("stopping")))
    )
    const answer = (session: Session<A>) =>
      Effect.suspend(() =>
        isStopping
          ? Effect.fail(refused("stopping"))
          : hold(session, asked).pipe(
              Effect.flatMap(asked.with),
              Effect.timeoutOrElse({
                duration: Duration.seconds(asked.within.secondsMax),
                orElse: () => Effect.fail(asked.within.late())
              }),
              Effect.raceFirst(stopped)
            )
      )
    return Effect.uninterruptibleMask((restore) =>
      Effect.suspend(() => {
        const admitted = admit(asked.key, asked.bounds)
        if (typeof admitted === "string") return Effect.fail(refused(admitted))
        const [session, begin] = admitted
        return Effect.andThen(begin, restore(session.lock.withPermit(answer(session)))).pipe(
          Effect.ensuring(release(session))
        )
      })
    )
  }

  yield* Effect.addFinalizer(() =>
    Effect.suspend(() => {
      isStopping = true
      return Effect.andThen(
        Deferred.succeed(stopping, undefined),
        Effect.forEach(
          [...sessions.values()],
          (session) =>
            // A message that is under way ends of itself; one that does not is not waited for.
            Effect.interruptible(session.lock.withPermit(Effect.void)).pipe(
              Effect.timeoutOption(Duration.seconds(closeSecondsMax)),
              Effect.andThen(Effect.suspend(() => retire(session)[1]))
            ),
          { concurrency: "unbounded", discard: true }
        )
      ).pipe(
        Effect.andThen(
          Effect.suspend(() =>
            Effect.forEach([...leaving.values()], ({ done }) => Deferred.await(done), {
              concurrency: "unbounded",
              discard: true
            })
          )
        )
      )
    })
  )

  return {
    use,
    closeIdle: (idleSeconds) =>
      Effect.flatMap(Clock.currentTimeMillis, (now) =>
        Effect.forEach(
          idle().filter(({ lastUsedMs }) => now - lastUsedMs >= idleSeconds * 1000),
          (session) =>
            Effect.suspend(() =>
              isIdle(session) && session.held !== undefined ? retire(session)[1] : Effect.void
            ),
          { discard: true }
        )
      ),
    list: Effect.map(Clock.currentTimeMillis, (now) =>
      [...sessions.values()].map(({ key, lastUsedMs, users }) => ({
        key,
        messages: users,
        idleSeconds: users === 0 ? (now - lastUsedMs) / 1000 : 0
      }))
    )
  } satisfies SessionTable<A> as SessionTable<A>
})

/** Whoever asked for it may go; it goes on, and is not waited for longer than there is time. */
const closeWithin = Effect.fnUntraced(function* (secondsMax: number, key: string, scope: Scope.Closeable) {
  const fiber = yield* Scope.close(scope, Exit.void).pipe(
    Effect.catchCause((cause) =>
      Effect.logError(`the session ${JSON.stringify(key)} did not end well`, cause)
    ),
    Effect.forkDetach({ startImmediately: true })
  )
  const ended = yield* Effect.interruptible(Fiber.await(fiber)).pipe(
    Effect.timeoutOption(Duration.seconds(secondsMax))
  )
  if (Option.isNone(ended)) {
    yield* Effect.logError(`the session ${JSON.stringify(key)} has not ended within ${secondsMax} s`)
  }
})
