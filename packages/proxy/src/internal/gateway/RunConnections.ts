/**
 * Open connections of one run: pauses one or all of them, and serves one request at a time on each.
 */
import type * as http from "node:http"
import type { Socket } from "node:net"

export interface RunConnections {
  readonly add: (socket: Socket) => void
  /** Stops reading from all connections for this time. A later end replaces an earlier one. */
  readonly pauseAll: (millis: number) => void
  /** Stops reading from one connection for this time. */
  readonly pause: (socket: Socket, millis: number) => void
  /** Returns true if all connections are paused. */
  readonly isPaused: () => boolean
  /** Serves a request after those before it on its connection. Returns false if too many were pipelined. */
  readonly inTurn: (
    request: http.IncomingMessage,
    response: http.ServerResponse,
    serve: () => void
  ) => boolean
  /** Cancels the end of a pause: the run has ended, and its connections are closed elsewhere. */
  readonly forgetPause: () => void
}

/** Requests that may be pipelined on one connection before the first is answered. */
export const aheadMax = 16

interface Connection {
  readonly waiting: Array<() => void>
  busy: boolean
  /** Reasons to pause this connection, apart from a pause of all. */
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
    // The client has gone, and upstream requests whose answers it cannot read would cost money.
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
      // Node resumes a connection itself after an answer or a body, which must not end a pause.
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
