/** Wraps the files of a workspace in Promises. A path that does not exist is an answer of `stat` and `remove`. */
import type * as Executor from "@cogni/sandbox-core/Executor"
import type { SandboxError } from "@cogni/sandbox-core/SandboxError"
import type { FileRefused } from "@cogni/sandbox-core/SandboxReason"
import { Effect } from "effect"
import type { Files } from "../Sandbox.ts"

/** Runs an effect to its end, unless the signal aborts. */
type Settle = <A, E>(effect: Effect.Effect<A, E>, signal?: AbortSignal) => Promise<A>

export const make = <E extends FileRefused | SandboxError>(
  files: Executor.Files<E>,
  settle: Settle
): Files => ({
  read: (path, { signal } = {}) => settle(files.read(path), signal),
  readText: async (path, { signal } = {}) => new TextDecoder().decode(await settle(files.read(path), signal)),
  write: (path, content, { signal } = {}) => settle(files.write(path, content), signal),
  list: (path, { signal } = {}) => settle(files.list(path), signal),
  stat: (path, { signal } = {}) => settle(orMissing(files.stat(path), undefined), signal),
  remove: (path, { signal, ...options } = {}) =>
    settle(orMissing(Effect.as(files.remove(path, options), true), false), signal)
})

const orMissing = <A, B, E extends FileRefused | SandboxError>(
  asked: Effect.Effect<A, E>,
  missing: B
): Effect.Effect<A | B, E> => Effect.catchIf(asked, isMissing, () => Effect.succeed(missing))

const isMissing = (error: FileRefused | SandboxError): boolean => {
  const reason = error._tag === "SandboxError" ? error.reason : error
  return reason._tag === "FileRefused" && reason.problem === "not_found"
}
