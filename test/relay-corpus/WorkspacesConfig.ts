/** Configuration that makes git start a program. */
import { mkdirSync } from "node:fs"
import { join } from "node:path"
import type { Context, Workspace } from "./Corpus.ts"
import {
  after,
  configure,
  configured,
  git,
  inGit,
  object,
  put,
  rawCommit,
  remove,
  point,
  tree
} from "./Making.ts"
import { executable } from "./WorkspacesHooks.ts"

const touch = ({ marker }: Context) => `touch ${marker}`

const execution = (name: string, text: (context: Context) => string): Workspace =>
  configured(name, "execution", text)

/** Redirects all requests for the origin to another URL. */
const instead = (context: Context, url: string) => `[url "${url}"]\n\tinsteadOf = ${context.origin}`

const starters: ReadonlyArray<Workspace> = [
  execution("core.fsmonitor", (context) => `[core]\n\tfsmonitor = "${touch(context)}; false"`),
  execution(
    "core.sshCommand",
    (context) => `[core]\n\tsshCommand = "${touch(context)};false"\n${instead(context, "ssh://127.0.0.1/x")}`
  ),
  {
    name: "core.gitProxy",
    attack: "execution",
    wants: "delivered",
    make: after((context) => {
      executable(context, inGit(context, "proxy"))
      configure(
        context,
        `[core]\n\tgitProxy = ${inGit(context, "proxy")}\n${instead(context, "git://127.0.0.1/x")}`
      )
    })
  },
  execution("core.editor", (context) => `[core]\n\teditor = "${touch(context)};true"`),
  execution("core.pager", (context) => `[core]\n\tpager = "${touch(context)};cat"`),
  execution("pager.log", (context) => `[pager]\n\tlog = "${touch(context)};cat"`),
  execution("core.askPass", (context) => {
    const program = inGit(context, "askpass")
    executable(context, program)
    return `[core]\n\taskPass = ${program}\n[credential]\n\thelper =`
  }),
  execution("credential.helper", (context) => `[credential]\n\thelper = "!${touch(context)};:"`),
  execution(
    "credential.<url>.helper",
    (context) => `[credential "${new URL(context.origin).origin}"]\n\thelper = "!${touch(context)};:"`
  ),
  execution("gpg.program and commit.gpgSign", (context) => {
    const program = inGit(context, "gpg")
    executable(context, program)
    return `[gpg]\n\tprogram = ${program}\n[commit]\n\tgpgSign = true`
  }),
  execution("gpg.ssh.program", (context) => {
    const program = inGit(context, "gpg")
    executable(context, program)
    return (
      `[gpg]\n\tformat = ssh\n[gpg "ssh"]\n\tprogram = ${program}\n[user]\n\tsigningKey = key::ssh-ed25519 AAAA\n` +
      "[commit]\n\tgpgSign = true"
    )
  }),
  execution("push.gpgSign", (context) => {
    const program = inGit(context, "gpg")
    executable(context, program)
    return `[gpg]\n\tprogram = ${program}\n[push]\n\tgpgSign = if-asked`
  }),
  execution("gpg.ssh.defaultKeyCommand", (context) => {
    const program = inGit(context, "key")
    executable(context, program)
    return `[gpg]\n\tformat = ssh\n[gpg "ssh"]\n\tdefaultKeyCommand = ${program}\n[commit]\n\tgpgSign = true`
  }),
  execution(
    "alias for a command that is not installed",
    (context) => `[alias]\n\tlfs = "!${touch(context)}"`
  ),
  execution("interactive.diffFilter", (context) => {
    put(context, "README.md", "Not committed\n")
    return `[interactive]\n\tdiffFilter = "${touch(context)};cat"`
  }),
  execution(
    "trailer.<x>.command",
    (context) => `[trailer "x"]\n\tkey = X\n\tcommand = "${touch(context)}"\n\tifexists = addIfDifferent`
  ),
  execution(
    "trailer.<x>.cmd",
    (context) => `[trailer "x"]\n\tkey = Reviewed-by\n\tcmd = "${touch(context)};true"`
  )
]

