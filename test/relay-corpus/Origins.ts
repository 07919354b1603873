/**
 * Local repositories as an agent may have left them, with a configuration, hooks or a layout that attacks a user who
 * opens them with git. Also special files that git would wait for.
 *
 * Data only. `plant` gets an intact repository with a checkout.
 */
import {
  chmodSync,
  existsSync,
  mkdirSync,
  renameSync,
  symlinkSync,
  truncateSync,
  writeFileSync
} from "node:fs"
import { dirname, join } from "node:path"
import { originTarget } from "../../packages/git-relay/src/internal/origin/OriginContainer.ts"
import { run } from "./Making.ts"

export interface Planted {
  /** Path of the checkout. Its git directory is `.git` in it. */
  readonly repository: string
  /** Program that creates the marker. */
  readonly payload: string
  /** File that exists only if a payload has run on the host. */
  readonly marker: string
  /** Directory beside the repository. */
  readonly aside: string
}

export interface HostileOrigin {
  readonly name: string
  readonly plant: (planted: Planted) => void | Promise<unknown>
  /** The attack cannot share a repository with others, because it changes what the repository is. */
  readonly alone?: true
  /** Outcome on the relay: the branch arrives, or the origin is refused with a message that matches. */
  readonly wants: "delivered" | RegExp
  /** Reason why a careless host is not harmed. */
  readonly unshown?: string
}

export interface SpecialFile {
  readonly name: string
  readonly plant: (gitDirectory: string) => void | Promise<unknown>
  readonly wants: "delivered" | RegExp
}

/** File in an agent's checkout that git would wait for when it commits leftovers. */
export interface Wait {
  readonly name: string
  readonly plant: (repository: string) => void | Promise<unknown>
  readonly wants: RegExp
}

/** Name of the file in the git directory that a payload creates in a container with write access. */
export const ranInside = "ran-inside"

const script = (path: string, { marker }: Pick<Planted, "marker">): void => {
  mkdirSync(dirname(path), { recursive: true })
  writeFileSync(path, `#!/bin/sh\ntouch ${marker} ${originTarget}/${ranInside} 2>/dev/null\nexit 0\n`)
  chmodSync(path, 0o755)
}

/** Makes a repository with two commits on `main` and a checkout, and a payload beside it. */
export const prepare = async (directory: string): Promise<Planted> => {
  const repository = join(directory, "repository")
  const aside = join(directory, "aside")
  const marker = join(directory, "marker")
  const payload = join(aside, "payload")
  mkdirSync(aside, { recursive: true })
  script(payload, { marker })
  await run(["git", "init", "-q", "--template=", "--initial-branch=main", repository])
  for (const text of ["one", "two"]) {
    for (const name of ["README.md", "app.js", "notes.txt"])
      writeFileSync(join(repository, name), `${text}\n`)
    await run(["git", "-C", repository, "add", "--all"])
    await run(["git", "-C", repository, "commit", "-q", "-m", text])
  }
  return { repository, aside, marker, payload }
}

const configure = ({ repository }: Planted, ...setting: readonly [name: string, value: string]) =>
  run(["git", "-C", repository, "config", "--add", ...setting])

/** Writes hooks to a separate directory that only a setting refers to. */
const hooksAside = (planted: Planted, ...names: ReadonlyArray<string>): string => {
  const directory = join(planted.aside, `hooks-${names.join("-")}`)
  for (const name of names) script(join(directory, name), planted)
  return directory
}

const elsewhere = (hook: string): HostileOrigin => ({
  name: `core.hooksPath with ${hook}`,
  alone: true,
  plant: (planted) => configure(planted, "core.hooksPath", hooksAside(planted, hook)),
  wants: "delivered"
})

const inHooks = (hook: string): HostileOrigin => ({
  name: `hooks/${hook}`,
  plant: (planted) => script(join(planted.repository, ".git/hooks", hook), planted),
  wants: "delivered"
})

const attributes = ({ repository }: Planted, text: string): void => {
  mkdirSync(join(repository, ".git/info"), { recursive: true })
  writeFileSync(join(repository, ".git/info/attributes"), `${text}\n`, { flag: "a" })
}

