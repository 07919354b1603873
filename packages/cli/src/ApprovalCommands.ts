/** Defines the commands of `approvals`. Only parses. */
import { Effect } from "effect"
import { Argument, Command } from "effect/cli"
import * as ApprovalFlags from "./ApprovalFlags.ts"

const approvalArgument = Argument.String("approval").pipe(
  Argument.withDescription("Approval ID, or at least its first 12 digits")
)

const approvalsListCommand = Command.make("list", ApprovalFlags.list, (flags) =>
  Effect.promise(() => import("./ApprovalsCommand.ts")).pipe(Effect.flatMap(({ list }) => list(flags)))
).pipe(Command.withDescription("List tool calls that wait for an approval, with their arguments"))

const approvalsDecideCommand = (decision: "approve" | "deny") =>
  Command.make(decision, { approval: approvalArgument, ...ApprovalFlags.decision }, (flags) =>
    Effect.promise(() => import("./ApprovalsCommand.ts")).pipe(
      Effect.flatMap(({ decide }) => decide({ ...flags, decision }))
    )
  )

const approvalsApproveCommand = approvalsDecideCommand("approve").pipe(
  Command.withDescription("Approve a tool call: it runs once, with exactly the listed arguments")
)

const approvalsDenyCommand = approvalsDecideCommand("deny").pipe(
  Command.withDescription("Deny a tool call: the agent gets an error, and continues")
)

export const approvalsCommand = Command.make("approvals").pipe(
  Command.withDescription("Approve or deny tool calls of runs in this database"),
  Command.withSubcommands([approvalsListCommand, approvalsApproveCommand, approvalsDenyCommand])
)
