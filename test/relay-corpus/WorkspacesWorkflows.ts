/** Files that an origin executes by itself, such as workflows, in all kinds of commits. */
import { renameSync, rmSync } from "node:fs"
import { join } from "node:path"
import type { Context, Workspace } from "./Corpus.ts"
import { commit, entriesOf, git, object, point, put, rawCommit, tree, withEntries, work } from "./Making.ts"

const evil = "on: push\njobs: { steal: { runs-on: self-hosted } }\n"
const workflow = ".github/workflows/ci.yml"

const refused = (name: string, make: (context: Context) => Promise<string>): Workspace => ({
  name,
  attack: "content",
  wants: "refused",
  make
})

/** Defines a workspace that adds a file together with ordinary work. */
const added = (path: string): Workspace =>
  refused(`${path} added`, (context) => {
    put(context, path, evil)
    return work(context)
  })

const merges: ReadonlyArray<Workspace> = [
  refused("a workflow added, and removed by the next commit", async (context) => {
    put(context, ".github/workflows/steal.yml", evil)
    await commit(context, "Add")
    rmSync(join(context.repository, ".github/workflows/steal.yml"))
    return commit(context, "Remove")
  }),
  refused("a workflow changed, and changed back", async (context) => {
    put(context, workflow, evil)
    await commit(context, "Change")
    await git(context, "checkout", "-q", context.base, "--", workflow)
    return commit(context, "Change back")
  }),
  refused("a workflow in the second parent of an -s ours merge", async (context) => {
    await git(context, "checkout", "-q", "-b", "side")
    put(context, ".github/workflows/steal.yml", evil)
    await commit(context, "On the side")
    await git(context, "checkout", "-q", context.branch)
    await work(context)
    await git(context, "merge", "-q", "-s", "ours", "-m", "Merge", "side")
    return git(context, "rev-parse", "HEAD")
  }),
  refused("a workflow that only the merge commit has", async (context) => {
    await git(context, "checkout", "-q", "-b", "side")
    await work(context, "side")
    await git(context, "checkout", "-q", context.branch)
    await work(context)
    await git(context, "merge", "-q", "--no-commit", "-s", "ours", "side")
    put(context, workflow, evil)
    return commit(context, "Merge")
  }),
  refused("a workflow in an octopus merge's last parent", async (context) => {
    const parents = [await work(context)]
    for (const name of ["one", "two"]) {
      await git(context, "checkout", "-q", "-B", name, context.base)
      if (name === "two") put(context, workflow, evil)
      parents.push(await work(context, name))
    }
    const id = rawCommit(context, { tree: await git(context, "rev-parse", `${parents[0]}^{tree}`), parents })
    point(context, id)
    await git(context, "checkout", "-q", "-f", context.branch)
    return id
  })
]

const forms: ReadonlyArray<Workspace> = [
  refused("a workflow edited", (context) => {
    put(context, workflow, evil)
    return work(context)
  }),
  refused("a workflow deleted", (context) => {
    rmSync(join(context.repository, workflow))
    return work(context)
  }),
  refused("a workflow renamed", (context) => {
    renameSync(join(context.repository, workflow), join(context.repository, ".github/workflows/other.yml"))
    return work(context)
  }),
  refused("a workflow moved out of its directory", (context) => {
    renameSync(join(context.repository, workflow), join(context.repository, "ci.yml"))
    return work(context)
  }),
  refused("a workflow moved into its directory", (context) => {
    renameSync(
      join(context.repository, "docs/page-01.md"),
      join(context.repository, ".github/workflows/p.yml")
    )
    return work(context)
  }),
  refused("a workflow that becomes executable", async (context) => {
    await git(context, "update-index", "--chmod=+x", workflow)
    await git(context, "commit", "-q", "-m", "Make it executable")
    return git(context, "rev-parse", "HEAD")
  }),
  refused("a workflow that becomes a link", async (context) => {
    const blob = object(context, "blob", "../../docs/page-01.md")
    await git(context, "update-index", "--cacheinfo", `120000,${blob},${workflow}`)
    await git(context, "commit", "-q", "-m", "Link")
    return git(context, "rev-parse", "HEAD")
  }),
  refused("the directory of workflows becomes a link", async (context) => {
    const inner = (await entriesOf(context, `${context.base}:.github`)).filter(
      ({ name }) => Buffer.from(name).toString() !== "workflows"
    )
    put(context, "evil/steal.yml", evil)
    await work(context)
    const link = object(context, "blob", "../evil")
    const top = await entriesOf(context, "HEAD")
    const github = tree(context, [...inner, { mode: "120000", name: "workflows", id: link }])
    const id = rawCommit(context, {
      tree: tree(context, [
        ...top.filter(({ name }) => Buffer.from(name).toString() !== ".github"),
        { mode: "40000", name: ".github", id: github }
      ]),
      parents: [await git(context, "rev-parse", "HEAD")]
    })
    point(context, id)
    return id
  }),
  refused(".github becomes a link", async (context) => {
    const link = object(context, "blob", "docs")
    return withEntries(context, [{ mode: "120000", name: ".github", id: link }])
  }),
  refused(".github is removed", (context) => {
    rmSync(join(context.repository, ".github"), { recursive: true })
    return work(context)
  })
]

export const workflows: ReadonlyArray<Workspace> = [
  added(".github/workflows/steal.yml"),
  added(".GitHub/Workflows/steal.yml"),
  added(".github/actions/build/action.yml"),
  added(".github/workflows/deep/er/steal.yaml"),
  added(".gitlab-ci.yml"),
  added(".forgejo/workflows/steal.yml"),
  added(".gitea/workflows/steal.yml"),
  ...forms,
  ...merges
]
