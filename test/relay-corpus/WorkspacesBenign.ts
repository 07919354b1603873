/** Ordinary work in every form that git supports. It must arrive with an unchanged commit ID. */
import { chmodSync, renameSync, symlinkSync } from "node:fs"
import { join } from "node:path"
import type { Context, Workspace } from "./Corpus.ts"
import {
  commit,
  git,
  gitWith,
  object,
  point,
  put,
  rawCommit,
  run,
  tree,
  entriesOf,
  withEntries,
  work
} from "./Making.ts"

const control = (name: string, make: (context: Context) => Promise<string>): Workspace => ({
  name,
  attack: "denial",
  benign: true,
  wants: "delivered",
  make
})

const head = (context: Context) => git(context, "rev-parse", "HEAD")

const merge = async (context: Context, names: ReadonlyArray<string>): Promise<string> => {
  for (const name of names) {
    await git(context, "checkout", "-q", "-b", name, context.base)
    put(context, `src/${name}.ts`, `export const ${name} = 1\n`)
    await commit(context, `Add ${name}`)
  }
  await git(context, "checkout", "-q", context.branch)
  put(context, "src/own.ts", "export const own = 1\n")
  await commit(context, "Add own")
  await git(context, "merge", "-q", "--no-ff", "-m", "Merge", ...names)
  for (const name of names) await git(context, "branch", "-q", "-D", name)
  return head(context)
}

const commits: ReadonlyArray<Workspace> = [
  control("one commit", (context) => work(context)),
  control("a merge", (context) => merge(context, ["one"])),
  control("an octopus merge", (context) => merge(context, ["one", "two", "three"])),
  control("an empty commit", (context) => commit(context, "Nothing")),
  control("twenty small commits", async (context) => {
    for (let index = 0; index < 20; index++) await work(context, `part-${index}`)
    return head(context)
  }),
  control("foreign authors and dates", async (context) => {
    put(context, "src/foreign.ts", "export const foreign = 1\n")
    await git(context, "add", "-A")
    const environment = {
      GIT_AUTHOR_NAME: "Zoë Ångström",
      GIT_AUTHOR_EMAIL: "zoe@example.invalid",
      GIT_AUTHOR_DATE: "1234567890 -0730"
    }
    await gitWith(context, { environment }, "commit", "-q", "-m", "Von weit her: übernommen")
    return head(context)
  }),
  control("a commit of 1970 and one of 2099", async (context) => {
    for (const [index, date] of ["@1 +0000", "@4070908800 +1400"].entries()) {
      put(context, `src/date-${index}.ts`, "export {}\n")
      await git(context, "add", "-A")
      const environment = { GIT_AUTHOR_DATE: date, GIT_COMMITTER_DATE: date }
      await gitWith(context, { environment }, "commit", "-q", "-m", "Some day")
    }
    return head(context)
  }),
  control("a gpgsig header", async (context) => {
    const id = rawCommit(context, {
      tree: tree(context, [
        ...(await entriesOf(context, context.base)),
        { mode: "100644", name: "signed", id: object(context, "blob", "signed\n") }
      ]),
      parents: [context.base],
      headers: [
        "gpgsig -----BEGIN PGP SIGNATURE-----",
        " ",
        " iHUEABYKAB0WIQQ=",
        " =abcd",
        " -----END PGP SIGNATURE-----"
      ]
    })
    point(context, id)
    await git(context, "reset", "-q", "--hard")
    return id
  }),
  control("a message in Latin-1, with its header", async (context) => {
    const id = rawCommit(context, {
      tree: await git(context, "rev-parse", `${context.base}^{tree}`),
      parents: [context.base],
      headers: ["encoding ISO-8859-1"],
      message: "Gr\u00fc\u00dfe"
    })
    point(context, id)
    return id
  })
]

