/**
 * A tool whose calls wait for an approval.
 *
 * The approval is for the text of the arguments. The tool gets what this text parses to, so the arguments cannot change
 * after they were shown. Arguments that cannot be shown whole, or that contain a canary, are refused.
 *
 * A client that gives up and repeats its call must not have it run twice: the first call ends with its exchange, and a
 * call is refused while the same one waits or runs.
 */
import * as Approval from "@cogni/sandbox-core/Approval"
import type { ApprovalsShape } from "@cogni/sandbox-core/Approvals"
import * as ApprovalWitness from "@cogni/sandbox-core/ApprovalWitness"
import type { RunId } from "@cogni/sandbox-core/RunId"
import type { LlmIdentity } from "@cogni/sandbox-core/SpecFields"
import * as Telemetry from "@cogni/sandbox-core/Telemetry"
import * as ToolAccess from "@cogni/sandbox-core/ToolAccess"
import * as Tool from "@cogni/sandbox-loop/Tool"
import { Effect } from "effect"
import * as GrantStanding from "./GrantStanding.ts"
import { sha256 } from "./audit/AuditChain.ts"

export interface ApprovedToolOptions {
  readonly runId: RunId
  readonly identity: LlmIdentity
  readonly approvals: ApprovalsShape
  readonly waitSecondsMax: number
  /** Hears of each approval, for the audit and the events of the run. */
  readonly witness: ApprovalWitness.ApprovalWitness
  /** Returns whether a text contains a canary. */
  readonly hasSecret: (text: string) => boolean
  /** Returns an effect that succeeds when the client of a request no longer waits for its answer. */
  readonly goneOf: (requestId: string) => Effect.Effect<void>
}

/** Returns a function that makes the calls of a tool wait. All tools of a run share its limits. */
export const make = (options: ApprovedToolOptions): ((tool: Tool.Tool) => Tool.Tool) => {
  const { hasSecret, runId } = options
  const { argumentsBytesMax, requestsPerRunMax } = Approval.limits
  let requests = 0
  /** Tools and arguments of the calls that wait or run. */
  const open = new Set<string>()

  /** Returns why a call may not ask, if it may not. */
  const problemOf = (tool: Tool.Tool, input: unknown, text: string): Tool.ToolFailed | undefined => {
    const invalid = tool.check(input)
    if (invalid !== undefined) return failed("validation", invalid)
    if (Buffer.byteLength(text) > argumentsBytesMax)
      return failed(
        "validation",
        `the arguments of a call that needs an approval may have at most ${argumentsBytesMax} bytes. Shorten them`
      )
    if (hasSecret(text))
      return failed(
        "policy_denied",
        "the arguments contain a secret, and a call with one is not shown for approval"
      )
    return requests >= requestsPerRunMax
      ? failed("policy_denied", `this run has asked for ${requestsPerRunMax} approvals, its maximum`)
      : undefined
  }

  const call = Effect.fnUntraced(function* (tool: Tool.Tool, text: string, context: Tool.ToolContext) {
    const { requestId } = context
    const approval = yield* ask(options, tool, requestId, text)
    yield* Effect.annotateCurrentSpan(Telemetry.attribute.toolApproval, approval.status)
    const given: unknown = JSON.parse(text)
    const call = { runId, requestId, tool: tool.name, argumentsDigest: sha256(JSON.stringify(given)) }
    if (!ToolAccess.mayRun("ask", call, approval))
      return yield* failed("policy_denied", Approval.refusalOf(approval))
    yield* GrantStanding.check
    return yield* tool.call(given, context)
  })

  return (tool) => ({
    ...tool,
    call: (input, context) =>
      Effect.suspend(() => {
        const text = JSON.stringify(input) ?? "null"
        const problem = problemOf(tool, input, text)
        if (problem !== undefined) return Effect.fail(problem)
        const same = `${tool.name} ${text}`
        if (open.has(same)) return Effect.fail(repeated)
        requests += 1
        open.add(same)
        return Effect.ensuring(
          call(tool, text, context),
          Effect.sync(() => open.delete(same))
        )
      })
  })
}

/** Asks, until there is an answer, the client has gone, or the grant does not stand. */
const ask = (options: ApprovedToolOptions, tool: Tool.Tool, requestId: string, text: string) =>
  Effect.raceFirst(
    Effect.raceFirst(Effect.andThen(options.goneOf(requestId), Effect.fail(callerGone)), GrantStanding.lost),
    ApprovalWitness.ask(options.approvals, requestOf(options, tool, requestId, text), options.witness).pipe(
      Effect.mapError((error) =>
        failed(
          error._tag === "ApprovalRefused" && error.reason === "no_approver"
            ? "policy_denied"
            : "unavailable",
          error.message
        )
      )
    )
  ).pipe(Effect.tapError(() => Effect.annotateCurrentSpan(Telemetry.attribute.toolApproval, "refused")))

const failed = (code: Tool.ToolErrorCode, detail: string) => new Tool.ToolFailed({ code, detail })

const callerGone = failed("unavailable", "the client has gone, so its call no longer waits for an approval")
const repeated = failed(
  "unavailable",
  "the same call with the same arguments waits for an approval, or runs, already. Wait for its answer"
)

const requestOf = (
  { identity, runId, waitSecondsMax }: ApprovedToolOptions,
  tool: Tool.Tool,
  requestId: string,
  text: string
): Approval.ApprovalRequest => ({
  runId,
  billingAccountId: identity.billingAccountId,
  requestId,
  tool: tool.name,
  effect: ToolAccess.effectOf(tool),
  arguments: text,
  argumentsDigest: sha256(text),
  askedBy: {
    ...(identity.graphId === undefined ? {} : { graphId: identity.graphId }),
    ...(identity.agentId === undefined ? {} : { agentId: identity.agentId }),
    ...(identity.userId === undefined ? {} : { userId: identity.userId }),
    ...(identity.sessionId === undefined ? {} : { sessionId: identity.sessionId })
  },
  waitSecondsMax
})
