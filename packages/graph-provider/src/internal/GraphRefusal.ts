/** Reasons why a run may not start, as errors for its caller. */
import type { InvalidSpec } from "@cogni/sandbox-core/SandboxError"
import * as SandboxSpec from "@cogni/sandbox-core/SandboxSpec"
import type { Schema } from "effect"
import type { AiErrorCode } from "../events/AiEvent.ts"
import { GraphRefused } from "../graphs/GraphProvider.ts"
import { type GrantRunsExhausted, retrySeconds } from "../grants/GrantRuns.ts"
import type { RepositoryUnavailable } from "../Repositories.ts"

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
  invalid("InvalidRequest", SandboxSpec.problemsOf(error))

export const ofSpec = ({ _tag, problems }: InvalidSpec): GraphRefused => invalid(_tag, problems)
