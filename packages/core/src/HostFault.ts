/** Tells faults of this host apart by the code of the error that a file operation threw. Pure. */
import * as Schema from "effect/Schema"

/** Why a directory of the host cannot be used. */
export const HostProblem = Schema.Literals(["no_space", "permission_denied", "too_slow", "unusable"])

export type HostProblem = typeof HostProblem.Type

/** Returns the problem that the code of a thrown error names, at any depth of its causes. */
export const problemOf = (thrown: unknown): HostProblem => {
  if (typeof thrown !== "object" || thrown === null) return "unusable"
  const { cause, code } = thrown as { readonly cause?: unknown; readonly code?: unknown }
  if (typeof code === "string" && Object.hasOwn(hostProblems, code)) return hostProblems[code]!
  return cause === undefined || cause === thrown ? "unusable" : problemOf(cause)
}

const hostProblems: Readonly<Record<string, HostProblem>> = {
  ENOSPC: "no_space",
  EDQUOT: "no_space",
  EACCES: "permission_denied",
  EPERM: "permission_denied",
  EROFS: "permission_denied"
}
