/**
 * Values of sessions, by key. A value is created on first use and shared by its users. It is closed when it has been
 * idle for too long, when its slot is needed, when it ends by itself, or with the table.
 *
 * Effect's `RcMap` counts references and closes idle values, but it lacks three guarantees. It frees a key and its slot
 * before the old value is closed, so that two containers of one session could exist. Its capacity is fixed, while ours
 * changes with the configuration. It neither evicts the longest idle value nor ends a value in use.
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

/** Why a session is refused: no slot, too many users, the table closes, or the session ended during creation. */
export type Refusal = "full" | "busy" | "stopping" | "ended"

export class SessionRefusal extends Data.TaggedError("SessionRefusal")<{ readonly refusal: Refusal }> {}

export interface Bounds {
  readonly sessionsMax: number
  /** If the table is full: refuse, or end the session that has been idle longest, if one is idle. */
  readonly whenFull: "refuse" | "evict_idle"
  /** Users of one session, including those that wait for their turn. */
  readonly usersMax?: number | undefined
}

/** How to create the value of a session. */
interface Recipe<A, E> {
  /** A value with a different fingerprint is replaced, unless it is in use. */
  readonly fingerprint: unknown
  /** Creates the value; closing the scope ends it. Interrupted when no user waits for it any longer. */
  readonly make: Effect.Effect<A, E, Scope.Scope>
}

/** One user's place in a session, until its scope closes. */
export interface Seat<A, E> {
  /** For users that take turns. */
  readonly turn: Semaphore.Semaphore
  /** Returns the session's value, in use until the scope closes. Concurrent callers share one creation. */
  readonly hold: (recipe: Recipe<A, E>) => Effect.Effect<A, E | SessionRefusal, Scope.Scope>
}

interface TableRow<A> {
  readonly key: string
  /** Absent while it is being created. */
  readonly value: A | undefined
  readonly startedMs: number
  readonly users: number
  /** 0 while it has users. */
  readonly idleSeconds: number
}

export interface SessionTable<A, E> {
  /** Reserves a place in the session of this key until the scope closes. */
  readonly seat: (key: string, bounds: Bounds) => Effect.Effect<Seat<A, E>, SessionRefusal, Scope.Scope>
  /** Ends a session, whether it is in use or not. Settles when the session is closed. */
  readonly end: (key: string) => Effect.Effect<void>
  readonly endAll: Effect.Effect<void>
  /** Settles when the table begins to close. */
  readonly stopping: Effect.Effect<void>
  readonly list: Effect.Effect<ReadonlyArray<TableRow<A>>>
}

export interface TableOptions<A> {
  /** How long a session without users is kept. Read again at each check. */
  readonly idleSeconds: Effect.Effect<number>
  /** Settles when a value has ended by itself. Omit it if values never do. */
  readonly endOf?: ((value: A) => Effect.Effect<unknown, unknown>) | undefined
  /** How long a closing session keeps its key and its slot (default: until it is closed). */
  readonly closeSecondsMax?: number | undefined
}

/** A value, from the start of its creation until it is closed. One fiber runs this whole life. */
interface Holding<A, E> {
  readonly fingerprint: unknown
  readonly scope: Scope.Closeable
  readonly made: Deferred.Deferred<A, E | SessionRefusal>
  /** Asks the value to end. */
  readonly closing: Deferred.Deferred<void>
  readonly closed: Deferred.Deferred<void>
}

interface Session<A, E> {
  readonly key: string
  /** Also distinguishes successive sessions of one key. */
  readonly turn: Semaphore.Semaphore
  readonly startedMs: number
  readonly users: number
  /** Users that hold the value. */
  readonly holders: number
  readonly holding: Holding<A, E> | undefined
  readonly idleSinceMs: number
}

/** A value that is being closed. It occupies its key and its slot until it is done. */
interface Leaving {
  readonly key: string
  readonly done: Deferred.Deferred<void>
  /** The turn of the session that gets its slot when it is done. */
  readonly heir: Semaphore.Semaphore | undefined
}

interface State<A, E> {
  readonly sessions: ReadonlyMap<string, Session<A, E>>
  readonly leaving: ReadonlyArray<Leaving>
  readonly isStopping: boolean
}

/** The effect to run at once after a change of state, and the new state. */
type Step<A, E> = readonly [Effect.Effect<void>, State<A, E>]

/** Interval of the check for idle sessions. */
const sweepInterval = "1 second"

/** Concurrent closes, if a close has no time limit. */
const closesConcurrentMax = 8

/** Closing the scope refuses new users, waits up to `closeSecondsMax` for current turns, and closes all values. */
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

  /** Ends a value in its own fiber, because the caller may be gone before the value is closed. */
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
      // A value that was never created occupies the slot of a predecessor, which may still be closing.
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

  /** Removes a session from the table, closes its value, and gives its slot to the heir. */
  const retire = (now: State<A, E>, session: Session<A, E>, heir?: Semaphore.Semaphore): Step<A, E> => {
    const sessions = new Map(now.sessions)
    sessions.delete(session.key)
    const { holding, turn } = session
    if (holding !== undefined) return dismiss({ ...now, sessions }, session, holding, heir)
    // The slots reserved for this session are free again.
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

  /** Applies a step to a session, unless the session was replaced. */
  const stepOf = (
    { key, turn }: Pick<Session<A, E>, "key" | "turn">,
    next: (session: Session<A, E>, now: State<A, E>) => Step<A, E>
  ) =>
    step((now) => {
      const session = now.sessions.get(key)
      return session?.turn === turn ? next(session, now) : [Effect.void, now]
    })

  /** Adds a user. A new session gets a slot. */
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
        // A session without users and without a value is removed.
        return users === 0 && !isMade
          ? retire(now, session)
          : [Effect.void, put(now, { ...session, users, idleSinceMs })]
      })
    )

  /** Runs the whole life of a value: creates it, keeps it until it ends or is asked to, and closes it. */
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
          // Users that receive a failure and retry must not get the same failure.
          const without = put(now, { ...session, holding: undefined, holders: 0 })
          const [dismissed, after] = dismiss(without, session, holding, seat.turn)
          return [Effect.andThen(fail(holding, exit), dismissed), after]
        })
      ),
      Effect.andThen(Scope.close(holding.scope, Exit.void)),
      Effect.catchCause((cause) =>
        Effect.logError(`the session ${JSON.stringify(seat.key)} failed to close`, cause)
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
          // The wait for a turn is bounded.
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

/** Waiting users were not interrupted themselves, so an interrupted creation fails as "ended". */
const fail = <A, E>({ made }: Holding<A, E>, exit: Exit.Exit<unknown, unknown>) =>
  Exit.isSuccess(exit) || Cause.hasInterruptsOnly(exit.cause)
    ? Deferred.fail(made, refusal("ended"))
    : Deferred.failCause(made, exit.cause as Cause.Cause<E>)
