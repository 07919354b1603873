/** Trees that cause harm when checked out: names equivalent to `.git`, links to the outside, submodules, LFS. */
import { symlinkSync } from "node:fs"
import { join } from "node:path"
import type { Context, Workspace } from "./Corpus.ts"
import { type Entry, git, object, put, tree, withEntries, work } from "./Making.ts"

const refused = (name: string, make: (context: Context) => Promise<string>): Workspace => ({
  name,
  attack: "content",
  wants: "refused",
  make
})

const blobOf = (context: Context, text: string) => object(context, "blob", text)

/** A directory with a poisoned hook, under a name that a file system may treat as `.git`. */
const named = (name: string | Uint8Array, title: string): Workspace =>
  refused(`a tree entry ${title}`, (context) => {
    const hook: Entry = { mode: "100755", name: "post-checkout", id: blobOf(context, `#!/bin/sh\n:\n`) }
    const hooks: Entry = { mode: "40000", name: "hooks", id: tree(context, [hook]) }
    return withEntries(context, [{ mode: "40000", name, id: tree(context, [hooks]) }])
  })

const link = (name: string, path: string, to: string | ((context: Context) => string)): Workspace =>
  refused(`a link ${name}`, async (context) => {
    put(context, "notes/readme", "notes\n")
    symlinkSync(typeof to === "string" ? to : to(context), join(context.repository, path))
    return work(context)
  })

const gitNames: ReadonlyArray<Workspace> = [
  named(".git", ".git"),
  named(".GIT", ".GIT"),
  named(".g\u200cit", ".git with an ignorable character of HFS+"),
  named("git~1", "git~1, the short name of .git on NTFS"),
  named(".git ", ".git with a trailing space"),
  named(".git...", ".git with trailing dots"),
  named(".git::$INDEX_ALLOCATION", ".git as an NTFS stream"),
  named("..", ".."),
  named(".", "."),
  named("a\\..\\..\\b", "with backslashes"),
  named("a/../../b", "with slashes"),
  named(".git\\hooks", "that is .git and a backslash"),
  {
    ...refused("a tree entry without a name", (context) =>
      withEntries(context, [{ mode: "100644", name: "", id: blobOf(context, "x") }])
    ),
    unshown: "git itself fails when it packs it"
  },
  refused("a link and a directory of the same name", (context) => {
    const inner = tree(context, [{ mode: "100755", name: "post-checkout", id: blobOf(context, "x") }])
    return withEntries(context, [
      { mode: "120000", name: "a", id: blobOf(context, ".git/hooks") },
      { mode: "40000", name: "a", id: inner }
    ])
  }),
  refused("a link and a directory that differ in case", (context) => {
    const inner = tree(context, [{ mode: "100755", name: "post-checkout", id: blobOf(context, "x") }])
    return withEntries(context, [
      { mode: "120000", name: "A", id: blobOf(context, ".git/hooks") },
      { mode: "40000", name: "a", id: inner }
    ])
  })
]

const links: ReadonlyArray<Workspace> = [
  link("to /etc/passwd", "passwd", "/etc/passwd"),
  link("out of the repository", "up", "../../outside"),
  link("out of the repository, from a directory", "notes/up", "../../outside"),
  link("out of the repository and back", "notes/back", "../../repo/README.md"),
  link("into .git", "settings", ".git/config"),
  link("into .git, from a directory", "notes/settings", "../.GIT/hooks"),
  link("to a device", "zeros", "/dev/zero"),
  link("that goes down and up again", "winding", "docs/../../outside"),
  refused("a link to a path of 5,000 characters", (context) =>
    withEntries(context, [{ mode: "120000", name: "long", id: blobOf(context, "x/".repeat(2500)) }])
  ),
  refused("a link through another link", async (context) => {
    symlinkSync("docs", join(context.repository, "here"))
    symlinkSync("here/../../outside", join(context.repository, "there"))
    return work(context)
  })
]

/** A submodule with this text in `.gitmodules`. */
const submodule = (name: string, text: string): Workspace =>
  refused(name, (context) =>
    withEntries(context, [
      { mode: "100644", name: ".gitmodules", id: blobOf(context, text) },
      { mode: "160000", name: "sub", id: "1".repeat(40) }
    ])
  )

const modules: ReadonlyArray<Workspace> = [
  submodule(
    ".gitmodules with -u as its URL (CVE-2018-17456)",
    '[submodule "sub"]\n\tpath = sub\n\turl = -u./payload\n'
  ),
  submodule(
    ".gitmodules with a carriage return in its path (CVE-2025-48384)",
    '[submodule "sub"]\n\tpath = "sub\r"\n\turl = ./sub\n'
  ),
  submodule(
    ".gitmodules with .. in its name (CVE-2018-11235)",
    '[submodule "../../hooks"]\n\tpath = sub\n\turl = ./sub\n'
  ),
  submodule(".gitmodules with ext::", '[submodule "sub"]\n\tpath = sub\n\turl = ext::sh -c id\n'),
  refused("a submodule without .gitmodules", (context) =>
    withEntries(context, [{ mode: "160000", name: "sub", id: "1".repeat(40) }])
  ),
  refused(".gitmodules without a submodule", (context) =>
    withEntries(context, [{ mode: "100644", name: ".gitmodules", id: blobOf(context, "\n") }])
  ),
  refused(".gitmodules is a link", (context) =>
    withEntries(context, [{ mode: "120000", name: ".gitmodules", id: blobOf(context, "README.md") }])
  ),
  refused("a submodule in a directory", async (context) => {
    await git(context, "update-index", "--add", "--cacheinfo", `160000,${"2".repeat(40)},vendor/lib/sub`)
    await git(context, "commit", "-q", "-m", "Add")
    return git(context, "rev-parse", "HEAD")
  })
]

const pointer = `version https://git-lfs.github.com/spec/v1\noid sha256:${"ab".repeat(32)}\nsize 12345\n`

const lfs: ReadonlyArray<Workspace> = [
  refused(".lfsconfig", (context) => {
    put(context, ".lfsconfig", `[lfs]\n\turl = ${context.collector}/lfs\n`)
    return work(context)
  }),
  refused("an LFS pointer without its object", (context) => {
    put(context, "data.bin", pointer)
    return work(context)
  })
]

export const content: ReadonlyArray<Workspace> = [...gitNames, ...links, ...modules, ...lfs]
