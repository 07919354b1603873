/**
 * Trees of this host that an agent could write: removed, whatever it did to keep them, or given to another user.
 *
 * Directories can be nested deeper than any path may be long, and closed to their own owner. `chmod`, `chown` and `rm`
 * walk by descriptors and never follow a link on the way, which Node's own removal cannot do for such trees.
 */
import { Effect } from "effect"
import { rm } from "node:fs/promises"
import * as HostProgram from "./HostProgram.ts"
import { HostPathRefused } from "./HostPathError.ts"

/** How long one of the programs may take. */
const runtimeSecondsMax = 120

/** Removes a tree. Idempotent; fails when something is left. */
export const remove = (path: string): Effect.Effect<void, HostPathRefused> =>
  Effect.tryPromise(() => rm(path, { recursive: true, force: true, maxRetries: 3, retryDelay: 50 })).pipe(
    Effect.catch(() =>
      Effect.andThen(
        // Whatever it complains of, the removal has the last word.
        Effect.ignore(program(path, "removed", "chmod", ["-R", "u+rwX", "--", path])),
        program(path, "removed", "rm", ["-rf", "--one-file-system", "--", path])
      )
    )
  )

/** Gives a tree, and every link in it, to a user. */
export const giveTo = (
  path: string,
  { groupId, userId }: { readonly userId: number; readonly groupId: number }
): Effect.Effect<void, HostPathRefused> =>
  program(path, "given away", "chown", ["-Rh", `${userId}:${groupId}`, "--", path])

const program = (path: string, done: string, name: string, argv: ReadonlyArray<string>) => {
  const refused = (why: string) =>
    new HostPathRefused({
      path,
      problem: "unreadable",
      detail: `cannot be ${done}: ${why.slice(0, 500)}`,
      remedy: "Look at its disk and its permissions, and at those of the directory above it"
    })
  return HostProgram.run({
    name,
    argv,
    env: { PATH: HostProgram.searchPath, LC_ALL: "C" },
    runtimeSecondsMax
  }).pipe(
    Effect.mapError(({ detail }) => refused(detail)),
    Effect.flatMap(({ exitCode, stderr }) =>
      exitCode === 0 ? Effect.void : Effect.fail(refused(HostProgram.lastLine(stderr)))
    )
  )
}
