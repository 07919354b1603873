/** A server on a run's socket in a directory of the host, which may stop listening for a while. */
import type * as http from "node:http"
import { constants } from "node:fs"
import * as fs from "node:fs/promises"
import * as path from "node:path"

export interface SocketListener {
  /** Accept nothing for so long: a client that connects is refused by the system, at no cost to this process. A
   *  connection with no request under way is closed. */
  readonly pause: (millis: number) => void
  /** Close the socket; connections that are open stay open. */
  readonly stop: () => void
  /** Close the socket and every connection of it. */
  readonly close: () => Promise<void>
}

/** `sun_path` is 108 bytes, its end included; less on other systems. */
const socketPathBytesMax = 103

const backlog = 512

/** After how long a server that could not listen tries again. */
const againMillis = 1000

/** Have a server listen on a socket at this path; what was there is replaced. */
export const listen = async (server: http.Server, socketPath: string): Promise<SocketListener> => {
  await fs.rm(socketPath, { force: true })
  const { handle, where } = await address(socketPath)
  const begin = () =>
    new Promise<void>((resolve, reject) => {
      server.once("error", reject)
      // For any user of the sandbox: on the host the directory lies below one that only this process can enter.
      server.listen({ path: where, backlog, readableAll: true, writableAll: true }, () => {
        server.off("error", reject)
        resolve()
      })
    })
  try {
    await begin()
  } catch (thrown) {
    await handle?.close()
    throw thrown
  }
  let paused: NodeJS.Timeout | undefined
  let stopped = false
  const beginAgain = async () => {
    try {
      await begin()
    } catch {
      // It has been said as an error of the server; without descriptors, say, it can again in a moment.
      if (!stopped) beginAfter(againMillis)
      return
    }
    paused = undefined
    if (stopped) server.close()
  }
  const beginAfter = (millis: number) => {
    paused = setTimeout(() => void beginAgain(), millis)
  }
  return {
    pause: (millis) => {
      if (stopped || paused !== undefined) return
      server.close()
      beginAfter(millis)
    },
    stop: () => {
      stopped = true
      clearTimeout(paused)
      server.close()
    },
    close: async () => {
      stopped = true
      clearTimeout(paused)
      await new Promise<void>((resolve) => {
        if (server.listening) server.close(() => resolve())
        else resolve()
        server.closeAllConnections()
      })
      // Closing removes the socket by the path it was made by: that name must be nobody else's until then.
      await handle?.close()
    }
  }
}

/** A path that a socket can be made by: a long one is named through the descriptor of its directory. */
const address = async (socketPath: string) => {
  if (Buffer.byteLength(socketPath) <= socketPathBytesMax) return { where: socketPath, handle: undefined }
  const handle = await fs.open(path.dirname(socketPath), constants.O_RDONLY | constants.O_DIRECTORY)
  return { where: `/proc/self/fd/${handle.fd}/${path.basename(socketPath)}`, handle }
}
