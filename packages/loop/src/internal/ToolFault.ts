/**
 * Converts failures below a tool to tool errors.
 *
 * An invalid request becomes `validation`, a full disk or an unreadable file `execution`, a time limit `timeout`, and
 * any other failure, such as an ended sandbox or an absent engine, `unavailable`. The message of the last kind may
 * contain details of the host, so it goes to the log and not to the model.
 */
import type { Reason, SandboxError } from "@cogni/sandbox-core/SandboxError"
import type { LimitReason } from "@cogni/sandbox-core/SandboxReason"
import { type ToolErrorCode, ToolFailed } from "../Tool.ts"
import { Effect, Schema } from "effect"
import type { ToolPath } from "./ToolPath.ts"

/** Sandbox limits that are part of a command's result when a running command breaks them. */
export const LimitCode = Schema.Literals(["OomKilled", "PidsExhausted", "OutputLimitExceeded", "DiskFull"])

type Limit = Extract<LimitReason, { readonly _tag: typeof LimitCode.Type }>

const isLimitCode = Schema.is(LimitCode)

const isLimit = (reason: Reason): reason is Limit => isLimitCode(reason._tag)

/** Returns the limit that a command broke, if it broke one. */
export const limitOf = (reason: Reason) =>
  isLimit(reason) ? { code: reason._tag, message: explain(reason) } : undefined

/** `path` is the path that the caller gave, if it gave one. */
export const failed = (error: SandboxError, path?: ToolPath): Effect.Effect<never, ToolFailed> => {
  const { reason } = error
  const say = path?.show ?? ((text: string) => text)
  switch (reason._tag) {
    case "InvalidSpec":
      return refuse("validation", say(reason.problems.join("; ")))
    case "CommandRefused":
      return refuse("validation", say(`${reason.detail}. ${reason.remedy}`))
    case "FileRefused":
      return refuse(
        reason.problem === "no_space" || reason.problem === "unreadable" ? "execution" : "validation",
        `${JSON.stringify((path?.shown ?? reason.path).slice(0, 200))} ${say(`${reason.detail}. ${reason.remedy}`)}`
      )
    case "CommandTimedOut":
      return refuse("timeout", reason.message)
    default:
      return unavailable(error)
  }
}

/** Converts the failures of an effect with {@link failed}. */
export const told = (path?: ToolPath) => Effect.catch((error: SandboxError) => failed(error, path))

/** Fails a tool with a code and what to do. */
export const refuse = (code: ToolErrorCode, detail: string): Effect.Effect<never, ToolFailed> =>
  Effect.fail(new ToolFailed({ code, detail }))

const unavailable = (error: SandboxError) =>
  Effect.andThen(
    Effect.logWarning(`the sandbox of a tool is unavailable: ${error.message}`),
    Effect.fail(
      new ToolFailed({
        code: "unavailable",
        detail: `the sandbox is unavailable (${error.reason._tag}). Report this to the operator of this session instead of trying again`,
        cause: error
      })
    )
  )

/** For the model, which can use less. The operator, who can raise the limit, gets another message. */
const explain = (limit: Limit): string => {
  switch (limit._tag) {
    case "OomKilled":
      return `the kernel killed one of its processes at the sandbox's memory limit of ${limit.memoryBytesMax} bytes. Use less: smaller batches, fewer workers; files in /tmp count as memory`
    case "PidsExhausted":
      return `the sandbox reached its limit of ${limit.processesMax} processes. Start fewer at once`
    case "OutputLimitExceeded":
      return `it wrote more than ${limit.outputBytesMax} bytes and was ended. Send its output to a file and read parts of it`
    case "DiskFull":
      return `the workspace grew by more than its limit of ${limit.workspaceBytesMax} bytes, and the sandbox was ended. Write less`
  }
}
