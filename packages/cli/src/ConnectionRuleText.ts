/** Rules of a grant about connections as text: `github`, or `github=fetch,push`. Pure. */
import type { ConnectionRule } from "@cogni/sandbox-connections/ConnectionDecision"
import { type Purpose, purposes } from "@cogni/sandbox-connections/ConnectionFields"
import { Result } from "effect"

/** Uses of a connection unless others are named: those of the git relay. */
const ofGit: ReadonlyArray<Purpose> = ["fetch", "push", "pull_request"]

const isPurpose = (text: string): text is Purpose => purposes.some((purpose) => purpose === text)

/** Parses a rule. The grant checks the pattern of the name. */
export const parse = (text: string): Result.Result<ConnectionRule, string> => {
  const [, connection = "", listed] = /^([^=]+)(?:=(.*))?$/u.exec(text) ?? []
  const uses = listed?.split(",") ?? ofGit
  return connection !== "" && uses.every(isPurpose)
    ? Result.succeed({ connection, purposes: uses })
    : Result.fail(`NAME or NAME=USE,..., with the uses ${purposes.join(", ")}`)
}

/** Formats a rule as it is parsed. */
export const format = ({ connection, purposes: uses }: ConnectionRule): string =>
  `${connection}=${uses.join(",")}`
