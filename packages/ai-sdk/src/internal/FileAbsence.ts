/** Answers for file operations that the sandbox refuses, because nothing has the path. */
import { SandboxError } from "@cogni/sandbox-promise"

/** For `Promise.catch`: replaces one of these problems with a value. Any other error is thrown again. */
export const orAbsent =
  <A>(problems: ReadonlySet<string>, value: A) =>
  (thrown: unknown): A => {
    if (
      thrown instanceof SandboxError &&
      thrown.reason._tag === "FileRefused" &&
      problems.has(thrown.reason.problem)
    ) {
      return value
    }
    throw thrown
  }
