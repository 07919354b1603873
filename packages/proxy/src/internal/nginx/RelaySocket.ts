/**
 * Relays every connection to a unix socket to the upstream, over TCP or TLS, byte for byte.
 *
 * Plain Node without effects, because it also runs in a thread of its own (`RelayWorker`), which should stay small.
 */
import * as net from "node:net"
import * as tls from "node:tls"
import * as BytePacer from "../carrier/BytePacer.ts"
import type { Address } from "../../Upstream.ts"

export interface RelayLimits {
  readonly connectionsMax?: number | undefined
  readonly connectionsPerSecondMax?: number | undefined
  /** Limit for both directions together. One thread carries the bytes of all runs. */
  readonly bytesPerSecondMax?: number | undefined
  readonly connectSecondsMax?: number | undefined
}

interface RelaySocketOptions extends RelayLimits {
  readonly address: Address
  /** Present exactly if the upstream is reached over TLS. */
  readonly secureContext: tls.SecureContext | undefined
  /** Gets the number of connections. In shared memory, it outlives a thread. */
  readonly count?: Int32Array | undefined
}

export interface RelaySocket {
  readonly listen: (socketPath: string) => Promise<void>
  /** Closes the socket and all connections. */
  readonly close: () => Promise<void>
  /** Number of connections so far, including refused ones. */
  readonly accepted: () => number
  /** Number of open connections. */
  readonly open: () => number
  /** Why the last failed connection failed, such as `connect ECONNREFUSED 127.0.0.1:4000`. */
  readonly lastFailure: () => string | undefined
}

const connectionsMaxDefault = 128

/** How long an upstream may continue after the proxy has hung up. */
const lingerSecondsMax = 10

export const make = (options: RelaySocketOptions): RelaySocket => {
  const { address, secureContext } = options
  const streams = new Set<net.Socket>()
  const connectionsMax = options.connectionsMax ?? connectionsMaxDefault
  const pacer = BytePacer.make({ ...options, connectionsMax })
  const count = options.count ?? new Int32Array(1)
  let lastFailure: string | undefined

  const { host, port } = address
  const named = net.isIP(host) === 0 ? { servername: host } : {}
  const connect = (): net.Socket =>
    secureContext === undefined
      ? net.connect({ host, port, allowHalfOpen: true })
      : tls.connect({ host, port, secureContext, ALPNProtocols: ["http/1.1"], ...named })

  const relay = (inner: net.Socket) => {
    Atomics.add(count, 0, 1)
    const refused =
      streams.size / 2 >= connectionsMax
        ? "too many connections at once"
        : pacer.connected()
          ? undefined
          : "too many new connections in a second"
    if (refused !== undefined) {
      lastFailure = refused
      inner.destroy()
      return
    }
    const outer = connect()
    const both = [inner, outer]
    const end = () => both.forEach((stream) => stream.destroy())
    const seconds = options.connectSecondsMax ?? 10
    const late = setTimeout(() => {
      lastFailure = `no connection to ${address.authority} within ${seconds} s`
      end()
    }, seconds * 1000)
    let linger: NodeJS.Timeout | undefined
    outer.once(secureContext === undefined ? "connect" : "secureConnect", () => clearTimeout(late))
    outer.on("error", (error) => {
      lastFailure = error.message || String((error as NodeJS.ErrnoException).code)
    })
    inner.on("error", () => undefined)
    inner.once("end", () => {
      linger = setTimeout(end, lingerSecondsMax * 1000)
    })
    for (const stream of both) {
      streams.add(stream)
      stream.once("close", (broken) => {
        streams.delete(stream)
        clearTimeout(late)
        clearTimeout(linger)
        // Bytes that are on their way to the other side still arrive, unless this side failed.
        if (broken || stream === inner) end()
        else if (!inner.writableEnded) inner.end()
      })
    }
    pacer.pace(inner)
    pacer.pace(outer)
    // `pipe` applies back-pressure, and half-closes one side when the other ends.
    inner.pipe(outer)
    outer.pipe(inner)
  }

  const server = net.createServer({ allowHalfOpen: true }, relay)
  return {
    listen: (socketPath) =>
      new Promise((resolve, reject) => {
        server.once("error", reject)
        server.listen({ path: socketPath, backlog: 512 }, resolve)
      }),
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        for (const stream of streams) stream.destroy()
      }),
    accepted: () => Atomics.load(count, 0),
    open: () => streams.size / 2,
    lastFailure: () => lastFailure
  }
}
