/**
 * The other thread of `Inspector`: takes a body, gives an inspection.
 */
import { parentPort } from "node:worker_threads"
import * as RequestInspection from "../RequestInspection.ts"
import type { Ask, Told } from "./Inspector.ts"

parentPort?.on("message", ({ id, request }: Ask) => {
  const inspection = RequestInspection.inspect(request)
  const { outcome } = inspection
  parentPort?.postMessage(
    { id, inspection } satisfies Told,
    outcome._tag === "Sent" ? [outcome.sent.body.buffer as ArrayBuffer] : []
  )
})
