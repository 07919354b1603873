/** Adds a command's output to its error. Only the collector of the output knows it, not the code that failed. */
import { Schema } from "effect"
import type { Output } from "../RunResult.ts"
import { Reason, SandboxError } from "../SandboxError.ts"

const toPlain = Schema.encodeSync(Reason)
const toReason = Schema.decodeUnknownSync(Reason)

/** Returns the error unchanged if its reason has no output. */
export const withOutput = (error: SandboxError, output: Output): SandboxError => {
  const { llm, partial, reason, runId } = error
  if (partial === undefined) return error
  return new SandboxError({
    ...(runId === undefined ? {} : { runId }),
    ...(llm === undefined ? {} : { llm }),
    reason: toReason({ ...toPlain(reason), partial: { ...partial, output } })
  })
}
