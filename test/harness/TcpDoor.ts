/**
 * A port in front of a server of this host. While it is closed, clients are refused, as by a server that has stopped.
 * Closing it takes no time, unlike a restart of the server.
 */
import { Effect, type Scope } from "effect"
import { connect, createServer, type Socket } from "node:net"
import { freePort } from "./FreePort.ts"

export interface TcpDoor {
  /** URL of the server, through the door. */
  readonly url: string
  /** Ends all connections, and refuses new ones. */
  readonly close: Effect.Effect<void>
  readonly open: Effect.Effect<void>
}

/** Opens a door to the server at a URL, until the scope closes. */
export const acquire = (server: string): Effect.Effect<TcpDoor, never, Scope.Scope> =>
  Effect.gen(function* () {
    const { hostname, port: target, protocol } = new URL(server)
    const port = yield* freePort
    const sockets = new Set<Socket>()
    const kept = (socket: Socket, other: Socket) => {
      sockets.add(socket)
      socket.on("error", () => other.destroy())
      socket.once("close", () => {
        sockets.delete(socket)
        other.destroy()
      })
    }
    const door = createServer((client) => {
      const through = connect(Number(target), hostname)
      kept(client, through)
      kept(through, client)
      client.pipe(through).pipe(client)
    })
    const open = Effect.callback<void>((resume) => {
      door.once("error", (error) => resume(Effect.die(error)))
      door.listen(port, "127.0.0.1", () => resume(Effect.void))
    })
    const close = Effect.callback<void>((resume) => {
      if (!door.listening) return resume(Effect.void)
      door.close(() => resume(Effect.void))
      for (const socket of sockets) socket.destroy()
    })
    yield* Effect.acquireRelease(open, () => close)
    return { url: `${protocol}//127.0.0.1:${port}`, close, open }
  })
