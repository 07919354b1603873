/**
 * Removing a tree that an agent could write, whatever it did to keep it.
 *
 * Directories can be nested deeper than any path may be long, and closed to their own owner. `chmod` and `rm` walk by
 * descriptors and never follow a link on the way, which Node's own removal cannot do for such trees.
 */
import { execFile } from "node:child_process"
import { rm } from "node:fs/promises"
import { promisify } from "node:util"

const run = promisify(execFile)

/** How long one of the two may take. */
export const removalSecondsMax = 120

/** Idempotent; fails when something is left. */
export const remove = async (path: string): Promise<void> => {
  try {
    await rm(path, { recursive: true, force: true, maxRetries: 3, retryDelay: 50 })
  } catch {
    const options = { timeout: removalSecondsMax * 1000 }
    // Whatever it complains of, the removal has the last word.
    await run("chmod", ["-R", "u+rwX", "--", path], options).catch(() => undefined)
    await run("rm", ["-rf", "--one-file-system", "--", path], options)
  }
}
