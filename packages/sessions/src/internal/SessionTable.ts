/**
 * What sessions hold, by key: made when it is first needed, shared by its users, closed when it has been idle for long,
 * when its room is needed, when it ends by itself, or with the table.
 *
 * `RcMap` of Effect counts references and closes what is idle, but it cannot carry three guarantees: it frees a key and
 * its room before the old value is closed, so that two containers of one session could exist; its capacity is fixed,
 * where ours changes with the configuration; and it neither evicts the longest idle nor ends a value that is in use.
 */
import {
  Cause,
  Clock,
  Data,
  Deferred,
  Duration,
  Effect,
  Equal,
  Exit,
  Ref,
  Schedule,
  Scope,
  Semaphore
} from "effect"

/** Why a session is refused: no room, too many users, the table closes, or it was ended while it was being made. */
export type Refusal = "full" | "busy" | "stopping" | "ended"

export class SessionRefusal extends Data.TaggedError("SessionRefusal")<{ readonly refusal: Refusal }> {}

export interface Bounds {
  readonly sessionsMax: number
  /** In a full table: refuse, or end the session that has been idle longest, if one is. */
  readonly whenFull: "refuse" | "evict_idle"
  /** Users of one session, those that wait for their turn included. */
  readonly usersMax?: number | undefined
}

/** What a session is to hold. */
export interface Recipe<A, E> {
  /** A value that was made with another fingerprint is replaced, unless it is being used. */
  readonly fingerprint: unknown
  /** Closing the scope ends what was made. Interrupted when no user is left to wait for it. */
  readonly make: Effect.Effect<A, E, Scope.Scope>
}

/** A place in a session, which exists for as long as it has one. */
export interface Seat<A, E> {
  /** For users that take turns. */
  readonly turn: Semaphore.Semaphore
  /** The session's value, in use until the scope closes. However many ask at once, it is made once. */
  readonly hold: (recipe: Recipe<A, E>) => Effect.Effect<A, E | SessionRefusal, Scope.Scope>
}

export interface TableRow<A> {
  readonly key: string
  /** Absent while it is being made. */
  readonly value: A | undefined
  readonly startedMs: number
  readonly users: number
  /** 0 while it has users. */
  readonly idleSeconds: number
}

export interface SessionTable<A, E> {
  /** A place in the session of this key, until the scope closes. */
  readonly seat: (key: string, bounds: Bounds) => Effect.Effect<Seat<A, E>, SessionRefusal, Scope.Scope>
  /** Ends a session, whether it is in use or not. Settles when it is closed. */
  readonly end: (key: string) => Effect.Effect<void>
  readonly endAll: Effect.Effect<void>
  /** Settles when the table begins to close. */
  readonly stopping: Effect.Effect<void>
  readonly list: Effect.Effect<ReadonlyArray<TableRow<A>>>
}

export interface TableOptions<A> {
  /** How long a session without users is kept. Read again at each check. */
  readonly idleSeconds: Effect.Effect<number>
  /** Settles when a value has ended by itself. Values that do not are left out. */
  readonly endOf?: ((value: A) => Effect.Effect<unknown, unknown>) | undefined
  /** How long a session that closes keeps its key and its room; as long as it takes when left out. */
  readonly closeSecondsMax?: number | undefined
}

/** A value, from when it begins to be made to when it is closed. One fiber lives through all of that. */
interface Holding<A, E> {
  readonly fingerprint: unknown
  readonly scope: Scope.Closeable
  readonly made: Deferred.Deferred<A, E | SessionRefusal>
  /** Tells it to end. */
  readonly closing: Deferred.Deferred<void>
  readonly closed: Deferred.Deferred<void>
}

interface Session<A, E> {
  readonly key: string
  /** Also tells two sessions of one key apart. */
  readonly turn: Semaphore.Semaphore
  readonly startedMs: number
  readonly users: number
  /** Users that have the value. */
  readonly holders: number
  readonly holding: Holding<A, E> | undefined
  readonly idleSinceMs: number
}

/** A value on its way out: its key and its room are not free before it is done. */
interface Leaving {
  readonly key: string
  readonly done: Deferred.Deferred<void>
  /** The session that has its room as soon as it is done. */
  readonly heir: Semaphore.Semaphore | undefined
}

interface State<A, E> {
  readonly sessions: ReadonlyMap<string, Session<A, E>>
  readonly leaving: ReadonlyArray<Leaving>
  readonly isStopping: boolean
}

