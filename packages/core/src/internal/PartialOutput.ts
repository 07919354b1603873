/** An error of a command, with what the command had written: known to whoever collected it, not to whoever failed. */
import { Schema } from "effect"
import type { Output } from "../RunResult.ts"
import { Reason, SandboxError } from "../SandboxError.ts"

const toPlain = Schema.encodeSync(Reason)
const toReason = Schema.decodeUnknownSync(Reason)

/** Of a reason that keeps no output, the error as it is. */
export const withOutput = (error: SandboxError, output: Output): SandboxError => {
  const { llm, partial, reason, runId } = error
  if (partial === undefined) return error
  return new SandboxError({
    ...(runId === undefined ? {} : { runId }),
    ...(llm === undefined ? {} : { llm }),
    reason: toReason({ ...toPlain(reason), partial: { ...partial, output } })
  })
}
