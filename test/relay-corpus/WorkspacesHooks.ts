/** Programs that git starts by itself: hooks in any place. */
import { chmodSync, mkdirSync, symlinkSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import type { Context, Workspace } from "./Corpus.ts"
import { after, configure, inGit, put, remove, spoiled } from "./Making.ts"

/** Script that creates the marker and succeeds. */
export const program = (context: Context): string => `#!/bin/sh\ntouch ${context.marker}\nexit 0\n`

/** Writes the script to a path. */
export const executable = (context: Context, path: string): void => {
  writeFileSync(path, program(context), { mode: 0o755 })
  chmodSync(path, 0o755)
}

const hook = (name: string, prepare: (context: Context) => void = () => {}): Workspace =>
  spoiled(`hook ${name}`, "execution", (context) => {
    mkdirSync(inGit(context, "hooks"), { recursive: true })
    executable(context, inGit(context, `hooks/${name}`))
    prepare(context)
  })

const everyName = ["pre-push", "post-checkout", "reference-transaction", "post-index-change", "pre-commit"]

export const hooks: ReadonlyArray<Workspace> = [
  hook("pre-push"),
  hook("post-checkout"),
  hook("reference-transaction"),
  hook("post-index-change"),
  hook("pre-auto-gc", (context) => {
    configure(context, "[gc]\n\tauto = 1")
    // Git estimates the number of objects as 256 times the files in this directory.
    for (const digit of ["a", "b", "c"]) put(context, `.git/objects/17/${digit.repeat(38)}`, "")
  }),
  hook("pre-commit"),
  hook("prepare-commit-msg"),
  hook("commit-msg"),
  hook("post-commit"),
  hook("post-merge"),
  hook("pre-merge-commit"),
  hook("post-rewrite"),
  {
    name: "core.hooksPath below the worktree",
    attack: "execution",
    wants: "delivered",
    make: after((context) => {
      const path = join(context.repository, ".husky")
      mkdirSync(path)
      for (const name of everyName) executable(context, join(path, name))
      configure(context, "[core]\n\thooksPath = .husky")
    })
  },
  {
    name: "hooks as a link",
    attack: "execution",
    wants: "delivered",
    make: after((context) => {
      const path = join(context.repository, "tools")
      mkdirSync(path)
      for (const name of everyName) executable(context, join(path, name))
      remove(inGit(context, "hooks"))
      symlinkSync("../tools", inGit(context, "hooks"))
    })
  },
  hook("fsmonitor-watchman", (context) =>
    configure(context, "[core]\n\tfsmonitor = .git/hooks/fsmonitor-watchman\n\tfsmonitorHookVersion = 2")
  )
]
