/**
 * The open connections of one run: read or not read, one by one and all together, and one request at a time on each.
 */
import type * as http from "node:http"
import type { Socket } from "node:net"

export interface RunConnections {
  readonly add: (socket: Socket) => void
  /** Read nothing from any of them for so long. A later end replaces an earlier one. */
  readonly pauseAll: (millis: number) => void
  /** Read nothing from this one for so long. */
  readonly pause: (socket: Socket, millis: number) => void
  /** Whether all are paused now. */
  readonly isPaused: () => boolean
  /** Serve a request when those before it on its connection have their answer. False: too many were sent ahead. */
  readonly inTurn: (
    request: http.IncomingMessage,
    response: http.ServerResponse,
    serve: () => void
  ) => boolean
  /** End no pause any more: the run is over, and its connections are closed elsewhere. */
  readonly forgetPause: () => void
}

/** Requests that may be sent ahead on one connection before the first has its answer. */
export const aheadMax = 16

interface Connection {
  readonly waiting: Array<() => void>
  busy: boolean
  /** Reasons for which it is not read, besides all being paused. */
  holds: number
}

export const make = (): RunConnections => {
  const open = new Map<Socket, Connection>()
  let paused: NodeJS.Timeout | undefined
  let pausedUntil = 0

  const settle = (socket: Socket, connection: Connection) => {
    if (socket.destroyed) return
    if (paused !== undefined || connection.holds > 0) socket.pause()
    else socket.resume()
  }
  const release = () => {
    paused = undefined
    for (const [socket, connection] of open) settle(socket, connection)
  }
  const next = (socket: Socket, connection: Connection) => {
    // Nobody is there any more to hear the answers, and what is asked of the upstream costs money.
    if (socket.destroyed) connection.waiting.length = 0
    const serve = connection.waiting.shift()
    if (serve === undefined) {
      connection.busy = false
      return
    }
    if (connection.waiting.length === 0) {
      connection.holds -= 1
      settle(socket, connection)
    }
    serve()
  }

  return {
    add: (socket) => {
      const connection: Connection = { waiting: [], busy: false, holds: 0 }
      open.set(socket, connection)
      socket.once("close", () => open.delete(socket))
      // Node reads on by itself when an answer or a body has ended; not while it is to wait.
      socket.on("resume", () => {
        if (paused !== undefined || connection.holds > 0) socket.pause()
      })
      if (paused !== undefined) socket.pause()
    },
    pauseAll: (millis) => {
      const until = performance.now() + millis
      if (paused !== undefined && until <= pausedUntil) return
      clearTimeout(paused)
      pausedUntil = until
      const first = paused === undefined
      paused = setTimeout(release, millis)
      if (first) for (const socket of open.keys()) socket.pause()
    },
    pause: (socket, millis) => {
      const connection = open.get(socket)
      if (connection === undefined) return
      connection.holds += 1
      socket.pause()
      setTimeout(() => {
        connection.holds -= 1
        settle(socket, connection)
      }, millis).unref()
    },
    isPaused: () => paused !== undefined,
    inTurn: ({ socket }, response, serve) => {
      const connection = open.get(socket)
      if (connection === undefined) return false
      const begin = () => {
        response.once("close", () => next(socket, connection))
        serve()
      }
      if (!connection.busy) {
        connection.busy = true
        begin()
        return true
      }
      if (connection.waiting.length === aheadMax) return false
      if (connection.waiting.push(begin) === 1) {
        connection.holds += 1
        socket.pause()
      }
      return true
    },
    forgetPause: () => clearTimeout(paused)
  }
}
