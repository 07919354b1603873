/** `approvals list`, `approve` and `deny`: decide about tool calls of servers that use this database. */
import {
  type Approval,
  type ApprovalDecision,
  type ApprovalFilter,
  ApprovalId,
  limits
} from "@cogni/sandbox-core/Approval"
import { Approvals } from "@cogni/sandbox-core/Approvals"
import { type ApprovalOver } from "@cogni/sandbox-core/ApprovalError"
import { Effect, Layer, Schema } from "effect"
import { refusal } from "./Failure.ts"
import type * as ApprovalFlags from "./ApprovalFlags.ts"
import type * as Flags from "./Flags.ts"
import * as Output from "./Output.ts"
import * as ApprovalText from "./ApprovalText.ts"
import * as ServeComposition from "./ServeComposition.ts"
import { Settings } from "./Settings.ts"
import { oneLine } from "./TerminalText.ts"

const approvals = Layer.unwrap(Effect.map(Settings, ServeComposition.approvals))

type ListInput = Flags.Typed<typeof ApprovalFlags.list>

export const list = Effect.fnUntraced(function* (input: ListInput) {
  const { account: billingAccountId, limit, run: runId } = input
  const { found, hasMore } = yield* pagesOf(
    { billingAccountId, runId, ...(input.all ? {} : { status: "pending" as const }) },
    limit
  )
  if (hasMore)
    yield* Output.note(`only the first ${limit} calls are listed. Name --account or --run, or raise --limit`)
  if (input.output === "json") return yield* Output.json(found)
  const { columns } = yield* Output.Output
  // Also in a pipe, which a pager may show. Programs read JSON.
  if (found.length > 0) return yield* Output.lines(found.flatMap((approval) => render(approval, columns())))
  yield* Output.note(
    input.all ? "no tool call has asked for an approval" : "no tool call waits for an approval"
  )
}, Effect.provide(approvals))

type DecideInput = Flags.Typed<typeof ApprovalFlags.decision> & {
  readonly approval: string
  readonly decision: ApprovalDecision
}

export const decide = Effect.fnUntraced(function* (input: DecideInput) {
  const service = yield* Approvals
  const { by, decision, reason } = input
  const id = Schema.is(ApprovalId)(input.approval) ? input.approval : yield* pendingId(input.approval)
  const decided = yield* service.decide({ id, decision, by: { type: "operator", id: by }, reason }).pipe(
    Effect.catchTags({
      ApprovalNotFound: () => Effect.fail(unknown(input.approval)),
      ApprovalOver: (over) => Effect.fail(tooLate(over)),
      ApprovalsUnavailable: (error) => Effect.fail(doubtful(error))
    })
  )
  if (input.output === "json") return yield* Output.json(decided)
  yield* Output.note(`the call of ${decided.tool} is ${decided.status}`)
}, Effect.provide(approvals))

/** Formats an approval: lines about the call, and its whole arguments in between. */
export const render = (approval: Approval, columns: number): ReadonlyArray<string> => {
  const { billingAccountId, decidedBy, expiresAt, id, reason, runId, status } = approval
  const until = status === "pending" ? `until ${expiresAt}` : `at ${approval.decidedAt ?? expiresAt}`
  const who = decidedBy === undefined ? "" : ` by ${decidedBy.type} ${oneLine(decidedBy.id)}`
  const why = reason === undefined ? "" : `: ${oneLine(reason)}`
  return [
    `${id}  ${status} ${until}${who}${why}`,
    `  ${runId}, account ${oneLine(billingAccountId)}`,
    ...ApprovalText.block(approval, columns)
  ]
}

/** Digits of an ID that no two calls are likely to share, also not with one that comes a moment later. */
const digitsMin = 12

/** Finds the pending approval that a user means by the beginning of its ID. */
const pendingId = Effect.fnUntraced(function* (typed: string) {
  if (!/^apr-[0-9a-f-]{1,36}$/u.test(typed)) return yield* unknown(typed)
  if (typed.slice("apr-".length).replaceAll("-", "").length < digitsMin)
    return yield* refusal(
      "usage",
      `${oneLine(typed)} is too short: another call may begin with it a moment later`,
      `Write the whole ID, or at least its first ${digitsMin} digits`
    )
  const service = yield* Approvals
  const [only, another] = yield* Effect.mapError(
    service.list({ status: "pending", idPrefix: typed }),
    unanswered
  )
  if (only === undefined) return yield* unknown(typed)
  return another === undefined
    ? only.id
    : yield* refusal("usage", `several approvals begin with ${oneLine(typed)}`, "Write the whole ID")
})

/** Lists page by page, up to a limit. */
const pagesOf = Effect.fnUntraced(function* (filter: ApprovalFilter, limit: number) {
  const service = yield* Approvals
  const found: Array<Approval> = []
  while (true) {
    const page = yield* Effect.mapError(service.list({ ...filter, after: found.at(-1)?.id }), unanswered)
    found.push(...page)
    if (page.length < limits.listedMax || found.length > limit)
      return { found: found.slice(0, limit), hasMore: found.length > limit }
  }
})

const unknown = (typed: string) =>
  refusal(
    "notFound",
    `no tool call with the approval ${oneLine(typed)} waits`,
    "List them with: cogni-sandbox approvals list"
  )

const tooLate = ({ _tag: reason, message }: ApprovalOver) =>
  refusal("notFound", message, "See what was decided: cogni-sandbox approvals list --all", { reason })

const unanswered = (error: { readonly _tag: string; readonly message: string }) =>
  refusal("unavailable", error.message.replace(/\.\s*[^.]*$/u, ""), "Try again in a moment", {
    reason: error._tag
  })

/** The store did not answer a decision, which may have been taken. */
export const doubtful = (error: { readonly _tag: string; readonly message: string }) =>
  refusal(
    "unavailable",
    `${error.message.replace(/\.\s*[^.]*$/u, "")}. The call may have been decided`,
    "See what was decided: cogni-sandbox approvals list --all",
    { reason: error._tag }
  )
