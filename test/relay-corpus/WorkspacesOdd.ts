/** Names, messages and histories that mislead their readers. */
import type { Context, Workspace } from "./Corpus.ts"
import {
  commitBytes,
  entriesOf,
  git,
  gitWith,
  object,
  point,
  put,
  rawCommit,
  tree,
  treeBytes,
  withEntries,
  work
} from "./Making.ts"

const refused = (name: string, make: (context: Context) => Promise<string>): Workspace => ({
  name,
  attack: "content",
  wants: "refused",
  make
})

const pathed = (title: string, path: string | Uint8Array): Workspace =>
  refused(`a path with ${title}`, (context) =>
    withEntries(context, [{ mode: "100644", name: path, id: object(context, "blob", "x\n") }])
  )

const paths: ReadonlyArray<Workspace> = [
  pathed("a line break", "a\n.github"),
  pathed("a carriage return", "README.md\r"),
  pathed("an escape sequence", "\u001b]0;owned\u0007.txt"),
  pathed("a delete character", "a\u007fb"),
  pathed("a control character of Latin-1", "a\u009bb")
]

/** Defines a workspace with a hand-written commit object of any content. */
const written = (title: string, bytes: (context: Context, tree: string) => Buffer): Workspace =>
  refused(`a commit ${title}`, async (context) => {
    const top = tree(context, [
      ...(await entriesOf(context, context.base)),
      { mode: "100644", name: "new", id: object(context, "blob", "new\n") }
    ])
    const id = object(context, "commit", bytes(context, top))
    point(context, id)
    return id
  })

const commits: ReadonlyArray<Workspace> = [
  written("without an author", ({ base }, tree) =>
    Buffer.from(`tree ${tree}\nparent ${base}\ncommitter A <a@example.invalid> 1 +0000\n\nx\n`)
  ),
  written("with a NUL in its message", ({ base }, tree) =>
    commitBytes({ tree, parents: [base], message: "seen\0unseen" })
  ),
  written("with two addresses for its author", ({ base }, tree) =>
    commitBytes({ tree, parents: [base], author: "A <a@x>> <b@y> 1 +0000" })
  ),
  written("with a date out of range", ({ base }, tree) =>
    commitBytes({ tree, parents: [base], author: "A <a@example.invalid> 99999999999999999999 +0000" })
  ),
  written("with a message of 1 MiB", ({ base }, tree) =>
    commitBytes({ tree, parents: [base], message: "x".repeat(1 << 20) })
  ),
  refused("a tree that is not sorted", async (context) => {
    const top = await entriesOf(context, context.base)
    const body = Buffer.concat([
      treeBytes([{ mode: "100644", name: "zz", id: object(context, "blob", "z\n") }]),
      treeBytes(top)
    ])
    const id = rawCommit(context, { tree: object(context, "tree", body), parents: [context.base] })
    point(context, id)
    return id
  }),
  refused("an unknown file mode", (context) =>
    withEntries(context, [{ mode: "140000", name: "socket", id: object(context, "blob", "x") }])
  )
]

/** Commit message that controls the terminal of its reader. */
const terminal: Workspace = {
  name: "escape sequences in a message",
  attack: "content",
  wants: "unharmed",
  make: async (context) => {
    put(context, "notes.txt", "notes\n")
    await git(context, "add", "-A")
    await git(context, "commit", "-q", "-m", "\u001b]0;owned\u0007Looks harmless")
    return git(context, "rev-parse", "HEAD")
  }
}

const histories: ReadonlyArray<Workspace> = [
  refused("an unrelated history", async (context) => {
    const id = rawCommit(context, {
      tree: await git(context, "rev-parse", `${context.base}^{tree}`),
      parents: [],
      message: "Begin again"
    })
    point(context, id)
    return id
  }),
  refused("a root commit merged in", async (context) => {
    const top = await git(context, "rev-parse", `${context.base}^{tree}`)
    const root = rawCommit(context, { tree: top, parents: [], message: "Unrelated" })
    const id = rawCommit(context, { tree: top, parents: [context.base, root], message: "Merge" })
    point(context, id)
    return id
  }),
  refused("the base amended", async (context) => {
    put(context, "src/module-01.ts", "export const module = 'rewritten'\n")
    await gitWith(context, {}, "commit", "-q", "-a", "--amend", "-m", "Rewrite the base")
    return git(context, "rev-parse", "HEAD")
  }),
  refused("a branch that does not contain the base", async (context) => {
    const [parent = ""] = (await git(context, "rev-list", "--max-parents=0", "HEAD")).split("\n")
    const id = rawCommit(context, {
      tree: await git(context, "rev-parse", `${context.base}^{tree}`),
      parents: parent === context.base ? ["3".repeat(40)] : [parent],
      message: "Beside"
    })
    point(context, id)
    return id
  }),
  {
    name: "the branch is a tag object",
    attack: "content",
    wants: "refused",
    make: async (context) => {
      await work(context)
      await git(context, "tag", "-a", "-m", "tag", "t", "HEAD")
      const id = await git(context, "rev-parse", "t")
      point(context, id)
      return id
    },
    unshown: "an origin accepts only commits as branches"
  },
  {
    name: "the branch is a tree",
    attack: "content",
    wants: "refused",
    make: async (context) => {
      const id = await git(context, "rev-parse", `${context.base}^{tree}`)
      point(context, id)
      return id
    },
    unshown: "an origin accepts only commits as branches"
  },
  {
    name: "the branch is a blob",
    attack: "content",
    wants: "refused",
    make: (context) => {
      const id = object(context, "blob", "blob\n")
      point(context, id)
      return id
    },
    unshown: "an origin accepts only commits as branches"
  }
]

export const odd: ReadonlyArray<Workspace> = [...paths, ...commits, terminal, ...histories]