const settings = (
  name: string,
  of: (planted: Planted) => ReadonlyArray<readonly [string, string]>,
  attribute?: string
): HostileOrigin => ({
  name,
  plant: async (planted) => {
    for (const setting of of(planted)) await configure(planted, ...setting)
    if (attribute !== undefined) attributes(planted, attribute)
  },
  wants: "delivered"
})

/** Moves the git directory, with a hook in it, and returns its new path. */
const movedAway = (planted: Planted): string => {
  const moved = join(planted.aside, "moved.git")
  script(join(planted.repository, ".git/hooks/pre-receive"), planted)
  renameSync(join(planted.repository, ".git"), moved)
  return moved
}

export const hostile: ReadonlyArray<HostileOrigin> = [
  // Must be first, because it commits while it is planted, which would run the hooks of the others.
  {
    name: "hooks/pre-auto-gc when gc is due",
    plant: async (planted) => {
      await configure(planted, "gc.autoPackLimit", "1")
      await configure(planted, "receive.unpackLimit", "1")
      await configure(planted, "gc.autoDetach", "false")
      for (const name of ["a", "b", "c"]) {
        await run(["git", "-C", planted.repository, "commit", "-q", "--allow-empty", "-m", name])
        await run(["git", "-C", planted.repository, "repack", "-q", "-d"])
      }
      script(join(planted.repository, ".git/hooks/pre-auto-gc"), planted)
    },
    wants: "delivered"
  },
  inHooks("pre-receive"),
  inHooks("update"),
  inHooks("post-receive"),
  inHooks("post-update"),
  inHooks("reference-transaction"),
  elsewhere("pre-receive"),
  elsewhere("update"),
  elsewhere("post-receive"),
  elsewhere("reference-transaction"),
  {
    name: "hooks that are a link",
    alone: true,
    plant: async (planted) => {
      await run(["rm", "-rf", join(planted.repository, ".git/hooks")])
      symlinkSync(hooksAside(planted, "pre-receive"), join(planted.repository, ".git/hooks"))
    },
    wants: "delivered"
  },
  {
    name: "core.hooksPath in an included file",
    alone: true,
    plant: async (planted) => {
      const file = join(planted.aside, "included")
      writeFileSync(file, `[core]\n\thooksPath = ${hooksAside(planted, "pre-receive")}\n`)
      await configure(planted, "include.path", file)
    },
    wants: "delivered"
  },
  {
    name: "core.hooksPath in a file included by includeIf.gitdir",
    alone: true,
    plant: async (planted) => {
      const file = join(planted.aside, "included-if")
      writeFileSync(file, `[core]\n\thooksPath = ${hooksAside(planted, "post-receive")}\n`)
      await configure(planted, `includeIf.gitdir:${planted.repository}/.path`, file)
    },
    wants: "delivered"
  },
  {
    name: "core.hooksPath in a file included by includeIf.onbranch",
    alone: true,
    plant: async (planted) => {
      const file = join(planted.aside, "included-on")
      writeFileSync(file, `[core]\n\thooksPath = ${hooksAside(planted, "pre-receive")}\n`)
      await configure(planted, "includeIf.onbranch:main.path", file)
    },
    wants: "delivered"
  },
  {
    name: "core.hooksPath in config.worktree",
    alone: true,
    plant: async (planted) => {
      await configure(planted, "core.repositoryFormatVersion", "1")
      await configure(planted, "extensions.worktreeConfig", "true")
      const text = `[core]\n\thooksPath = ${hooksAside(planted, "pre-receive")}\n`
      writeFileSync(join(planted.repository, ".git/config.worktree"), text)
    },
    wants: "delivered"
  },
  {
    name: "receive.procReceiveRefs with hooks/proc-receive",
    alone: true,
    plant: async (planted) => {
      await configure(planted, "receive.procReceiveRefs", "refs/heads/sandbox")
      script(join(planted.repository, ".git/hooks/proc-receive"), planted)
    },
    wants: "delivered"
  },
  {
    name: "core.alternateRefsCommand, with objects of another repository",
    alone: true,
    plant: async (planted) => {
      await run(["git", "init", "-q", "--bare", join(planted.aside, "other.git")])
      const borrowed = join(planted.repository, ".git/objects/info/alternates")
      writeFileSync(borrowed, `${join(planted.aside, "other.git/objects")}\n`)
      await configure(planted, "core.alternateRefsCommand", `${planted.payload};:`)
    },
    wants: /borrows objects from another repository/u
  },
  {
    name: "receive.denyCurrentBranch with push-to-checkout",
    alone: true,
    plant: async (planted) => {
      await configure(planted, "receive.denyCurrentBranch", "updateInstead")
      script(join(planted.repository, ".git/hooks/push-to-checkout"), planted)
    },
    wants: "delivered"
  },
  settings("core.fsmonitor", ({ payload }) => [["core.fsmonitor", payload]]),
  settings("diff.external", ({ payload }) => [["diff.external", payload]]),
  settings("a clean filter", ({ payload }) => [["filter.evil.clean", `${payload};cat`]], "*.txt filter=evil"),
  settings("a filter process", ({ payload }) => [["filter.long.process", payload]], "*.md filter=long"),
  settings("a text converter", ({ payload }) => [["diff.conv.textconv", `${payload};cat`]], "*.js diff=conv"),
  settings(
    "a merge driver",
    ({ payload }) => [["merge.evil.driver", `${payload} %O %A %B`]],
    "README.md merge=evil"
  ),
  settings("remote.origin.uploadpack", ({ payload, repository }) => [
    ["remote.origin.url", repository],
    ["remote.origin.uploadpack", `${payload};git-upload-pack`]
  ]),
  {
    ...settings("a remote with ext::", ({ payload }) => [
      ["remote.origin.url", `ext::${payload}`],
      ["protocol.ext.allow", "always"]
    ]),
    alone: true
  },
  {
    ...settings("url.insteadOf with ext::", ({ payload }) => [
      ["remote.origin.url", "https://git.example.com/a/b"],
      [`url.ext::${payload} .insteadOf`, "https://git.example.com/"],
      ["protocol.ext.allow", "always"]
    ]),
    alone: true
  },
  {
    ...settings("core.sshCommand", ({ payload }) => [
      ["remote.origin.url", "git@git.example.com:a/b"],
      ["core.sshCommand", `${payload};:`]
    ]),
    alone: true
  },
  inHooks("post-commit"),
  inHooks("post-checkout"),
  {
    name: "a .git file that points to another git directory",
    alone: true,
    plant: (planted) => writeFileSync(join(planted.repository, ".git"), `gitdir: ${movedAway(planted)}\n`),
    wants: /does not name it as its worktree/u
  },
  {
    name: "a .git that is a link to another git directory",
    alone: true,
    plant: (planted) => symlinkSync(movedAway(planted), join(planted.repository, ".git")),
    wants: /symbolic link in place of its \.git/u
  },
  {
    name: "a commondir that points to another git directory",
    alone: true,
    plant: (planted) => {
      const moved = movedAway(planted)
      mkdirSync(join(planted.repository, ".git"))
      for (const name of ["objects", "refs"]) mkdirSync(join(planted.repository, ".git", name))
      writeFileSync(join(planted.repository, ".git/HEAD"), "ref: refs/heads/main\n")
      writeFileSync(join(planted.repository, ".git/commondir"), `${moved}\n`)
    },
    wants: /commondir leads/u
  },
  {
    ...settings("uploadpack.packObjectsHook", ({ payload }) => [["uploadpack.packObjectsHook", payload]]),
    unshown: "git reads it only from the user's own configuration"
  }
]

