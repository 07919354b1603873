/** What workspaces are made with: the agent's own git, and objects written by hand where git would refuse to. */
import { createHash } from "node:crypto"
import { appendFileSync, existsSync, mkdirSync, rmSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { deflateSync } from "node:zlib"
import type { Attack, Context, Workspace } from "./Corpus.ts"
import * as Spawning from "./Spawning.ts"

/** Nothing of the machine's: whoever runs the tests, the same commits. */
export const environment: Readonly<Record<string, string>> = {
  PATH: "/usr/local/bin:/usr/bin:/bin",
  HOME: "/nonexistent",
  LC_ALL: "C",
  GIT_CONFIG_NOSYSTEM: "1",
  GIT_CONFIG_GLOBAL: "/dev/null",
  GIT_TERMINAL_PROMPT: "0",
  // A workspace may belong to another user than the one who runs the tests.
  GIT_CONFIG_COUNT: "1",
  GIT_CONFIG_KEY_0: "safe.directory",
  GIT_CONFIG_VALUE_0: "*",
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

/** What a program printed; fails with what it complained about. */
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

/** The agent's git, in its repository. */
export const git = (context: Context, ...argv: ReadonlyArray<string>): Promise<string> =>
  run(["git", "-C", context.repository, ...argv])

/** With input, or with an environment. */
export const gitWith = (
  context: Context,
  running: Running,
  ...argv: ReadonlyArray<string>
): Promise<string> => run(["git", "-C", context.repository, ...argv], running)

/** Path below the repository's `.git`. */
export const inGit = (context: Context, path: string): string => join(context.repository, ".git", path)

/** Write a file below the repository. */
export const put = (context: Context, path: string, text: string | Uint8Array, mode = 0o644): void => {
  const target = join(context.repository, path)
  mkdirSync(dirname(target), { recursive: true })
  writeFileSync(target, text, { mode })
}

/** Add to the repository's configuration, as text: git need not accept it. */
export const configure = (context: Context, text: string): void =>
  appendFileSync(inGit(context, "config"), `\n${text}\n`)

/** Commit all that is in the worktree; answers the commit. */
export const commit = async (context: Context, message: string): Promise<string> => {
  await git(context, "add", "-A")
  await git(context, "commit", "-q", "--no-verify", "--allow-empty", "-m", message)
  return git(context, "rev-parse", "HEAD")
}

/** An ordinary piece of work, which is to arrive. */
export const work = (context: Context, name = "work"): Promise<string> => {
  put(context, `src/${name}.ts`, `export const ${name.replaceAll(/\W/gu, "_")} = 1\n`)
  put(context, "src/module-01.ts", "export const module = 'changed by the agent'\n")
  return commit(context, `Add ${name}`)
}

/** Work, and then something done to the repository around it. */
export const after =
  (spoil: (context: Context) => void | Promise<unknown>): Workspace["make"] =>
  async (context) => {
    const tip = await work(context)
    await spoil(context)
    return tip
  }

/** Work, and something done that gets along with whatever else is done. */
export const spoiled = (
  name: string,
  attack: Attack,
  spoil: (context: Context) => void,
  wants: Workspace["wants"] = "delivered"
): Workspace => ({ name, attack, wants, spoil, make: after(spoil) })

/** Work, and lines added to the repository's configuration. */
export const configured = (
  name: string,
  attack: Attack,
  text: (context: Context) => string,
  wants: Workspace["wants"] = "delivered"
): Workspace => spoiled(name, attack, (context) => configure(context, text(context)), wants)

/** Whatever is there, gone. */
export const remove = (path: string): void => rmSync(path, { recursive: true, force: true })

/** A FIFO in the place of whatever is there. */
export const pipe = async (path: string): Promise<void> => {
  remove(path)
  mkdirSync(dirname(path), { recursive: true })
  await run(["mkfifo", "-m", "666", path])
}

/** Id of an object, and its bytes with their header. */
export const encode = (type: string, body: Uint8Array): { readonly id: string; readonly bytes: Buffer } => {
  const bytes = Buffer.concat([Buffer.from(`${type} ${body.length}\0`), body])
  return { id: createHash("sha1").update(bytes).digest("hex"), bytes }
}

/** Write a loose object, whatever is in it. */
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

/** As git orders them: a directory as if its name ended in a slash. */
const keyOf = (entry: Entry) =>
  entry.mode === "40000" ? Buffer.concat([nameOf(entry), Buffer.from("/")]) : nameOf(entry)

/** The bytes of a tree, in git's order. */
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

/** Entries of a tree of the repository. */
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

/** Let the branch, or another ref, be what is said; the index follows nobody. */
export const point = (context: Context, id: string, ref = `refs/heads/${context.branch}`): void => {
  const path = inGit(context, ref)
  mkdirSync(dirname(path), { recursive: true })
  writeFileSync(path, `${id}\n`)
}

/** A commit on the base whose top tree has more entries, however they are named. */
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
