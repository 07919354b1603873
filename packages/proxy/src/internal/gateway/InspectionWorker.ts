/** Thread of the `Inspector`: receives a body, returns an inspection. */
import { setPriority } from "node:os"
import { parentPort } from "node:worker_threads"
import * as RequestInspection from "../policy/RequestInspection.ts"
import type { Ask, loaded, Told } from "./Inspector.ts"
import { threadMillis } from "./ProcessorMeter.ts"

/** Lowers this thread's priority, so that other threads come first. Elsewhere it would be the whole process's. */
if (process.platform === "linux") setPriority(0, 10)

parentPort?.postMessage("loaded" satisfies typeof loaded, [])

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