/** Runs common git commands until a payload has run, and returns them. */
export const careless = async ({ aside, marker, repository }: Planted): Promise<ReadonlyArray<string>> => {
  const clone = join(aside, "clone")
  const there = (...argv: ReadonlyArray<string>) => ["git", "-C", repository, ...argv]
  const mine = (...argv: ReadonlyArray<string>) => ["git", "-C", clone, ...argv]
  const change = (name: string, text: string) => ["sh", "-c", `echo ${text} > ${join(name, "README.md")}`]
  const commands = [
    ["git", "ls-remote", repository],
    ["git", "clone", "-q", "--no-local", repository, clone],
    change(clone, "three"),
    mine("commit", "-qam", "three"),
    mine("push", "-q", repository, "HEAD:refs/heads/sandbox/pushed"),
    there("status"),
    there("diff", "HEAD~1", "HEAD"),
    there("fetch", "-q", "origin"),
    there("fetch", "-q", clone, "HEAD:refs/heads/fetched"),
    ["sh", "-c", `echo more >> ${join(repository, "notes.txt")}; echo more >> ${join(repository, "app.js")}`],
    there("commit", "-qam", "own"),
    change(repository, "four"),
    there("commit", "-qam", "four"),
    there("merge", "--no-edit", "fetched"),
    there("merge", "--abort"),
    there("checkout", "-q", "fetched"),
    there("merge", "-q", "--no-edit", "fetched~1"),
    mine("push", "-q", "-f", repository, "HEAD:refs/heads/fetched"),
    there("checkout", "-q", "main"),
    mine("push", "-q", "-f", repository, "HEAD:refs/heads/main")
  ]
  const tried: Array<string> = []
  for (const command of commands) {
    tried.push(command.join(" "))
    await run(command).catch(() => undefined)
    if (existsSync(marker)) break
  }
  return tried
}

