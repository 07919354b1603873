/** Collects the garbage of a thread that has loaded its modules, so that its run need not do it. */
import { Session } from "node:inspector"
import { setFlagsFromString } from "node:v8"

const collected = async () => {
  const session = new Session()
  session.connect()
  await new Promise((resolve, reject) => {
    session.post("HeapProfiler.collectGarbage", (error) => (error ? reject(error) : resolve()))
  })
  session.disconnect()
}

/**
 * Collects garbage after `before`, which may have asked for a collection too. V8 would also drop functions that were
 * not called for a while, and here none was.
 */
export const collectGarbage = async (before = () => {}) => {
  setFlagsFromString("--no-flush-bytecode")
  await before()
  await collected()
  setFlagsFromString("--flush-bytecode")
}