const remotes: ReadonlyArray<Workspace> = [
  execution(
    "remote.origin.receivepack",
    (context) =>
      `[remote "origin"]\n\tpushurl = ${context.repository}\n\treceivepack = "${touch(context)};git-receive-pack"`
  ),
  execution(
    "remote.origin.uploadpack",
    (context) =>
      `${instead(context, context.repository)}\n[remote "origin"]\n\tuploadpack = "${touch(context)};git-upload-pack"`
  ),
  {
    name: "remote.origin.vcs",
    attack: "execution",
    wants: "delivered",
    make: after(async (context) => {
      await git(context, "remote", "set-url", "origin", `sh -c touch% ${context.marker}`)
      configure(context, '[remote "origin"]\n\tvcs = ext\n[protocol "ext"]\n\tallow = always')
    })
  },
  execution(
    "a remote of ext::sh",
    (context) => `[remote "origin"]\n\tpushurl = ext::sh -c touch% ${context.marker}
[protocol "ext"]\n\tallow = always`
  ),
  execution(
    "url.ext::.insteadOf and protocol.allow",
    (context) => `${instead(context, `ext::sh -c touch% ${context.marker} `)}\n[protocol]\n\tallow = always`
  ),
  {
    name: "core.alternateRefsCommand",
    attack: "execution",
    wants: "delivered",
    make: after((context) => {
      put(context, ".git/objects/info/alternates", `${inGit(context, "more/objects")}\n`)
      mkdirSync(inGit(context, "more/objects"), { recursive: true })
      mkdirSync(inGit(context, "more/refs"), { recursive: true })
      put(context, ".git/more/HEAD", "ref: refs/heads/main\n")
      configure(context, `[core]\n\talternateRefsCommand = "${touch(context)};:"`)
    })
  },
  {
    name: "a lazy fetch of a missing object, by ext::sh",
    attack: "execution",
    wants: "unharmed",
    make: async (context) => {
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
[remote "far"]\n\turl = ext::sh -c touch% ${context.marker}\n\tpromisor = true\n[protocol "ext"]\n\tallow = always`
      )
    }
  },
  {
    name: "submodule.<name>.update",
    attack: "execution",
    wants: "refused",
    make: async (context) => {
      // The submodule exists, one commit behind the one in the tree.
      const sub = join(context.repository, "sub")
      await git(context, "init", "-q", "-b", "main", sub)
      for (const message of ["one", "two"])
        await git(context, "-C", sub, "commit", "-q", "--allow-empty", "-m", message)
      put(context, ".gitmodules", `[submodule "sub"]\n\tpath = sub\n\turl = ${context.origin}\n`)
      await git(context, "add", "-A")
      await git(context, "commit", "-q", "-m", "Add a submodule")
      await git(context, "-C", sub, "checkout", "-q", "--detach", "HEAD^")
      configure(
        context,
        `[submodule "sub"]\n\tactive = true\n\turl = ${context.origin}\n\tupdate = "!${touch(context)} #"`
      )
      return git(context, "rev-parse", "HEAD")
    }
  }
]

const poison = (context: Context) => `[core]\n\tfsmonitor = "${touch(context)}; false"\n`

const included: ReadonlyArray<Workspace> = [
  {
    name: "include.path",
    attack: "execution",
    wants: "delivered",
    make: after((context) => {
      put(context, "settings.ini", poison(context))
      configure(context, "[include]\n\tpath = ../settings.ini")
    })
  },
  {
    name: "includeIf gitdir",
    attack: "execution",
    wants: "delivered",
    make: after((context) => {
      put(context, ".git/more", poison(context))
      configure(context, '[includeIf "gitdir:/**"]\n\tpath = more')
    })
  },
  {
    name: "includeIf onbranch",
    attack: "execution",
    wants: "delivered",
    make: after((context) => {
      put(context, ".git/more", poison(context))
      configure(context, '[includeIf "onbranch:sandbox/**"]\n\tpath = more')
    })
  },
  {
    name: "includeIf hasconfig",
    attack: "execution",
    wants: "delivered",
    make: after((context) => {
      put(context, ".git/more", poison(context))
      configure(context, '[includeIf "hasconfig:remote.*.url:http://**"]\n\tpath = more')
    })
  },
  {
    name: "config.worktree",
    attack: "execution",
    wants: "delivered",
    make: after((context) => {
      put(context, ".git/config.worktree", poison(context))
      configure(context, "[core]\n\trepositoryFormatVersion = 1\n[extensions]\n\tworktreeConfig = true")
    })
  }
]

/** A setting that git reads only from its user's configuration. It must have no effect. */
const ignored: Workspace = {
  ...execution(
    "uploadpack.packObjectsHook",
    (context) => `[uploadpack]\n\tpackObjectsHook = "${touch(context)};:"`
  ),
  unshown: "git reads it only from its user's configuration"
}

export const config: ReadonlyArray<Workspace> = [...starters, ...remotes, ...included, ignored]
