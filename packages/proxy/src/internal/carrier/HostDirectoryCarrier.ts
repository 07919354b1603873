/**
 * Carrier with a run's socket in a host directory, which the engine mounts read-only into the sandbox.
 *
 * Nothing has to be started, and only the bridge in the sandbox is between the agent and the gateway. Any user of the
 * sandbox may connect. On the host, only the user of the host process can enter a directory above it.
 */
import { Effect } from "effect"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import type { Mount } from "@cogni/sandbox-core/ContainerMount"
import { socketPath } from "@cogni/sandbox-core/SandboxPlace"
import * as MountIdentity from "@cogni/sandbox-host-files/MountIdentity"
import * as HostDisk from "../HostDisk.ts"
import type { CarriedSocket, SocketCarrier } from "./SocketCarrier.ts"
import { failure, socketName, temporaryDirectory } from "./SocketCarrier.ts"

export const make: SocketCarrier = {
  name: "host directory",
  acquire: Effect.fnUntraced(function* (runDirectory?: string, socketMount?: Mount) {
    const mount = socketMount ?? (yield* acquireMount(runDirectory))
    const directory = mount.source
    return {
      mounts: [mount],
      hostSocketPath: path.join(directory, socketName),
      directory,
      // The directory is mounted, so the sandbox sees the socket as soon as the gateway listens.
      open: answers(path.join(directory, socketName)),
      failure: Effect.never
    } satisfies CarriedSocket
  })
}

const acquireMount = Effect.fnUntraced(function* (runDirectory: string | undefined) {
  // `mkdtemp` creates it with mode 0700, which a run's own directory also has.
  const closed = runDirectory ?? (yield* temporaryDirectory)
  const source = yield* acquireDirectory(path.join(closed, "llm-sock"))
  const held = yield* HostDisk.use(failure, () => MountIdentity.ofPrivate(source))
  return {
    type: "directory",
    source,
    target: path.dirname(socketPath),
    readOnly: true,
    held
  } satisfies Mount
})

const acquireDirectory = (directory: string) => {
  const made = HostDisk.use(failure, async () => {
    await fs.mkdir(directory, { mode: 0o755 })
    await fs.chmod(directory, 0o755)
    return directory
  })
  return Effect.acquireRelease(made, HostDisk.remove)
}

const answers = (file: string) =>
  HostDisk.use(failure, async () => {
    const found = await fs.lstat(file)
    if (!found.isSocket()) throw new TypeError("another file is at its path")
  })
