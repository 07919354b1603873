/**
 * A run's socket in a directory of the host, which the engine mounts into the sandbox, read-only.
 *
 * Nothing to start, and nothing between the agent and the gateway but the bridge inside. Any user of the sandbox may
 * connect; on the host the directory lies below one that only the host process can enter.
 */
import * as Attempt from "@cogni/sandbox-host-files/Attempt"
import * as OwnFiles from "@cogni/sandbox-host-files/OwnFiles"
import { Effect } from "effect"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { socketPath } from "@cogni/sandbox-core/LlmProxy"
import { ProxyFailed } from "@cogni/sandbox-core/SandboxError"
import * as MountIdentity from "@cogni/sandbox-host-files/MountIdentity"
import { type CarriedSocket, type CarryRequest, type SocketCarrier, socketName } from "./SocketCarrier.ts"

const directoryName = "llm-sock"

export const make: SocketCarrier = {
  name: "host directory",
  acquire: Effect.fnUntraced(function* (request: CarryRequest) {
    const directory = yield* acquireDirectory(request.directory)
    const held = yield* attempt(() => MountIdentity.ofPrivate(directory))
    return {
      mounts: [
        { type: "directory", source: directory, target: path.dirname(socketPath), readOnly: true, held }
      ],
      hostSocketPath: path.join(directory, socketName),
      directory,
      // The mount is of the directory: what lies in it is there as soon as it listens.
      open: answers(path.join(directory, socketName)),
      failure: Effect.never
    } satisfies CarriedSocket
  })
}

const acquireDirectory = (parent: string | undefined) =>
  Effect.acquireRelease(
    attempt(async () => {
      // `mkdtemp` makes it 0700; a run's own directory is.
      const closed = parent ?? (await OwnFiles.temporaryDirectory("cogni-sandbox-socket-"))
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
  Attempt.attempt(
    run,
    (message) =>
      new ProxyFailed({
        detail: `the socket cannot be made: ${message}`,
        remedy: "Make the run's directory writable, and see that its disk has space"
      })
  )
