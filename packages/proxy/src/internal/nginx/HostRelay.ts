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
import * as path from "node:path"
import * as tls from "node:tls"
import type { User } from "@cogni/sandbox-core/Posture"
import { type HostFailed, Misconfigured } from "@cogni/sandbox-core/SandboxReason"
import * as HostDisk from "../HostDisk.ts"
import * as RelaySocket from "./RelaySocket.ts"
import { systemAuthorities } from "../gateway/UpstreamClient.ts"
import type { Address } from "../../Upstream.ts"

interface HostRelayOptions extends RelaySocket.RelayLimits {
  readonly address: Address
  /** User of the proxy container. Only this user may connect. */
  readonly owner: User
  /** Parent of the socket's directory; the system's temporary directory if the path is too long for a socket. */
  readonly parent?: string | undefined
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

  const relay = RelaySocket.make({ ...options, secureContext })
  yield* Effect.acquireRelease(
    HostDisk.use(failure, () => relay.listen(socketPath)),
    () => Effect.promise(relay.close)
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
    accepted: relay.accepted,
    open: relay.open,
    lastFailure: relay.lastFailure
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
