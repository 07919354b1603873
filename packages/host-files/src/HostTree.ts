/**
 * Trees of this host that an agent could write: removed, whatever it did to keep them, or given to another user.
 *
 * Directories can be nested deeper than any path may be long, and closed to their own owner. `chmod`, `chown` and `rm`
 * walk by descriptors and never follow a link on the way, which Node's own removal cannot do, and what they take of
 * time and memory is bounded and not this process's.
 */
import { Effect } from "effect"
import { rmdir } from "node:fs/promises"
import * as HostProgram from "./HostProgram.ts"
import { type HostPathRefused, refused } from "./HostPathError.ts"

/** How long one of the programs may take. */
const runtimeSecondsMax = 120

/** Removes a tree. Idempotent; fails when something is left, or when it takes longer than the programs may. */
export const remove = (path: string): Effect.Effect<void, HostPathRefused> => {
  const removed = program(path, "removed", "rm", ["-rf", "--one-file-system", "--", path])
  // What is empty needs no program.
  return Effect.tryPromise(() => rmdir(path)).pipe(
    Effect.catch(() => removed),
    Effect.catch(() =>
      // Whatever it complains of, the removal has the last word.
      Effect.andThen(Effect.ignore(program(path, "removed", "chmod", ["-R", "u+rwX", "--", path])), removed)
    )
  )
}

/** Gives a tree, and every link in it, to a user. */
export const giveTo = (
  path: string,
  { groupId, userId }: { readonly userId: number; readonly groupId: number }
): Effect.Effect<void, HostPathRefused> =>
  program(path, "given away", "chown", ["-Rh", `${userId}:${groupId}`, "--", path])

const program = (path: string, done: string, name: string, argv: ReadonlyArray<string>) => {
  const remedy = "Look at its disk and its permissions, and at those of the directory above it"
  const failed = (why: string) =>
    refused(path, "unreadable", `cannot be ${done}: ${why.slice(0, 500)}`, remedy)
  return HostProgram.run({
    name,
    argv,
    env: { PATH: HostProgram.searchPath, LC_ALL: "C" },
    runtimeSecondsMax
  }).pipe(
    Effect.mapError(({ detail }) => failed(detail)),
    Effect.flatMap(({ exitCode, stderr }) =>
      exitCode === 0 ? Effect.void : failed(HostProgram.lastLine(stderr))
    )
  )
}