const inPlaceOf = (path: string, make: (path: string) => void | Promise<unknown>) => async (git: string) => {
  await run(["rm", "-rf", join(git, path)])
  mkdirSync(dirname(join(git, path)), { recursive: true })
  await make(join(git, path))
}

const fifo = (path: string): SpecialFile => ({
  name: `a FIFO as ${path}`,
  plant: inPlaceOf(path, (at) => run(["mkfifo", "-m", "666", at])),
  wants: /is a FIFO/u
})

/** An endless device, which a container may open too. */
const device = (path: string): SpecialFile => ({
  name: `/dev/zero as ${path}`,
  plant: inPlaceOf(path, (at) => run(["mknod", "-m", "666", at, "c", "1", "5"])),
  wants: /is a device/u
})

const socket = (path: string): SpecialFile => ({
  name: `a socket as ${path}`,
  plant: inPlaceOf(path, (at) =>
    run([
      "perl",
      "-MSocket",
      "-e",
      "socket(S,AF_UNIX,SOCK_STREAM,0);bind(S,sockaddr_un($ARGV[0])) or die",
      at
    ])
  ),
  wants: /is a socket/u
})

const sparse = (path: string): SpecialFile => ({
  name: `a sparse file of 100 GB as ${path}`,
  plant: inPlaceOf(path, (at) => {
    writeFileSync(at, "")
    truncateSync(at, 100_000_000_000)
  }),
  wants: /is larger than/u
})

const directory = (path: string, wants: RegExp): SpecialFile => ({
  name: `a directory as ${path}`,
  plant: inPlaceOf(path, (at) => void mkdirSync(at)),
  wants
})

export const specialFiles: ReadonlyArray<SpecialFile> = [
  fifo("config"),
  fifo("HEAD"),
  fifo("index"),
  fifo("packed-refs"),
  fifo("shallow"),
  fifo("refs/heads/main"),
  fifo("objects/info/alternates"),
  fifo("objects/00/00000000000000000000000000000000000000"),
  fifo("objects/pack/pack-0000000000000000000000000000000000000000.idx"),
  device("config"),
  device("index"),
  device("refs/heads/main"),
  socket("packed-refs"),
  socket("HEAD"),
  sparse("config"),
  sparse("HEAD"),
  sparse("packed-refs"),
  sparse("refs/heads/main"),
  directory("config", /config is a directory/u),
  directory("HEAD", /HEAD is a directory/u),
  directory("packed-refs", /packed-refs is a directory/u)
]

const link = (path: string, target: string): SpecialFile => ({
  name: `a link as ${path}, to ${target}`,
  plant: inPlaceOf(path, (at) => symlinkSync(target, at)),
  wants: new RegExp(`${path} is a symbolic link`, "u")
})

/** Links to files of the container that end with it, or to files that a later process has open. */
export const links: ReadonlyArray<SpecialFile> = [
  link("refs/heads/sandbox", "/dev/shm"),
  link("refs/heads/sandbox", "../tags"),
  link("objects/pack", "/dev/shm"),
  link("objects/pack", "/tmp"),
  link("objects/info", "/tmp"),
  {
    name: "refs that link to each other",
    plant: (git) => {
      for (const name of ["a", "b", "c"]) symlinkSync(".", join(git, "refs/heads", name))
    },
    wants: /refs\/heads\/[abc] is a symbolic link/u
  },
  link("refs/heads/main", "/proc/10/fd/1"),
  link("HEAD", "/proc/10/fd/1"),
  link("packed-refs", "/tmp/packed-refs"),
  link("config", "/tmp/config"),
  link("worktrees", "/tmp"),
  // Like those of git-new-workdir.
  link("refs", "../../aside/refs"),
  link("objects", "../../aside/objects")
]

