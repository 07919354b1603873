/**
 * What goes wrong below a tool, in the words of a tool.
 *
 * What the caller asked for wrongly is `validation`; a limit is `execution`; a sandbox that is no more, or whose engine
 * is not there, is `unavailable`. Only the first two are told in full: the rest may speak of the host, whose business
 * it is, and goes to the log.
 */
import type { LimitReason, Reason, SandboxError } from "@cogni/sandbox-core/SandboxError"
import { type ToolErrorCode, ToolFailed } from "../Tool.ts"
import { Effect, Schema } from "effect"
import type { ToolPath } from "./ToolPath.ts"

/** Limits of a sandbox. Of a command that runs, one that is broken is a part of its result. */
export const LimitCode = Schema.Literals(["OomKilled", "PidsExhausted", "OutputLimitExceeded", "DiskFull"])

type Limit = Extract<LimitReason, { readonly _tag: typeof LimitCode.Type }>

const isLimitCode = Schema.is(LimitCode)

const isLimit = (reason: Reason): reason is Limit => isLimitCode(reason._tag)

/** The limit that a command broke, where it broke one. */
export const limitOf = (reason: Reason) =>
  isLimit(reason) ? { code: reason._tag, message: explain(reason) } : undefined

/** `path` is what the caller named, where it named one. */
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

/** Lets what fails below a tool fail as the tool does. */
export const told = (path?: ToolPath) => Effect.catch((error: SandboxError) => failed(error, path))

/** Fails a tool with a code and what to do. */
export const refuse = (code: ToolErrorCode, detail: string): Effect.Effect<never, ToolFailed> =>
  Effect.fail(new ToolFailed({ code, detail }))

const unavailable = (error: SandboxError) =>
  Effect.andThen(
    Effect.logWarning(`a tool has no sandbox to act in: ${error.message}`),
    Effect.fail(
      new ToolFailed({
        code: "unavailable",
        detail: `there is no sandbox to act in (${error.reason._tag}). Whoever runs this session can see why: tell them, instead of trying again`,
        cause: error
      })
    )
  )

/** For the model, which can do with less, and not for whoever may give it more. */
const explain = (limit: Limit): string => {
  switch (limit._tag) {
    case "OomKilled":
      return `the kernel killed a process of it at the sandbox's memory limit of ${limit.memoryBytesMax} bytes. Use less: smaller batches, fewer workers; files in /tmp count as memory`
    case "PidsExhausted":
      return `the sandbox was refused more than its ${limit.processesMax} processes. Start fewer at one time`
    case "OutputLimitExceeded":
      return `it wrote more than ${limit.outputBytesMax} bytes and was ended. Send its output to a file and read parts of it`
    case "DiskFull":
      return `the workspace grew by more than the ${limit.workspaceBytesMax} bytes it may, and the sandbox was ended. Write less`
  }
}
