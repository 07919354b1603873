/**
 * Removes host trees that an agent could write, whatever it did to prevent that, or gives them to another user.
 *
 * Directories can be nested deeper than the longest path, and be inaccessible to their own owner. `chmod`, `chown` and
 * `rm` walk by descriptors and never follow a link on the way, which Node's own removal cannot do. Their time and
 * memory are bounded, and not those of this process.
 */
import { Effect } from "effect"
import { rmdir, unlink } from "node:fs/promises"
import * as HostProgram from "./HostProgram.ts"
import { type HostPathRefused, refused } from "./HostPathError.ts"

/** How long one of the programs may take. */
const runtimeSecondsMax = 120

/** Removes a tree. Idempotent. Fails if something is left, or if the programs time out. */
export const remove = (path: string): Effect.Effect<void, HostPathRefused> => {
  const removed = program(path, "removed", "rm", ["-rf", "--one-file-system", "--", path])
  // An empty directory and a file need no program, which takes longer to start than to work. No link is followed.
  return Effect.tryPromise(() => rmdir(path).catch(() => unlink(path))).pipe(
    // Both are short. After an interruption, something else could have the path.
    Effect.uninterruptible,
    Effect.catch(() => removed),
    Effect.catch(() =>
      // Its errors are ignored, because only the removal matters.
      Effect.andThen(Effect.ignore(program(path, "removed", "chmod", ["-R", "u+rwX", "--", path])), removed)
    )
  )
}

/** Gives a tree, and every link in it, to a user. */
export const giveTo = (
  path: string,
  { groupId, userId }: { readonly userId: number; readonly groupId: number }
): Effect.Effect<void, HostPathRefused> =>
  program(path, "given to another user", "chown", ["-Rh", `${userId}:${groupId}`, "--", path])

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
