/**
 * Carries many connections over one pipe: HTTP/2 between a gateway container and this process.
 *
 * Each connection is a stream with its own flow control, named by the slot that it came to. It is joined byte for byte
 * to the socket on which the gateway listens for that slot's run.
 */
import * as http2 from "node:http2"
import * as net from "node:net"
import type { Duplex } from "node:stream"
import * as BytePacer from "./BytePacer.ts"

export interface SocketTunnel {
  /** Forwards connections of a slot to the socket at this path. Settles when the slot has its own socket. */
  readonly open: (slot: number, socketPath: string) => Promise<void>
  /** Closes a slot's socket and all its connections. Settles when no connection is left. */
  readonly close: (slot: number) => Promise<void>
  /** Settles when the other side has connected. */
  readonly ready: Promise<void>
  /** Settles when the tunnel has closed, whichever side closed it. */
  readonly ended: Promise<void>
  readonly destroy: () => void
}

export interface SocketTunnelOptions {
  /** New connections per second of one slot (default 200). More connections are refused. */
  readonly connectionsPerSecondMax?: number | undefined
}

/** Bytes that one connection may have in transit in either direction. */
const windowBytes = 256 * 1024

/**
 * Burst and rate per second of connections that may be reset. Above that, HTTP/2 ends the whole pipe with all runs on
 * it (Node's default is 1000, then 33 a second). Instead, the connections of each run are limited, well below this.
 */
const streamResets = { streamResetBurst: 1_000_000, streamResetRate: 100_000 }

interface Answer {
  readonly id: number
  readonly problem?: string
}

/** Burst of connections of one slot: as many as the container accepts at the same time. */
const connectionsMax = 128

/** Destination of a slot, and the limits of its run. */
interface Target {
  readonly socketPath: string
  readonly pacer: BytePacer.BytePacer
}

export const make = (pipe: Duplex, options: SocketTunnelOptions = {}): SocketTunnel => {
  const targets = new Map<number, Target>()
  const waiting = new Map<number, PromiseWithResolvers<void>>()
  let control: http2.ServerHttp2Stream | undefined
  let serial = 0
  const { promise: ready, resolve: begin, reject: never } = Promise.withResolvers<void>()
  // A rejection that no caller waits for must not end the process.
  ready.catch(() => undefined)
  const { promise: ended, resolve: finish } = Promise.withResolvers<void>()

  const session = http2.performServerHandshake(pipe, {
    settings: { initialWindowSize: windowBytes, maxConcurrentStreams: 2 ** 31 - 1 },
    maxSessionMemory: 1024,
    ...streamResets
  })
  // Flow control applies to each stream, and must not apply to all of them together.
  session.setLocalWindowSize(2 ** 31 - 1)
  const end = () => {
    never(gone())
    for (const { reject } of waiting.values()) reject(gone())
    waiting.clear()
    finish()
  }
  session.on("error", end)
  session.on("close", end)
  session.on("stream", (stream, headers) => {
    const path = headers[":path"] ?? ""
    // A refused stream emits an error too, and an unhandled error ends the host process.
    stream.on("error", () => undefined)
    stream.respond({ ":status": 200 })
    if (path === "/control" && control === undefined) {
      control = stream
      listen(stream, (answer) => {
        const asked = waiting.get(answer.id)
        waiting.delete(answer.id)
        if (answer.problem === undefined) asked?.resolve()
        else asked?.reject(new Error(answer.problem))
      })
      begin()
      return
    }
    const target = targets.get(Number(path.slice(1)))
    if (target === undefined || !target.pacer.connected())
      stream.close(http2.constants.NGHTTP2_REFUSED_STREAM)
    else join(stream, target)
  })

  const ask = async (what: "open" | "close", slot: number): Promise<void> => {
    if (control === undefined || session.destroyed) throw gone()
    const id = serial++
    const asked = Promise.withResolvers<void>()
    waiting.set(id, asked)
    control.write(`${JSON.stringify({ id, what, slot })}\n`)
    return asked.promise
  }

  return {
    ready,
    ended,
    open: (slot, socketPath) => {
      targets.set(slot, { socketPath, pacer: BytePacer.make({ ...options, connectionsMax }) })
      return ask("open", slot)
    },
    close: (slot) => {
      targets.delete(slot)
      return ask("close", slot)
    },
    destroy: () => {
      session.destroy()
      pipe.destroy()
    }
  }
}

const gone = () => new Error("the gateway container is gone")

const listen = (stream: http2.ServerHttp2Stream, hear: (answer: Answer) => void): void => {
  let rest = ""
  stream.setEncoding("utf8")
  stream.on("error", () => undefined)
  stream.on("data", (text: string) => {
    const lines = (rest + text).split("\n")
    rest = lines.pop() ?? ""
    for (const line of lines) hear(JSON.parse(line) as Answer)
  })
}

const join = (stream: http2.ServerHttp2Stream, { pacer, socketPath }: Target): void => {
  const socket = net.connect({ path: socketPath, allowHalfOpen: true })
  const drop = () => {
    socket.destroy()
    if (!stream.destroyed) stream.close(http2.constants.NGHTTP2_CANCEL)
  }
  stream.on("error", drop)
  stream.on("aborted", drop)
  stream.on("close", drop)
  socket.on("error", drop)
  socket.on("close", (broken) => {
    if (broken) drop()
    else if (!stream.writableEnded) stream.end()
  })
  pacer.pace(stream)
  pacer.pace(socket)
  stream.pipe(socket)
  socket.pipe(stream)
}
