/** Detects the effects of an attack on a host and an origin from outside, the same way for every kind of host. */
import { createHash } from "node:crypto"
import { existsSync, lstatSync, readdirSync, readFileSync, readlinkSync } from "node:fs"
import { join } from "node:path"
import type { Attack, Context } from "./Corpus.ts"
import { run } from "./Making.ts"
import { type Origin, refsOf, token, username } from "./Origin.ts"
import type { Scene } from "./Scene.ts"

export interface Fired {
  readonly attack: Attack
  readonly detail: string
}

/** State before the attack. */
export interface Before {
  readonly host: ReadonlyMap<string, string>
  readonly refs: ReadonlyMap<string, string>
  readonly objects: ReadonlySet<string>
}

const digest = (bytes: Uint8Array | string) => createHash("sha256").update(bytes).digest("hex").slice(0, 16)

/** Lists every file below a directory with a digest of its content. Links are not followed. */
const snapshot = (directory: string, below = "", found = new Map<string, string>()) => {
  for (const name of readdirSync(join(directory, below))) {
    const path = join(below, name)
    const stat = lstatSync(join(directory, path))
    if (stat.isSymbolicLink()) found.set(path, `link ${readlinkSync(join(directory, path))}`)
    else if (stat.isDirectory()) {
      found.set(path, "directory")
      snapshot(directory, path, found)
    } else if (stat.isFile() && stat.size < 1 << 24) {
      found.set(path, `${stat.mode} ${digest(readFileSync(join(directory, path)))}`)
    } else found.set(path, `${stat.mode} ${stat.size}`)
  }
  return found
}

const changes = (before: ReadonlyMap<string, string>, after: ReadonlyMap<string, string>) =>
  [...new Set([...before.keys(), ...after.keys()])].filter((key) => before.get(key) !== after.get(key))

/** The encodings in which the token is sent or stored. */
const tokenForms = [
  token,
  Buffer.from(`${username}:${token}`).toString("base64"),
  Buffer.from(token).toString("base64").replace(/=+$/u, "")
]

const holdsToken = (text: string) => tokenForms.some((form) => text.includes(form))

/** Reports whether the attacker's server has received the token. */
export const hasToken = (scene: Scene): boolean => holdsToken(scene.collector.heard())

/** Reports whether a file of the host has changed. */
export const hasChangedHost = (scene: Scene, was: Before): boolean =>
  changes(was.host, snapshot(scene.host)).length > 0

/** Reports whether any ref of the origin has changed. */
export const hasMovedRefs = (scene: Scene, was: Before): boolean =>
  changes(was.refs, refsOf(scene.repository.path)).length > 0

/** Files that contain the token, that the agent can read, and to which the host did not write it itself. */
const kept = (repository: string): ReadonlyArray<string> => {
  const directory = join(repository, ".git")
  if (!existsSync(directory) || !lstatSync(directory).isDirectory()) return []
  return readdirSync(directory, { withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name !== "config")
    .map(({ name }) => join(directory, name))
    .filter((path) => lstatSync(path).size < 1 << 20 && holdsToken(readFileSync(path, "latin1")))
}

const bytesMax = 1 << 16

/** Lists the IDs of a repository's small objects, which are those that can contain a secret. */
const objectsOf = async (path: string): Promise<ReadonlyArray<string>> => {
  const format = "--batch-check=%(objectname) %(objectsize)"
  const listed = await run(["git", "-C", path, "cat-file", "--batch-all-objects", "--unordered", format])
  return listed
    .split("\n")
    .map((line) => line.split(" "))
    .filter(([, size]) => Number(size) < bytesMax)
    .map(([id = ""]) => id)
}

const published = async (scene: Scene, before: Before, secret: string): Promise<ReadonlyArray<string>> => {
  const { path } = scene.repository
  const added = (await objectsOf(path)).filter((id) => !before.objects.has(id))
  // A bomb does not contain a secret of the host, so the first objects are enough.
  const looked = added.slice(0, 4000)
  if (looked.length === 0) return []
  const texts = await run(["git", "-C", path, "cat-file", "--batch", "--buffer"], {
    input: `${looked.join("\n")}\n`
  })
  return texts.includes(secret) ? ["the origin has a secret of the host"] : []
}

/** Reports whether the origin's branch contains the commit, or, without a commit, more than its base. */
const accepted = async (scene: Scene, context: Context, tip: string | undefined): Promise<boolean> => {
  const { path } = scene.repository
  const head = refsOf(path).get(`refs/heads/${context.branch}`)
  if (head === undefined || head === context.base) return false
  if (tip === undefined || tip === head) return true
  const asked = await run(["git", "-C", path, "rev-list", "--max-count=2000", head])
  return asked.split("\n").includes(tip)
}

/** Lists the command lines of processes that contain a directory. */
export const processesOf = (directory: string): ReadonlyArray<string> =>
  readdirSync("/proc")
    .filter((name) => /^\d+$/u.test(name))
    .flatMap((name) => {
      try {
        return [readFileSync(`/proc/${name}/cmdline`, "latin1").replaceAll("\0", " ")]
      } catch {
        return []
      }
    })
    .filter((command) => command.includes(directory))

const seeds = new WeakMap<Origin, Promise<ReadonlySet<string>>>()

/** Lists the initial objects of an origin's repositories. */
const seeded = (origin: Origin): Promise<ReadonlySet<string>> => {
  const known = seeds.get(origin) ?? objectsOf(origin.template).then((ids) => new Set(ids))
  seeds.set(origin, known)
  return known
}

/** Records the state. Call it after the workspace is made, and before it is used. */
export const before = async (scene: Scene): Promise<Before> => ({
  host: snapshot(scene.host),
  refs: refsOf(scene.repository.path),
  objects: await seeded(scene.origin)
})

export interface Looked {
  /** Commit that the workspace is meant to deliver. */
  readonly tip?: string | undefined
  /** Reports it as an attack if the origin has any of its commits. */
  readonly forbidden: boolean
  /** Output on a terminal or in an answer. */
  readonly output?: string
}

/** Lists all effects of all kinds of attacks. */
export const observe = async (
  scene: Scene,
  context: Context,
  was: Before,
  { forbidden, output = "", tip }: Looked
): Promise<ReadonlyArray<Fired>> => {
  const fired: Array<Fired> = []
  const note = (attack: Attack, details: ReadonlyArray<string>) => {
    for (const detail of details) fired.push({ attack, detail })
  }
  if (existsSync(context.marker)) note("execution", ["a payload ran"])
  if (hasToken(scene)) note("credential", ["the attacker's server has the token"])
  note(
    "credential",
    kept(context.repository).map((path) => `the token is in ${path}`)
  )
  note(
    "file-write",
    changes(was.host, snapshot(scene.host)).map((path) => `${path} has changed`)
  )
  const refs = refsOf(scene.repository.path)
  const moved = changes(was.refs, refs).filter((name) => name !== `refs/heads/${context.branch}`)
  note(
    "ref",
    moved.map((name) => `${name} has moved`)
  )
  const options = join(scene.repository.path, "options")
  if (existsSync(options)) note("ref", [`options of a push: ${readFileSync(options, "latin1")}`])
  // A refused push leaves nothing.
  if (changes(was.refs, refs).length > 0) note("file-read", await published(scene, was, context.secret))
  if (forbidden && (await accepted(scene, context, tip))) note("content", ["the origin accepted the content"])
  if (output.includes("\u001b]0;owned")) note("content", ["an escape sequence reached the terminal"])
  return fired
}
