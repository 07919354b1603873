/** Converts the refusals of threads to those of commands. Pure. */
import type {
  ThreadLost,
  ThreadNotFound,
  ThreadRefusal
} from "@cogni/sandbox-graph-provider/threads/ThreadError"
import type { ExitName } from "./ExitCode.ts"
import { type Refusal, refusal } from "./Failure.ts"
import { oneLine } from "./TerminalText.ts"

const exits: Record<(ThreadLost | ThreadNotFound | ThreadRefusal)["_tag"], ExitName> = {
  ThreadBusy: "unavailable",
  ThreadFilesFailed: "unavailable",
  ThreadFilesLost: "notFound",
  ThreadHostFull: "unavailable",
  ThreadLimitReached: "input",
  ThreadLost: "unavailable",
  ThreadNotFound: "notFound",
  ThreadUnsupported: "usage",
  ThreadsUnavailable: "unavailable"
}

export const refusalOf = (error: ThreadLost | ThreadNotFound | ThreadRefusal): Refusal => {
  const { _tag: reason } = error
  const [problem, remedy] = partsOf(error)
  return refusal(exits[reason], oneLine(problem), oneLine(remedy), { reason })
}

/** The problem, and what to do about it: the last sentence of a message. A path in it may contain a period. */
const partsOf = (error: ThreadLost | ThreadNotFound | ThreadRefusal): readonly [string, string] => {
  if (error._tag === "ThreadNotFound")
    return ["there is no such thread", "List them with: cogni-sandbox threads list"]
  const { message } = error
  const end =
    error._tag === "ThreadsUnavailable" ? message.length - error.remedy.length - 2 : message.lastIndexOf(". ")
  return [message.slice(0, end), message.slice(end + 2)]
}

export const notAKey = (typed: string): Refusal =>
  refusal("usage", `${oneLine(typed)} is not a key of a thread`, "List them with: cogni-sandbox threads list")
