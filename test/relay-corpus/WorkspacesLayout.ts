/** Repositories with a misleading layout: files, links and bare repositories instead of `.git`. */
import { renameSync, symlinkSync } from "node:fs"
import { join } from "node:path"
import type { Context, Workspace } from "./Corpus.ts"
import { after, configure, git, inGit, put, remove, run, work } from "./Making.ts"

const poison = (context: Context) => `[core]\n\tfsmonitor = "touch ${context.marker}; false"`

export const layouts: ReadonlyArray<Workspace> = [
  {
    name: ".git is a file that names a poisoned repository",
    attack: "execution",
    wants: "unharmed",
    make: after((context) => {
      configure(context, poison(context))
      renameSync(inGit(context, ""), join(context.repository, "../moved"))
      put(context, ".git", "gitdir: ../moved\n")
    })
  },
  {
    name: ".git is a link to a poisoned repository",
    attack: "execution",
    wants: "unharmed",
    make: after((context) => {
      configure(context, poison(context))
      renameSync(inGit(context, ""), join(context.repository, "../moved"))
      symlinkSync("../moved", inGit(context, ""))
    })
  },
  {
    name: "repo is a link to a poisoned repository",
    attack: "execution",
    wants: "unharmed",
    make: after((context) => {
      configure(context, poison(context))
      renameSync(context.repository, join(context.repository, "../moved"))
      symlinkSync("moved", context.repository)
    })
  },
  {
    name: "a bare repository is the worktree",
    attack: "execution",
    wants: "unharmed",
    make: async (context) => {
      await work(context)
      configure(context, poison(context))
      await git(context, "config", "core.worktree", ".")
      const aside = join(context.repository, "../aside")
      renameSync(inGit(context, ""), aside)
      remove(context.repository)
      renameSync(aside, context.repository)
    }
  },
  {
    name: "commondir with a poisoned configuration",
    attack: "execution",
    wants: "unharmed",
    make: after(async (context) => {
      const common = join(context.repository, "../common")
      await run(["cp", "-a", inGit(context, ""), common])
      put({ ...context, repository: common }, "config", `[core]\n\tbare = false\n${poison(context)}\n`)
      put(context, ".git/commondir", `${common}\n`)
    })
  },
  {
    name: "a linked worktree of a poisoned repository",
    attack: "execution",
    wants: "unharmed",
    make: async (context) => {
      const tip = await work(context)
      await git(context, "checkout", "-q", "--detach")
      await git(context, "worktree", "add", "-q", join(context.repository, "../tree"), context.branch)
      configure(context, poison(context))
      renameSync(context.repository, join(context.repository, "../main"))
      renameSync(join(context.repository, "../tree"), context.repository)
      const link = join(context.repository, "../main/.git/worktrees/tree")
      put(context, ".git", `gitdir: ${link}\n`)
      put({ ...context, repository: link }, "gitdir", `${context.repository}/.git\n`)
      return tip
    }
  },
  {
    name: ".git is missing",
    attack: "denial",
    wants: "unharmed",
    make: after((context) => remove(inGit(context, ""))),
    unshown: "nothing is left that could harm a host"
  }
]
