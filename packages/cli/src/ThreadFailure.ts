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
  ThreadFilesFailed: "input",
  ThreadFilesLost: "notFound",
  ThreadLimitReached: "input",
  ThreadLost: "unavailable",
  ThreadNotFound: "notFound",
  ThreadUnsupported: "usage",
  ThreadsUnavailable: "unavailable"
}

/** Each message is a problem and what to do about it, as sentences. */
export const refusalOf = (error: ThreadLost | ThreadNotFound | ThreadRefusal): Refusal => {
  const [problem = "", ...remedy] = error.message.split(". ")
  const { _tag: reason } = error
  return refusal(exits[reason], oneLine(problem), oneLine(remedy.join(". ")), { reason })
}

export const notAKey = (typed: string): Refusal =>
  refusal("usage", `${oneLine(typed)} is not a key of a thread`, "List them with: cogni-sandbox threads list")
