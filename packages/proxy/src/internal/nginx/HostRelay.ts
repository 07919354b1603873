/**
 * Connects a proxy without a network to an upstream that the host can reach.
 *
 * Listens on a unix socket in a directory of the proxy's user. Every connection to it is relayed to the upstream over
 * TCP or TLS, byte for byte. The relay neither reads nor adds anything; the key passes through it and is not stored. If
 * the upstream cannot be reached, the relay closes the connection, which nginx turns into a 502 with a message.
 */
import { messageOf } from "@cogni/sandbox-host-files/Attempt"
import { Effect, type Scope } from "effect"
import * as fs from "node:fs/promises"
import * as net from "node:net"
import * as path from "node:path"
import * as tls from "node:tls"
import type { User } from "@cogni/sandbox-core/Posture"
import { type HostFailed, Misconfigured } from "@cogni/sandbox-core/SandboxError"
import * as BytePacer from "../carrier/BytePacer.ts"
import * as HostDisk from "../HostDisk.ts"
import { systemAuthorities } from "../gateway/UpstreamClient.ts"
import type { Address } from "../../Upstream.ts"

export interface HostRelayOptions {
  readonly address: Address
  /** User of the proxy container. Only this user may connect. */
  readonly owner: User
  /** Parent of the socket's directory; the system's temporary directory if the path is too long for a socket. */
  readonly parent?: string | undefined
  readonly connectionsMax?: number | undefined
  readonly connectionsPerSecondMax?: number | undefined
  /** Limit for both directions together. One thread carries the bytes of all runs. */
  readonly bytesPerSecondMax?: number | undefined
  readonly connectSecondsMax?: number | undefined
  /** PEM certificates to trust instead of those of the system and of Node. */
  readonly certificateAuthorities?: ReadonlyArray<string> | undefined
}

export interface HostRelay {
  /** Holds only the socket. Removed when the scope closes. */
  readonly directory: string
  readonly socketPath: string
  /** Number of connections so far, including refused ones. */
  readonly accepted: () => number
  /** Number of open connections. */
  readonly open: () => number
  /** Why the last failed connection failed, such as `connect ECONNREFUSED 127.0.0.1:4000`. */
  readonly lastFailure: () => string | undefined
}

const failure = "the relay to the upstream cannot be created"

const socketName = "upstream.sock"

/** `sun_path` has 108 bytes, including the final NUL. */
const socketPathBytesMax = 107

const connectionsMaxDefault = 128

/** How long an upstream may continue after the proxy has hung up. */
const lingerSecondsMax = 10

export const acquire = Effect.fn("HostRelay.acquire")(function* (
  options: HostRelayOptions
): Effect.fn.Return<HostRelay, HostFailed | Misconfigured, Scope.Scope> {
  const { address, owner } = options
  const directory = yield* temporaryDirectory(options.parent)
  const socketPath = path.join(directory, socketName)
  const secureContext = address.secure
    ? yield* Effect.try({
        try: () =>
          tls.createSecureContext({ ca: [...(options.certificateAuthorities ?? systemAuthorities())] }),
        catch: (cause) =>
          new Misconfigured({
            option: "certificateAuthorities",
            detail: `cannot be read: ${messageOf(cause)}`,
            remedy: "Provide the certificate authorities as PEM"
          })
      })
    : undefined

  const streams = new Set<net.Socket>()
  const connectionsMax = options.connectionsMax ?? connectionsMaxDefault
  const pacer = BytePacer.make({ ...options, connectionsMax })
  let accepted = 0
  let lastFailure: string | undefined

  const { host, port } = address
  const named = net.isIP(host) === 0 ? { servername: host } : {}
  const connect = (): net.Socket =>
    secureContext === undefined
      ? net.connect({ host, port, allowHalfOpen: true })
      : tls.connect({ host, port, secureContext, ALPNProtocols: ["http/1.1"], ...named })

  const relay = (inner: net.Socket) => {
    accepted += 1
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

  const listen = () =>
    new Promise<net.Server>((resolve, reject) => {
      const server = net.createServer({ allowHalfOpen: true }, relay)
      server.once("error", reject)
      server.listen({ path: socketPath, backlog: 512 }, () => resolve(server))
    })
  yield* Effect.acquireRelease(HostDisk.use(failure, listen), (server) =>
    Effect.callback<void>((resume) => {
      server.close(() => resume(Effect.void))
      for (const stream of streams) stream.destroy()
    })
  )
  yield* HostDisk.use(failure, async () => {
    await fs.chmod(socketPath, 0o600)
    if (process.getuid?.() !== 0) return
    await fs.chown(socketPath, owner.userId, owner.groupId)
    await fs.chown(directory, owner.userId, owner.groupId)
  })

  return {
    directory,
    socketPath,
    accepted: () => accepted,
    open: () => streams.size / 2,
    lastFailure: () => lastFailure
  }
})

const temporaryDirectory = (parent: string | undefined) => {
  const fits =
    parent !== undefined &&
    Buffer.byteLength(path.join(parent, "upstream-XXXXXX", socketName)) <= socketPathBytesMax
  return fits
    ? HostDisk.temporaryDirectory(failure, "upstream-", parent)
    : HostDisk.temporaryDirectory(failure, "cogni-sandbox-upstream-")
}
