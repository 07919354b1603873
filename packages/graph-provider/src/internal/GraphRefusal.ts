/** Reasons why a run may not start, as errors for its caller. */
import type { LlmProxyError } from "@cogni/sandbox-core/LlmProxy"
import type { AccountBusy, InsufficientCredits, InvalidSpec } from "@cogni/sandbox-core/SandboxReason"
import * as SchemaIssues from "@cogni/sandbox-core/SchemaIssues"
import type { Schema } from "effect"
import type { AiErrorCode } from "../events/AiEvent.ts"
import { GraphRefused } from "../graphs/GraphRun.ts"
import { type GrantRunsExhausted, retrySeconds } from "../grants/GrantRuns.ts"
import type { RepositoryUnavailable } from "../RepositoryUse.ts"

/** Gives an error a coarse code. */
export const as =
  (error: AiErrorCode) =>
  ({ _tag: reason, message: detail }: { readonly _tag: string; readonly message: string }) =>
    new GraphRefused({ error, reason, detail })

/** Applies to all callers: this host runs no sandboxes. */
export const disabled = new GraphRefused({
  error: "policy_denied",
  reason: "SandboxDisabled",
  detail: "sandboxes are disabled on this host. Its operator can enable them with SANDBOX_ENABLED=true"
})

export const ofRuns = ({ _tag: reason, message: detail }: GrantRunsExhausted): GraphRefused =>
  new GraphRefused({ error: "rate_limit", reason, detail, retrySeconds })

export const ofRepository = ({ message, reason }: RepositoryUnavailable): GraphRefused =>
  new GraphRefused({ error: "invalid_request", reason, detail: message })

const invalid = (reason: string, problems: ReadonlyArray<string>): GraphRefused =>
  new GraphRefused({ error: "invalid_request", reason, detail: problems.join("; ") })

export const ofRequest = (error: Schema.SchemaError): GraphRefused =>
  invalid("InvalidRequest", SchemaIssues.problemsOf(error))

/** Reasons for which a spec may not start now. */
export const ofSpec = (reason: InvalidSpec | LlmProxyError): GraphRefused => {
  switch (reason._tag) {
    case "InvalidSpec":
      return invalid(reason._tag, reason.problems)
    case "InsufficientCredits":
    case "AccountBusy":
      return ofAccount(reason)
    default:
      return as("internal")(reason)
  }
}

const ofAccount = (reason: AccountBusy | InsufficientCredits): GraphRefused => {
  const { _tag, message, retrySeconds: seconds } = reason
  return new GraphRefused({
    error: _tag === "AccountBusy" ? "rate_limit" : "insufficient_credits",
    reason: _tag,
    detail: message,
    ...(seconds === undefined ? {} : { retrySeconds: seconds })
  })
}
