/**
 * A directory in which a test acts as the agent: it plants links and special files, and strikes between two system
 * calls of the code under test.
 */
import { Effect, type Scope } from "effect"
import { execFileSync } from "node:child_process"
import { lstatSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs"
import { homedir, tmpdir } from "node:os"
import { join } from "node:path"

/** Below the home of this user, where no other user may write. */
export const closed = directoryIn(homedir())

/** Below the temporary directory, where all users may write. */
export const open = directoryIn(tmpdir())

function directoryIn(parent: string): Effect.Effect<string, never, Scope.Scope> {
  return Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(parent, ".cogni-host-files-test-"))),
    (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
  )
}

/** Plants the described entries: text is a file, `→ target` a link, `null` a directory, "fifo" a FIFO. */
export const plant = (root: string, tree: Readonly<Record<string, string | null>>): void => {
  for (const [name, content] of Object.entries(tree)) {
    const path = join(root, name)
    if (content === null) mkdirSync(path, { recursive: true })
    else if (content === "fifo") execFileSync("mkfifo", [path])
    else if (content.startsWith("→ ")) symlinkSync(content.slice(2), path)
    else {
      mkdirSync(join(path, ".."), { recursive: true })
      writeFileSync(path, content)
    }
  }
}

export const isThere = (path: string): boolean => {
  try {
    lstatSync(path)
    return true
  } catch {
    return false
  }
}

export const isRoot = process.getuid?.() === 0
