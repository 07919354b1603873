/** The other thread of `Inspector`: takes a body, gives an inspection. */
import { setPriority } from "node:os"
import { parentPort } from "node:worker_threads"
import * as RequestInspection from "../policy/RequestInspection.ts"
import type { Ask, Told } from "./Inspector.ts"
import { threadMillis } from "./ProcessorMeter.ts"

/** Of this thread, so that other runs and the main thread come first. Elsewhere it would be the whole process's. */
if (process.platform === "linux") setPriority(0, 10)

parentPort?.on("message", ({ id, request }: Ask) => {
  const beganMillis = threadMillis()
  const inspection = RequestInspection.inspect(request)
  const { outcome } = inspection
  const processorMillis = threadMillis() - beganMillis
  parentPort?.postMessage(
    { id, inspection, processorMillis } satisfies Told,
    outcome._tag === "Sent" ? [outcome.sent.body.buffer as ArrayBuffer] : []
  )
})