/** What follows of a step, to be run at once. */
type Step<A, E> = readonly [Effect.Effect<void>, State<A, E>]

/** How often idle sessions are looked for. */
const sweepInterval = "1 second"

/** Values that are closed at one time, where a close may take as long as it likes. */
const closesConcurrentMax = 8

/** Closing the scope refuses new users, waits for turns to end within the time for a close, and closes all values. */
export const make = Effect.fnUntraced(function* <A, E>(options: TableOptions<A>) {
  const { closeSecondsMax } = options
  const concurrency = closeSecondsMax === undefined ? closesConcurrentMax : "unbounded"
  const state = yield* Ref.make<State<A, E>>({ sessions: new Map(), leaving: [], isStopping: false })
  const stopping = yield* Deferred.make<void>()

  const bounded = (effect: Effect.Effect<void>, late: Effect.Effect<void>) =>
    closeSecondsMax === undefined
      ? effect
      : Effect.interruptible(effect).pipe(
          Effect.timeoutOrElse({ duration: Duration.seconds(closeSecondsMax), orElse: () => late })
        )

  /** Ends a value in a fiber of its own: who caused it may be gone before it is closed. */
  const close = (
    { closed, closing, made }: Holding<A, E>,
    left: Leaving,
    predecessors: ReadonlyArray<Leaving>
  ): Effect.Effect<void> =>
    Deferred.fail(made, refusal("ended")).pipe(
      Effect.andThen(Deferred.succeed(closing, undefined)),
      Effect.andThen(
        bounded(
          Deferred.await(closed),
          Effect.logError(`the session ${JSON.stringify(left.key)} has not ended within ${closeSecondsMax} s`)
        )
      ),
      // One that was never made has the room of a predecessor, which may still be closing.
      Effect.andThen(settled(predecessors)),
      Effect.andThen(
        Ref.update(state, (now) => ({
          ...now,
          leaving: now.leaving.filter(({ done }) => done !== left.done)
        }))
      ),
      Effect.ensuring(Deferred.succeed(left.done, undefined)),
      Effect.forkDetach({ startImmediately: true }),
      Effect.asVoid
    )

  /** Takes a session out of the table. Its value leaves, and its room goes to the heir. */
  const retire = (now: State<A, E>, session: Session<A, E>, heir?: Semaphore.Semaphore): Step<A, E> => {
    const sessions = new Map(now.sessions)
    sessions.delete(session.key)
    const { holding, turn } = session
    if (holding !== undefined) return dismiss({ ...now, sessions }, session, holding, heir)
    // The rooms that it was to have are free for another.
    const leaving = now.leaving.map((left) => (left.heir === turn ? { ...left, heir: undefined } : left))
    return [Effect.void, { ...now, sessions, leaving }]
  }

  const dismiss = (
    now: State<A, E>,
    { key, turn }: Session<A, E>,
    holding: Holding<A, E>,
    heir: Semaphore.Semaphore | undefined
  ): Step<A, E> => {
    const left: Leaving = { key, done: Deferred.makeUnsafe<void>(), heir }
    const predecessors = now.leaving.filter((one) => one.heir === turn)
    return [close(holding, left, predecessors), { ...now, leaving: [...now.leaving, left] }]
  }

  const step = (next: (now: State<A, E>) => Step<A, E>) =>
    Effect.uninterruptible(Effect.flatten(Ref.modify(state, next)))

  /** A step of one session, if it is still the same. */
  const stepOf = (
    { key, turn }: Pick<Session<A, E>, "key" | "turn">,
    next: (session: Session<A, E>, now: State<A, E>) => Step<A, E>
  ) =>
    step((now) => {
      const session = now.sessions.get(key)
      return session?.turn === turn ? next(session, now) : [Effect.void, now]
    })

  /** One user more, and a room where the session has none. */
  const admit = (key: string, bounds: Bounds) =>
    Effect.flatMap(Clock.currentTimeMillis, (startedMs) =>
      Ref.modify(state, (now): readonly [Effect.Effect<Session<A, E>, SessionRefusal>, State<A, E>] => {
        const refuse = (reason: Refusal) => [Effect.fail(refusal(reason)), now] as const
        if (now.isStopping) return refuse("stopping")
        const found = now.sessions.get(key)
        if (found !== undefined) {
          if (found.users >= (bounds.usersMax ?? Infinity)) return refuse("busy")
          return [Effect.succeed(found), put(now, { ...found, users: found.users + 1 })]
        }
        const turn = Semaphore.makeUnsafe(1)
        const fresh = {
          key,
          turn,
          startedMs,
          users: 1,
          holders: 0,
          holding: undefined,
          idleSinceMs: startedMs
        }
        const room = roomFor(now, key, turn, bounds)
        if (room === undefined) return refuse("full")
        const [evict, after] = room
        return [Effect.as(evict, fresh), put(after, fresh)]
      })
    ).pipe(Effect.flatten)

  const roomFor = (
    now: State<A, E>,
    key: string,
    turn: Semaphore.Semaphore,
    { sessionsMax, whenFull }: Bounds
  ): Step<A, E> | undefined => {
    const free = now.leaving.filter(({ heir }) => heir === undefined)
    if (now.sessions.size + free.length < sessionsMax) return [Effect.void, now]
    const inherited = free.find((left) => left.key === key) ?? free[0]
    if (inherited !== undefined) {
      const leaving = now.leaving.map((left) => (left === inherited ? { ...left, heir: turn } : left))
      return [Effect.void, { ...now, leaving }]
    }
    const idle = [...now.sessions.values()].filter(({ users }) => users === 0)
    const longest = idle.toSorted((one, other) => one.idleSinceMs - other.idleSinceMs)[0]
    return longest === undefined || whenFull === "refuse" ? undefined : retire(now, longest, turn)
  }

  const leave = (seat: Session<A, E>) =>
    Effect.flatMap(Clock.currentTimeMillis, (idleSinceMs) =>
      stepOf(seat, (session, now) => {
        const users = session.users - 1
        const isMade = session.holding !== undefined && Deferred.isDoneUnsafe(session.holding.made)
        // Without users and a value there is no session.
        return users === 0 && !isMade
          ? retire(now, session)
          : [Effect.void, put(now, { ...session, users, idleSinceMs })]
      })
    )

  /** The whole life of a value: it is made, kept until it ends or is told to, and closed. */
  const live = (seat: Session<A, E>, holding: Holding<A, E>, make: Recipe<A, E>["make"]) =>
    Ref.get(state).pipe(
      Effect.flatMap(({ leaving }) =>
        settled(leaving.filter(({ heir, key }) => heir === seat.turn || key === seat.key))
      ),
      Effect.andThen(Scope.provide(make, holding.scope)),
      Effect.tap((value) => Deferred.succeed(holding.made, value)),
      Effect.flatMap(options.endOf ?? (() => Effect.never)),
      Effect.raceFirst(Deferred.await(holding.closing)),
      Effect.interruptible,
      Effect.exit,
      Effect.tap((exit) =>
        stepOf(seat, (session, now) => {
          if (session.holding !== holding) return [Effect.void, now]
          if (Deferred.isDoneUnsafe(holding.made)) return retire(now, session)
          // Users that hear of a failure and ask again must not find the same one.
          const without = put(now, { ...session, holding: undefined, holders: 0 })
          const [dismissed, after] = dismiss(without, session, holding, seat.turn)
          return [Effect.andThen(fail(holding, exit), dismissed), after]
        })
      ),
      Effect.andThen(Scope.close(holding.scope, Exit.void)),
      Effect.catchCause((cause) =>
        Effect.logError(`the session ${JSON.stringify(seat.key)} did not end well`, cause)
      ),
      Effect.andThen(Deferred.succeed(holding.closed, undefined)),
      Effect.forkDetach({ startImmediately: true }),
      Effect.asVoid
    )

  const take = (seat: Session<A, E>, { fingerprint, make }: Recipe<A, E>) =>
    Effect.flatMap(Clock.currentTimeMillis, (startedMs) =>
      Ref.modify(state, (now): readonly [Effect.Effect<Holding<A, E>, SessionRefusal>, State<A, E>] => {
        const session = now.sessions.get(seat.key)
        if (now.isStopping) return [Effect.fail(refusal("stopping")), now]
        if (session?.turn !== seat.turn) return [Effect.fail(refusal("ended")), now]
        const { holders, holding } = session
        if (holding !== undefined && (holders > 0 || Equal.equals(holding.fingerprint, fingerprint))) {
          return [Effect.succeed(holding), put(now, { ...session, holders: holders + 1 })]
        }
        const fresh: Holding<A, E> = {
          fingerprint,
          scope: Scope.makeUnsafe(),
          made: Deferred.makeUnsafe(),
          closing: Deferred.makeUnsafe(),
          closed: Deferred.makeUnsafe()
        }
        const [dismissed, after] =
          holding === undefined ? [Effect.void, now] : dismiss(now, session, holding, seat.turn)
        return [
          dismissed.pipe(Effect.andThen(live(seat, fresh, make)), Effect.as(fresh)),
          put(after, { ...session, startedMs, holders: 1, holding: fresh })
        ]
      })
    ).pipe(Effect.flatten)

  const seatOf = (seat: Session<A, E>): Seat<A, E> => ({
    turn: seat.turn,
    hold: (recipe) =>
      Effect.acquireRelease(take(seat, recipe), (holding) =>
        stepOf(seat, (session, now) => [
          Effect.void,
          session.holding === holding ? put(now, { ...session, holders: session.holders - 1 }) : now
        ])
      ).pipe(Effect.flatMap(({ made }) => Deferred.await(made)))
  })

  const end = (key: string) =>
    step((now) => {
      const session = now.sessions.get(key)
      return session === undefined ? [Effect.void, now] : retire(now, session)
    }).pipe(
      Effect.andThen(Ref.get(state)),
      Effect.flatMap(({ leaving }) => settled(leaving.filter((left) => left.key === key)))
    )

  const sessions = Effect.map(Ref.get(state), ({ sessions }) => [...sessions.values()])

  const endAll = Effect.flatMap(sessions, (all) =>
    Effect.forEach(all, ({ key }) => end(key), { concurrency, discard: true })
  )

  yield* Effect.gen(function* () {
    const idleMs = (yield* options.idleSeconds) * 1000
    const nowMs = yield* Clock.currentTimeMillis
    yield* Effect.forEach(yield* sessions, (idle) =>
      stepOf(idle, (session, now) =>
        session.users === 0 && nowMs - session.idleSinceMs >= idleMs
          ? retire(now, session)
          : [Effect.void, now]
      )
    )
  }).pipe(Effect.repeat(Schedule.spaced(sweepInterval)), Effect.forkScoped)

  yield* Effect.addFinalizer(() =>
    Ref.update(state, (now) => ({ ...now, isStopping: true })).pipe(
      Effect.andThen(Deferred.succeed(stopping, undefined)),
      Effect.andThen(sessions),
      Effect.flatMap((all) =>
        Effect.forEach(
          all,
          // A turn that does not end is not waited for.
          (session) =>
            Effect.andThen(bounded(session.turn.withPermit(Effect.void), Effect.void), end(session.key)),
          { concurrency, discard: true }
        )
      ),
      Effect.andThen(Ref.get(state)),
      Effect.flatMap(({ leaving }) => settled(leaving))
    )
  )

  return {
    seat: (key, bounds) => Effect.map(Effect.acquireRelease(admit(key, bounds), leave), seatOf),
    end,
    endAll,
    stopping: Deferred.await(stopping),
    list: Effect.gen(function* () {
      const nowMs = yield* Clock.currentTimeMillis
      return yield* Effect.forEach(yield* sessions, (session) =>
        Effect.map(valueOf(session), (value) => ({
          key: session.key,
          value,
          startedMs: session.startedMs,
          users: session.users,
          idleSeconds: session.users === 0 ? (nowMs - session.idleSinceMs) / 1000 : 0
        }))
      )
    })
  } satisfies SessionTable<A, E> as SessionTable<A, E>
})

const refusal = (refusal: Refusal) => new SessionRefusal({ refusal })

const put = <A, E>(now: State<A, E>, session: Session<A, E>): State<A, E> => ({
  ...now,
  sessions: new Map(now.sessions).set(session.key, session)
})

const settled = (leaving: ReadonlyArray<Leaving>) =>
  Effect.forEach(leaving, ({ done }) => Deferred.await(done), { concurrency: "unbounded", discard: true })

const valueOf = <A, E>({ holding }: Session<A, E>): Effect.Effect<A | undefined> =>
  holding === undefined || !Deferred.isDoneUnsafe(holding.made)
    ? Effect.undefined
    : Effect.orElseSucceed(Deferred.await(holding.made), () => undefined)

/** Users that wait were not interrupted, and must not take themselves to have been. */
const fail = <A, E>({ made }: Holding<A, E>, exit: Exit.Exit<unknown, unknown>) =>
  Exit.isSuccess(exit) || Cause.hasInterruptsOnly(exit.cause)
    ? Deferred.fail(made, refusal("ended"))
    : Deferred.failCause(made, exit.cause as Cause.Cause<E>)
