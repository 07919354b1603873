/** Attacks that change other refs of the origin, or that show one history and push another. */
import { mkdirSync, rmSync } from "node:fs"
import type { Context, Workspace } from "./Corpus.ts"
import {
  after,
  configure,
  configured,
  entriesOf,
  git,
  inGit,
  point,
  put,
  rawCommit,
  tree,
  work
} from "./Making.ts"

const ref = (name: string, text: (context: Context) => string): Workspace => configured(name, "ref", text)

/** Points other branches and tags at the agent's work. */
const others = async (context: Context) => {
  await git(context, "branch", "-f", "main", "HEAD")
  await git(context, "branch", "-f", "release", "HEAD")
  await git(context, "tag", "-f", "-a", "-m", "forged", "v9", "HEAD")
}

const remapped: ReadonlyArray<Workspace> = [
  ref("remote.origin.push", () => '[remote "origin"]\n\tpush = +refs/heads/*:refs/heads/stolen/*'),
  ref(
    "remote.origin.push onto another branch",
    ({ branch }) => `[remote "origin"]\n\tpush = +refs/heads/${branch}:refs/heads/release`
  ),
  ref("remote.origin.push that deletes", () => '[remote "origin"]\n\tpush = :refs/heads/release'),
  {
    name: "remote.origin.push with notes",
    attack: "ref",
    wants: "delivered",
    make: after(async (context) => {
      await git(context, "update-ref", "refs/notes/commits", "HEAD")
      configure(context, '[remote "origin"]\n\tpush = +refs/notes/*:refs/notes/*')
    })
  },
  {
    name: "remote.origin.mirror",
    attack: "ref",
    wants: "delivered",
    make: after(async (context) => {
      await others(context)
      configure(context, '[remote "origin"]\n\tmirror = true')
    })
  },
  {
    name: "push.default matching",
    attack: "ref",
    wants: "delivered",
    make: after(async (context) => {
      await others(context)
      configure(context, "[push]\n\tdefault = matching")
    })
  },
  {
    name: "push.followTags",
    attack: "ref",
    wants: "delivered",
    make: after(async (context) => {
      await others(context)
      configure(context, "[push]\n\tfollowTags = true")
    })
  },
  ref("push.pushOption", () => "[push]\n\tpushOption = ci.skip\n\tpushOption = merge_request.create"),
  ref(
    "branch.<b>.merge and push.default upstream",
    ({ branch }) =>
      `[branch "${branch}"]\n\tremote = origin\n\tmerge = refs/heads/release\n[push]\n\tdefault = upstream`
  ),
  {
    name: "work on main, checked out",
    attack: "ref",
    wants: "unharmed",
    make: async (context) => {
      await git(context, "checkout", "-q", "-B", "main", context.base)
      return work(context)
    }
  },
  {
    name: "work on another branch of the origin",
    attack: "ref",
    wants: "unharmed",
    make: async (context) => {
      await git(context, "checkout", "-q", "-B", "release", context.base)
      return work(context)
    }
  },
  {
    name: "a tag instead of the branch",
    attack: "ref",
    wants: "unharmed",
    make: async (context) => {
      await work(context)
      await git(context, "tag", context.branch, "HEAD")
      await git(context, "checkout", "-q", "--detach")
      await git(context, "branch", "-q", "-D", context.branch)
    }
  },
  {
    name: "the branch is a symbolic ref to main",
    attack: "ref",
    wants: "unharmed",
    make: async (context) => {
      await git(context, "checkout", "-q", "-B", "main", context.base)
      const tip = await work(context)
      rmSync(inGit(context, `refs/heads/${context.branch}`))
      await git(context, "symbolic-ref", `refs/heads/${context.branch}`, "refs/heads/main")
      configure(context, "[push]\n\tdefault = current")
      return tip
    }
  }
]

/** Commits a changed workflow, which the attacks push while they show another commit. */
const changedWorkflow = async (context: Context): Promise<string> => {
  put(context, ".github/workflows/ci.yml", "on: push\njobs: { steal: {} }\n")
  return work(context)
}

/** Writes a harmless commit to show instead of the real one, and returns its ID. */
const harmless = async (context: Context): Promise<string> => {
  const top = await entriesOf(context, context.base)
  return rawCommit(context, {
    tree: tree(
      context,
      top.filter(({ name }) => name.toString() !== "README.md")
    ),
    parents: [context.base],
    message: "Remove the README"
  })
}

const hidden = (
  name: string,
  hide: (context: Context, tip: string) => void | Promise<unknown>
): Workspace => ({
  name,
  attack: "content",
  wants: "refused",
  make: async (context) => {
    const tip = await changedWorkflow(context)
    await hide(context, tip)
    return tip
  }
})

const shown: ReadonlyArray<Workspace> = [
  hidden("a workflow hidden by a replace ref", async (context, tip) => {
    point(context, await harmless(context), `refs/replace/${tip}`)
  }),
  hidden("a workflow hidden by a replaced tree", async (context, tip) => {
    const [real, other] = [
      await git(context, "rev-parse", `${tip}^{tree}`),
      await git(context, "rev-parse", `${context.base}^{tree}`)
    ]
    point(context, other, `refs/replace/${real}`)
  }),
  hidden("a workflow hidden by a graft", (context, tip) => put(context, ".git/info/grafts", `${tip}\n`)),
  hidden("a workflow hidden by a forged shallow file", (context, tip) =>
    put(context, ".git/shallow", `${context.base}\n${tip}\n`)
  ),
  hidden("a workflow hidden by a tag named like the branch", async (context) => {
    point(context, await harmless(context), `refs/tags/${context.branch}`)
  }),
  hidden("a workflow hidden by skip-worktree", (context) =>
    git(context, "update-index", "--skip-worktree", ".github/workflows/ci.yml")
  ),
  hidden("a workflow that attributes mark as binary", (context) => {
    mkdirSync(inGit(context, "info"), { recursive: true })
    put(context, ".git/info/attributes", "*.yml -diff\n")
  })
]

export const refs: ReadonlyArray<Workspace> = [...remapped, ...shown]
