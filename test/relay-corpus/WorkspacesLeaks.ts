/** Attacks that make a host push its own files: objects, links and directories outside of the workspace. */
import { mkdirSync, symlinkSync, unlinkSync } from "node:fs"
import { join } from "node:path"
import type { Context, Workspace } from "./Corpus.ts"
import { after, configure, inGit, point, put, rawCommit, remove, tree, work } from "./Making.ts"

/** Commits the victim's blob, whose object is not in this repository, and returns the commit ID. */
const stolen = (context: Context): string => {
  const id = rawCommit(context, {
    tree: tree(context, [{ mode: "100644", name: "stolen.txt", id: context.victim.blob }]),
    parents: [context.base],
    message: "Add a file"
  })
  point(context, id)
  return id
}

const theirs = ({ victim }: Context, path: string) => join(victim.repository, ".git", path)

const borrowed = (name: string, borrow: (context: Context) => void): Workspace => ({
  name,
  attack: "file-read",
  wants: "refused",
  make: (context) => {
    const tip = stolen(context)
    borrow(context)
    return tip
  }
})

const objects: ReadonlyArray<Workspace> = [
  borrowed("alternates to a repository of the host", (context) =>
    put(context, ".git/objects/info/alternates", `${theirs(context, "objects")}\n`)
  ),
  borrowed("alternates by a relative path", (context) =>
    put(context, ".git/objects/info/alternates", "../../../../host/victim/.git/objects\n")
  ),
  borrowed("alternates of alternates", (context) => {
    put(context, ".git/more/info/alternates", `${theirs(context, "objects")}\n`)
    put(context, ".git/objects/info/alternates", `${inGit(context, "more")}\n`)
  }),
  {
    name: "objects as a link",
    attack: "file-read",
    wants: "refused",
    make: (context) => {
      remove(inGit(context, "objects"))
      symlinkSync(theirs(context, "objects"), inGit(context, "objects"))
      point(context, context.victim.commit)
      return context.victim.commit
    }
  },
  borrowed("a directory of objects as a link", (context) => {
    const part = context.victim.blob.slice(0, 2)
    remove(inGit(context, `objects/${part}`))
    symlinkSync(theirs(context, `objects/${part}`), inGit(context, `objects/${part}`))
  }),
  borrowed("one object as a link", (context) => {
    const path = `objects/${context.victim.blob.slice(0, 2)}/${context.victim.blob.slice(2)}`
    mkdirSync(join(inGit(context, path), ".."), { recursive: true })
    symlinkSync(theirs(context, path), inGit(context, path))
  })
]

const whole: ReadonlyArray<Workspace> = [
  {
    name: "repo is a link to a repository of the host",
    attack: "file-read",
    wants: "unharmed",
    make: after((context) => {
      remove(context.repository)
      symlinkSync(context.victim.repository, context.repository)
    })
  },
  {
    name: ".git is a link to one of the host",
    attack: "file-read",
    wants: "unharmed",
    make: after((context) => {
      remove(inGit(context, ""))
      symlinkSync(theirs(context, ""), inGit(context, ""))
    })
  },
  {
    name: ".git is a file that names one of the host",
    attack: "file-read",
    wants: "unharmed",
    make: after((context) => {
      remove(inGit(context, ""))
      put(context, ".git", `gitdir: ${theirs(context, "")}\n`)
    })
  },
  {
    name: "commondir of the host",
    attack: "file-read",
    wants: "unharmed",
    make: after((context) => {
      put(context, ".git/commondir", `${theirs(context, "")}\n`)
      put(context, ".git/HEAD", "ref: refs/heads/main\n")
    })
  },
  {
    name: "the branch is a link to a ref of the host",
    attack: "file-read",
    wants: "unharmed",
    make: (context) => {
      put(context, ".git/objects/info/alternates", `${theirs(context, "objects")}\n`)
      const path = inGit(context, `refs/heads/${context.branch}`)
      unlinkSync(path)
      symlinkSync(theirs(context, "refs/heads/main"), path)
    }
  },
  {
    name: "HEAD is a link to a ref of the host",
    attack: "file-read",
    wants: "unharmed",
    make: (context) => {
      put(context, ".git/objects/info/alternates", `${theirs(context, "objects")}\n`)
      unlinkSync(inGit(context, "HEAD"))
      // Git checks only that the target begins like a ref, not where it leads.
      symlinkSync("refs/heads/../../../../../host/victim/.git/refs/heads/main", inGit(context, "HEAD"))
    }
  },
  {
    name: "core.worktree is a directory of the host",
    attack: "file-read",
    wants: "delivered",
    make: after((context) => configure(context, `[core]\n\tworktree = ${context.victim.directory}`))
  }
]

const copied: ReadonlyArray<Workspace> = [
  {
    name: "a link to a file of the host, not committed",
    attack: "file-read",
    wants: "delivered",
    make: after((context) => symlinkSync(context.secretFile, join(context.repository, "notes.txt")))
  },
  {
    name: "a link to a directory of the host, not committed",
    attack: "file-read",
    wants: "delivered",
    make: after((context) => symlinkSync(context.victim.directory, join(context.repository, "notes")))
  },
  {
    name: "a committed link to a file of the host",
    attack: "file-read",
    wants: "refused",
    make: async (context) => {
      symlinkSync(context.secretFile, join(context.repository, "notes.txt"))
      return work(context)
    }
  }
]

export const leaks: ReadonlyArray<Workspace> = [...objects, ...whole, ...copied]