const pipeAt = (path: string) => {
  mkdirSync(dirname(path), { recursive: true })
  return run(["mkfifo", "-m", "666", path])
}

const setting = (name: string, value = (repository: string) => join(repository, "fifo")): Wait => ({
  name: `${name} that is a FIFO`,
  plant: async (repository) => {
    await run([
      "git",
      "-C",
      repository,
      "config",
      name,
      value(repository).replace(repository, "/workspace/repo")
    ])
    await pipeAt(join(repository, "fifo"))
  },
  wants: /fifo is a FIFO/u
})

const nested = (name: string, plant: (nested: string) => void | Promise<unknown>, wants: RegExp): Wait => ({
  name: `${name} of a nested repository`,
  plant: async (repository) => {
    const at = join(repository, "sub")
    await run(["git", "init", "-q", "--template=", at])
    writeFileSync(join(at, "a.txt"), "a\n")
    await run(["git", "-C", at, "add", "--all"])
    await run(["git", "-C", at, "commit", "-qm", "a"])
    await plant(at)
  },
  wants
})

export const waits: ReadonlyArray<Wait> = [
  setting("include.path", () => "../fifo"),
  setting("include.path"),
  setting("includeIf.onbranch:nobody.path"),
  setting("core.excludesFile"),
  setting("core.attributesFile", () => "fifo"),
  setting("commit.template"),
  setting("diff.orderFile"),
  {
    name: "include.path in an included file",
    plant: async (repository) => {
      writeFileSync(join(repository, "more"), "[include]\n\tpath = fifo\n")
      await run(["git", "-C", repository, "config", "include.path", "../more"])
      await pipeAt(join(repository, "fifo"))
    },
    wants: /fifo is a FIFO/u
  },
  {
    name: "core.excludesFile in config.worktree",
    plant: async (repository) => {
      await run(["git", "-C", repository, "config", "core.repositoryFormatVersion", "1"])
      await run(["git", "-C", repository, "config", "extensions.worktreeConfig", "true"])
      writeFileSync(join(repository, ".git/config.worktree"), "[core]\n\texcludesFile = fifo\n")
      await pipeAt(join(repository, "fifo"))
    },
    wants: /fifo is a FIFO/u
  },
  {
    name: "core.excludesFile as a descriptor of a later process",
    plant: (repository) => run(["git", "-C", repository, "config", "core.excludesFile", "/proc/self/fd/1"]),
    wants: /leads to \/proc/u
  },
  {
    name: "core.worktree with a FIFO in it",
    plant: async (repository) => {
      await run(["git", "-C", repository, "config", "core.worktree", "/workspace/other"])
      await pipeAt(join(repository, "../other/.gitattributes"))
    },
    wants: /core\.worktree/u
  },
  {
    name: "a link as .gitmodules, to a FIFO",
    plant: async (repository) => {
      symlinkSync("fifo", join(repository, ".gitmodules"))
      await pipeAt(join(repository, "fifo"))
    },
    wants: /\.gitmodules is a FIFO/u
  },
  {
    name: "a link as info/exclude, to a descriptor of a later process",
    plant: (repository) =>
      inPlaceOf("info/exclude", (at) => symlinkSync("/proc/10/fd/1", at))(join(repository, ".git")),
    wants: /info\/exclude leads to \/proc/u
  },
  {
    name: "alternates of alternates that are a FIFO",
    plant: async (repository) => {
      mkdirSync(join(repository, ".git/objects/info"), { recursive: true })
      writeFileSync(join(repository, ".git/objects/info/alternates"), "/workspace/repo/more\n")
      await pipeAt(join(repository, "more/info/alternates"))
    },
    wants: /more\/info\/alternates is a FIFO/u
  },
  nested("HEAD", (at) => inPlaceOf("HEAD", pipeAt)(join(at, ".git")), /sub\/\.git\/HEAD is a FIFO/u),
  nested(
    "include.path",
    async (at) => {
      await run(["git", "-C", at, "config", "include.path", "../../fifo"])
      await pipeAt(join(at, "../fifo"))
    },
    /fifo is a FIFO/u
  )
]
