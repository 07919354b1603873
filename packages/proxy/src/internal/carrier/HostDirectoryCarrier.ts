/**
 * A run's socket in a directory of the host, which the engine mounts into the sandbox, read-only.
 *
 * Nothing to start, and nothing between the agent and the gateway but the bridge inside. Any user of the sandbox may
 * connect; on the host the directory lies below one that only the host process can enter.
 */
import { Effect } from "effect"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { socketPath } from "@cogni/sandbox-core/LlmProxy"
import * as MountIdentity from "@cogni/sandbox-host-files/MountIdentity"
import * as HostDisk from "../HostDisk.ts"
import type { CarriedSocket, SocketCarrier } from "./SocketCarrier.ts"
import { failure, socketName, temporaryDirectory } from "./SocketCarrier.ts"

export const make: SocketCarrier = {
  name: "host directory",
  acquire: Effect.fnUntraced(function* (runDirectory?: string) {
    // `mkdtemp` makes it 0700; a run's own directory is.
    const closed = runDirectory ?? (yield* temporaryDirectory)
    const directory = yield* acquireDirectory(path.join(closed, "llm-sock"))
    const held = yield* HostDisk.use(failure, () => MountIdentity.ofPrivate(directory))
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
    if (!found.isSocket()) throw new TypeError("something else stands in its place")
  })
