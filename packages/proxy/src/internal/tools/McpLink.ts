/**
 * The connection to an MCP server that all calls share. It opens with the first call. If it ends, a later call opens it
 * again: the first time at once, and then after a time that doubles until a call succeeds.
 */
import { McpClientFailed } from "@cogni/sandbox-loop/McpClient"
import { Clock, Effect, Exit, Scope, Semaphore } from "effect"
import type { McpSession } from "./McpSession.ts"

export interface McpLink {
  /** Uses the connection. A use that fails with `closed` ends it. */
  readonly use: <A, E>(
    use: (session: McpSession) => Effect.Effect<A, E | McpClientFailed>
  ) => Effect.Effect<A, E | McpClientFailed>
}

/** Longest time between two attempts, in seconds. */
export const waitSecondsMax = 60

/** Seconds from one failure to the next attempt. */
export const waitSeconds = (failures: number): number =>
  failures < 2 ? 0 : Math.min(2 ** Math.min(failures - 2, 10), waitSecondsMax)

interface Held {
  readonly session: McpSession
  readonly scope: Scope.Closeable
}

export const make = Effect.fnUntraced(function* (
  name: string,
  open: Effect.Effect<McpSession, McpClientFailed, Scope.Scope>
): Effect.fn.Return<McpLink, never, Scope.Scope> {
  const scope = yield* Effect.scope
  const turn = yield* Semaphore.make(1)
  let held: Held | undefined
  let failures = 0
  let retryAt = 0

  const failed = Effect.map(Clock.currentTimeMillis, (now) => {
    failures += 1
    retryAt = now + waitSeconds(failures) * 1000
  })

  const lose = (one: Held, { message }: McpClientFailed) =>
    Effect.suspend(() => {
      if (held !== one) return Effect.void
      held = undefined
      return failed.pipe(
        Effect.andThen(Effect.logWarning(`${name}: ${message}. A later call connects again`)),
        Effect.andThen(Effect.forkIn(Scope.close(one.scope, Exit.void), scope))
      )
    })

  const start = Effect.uninterruptibleMask((restore) =>
    Effect.gen(function* () {
      const own = yield* Scope.fork(scope)
      const session = yield* restore(Scope.provide(open, own)).pipe(
        Effect.onError(() => Scope.close(own, Exit.void)),
        Effect.tapError(() => failed)
      )
      const one: Held = { session, scope: own }
      held = one
      const watch = session.ended.pipe(Effect.catch((error) => lose(one, error)))
      yield* Effect.forkIn(Effect.interruptible(watch), scope)
      return one
    })
  )

  const get = turn.withPermit(
    Effect.gen(function* () {
      if (held !== undefined) return held
      const wait = retryAt - (yield* Clock.currentTimeMillis)
      if (wait <= 0) return yield* start
      return yield* new McpClientFailed({
        reason: "closed",
        detail: `has ended ${failures} times. It is started again in ${Math.ceil(wait / 1000)} s at the earliest`
      })
    })
  )

  return {
    use: (use) =>
      Effect.flatMap(get, (one) =>
        use(one.session).pipe(
          // Its time limit, perhaps: the server may hang.
          Effect.onInterrupt(() => Effect.sync(() => one.session.doubt())),
          Effect.tap(() =>
            Effect.sync(() => {
              failures = 0
            })
          ),
          Effect.tapError((error) =>
            error instanceof McpClientFailed && error.reason === "closed" ? lose(one, error) : Effect.void
          )
        )
      )
  }
})
