/** Server on a run's socket in a host directory, which may stop listening for a while. */
import { attempt } from "@cogni/sandbox-host-files/Attempt"
import * as Data from "effect/Data"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Schedule from "effect/Schedule"
import type * as Scope from "effect/Scope"
import { constants } from "node:fs"
import * as fs from "node:fs/promises"
import type * as http from "node:http"
import * as path from "node:path"
import type * as CallbackFibers from "../CallbackFibers.ts"

export interface SocketListener {
  /** Stops listening for this time: the system refuses clients that connect, at no cost to this process. Idle
   *  connections are closed. */
  readonly pause: (millis: number) => void
  /** Closes the socket; open connections stay open. */
  readonly stop: Effect.Effect<void>
}

/** The socket cannot be created. */
export class ListenFailed extends Data.TaggedError("ListenFailed")<{ readonly detail: string }> {}

const notListening = (detail: string) => new ListenFailed({ detail })

/** `sun_path` has 108 bytes including its terminator, and fewer on other systems. */
const socketPathBytesMax = 103

const backlog = 512

/** Delay before a server that could not listen retries. */
const againMillis = 1000

/**
 * Listens on a socket at this path and replaces an existing one. Closing the scope closes it with every connection.
 * `fork` starts the fiber that ends a pause.
 */
export const listen = Effect.fnUntraced(function* (
  server: http.Server,
  socketPath: string,
  fork: CallbackFibers.CallbackFibers["fork"]
): Effect.fn.Return<SocketListener, ListenFailed, Scope.Scope> {
  yield* attempt(() => fs.rm(socketPath, { force: true }), notListening)
  const where = yield* address(socketPath)
  let isStopped = false
  yield* Effect.addFinalizer(() => {
    isStopped = true
    return close(server)
  })
  const bind = Effect.callback<void, ListenFailed>((resume) => {
    const onError = (error: Error) => resume(Effect.fail(notListening(error.message)))
    server.once("error", onError)
    // Any user of the sandbox may connect. On the host, only the user of this process can enter a directory above it.
    server.listen({ path: where, backlog, readableAll: true, writableAll: true }, () => {
      server.off("error", onError)
      resume(Effect.void)
    })
  })
  yield* bind
  const listenAgain = Effect.suspend(() => (isStopped ? Effect.void : bind))
  return {
    pause: (millis) => {
      if (!server.listening) return
      server.close()
      // The server has already reported the failure. If descriptors were exhausted, a retry can succeed soon.
      const again = Effect.retry(listenAgain, Schedule.spaced(Duration.millis(againMillis)))
      fork(Effect.ignore(Effect.delay(again, Duration.millis(millis))))
    },
    stop: Effect.sync(() => {
      isStopped = true
      server.close()
    })
  }
})

/** Closes a server and every connection to it. */
export const close = (server: http.Server): Effect.Effect<void> =>
  Effect.callback<void>((resume) => {
    if (server.listening) server.close(() => resume(Effect.void))
    else resume(Effect.void)
    server.closeAllConnections()
  })

/**
 * Returns a path that is short enough for a socket: a long one is reached through the descriptor of its directory.
 * Closing a server removes the socket by that path, so the descriptor stays open until then.
 */
const address = (socketPath: string): Effect.Effect<string, ListenFailed, Scope.Scope> =>
  Buffer.byteLength(socketPath) <= socketPathBytesMax
    ? Effect.succeed(socketPath)
    : Effect.acquireRelease(
        attempt(
          () => fs.open(path.dirname(socketPath), constants.O_RDONLY | constants.O_DIRECTORY),
          notListening
        ),
        (handle) => Effect.promise(() => handle.close())
      ).pipe(Effect.map(({ fd }) => `/proc/self/fd/${fd}/${path.basename(socketPath)}`))
