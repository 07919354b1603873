/**
 * A run's socket in a directory of the host, which the engine mounts into the sandbox, read-only.
 *
 * Nothing to start, and nothing between the agent and the gateway but the bridge inside. Any user of the sandbox may
 * connect; on the host the directory lies below one that only the host process can enter.
 */
import { Effect, type Scope } from "effect"
import { constants } from "node:fs"
import * as fs from "node:fs/promises"
import type * as net from "node:net"
import * as os from "node:os"
import * as path from "node:path"
import { socketPath } from "@cogni/sandbox-core/LlmProxy"
import { ProxyFailed } from "@cogni/sandbox-core/SandboxError"
import type { CarriedSocket, CarryRequest, SocketCarrier } from "./SocketCarrier.ts"

const directoryName = "llm-sock"
const socketName = path.basename(socketPath)

/** `sun_path` is 108 bytes, its end included; less on other systems. */
const socketPathBytesMax = 103

export const make: SocketCarrier = {
  name: "host directory",
  acquire: Effect.fnUntraced(function* (request: CarryRequest) {
    const directory = yield* acquireDirectory(request.directory)
    return {
      mounts: [{ type: "directory", source: directory, target: path.dirname(socketPath), readOnly: true }],
      hostSocketPath: path.join(directory, socketName),
      listen: (server) => listen(server, directory),
      // The mount is of the directory: what lies in it is there as soon as it listens.
      ready: answers(path.join(directory, socketName)),
      failure: Effect.never
    } satisfies CarriedSocket
  })
}

/** Have a server listen on the socket in a directory, until the scope is closed; what was there is replaced. */
export const listen = (
  server: net.Server,
  directory: string
): Effect.Effect<void, ProxyFailed, Scope.Scope> =>
  Effect.acquireRelease(
    attempt(async () => {
      await fs.rm(path.join(directory, socketName), { force: true })
      const { handle, where } = await address(directory)
      try {
        await new Promise<void>((resolve, reject) => {
          server.once("error", reject)
          server.listen({ path: where, backlog: 512 }, () => {
            server.off("error", reject)
            resolve()
          })
        })
        await fs.chmod(path.join(directory, socketName), 0o666)
      } catch (thrown) {
        await handle?.close()
        throw thrown
      }
      return handle
    }),
    (handle) =>
      Effect.promise(async () => {
        await new Promise<void>((resolve) => {
          server.close(() => resolve())
          if ("closeAllConnections" in server && typeof server.closeAllConnections === "function")
            server.closeAllConnections()
        })
        // Closing removes the socket by the path it was made by: that name must be nobody else's until then.
        await handle?.close()
      })
  ).pipe(Effect.asVoid)

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

/** A path that a socket can be made by: a long one is named through the descriptor of its directory. */
const address = async (directory: string) => {
  const where = path.join(directory, socketName)
  if (Buffer.byteLength(where) <= socketPathBytesMax) return { where, handle: undefined }
  const handle = await fs.open(directory, constants.O_RDONLY | constants.O_DIRECTORY)
  return { where: `/proc/self/fd/${handle.fd}/${socketName}`, handle }
}

const acquireDirectory = (parent: string | undefined) =>
  Effect.acquireRelease(
    attempt(async () => {
      // `mkdtemp` makes it 0700; a run's own directory is.
      const closed = parent ?? (await fs.mkdtemp(path.join(os.tmpdir(), "cogni-sandbox-socket-")))
      const made = path.join(closed, directoryName)
      await fs.mkdir(made, { mode: 0o755 })
      await fs.chmod(made, 0o755)
      return { made, remove: parent === undefined ? closed : made }
    }),
    ({ remove }) =>
      Effect.promise(() => fs.rm(remove, { recursive: true, force: true }).catch(() => undefined))
  ).pipe(Effect.map(({ made }) => made))

const answers = (file: string) =>
  attempt(async () => {
    const found = await fs.lstat(file)
    if (!found.isSocket()) throw new TypeError("something else stands in its place")
  })

const attempt = <A>(run: () => Promise<A>): Effect.Effect<A, ProxyFailed> =>
  Effect.tryPromise({
    try: run,
    catch: (cause) =>
      new ProxyFailed({
        detail: `the socket cannot be made: ${cause instanceof Error ? cause.message : String(cause)}`,
        remedy: "Make the run's directory writable, and see that its disk has space"
      })
  })
