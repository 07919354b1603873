/**
 * Which directories of this host runs work in, so that no run gets one within or around another's.
 *
 * An agent can exchange any directory below its workspace, so one of them must not become a workspace while it lives.
 * Two runs of the same directory are no danger to each other: neither can write what lies above it.
 *
 * A claim is a file of its own, made before the others are read: of two runs that begin at the same moment at least one
 * sees the other. What a process that was killed has left counts no more, and is removed.
 */
import * as Attempt from "@cogni/sandbox-host-files/Attempt"
import { FileIdentity } from "@cogni/sandbox-core/Posture"
import { formatOwner, parseOwner } from "@cogni/sandbox-core/ResourceLabels"
import { RunId } from "@cogni/sandbox-core/RunId"
import { WorkspaceFailed } from "@cogni/sandbox-core/SandboxError"
import * as OwnFiles from "@cogni/sandbox-host-files/OwnFiles"
import * as MountIdentity from "@cogni/sandbox-host-files/MountIdentity"
import type { HeldDirectory } from "@cogni/sandbox-host-files/HeldDirectory"
import type { Identity } from "@cogni/sandbox-host-files/HostPath"
import { Effect, Option, Schema, type Scope } from "effect"
import { lstat, mkdir, readdir, readFile, rm, stat } from "node:fs/promises"
import { join } from "node:path"
import * as HostOwner from "../../HostOwner.ts"

/** One run's hold on one directory. */
export const Claim = Schema.Struct({
  version: Schema.Literal(1),
  runId: RunId,
  /** The host process, as `ResourceLabels.formatOwner` writes it. */
  owner: Schema.String,
  /** For messages. */
  path: Schema.String,
  directory: FileIdentity,
  /** Every directory above it, from the root down. */
  above: Schema.Array(FileIdentity)
})

export type Claim = typeof Claim.Type

/** Where a directory lies. */
export type Place = Pick<Claim, "directory" | "above">

const ClaimText = Schema.fromJsonString(Claim)
const decode = Schema.decodeUnknownOption(ClaimText)
const encode = Schema.encodeSync(ClaimText)

/** The age at which a claim of an owner that cannot be seen is given up: no run lives longer than a day. */
const claimSecondsMax = 90_000

const suffix = ".claim.json"

export const make = (options: { readonly directory: string }) => {
  const { directory } = options
  const owner = formatOwner(HostOwner.self())

  const live = attempt(directory, async () => {
    const names = await readdir(await own(directory))
    const found = await Promise.all(
      names
        .filter((name) => name.endsWith(suffix))
        .map(async (name) => ({ name, claim: await readLive(join(directory, name)) }))
    )
    return found.flatMap(({ claim, name }) => (claim === undefined ? [] : [{ name, claim }]))
  })

  /** Fails within or around a claimed directory; a claim of this name is one's own. */
  const check = Effect.fnUntraced(function* (held: HeldDirectory, own?: string) {
    const refusals = (yield* live).flatMap((other) =>
      other.name === own ? [] : (conflict(placeOf(held), other.claim) ?? [])
    )
    if (refusals[0] !== undefined) {
      return yield* new WorkspaceFailed({
        path: held.path,
        detail: refusals[0],
        remedy: "Wait until that run has ended (cogni-sandbox ps), or name a directory beside it"
      })
    }
  })

  const hold = Effect.fnUntraced(function* (
    runId: RunId,
    held: HeldDirectory
  ): Effect.fn.Return<void, WorkspaceFailed, Scope.Scope> {
    const name = `${runId}.${crypto.randomUUID()}${suffix}`
    const mine: Claim = {
      version: 1,
      runId,
      owner,
      path: held.path,
      ...placeOf(held)
    }
    yield* Effect.acquireRelease(
      attempt(directory, async () => {
        const draft = join(await own(directory), `${name}.new`)
        await OwnFiles.create(draft, encode(mine))
        await OwnFiles.move(draft, join(directory, name))
      }),
      () => Effect.promise(() => rm(join(directory, name), { force: true }).catch(() => undefined))
    )
    yield* check(held, name)
  })

  return {
    /** Refuse what `hold` would refuse, and claim nothing. */
    check: (held: HeldDirectory) => check(held),
    /** Claim a directory for a run until the scope closes; refused within or around one that a living run has claimed. */
    hold,
    /** Directories that an agent may be writing right now. */
    inUse: Effect.map(live, (found) =>
      found.map(({ claim }): Identity => ({
        device: BigInt(claim.directory.device),
        inode: BigInt(claim.directory.inode)
      }))
    )
  }
}

/** Why one claim excludes another; `undefined` where it does not. Pure. */
export const conflict = (asked: Place, other: Claim): string | undefined => {
  if (isSame(asked.directory, other.directory)) return undefined
  if (asked.above.some((one) => isSame(one, other.directory)))
    return `lies in ${other.path}, in which run ${other.runId} works and could exchange it`
  if (other.above.some((one) => isSame(one, asked.directory)))
    return `holds ${other.path}, in which run ${other.runId} works`
  return undefined
}

const isSame = (one: FileIdentity, other: FileIdentity): boolean =>
  one.device === other.device && one.inode === other.inode

const placeOf = (held: HeldDirectory): Place => ({
  directory: MountIdentity.written(held.identity),
  above: held.above.map(MountIdentity.written)
})

const absent = (thrown: NodeJS.ErrnoException): undefined => {
  if (thrown.code !== "ENOENT") throw thrown
}

/** Makes the directory, which nobody else may write: a claim that others could make or remove would say nothing. */
const own = async (directory: string): Promise<string> => {
  await mkdir(directory, { recursive: true, mode: 0o700 })
  const found = await lstat(directory)
  const userId = process.geteuid?.()
  if (!found.isDirectory() || (found.mode & 0o022) !== 0 || (userId !== undefined && found.uid !== userId))
    throw new Error("it is not a directory that only this user can write")
  return directory
}

/** `undefined` for a claim that excludes nothing: its owner is dead, or of another boot or machine with numbers of its own. */
const readLive = async (path: string): Promise<Claim | undefined> => {
  const text = await readFile(path, "utf8").catch(absent)
  const claim = Option.getOrUndefined(decode(text))
  const owner = claim === undefined ? undefined : parseOwner(claim.owner)
  const liveness = owner === undefined ? "unknown" : HostOwner.liveness(owner)
  if (liveness === "dead" || (liveness === "unknown" && (await isOld(path)))) {
    await rm(path, { force: true })
    return undefined
  }
  return owner !== undefined && HostOwner.isOfThisBoot(owner) ? claim : undefined
}

const isOld = async (path: string): Promise<boolean> => {
  const found = await stat(path).catch(absent)
  return found !== undefined && Date.now() - found.mtimeMs > claimSecondsMax * 1000
}

const attempt = <A>(directory: string, run: () => Promise<A>): Effect.Effect<A, WorkspaceFailed> =>
  Attempt.attempt(
    run,
    (message) =>
      new WorkspaceFailed({
        path: directory,
        detail: `cannot keep which workspaces are in use: ${message}`,
        remedy:
          "Name another one (COGNI_STATE_DIR, or `claims` of HostWorkspace), which only this user can write"
      })
  )
