/** Thread of `RelayThread`: relays the connections of many runs to one upstream. It knows no run and no key. */
import * as fs from "node:fs/promises"
import * as tls from "node:tls"
import { parentPort, workerData } from "node:worker_threads"
import * as RelaySocket from "./RelaySocket.ts"
import type { RelayAnswer, RelayAsk, RelayStart } from "./RelayThread.ts"

const { authorities, owner, ...options } = workerData as RelayStart
const secureContext = options.address.secure ? tls.createSecureContext({ ca: [...authorities] }) : undefined
const relays = new Map<string, RelaySocket.RelaySocket>()

const open = async ({ count, socketPath }: RelayAsk): Promise<void> => {
  const relay = RelaySocket.make({ ...options, count, secureContext })
  await relay.listen(socketPath)
  relays.set(socketPath, relay)
  await fs.chmod(socketPath, 0o600)
  if (process.getuid?.() === 0) await fs.chown(socketPath, owner.userId, owner.groupId)
}

const close = async (socketPath: string): Promise<void> => {
  const relay = relays.get(socketPath)
  relays.delete(socketPath)
  await relay?.close()
}

const answerTo = async (ask: RelayAsk): Promise<RelayAnswer> => {
  const { name, number, socketPath } = ask
  try {
    if (name === "open") await open(ask)
    const relay = relays.get(socketPath)
    const counts = { accepted: relay?.accepted() ?? 0, lastFailure: relay?.lastFailure() }
    if (name === "close") await close(socketPath)
    return { number, ...counts }
  } catch (thrown) {
    return { number, accepted: 0, problem: String((thrown as NodeJS.ErrnoException).code ?? thrown) }
  }
}

parentPort?.on("message", async (ask: RelayAsk) => parentPort?.postMessage(await answerTo(ask), []))
