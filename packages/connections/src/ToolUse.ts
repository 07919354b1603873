/**
 * Uses a credential for one call of a tool. The call ends when the lease does. The message for the
 * caller reveals nothing about the host, because the caller may be an agent in a sandbox.
 */
import { Effect } from "effect"
import type { ConnectionBroker, Lease } from "./ConnectionBroker.ts"
import type { ConnectionError } from "./ConnectionError.ts"

/** Why a call failed, in words for its caller. */
export interface ToolProblem {
  readonly code: "execution" | "policy_denied" | "redaction_failed" | "unavailable"
  readonly detail: string
}

/** A use of a tool. */
export interface ToolRequest {
  readonly toolId: string
  readonly purpose: "tool_read" | "tool_write"
  readonly connection?: string
  readonly repository?: string
  /** The only server that may get the credential. */
  readonly server?: string
  /** Description of the use for the audit. */
  readonly target?: string
}

/** Runs a call with a lease, which ends with the call. */
export const call = <A>(
  broker: ConnectionBroker["Service"],
  request: ToolRequest,
  use: (lease: Lease) => Effect.Effect<A, ToolProblem>
): Effect.Effect<A, ToolProblem> =>
  Effect.gen(function* () {
    const refused = problemOf(request)
    const lease = yield* broker.lease(request).pipe(Effect.catch(refused))
    return yield* Effect.raceFirst(use(lease), lease.ended.pipe(Effect.catch(refused)))
  }).pipe(Effect.scoped)

/** The same problem for a request that changes something: an agent would repeat one that was only `unavailable`. */
export const afterSending = (problem: ToolProblem): ToolProblem =>
  problem.code === "unavailable"
    ? {
        code: "execution",
        detail: `${problem.detail}. It may have had its effect: check before you repeat it`
      }
    : problem

const problemOf =
  ({ purpose, toolId }: ToolRequest) =>
  ({ detail, message, reason }: ConnectionError): Effect.Effect<never, ToolProblem> => {
    if (reason._tag === "ConnectionDenied") return Effect.fail({ code: "policy_denied", detail })
    if (reason._tag === "TooManyUses") return Effect.fail({ code: "unavailable", detail: message })
    const unavailable = Effect.fail<ToolProblem>({
      code: "unavailable",
      detail: "there is no credential for this call now. Continue without it, or try again later"
    })
    const ended: ToolProblem = {
      code: "unavailable",
      detail: "the credential of this call became invalid before the call was over"
    }
    const told =
      reason._tag !== "LeaseEnded"
        ? unavailable
        : reason.why === "revoked"
          ? Effect.fail<ToolProblem>({
              code: "policy_denied",
              detail: "the access was revoked during the call, which may have had its effect"
            })
          : Effect.fail(purpose === "tool_write" ? afterSending(ended) : ended)
    return Effect.andThen(
      Effect.logWarning(`a call of the tool ${toolId} has no credential: ${message}`),
      told
    )
  }
