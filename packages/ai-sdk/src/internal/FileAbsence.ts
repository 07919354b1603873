/** Answers for file operations that the sandbox refuses, because nothing has the path. */
import { type FileProblem, fileProblemOf } from "@cogni/sandbox-promise/Failure"

/** For `Promise.catch`: replaces one of these problems with a value. Any other error is thrown again. */
export const orAbsent =
  <A>(problems: ReadonlyArray<FileProblem>, value: A) =>
  (thrown: unknown): A => {
    const problem = fileProblemOf(thrown)
    if (problem !== undefined && problems.includes(problem)) return value
    throw thrown
  }