const trees: ReadonlyArray<Workspace> = [
  control("files renamed", (context) => {
    renameSync(join(context.repository, "src"), join(context.repository, "lib"))
    return commit(context, "Rename")
  }),
  control("files made executable", (context) => {
    chmodSync(join(context.repository, "src/module-01.ts"), 0o755)
    return commit(context, "Make it executable")
  }),
  control("links within the repository", (context) => {
    symlinkSync("docs/page-01.md", join(context.repository, "page"))
    symlinkSync("../README.md", join(context.repository, "docs/up"))
    symlinkSync("docs", join(context.repository, "documents"))
    symlinkSync("not/there", join(context.repository, "dangling"))
    return work(context)
  }),
  control("binary files, an empty one, and CRLF", (context) => {
    put(context, "image.png", Buffer.from(Array.from({ length: 4096 }, (_, index) => (index * 97) % 256)))
    put(context, "empty", "")
    put(context, "windows.txt", "one\r\ntwo\r\n")
    return work(context)
  }),
  control("names in UTF-8", (context) => {
    put(context, "docs/Ünïcödé – 日本語 🎉.md", "hello\n")
    put(context, "docs/with blanks and 'quotes' \"too\".md", "hello\n")
    return work(context)
  }),
  control("a name in Latin-1", (context) =>
    withEntries(context, [
      { mode: "100644", name: Buffer.from("gr\u00fcn.txt", "latin1"), id: object(context, "blob", "x\n") }
    ])
  ),
  control("names that differ in case", (context) => {
    put(context, "src/Module-01.ts", "export {}\n")
    put(context, "readme.md", "small\n")
    return work(context)
  }),
  control("a path of 3,000 bytes", (context) => {
    put(context, `${"d".repeat(99)}/`.repeat(29) + "f".repeat(99), "deep\n")
    return work(context)
  }),
  control("1,000 files", (context) => {
    for (let index = 0; index < 1000; index++) put(context, `many/${index % 20}/${index}.txt`, `${index}\n`)
    return work(context)
  }),
  control("attributes for line ends", (context) => {
    put(context, ".gitattributes", "*.txt text eol=crlf\n*.png binary\n")
    put(context, "lines.txt", "one\ntwo\n")
    return work(context)
  }),
  control("files deleted", async (context) => {
    await git(context, "rm", "-q", "-r", "docs")
    return commit(context, "Remove")
  }),
  control("names that only look like .git", (context) => {
    put(context, ".gitkeep", "")
    put(context, "docs/.gitignore", "*.log\n")
    put(context, "git/config.md", "text\n")
    put(context, ".github/CODEOWNERS.md", "text\n")
    return work(context)
  })
]

const repositories: ReadonlyArray<Workspace> = [
  control("files that only their owner can read", async (context) => {
    const script = `umask 077; cd "$0" && echo x > src/private.ts && git add -A && git commit -q -m Private`
    await run(["sh", "-c", script, context.repository])
    return head(context)
  }),
  control("packed refs after a full gc", async (context) => {
    const tip = await work(context)
    await git(context, "gc", "-q", "--prune=now")
    return tip
  }),
  control("a detached HEAD at the tip of the branch", async (context) => {
    const tip = await work(context)
    await git(context, "checkout", "-q", "--detach")
    return tip
  }),
  control("the branch renamed", async (context) => {
    const tip = await work(context)
    await git(context, "branch", "-m", context.branch, "feature/nicer-name")
    return tip
  }),
  control("uncommitted files", async (context) => {
    const tip = await work(context)
    put(context, "src/module-03.ts", "export const module = 'in progress'\n")
    put(context, "scratch.txt", "scratch\n")
    await git(context, "add", "scratch.txt")
    return tip
  }),
  control("sample hooks, and notes", async (context) => {
    const tip = await work(context)
    put(context, ".git/hooks/pre-push.sample", "#!/bin/sh\nexit 1\n", 0o755)
    await git(context, "notes", "add", "-m", "for myself", "HEAD")
    await git(context, "stash", "list")
    return tip
  }),
  control("a commit-graph and a multi-pack-index", async (context) => {
    const tip = await work(context)
    await git(context, "repack", "-q", "-d")
    await git(context, "multi-pack-index", "write")
    await git(context, "commit-graph", "write", "--reachable")
    return tip
  })
]

export const benign: ReadonlyArray<Workspace> = [...commits, ...trees, ...repositories]
