/** Tools that make workspaces: the agent's own git, and hand-written objects that git would refuse to write. */
import { createHash } from "node:crypto"
import { appendFileSync, existsSync, mkdirSync, rmSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { deflateSync } from "node:zlib"
import type { Attack, Context, Workspace } from "./Corpus.ts"
import * as Spawning from "./Spawning.ts"

/** Environment without settings of the machine, so that commits are the same everywhere. */
export const environment: Readonly<Record<string, string>> = {
  PATH: "/usr/local/bin:/usr/bin:/bin",
  HOME: "/nonexistent",
  LC_ALL: "C",
  GIT_CONFIG_NOSYSTEM: "1",
  GIT_CONFIG_GLOBAL: "/dev/null",
  GIT_TERMINAL_PROMPT: "0",
  // A workspace may belong to a user other than the one who runs the tests.
  GIT_CONFIG_COUNT: "2",
  GIT_CONFIG_KEY_0: "safe.directory",
  GIT_CONFIG_VALUE_0: "*",
  // Small repositories that are removed soon need no maintenance, for which each commit would start a program.
  GIT_CONFIG_KEY_1: "maintenance.auto",
  GIT_CONFIG_VALUE_1: "false",
  GIT_AUTHOR_NAME: "Agent",
  GIT_AUTHOR_EMAIL: "agent@example.invalid",
  GIT_AUTHOR_DATE: "1760000000 +0000",
  GIT_COMMITTER_NAME: "Agent",
  GIT_COMMITTER_EMAIL: "agent@example.invalid",
  GIT_COMMITTER_DATE: "1760000000 +0000"
}

export interface Running {
  readonly environment?: Readonly<Record<string, string>>
  readonly input?: string | Uint8Array
}

/** Runs a program and returns its stdout. Fails with its stderr. */
export const run = async (argv: ReadonlyArray<string>, running: Running = {}): Promise<string> => {
  const { exitCode, stderr, stdout } = await Spawning.run({
    argv,
    env: { ...environment, ...running.environment },
    cwd: "/",
    outputMax: 1 << 28,
    ...(running.input === undefined ? {} : { input: running.input })
  })
  if (exitCode === 0) return stdout.trimEnd()
  throw new Error(`${argv.join(" ").slice(0, 400)}: ${stderr.slice(0, 4000)}`)
}

/** Runs the agent's git in its repository. */
export const git = (context: Context, ...argv: ReadonlyArray<string>): Promise<string> =>
  run(["git", "-C", context.repository, ...argv])

/** Runs the agent's git with input or with an environment. */
export const gitWith = (
  context: Context,
  running: Running,
  ...argv: ReadonlyArray<string>
): Promise<string> => run(["git", "-C", context.repository, ...argv], running)

/** Path below the repository's `.git`. */
export const inGit = (context: Context, path: string): string => join(context.repository, ".git", path)

/** Writes a file below the repository. */
export const put = (context: Context, path: string, text: string | Uint8Array, mode = 0o644): void => {
  const target = join(context.repository, path)
  mkdirSync(dirname(target), { recursive: true })
  writeFileSync(target, text, { mode })
}

/** Appends text to the repository's configuration. The text need not be valid. */
export const configure = (context: Context, text: string): void =>
  appendFileSync(inGit(context, "config"), `\n${text}\n`)

/** Commits the whole worktree, and returns the commit ID. */
export const commit = async (context: Context, message: string): Promise<string> => {
  await git(context, "add", "-A")
  await git(context, "commit", "-q", "--no-verify", "--allow-empty", "-m", message)
  return git(context, "rev-parse", "HEAD")
}

/** Commits ordinary work, which must arrive, and returns the commit ID. */
export const work = (context: Context, name = "work"): Promise<string> => {
  put(context, `src/${name}.ts`, `export const ${name.replaceAll(/\W/gu, "_")} = 1\n`)
  put(context, "src/module-01.ts", "export const module = 'changed by the agent'\n")
  return commit(context, `Add ${name}`)
}

/** Makes a workspace with ordinary work, and then spoils its repository. */
export const after =
  (spoil: (context: Context) => void | Promise<unknown>): Workspace["make"] =>
  async (context) => {
    const tip = await work(context)
    await spoil(context)
    return tip
  }

/** Defines a workspace with ordinary work, and a change that can share a workspace with others. */
export const spoiled = (
  name: string,
  attack: Attack,
  spoil: (context: Context) => void,
  wants: Workspace["wants"] = "delivered"
): Workspace => ({ name, attack, wants, spoil, make: after(spoil) })

/** Defines a workspace with ordinary work, and lines added to its configuration. */
export const configured = (
  name: string,
  attack: Attack,
  text: (context: Context) => string,
  wants: Workspace["wants"] = "delivered"
): Workspace => spoiled(name, attack, (context) => configure(context, text(context)), wants)

/** Removes a file or directory, if it exists. */
export const remove = (path: string): void => rmSync(path, { recursive: true, force: true })

/** Replaces a file or directory with a FIFO. */
export const pipe = async (path: string): Promise<void> => {
  remove(path)
  mkdirSync(dirname(path), { recursive: true })
  await run(["mkfifo", "-m", "666", path])
}

/** Returns the ID of an object, and its bytes with their header. */
export const encode = (type: string, body: Uint8Array): { readonly id: string; readonly bytes: Buffer } => {
  const bytes = Buffer.concat([Buffer.from(`${type} ${body.length}\0`), body])
  return { id: createHash("sha1").update(bytes).digest("hex"), bytes }
}

/** Writes a loose object with any content, and returns its ID. */
export const object = (context: Context, type: string, body: string | Uint8Array): string => {
  const { bytes, id } = encode(type, typeof body === "string" ? Buffer.from(body) : body)
  const path = inGit(context, `objects/${id.slice(0, 2)}/${id.slice(2)}`)
  if (!existsSync(path)) {
    mkdirSync(dirname(path), { recursive: true })
    writeFileSync(path, deflateSync(bytes))
  }
  return id
}

export interface Entry {
  readonly mode: string
  readonly name: string | Uint8Array
  readonly id: string
}

const nameOf = ({ name }: Entry) => (typeof name === "string" ? Buffer.from(name) : Buffer.from(name))

/** Returns the sort key of an entry. Git sorts a directory as if its name ended with a slash. */
const keyOf = (entry: Entry) =>
  entry.mode === "40000" ? Buffer.concat([nameOf(entry), Buffer.from("/")]) : nameOf(entry)

/** Encodes a tree in git's order. */
export const treeBytes = (entries: ReadonlyArray<Entry>): Buffer =>
  Buffer.concat(
    entries
      .toSorted((one, other) => Buffer.compare(keyOf(one), keyOf(other)))
      .flatMap((entry) => [
        Buffer.from(`${entry.mode} `),
        nameOf(entry),
        Buffer.from([0]),
        Buffer.from(entry.id, "hex")
      ])
  )

export const tree = (context: Context, entries: ReadonlyArray<Entry>): string =>
  object(context, "tree", treeBytes(entries))

/** Reads the entries of a tree. */
export const entriesOf = async (context: Context, revision: string): Promise<ReadonlyArray<Entry>> => {
  const listed = await git(context, "ls-tree", "-z", revision)
  return listed
    .split("\0")
    .filter((line) => line !== "")
    .map((line) => {
      const [what = "", name = ""] = line.split("\t")
      const [mode = "", , id = ""] = what.split(" ")
      return { mode: mode.replace(/^0+/u, ""), name: Buffer.from(name, "latin1"), id }
    })
}

const person = "Agent <agent@example.invalid> 1760000000 +0000"

export interface CommitText {
  readonly tree: string
  readonly parents: ReadonlyArray<string>
  readonly message?: string | undefined
  readonly author?: string
  /** Lines between the committer and the message. */
  readonly headers?: ReadonlyArray<string>
}

export const commitBytes = ({ author = person, headers = [], message, parents, tree }: CommitText): Buffer =>
  Buffer.from(
    [
      `tree ${tree}`,
      ...parents.map((parent) => `parent ${parent}`),
      `author ${author}`,
      `committer ${person}`,
      ...headers,
      "",
      `${message ?? "Made by hand"}\n`
    ].join("\n"),
    "latin1"
  )

export const rawCommit = (context: Context, text: CommitText): string =>
  object(context, "commit", commitBytes(text))

/** Points the branch, or another ref, at an ID. The index does not change. */
export const point = (context: Context, id: string, ref = `refs/heads/${context.branch}`): void => {
  const path = inGit(context, ref)
  mkdirSync(dirname(path), { recursive: true })
  writeFileSync(path, `${id}\n`)
}

/** Commits on the base with additional entries of any name in the top tree, and returns the commit ID. */
export const withEntries = async (
  context: Context,
  entries: ReadonlyArray<Entry>,
  message?: string
): Promise<string> => {
  const names = new Set(entries.map((entry) => nameOf(entry).toString("latin1")))
  const kept = (await entriesOf(context, context.base)).filter(
    (entry) => !names.has(nameOf(entry).toString("latin1"))
  )
  const id = rawCommit(context, {
    tree: tree(context, [...kept, ...entries]),
    parents: [context.base],
    message
  })
  point(context, id)
  return id
}
