/** A server on a run's socket in a directory of the host, which may stop listening for a while. */
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
import * as CallbackFibers from "../CallbackFibers.ts"

export interface SocketListener {
  /** Accept nothing for so long: a client that connects is refused by the system, at no cost to this process. A
   *  connection with no request under way is closed. */
  readonly pause: (millis: number) => void
  /** Close the socket; connections that are open stay open. */
  readonly stop: Effect.Effect<void>
}

/** The socket cannot be made. */
export class ListenFailed extends Data.TaggedError("ListenFailed")<{ readonly detail: string }> {}

const notListening = (detail: string) => new ListenFailed({ detail })

/** `sun_path` is 108 bytes, its end included; less on other systems. */
const socketPathBytesMax = 103

const backlog = 512

/** After how long a server that could not listen tries again. */
const againMillis = 1000

/** A server on a socket at this path, which replaces what was there. Closed with the scope, with every connection. */
export const listen = Effect.fnUntraced(function* (
  server: http.Server,
  socketPath: string
): Effect.fn.Return<SocketListener, ListenFailed, Scope.Scope> {
  yield* attempt(() => fs.rm(socketPath, { force: true }), notListening)
  const where = yield* address(socketPath)
  yield* Effect.addFinalizer(() => close(server))
  const bind = Effect.callback<void, ListenFailed>((resume) => {
    const onError = (error: Error) => resume(Effect.fail(notListening(error.message)))
    server.once("error", onError)
    // For any user of the sandbox: on the host the directory lies below one that only this process can enter.
    server.listen({ path: where, backlog, readableAll: true, writableAll: true }, () => {
      server.off("error", onError)
      resume(Effect.void)
    })
  })
  yield* bind
  const pauses = yield* CallbackFibers.make
  return {
    pause: (millis) => {
      if (!server.listening) return
      server.close()
      // A failure has been said as an error of the server; without descriptors, say, it can again in a moment.
      const again = Effect.retry(bind, Schedule.spaced(Duration.millis(againMillis)))
      pauses.fork(Effect.ignore(Effect.delay(again, Duration.millis(millis))))
    },
    stop: Effect.andThen(
      pauses.interrupt,
      Effect.sync(() => server.close())
    )
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
 * A path that a socket can be made by: a long one is named through the descriptor of its directory. Closing a server
 * removes the socket by that path, so the descriptor is open until then.
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
