/** Thread of the `Inspector`: receives a body, returns an inspection. Or rewrites metadata of a package. */
import { setPriority } from "node:os"
import { parentPort } from "node:worker_threads"
import type { MetadataRequest } from "../packages/Metadata.ts"
import * as MetadataRewrite from "../packages/MetadataRewrite.ts"
import * as RequestInspection from "../policy/RequestInspection.ts"
import type { Ask, loaded, Told } from "./Inspector.ts"
import { threadMillis } from "./ProcessorMeter.ts"

/** Lowers this thread's priority, so that other threads come first. Elsewhere it would be the whole process's. */
if (process.platform === "linux") setPriority(0, 10)

parentPort?.postMessage("loaded" satisfies typeof loaded, [])

parentPort?.on("message", ({ id, work }: Ask) => {
  const beganMillis = threadMillis()
  const [result, body] = work._tag === "Inspect" ? inspected(work.request) : rewritten(work.request)
  const processorMillis = threadMillis() - beganMillis
  parentPort?.postMessage(
    { id, result, processorMillis } satisfies Told,
    body === undefined ? [] : [body.buffer as ArrayBuffer]
  )
})

/** Returns the result, and the bytes in it that are transferred without a copy. */
const inspected = (request: RequestInspection.InspectionRequest) => {
  const inspection = RequestInspection.inspect(request)
  const { outcome } = inspection
  return [inspection, outcome._tag === "Sent" ? outcome.sent.body : undefined] as const
}

const rewritten = (request: MetadataRequest) => {
  const outcome = MetadataRewrite.rewrite(request)
  return [outcome, outcome._tag === "Rewritten" ? outcome.body : undefined] as const
}
