/**
 * Uses a credential for one call of a tool. The call ends when the lease does. The message for the
 * caller reveals nothing about the host, because the caller may be an agent in a sandbox.
 */
import { Effect } from "effect"
import type { ConnectionBroker, Lease } from "./ConnectionBroker.ts"
import type { ConnectionError } from "./ConnectionError.ts"

/** Why a call failed, in words for its caller. */
export interface ToolProblem {
  readonly code: "execution" | "policy_denied" | "unavailable"
  readonly detail: string
}

/** A use of a tool. */
export interface ToolRequest {
  readonly toolId: string
  readonly purpose: "tool_read" | "tool_write"
  readonly connection?: string
  readonly repository?: string
}

/** Runs a call with a lease, which ends with the call. */
export const call = <A>(
  broker: ConnectionBroker["Service"],
  request: ToolRequest,
  use: (lease: Lease) => Effect.Effect<A, ToolProblem>
): Effect.Effect<A, ToolProblem> =>
  Effect.gen(function* () {
    const refused = problemOf(request.toolId)
    const lease = yield* broker.lease(request).pipe(Effect.catch(refused))
    return yield* Effect.raceFirst(use(lease), lease.ended.pipe(Effect.catch(refused)))
  }).pipe(Effect.scoped)

const problemOf =
  (toolId: string) =>
  ({ detail, message, reason }: ConnectionError): Effect.Effect<never, ToolProblem> => {
    if (reason._tag === "ConnectionDenied") return Effect.fail({ code: "policy_denied", detail })
    const unavailable = Effect.fail<ToolProblem>({
      code: "unavailable",
      detail: "there is no credential for this call now. Continue without it, or try again later"
    })
    return Effect.andThen(
      Effect.logWarning(`a call of the tool ${toolId} has no credential: ${message}`),
      reason._tag === "LeaseEnded" && reason.why === "revoked"
        ? Effect.fail<ToolProblem>({
            code: "policy_denied",
            detail: "the access was revoked during the call, which may have had its effect"
          })
        : unavailable
    )
  }
