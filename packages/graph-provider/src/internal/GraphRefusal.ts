/** Every reason why a run may not start, as what its caller is told. */
import * as SandboxSpec from "@cogni/sandbox-core/SandboxSpec"
import type { Schema } from "effect"
import type { AiErrorCode } from "../events/AiEvent.ts"
import { GraphRefused } from "../graphs/GraphProvider.ts"
import { type GrantRunsExhausted, retrySeconds } from "../grants/GrantRuns.ts"
import type { RepositoryUnavailable } from "../Repositories.ts"

/** The same error, under a coarse code. */
export const as =
  (error: AiErrorCode) =>
  ({ _tag: reason, message: detail }: { readonly _tag: string; readonly message: string }) =>
    new GraphRefused({ error, reason, detail })

/** Not a matter of who asks: nobody's runs start here. */
export const disabled = new GraphRefused({
  error: "policy_denied",
  reason: "SandboxDisabled",
  detail: "sandboxes are switched off here. Whoever runs this host can switch them on: SANDBOX_ENABLED=true"
})

export const ofRuns = ({ _tag: reason, message: detail }: GrantRunsExhausted): GraphRefused =>
  new GraphRefused({ error: "rate_limit", reason, detail, retrySeconds })

export const ofRepository = ({ message, reason }: RepositoryUnavailable): GraphRefused =>
  new GraphRefused({ error: "invalid_request", reason, detail: message })

const ofSchema =
  (reason: string) =>
  (error: Schema.SchemaError): GraphRefused =>
    new GraphRefused({ error: "invalid_request", reason, detail: SandboxSpec.problemsOf(error).join("; ") })

export const ofRequest: (error: Schema.SchemaError) => GraphRefused = ofSchema("InvalidRequest")

export const ofSpec: (error: Schema.SchemaError) => GraphRefused = ofSchema("InvalidSpec")
