/**
 * Claims of runs on workspace directories: no run gets a directory inside or around the workspace of another run.
 *
 * An agent can replace any directory below its workspace, so such a directory must not become a workspace while the
 * agent runs. Two runs may share one directory, because neither can write to its parents.
 *
 * Each claim is a file, written before the others are read: if two runs begin at the same moment, at least one sees the
 * other. A claim of a killed process is invalid, and is removed.
 */
import * as Attempt from "@cogni/sandbox-host-files/Attempt"
import { FileIdentity } from "@cogni/sandbox-core/Posture"
import { formatOwner, parseOwner } from "@cogni/sandbox-core/ResourceLabels"
import { named } from "@cogni/sandbox-core/Remedy"
import { RunId } from "@cogni/sandbox-core/RunId"
import { HostFailed, WorkspaceFailed } from "@cogni/sandbox-core/SandboxReason"
import * as OwnFiles from "@cogni/sandbox-host-files/OwnFiles"
import * as MountIdentity from "@cogni/sandbox-host-files/MountIdentity"
import type { HeldDirectory } from "@cogni/sandbox-host-files/HeldDirectory"
import type { Identity } from "@cogni/sandbox-host-files/HostPath"
import { Effect, Option, Schema, type Scope } from "effect"
import { readdir, readFile, rm, stat } from "node:fs/promises"
import { join } from "node:path"
import * as HostOwner from "../../HostOwner.ts"

/** The claim of one run on one directory. */
export const Claim = Schema.Struct({
  version: Schema.Literal(1),
  runId: RunId,
  /** The host process, as `ResourceLabels.formatOwner` writes it. */
  owner: Schema.String,
  /** Path of the directory, for messages only. */
  path: Schema.String,
  directory: FileIdentity,
  /** All its parent directories, from the root down. */
  above: Schema.Array(FileIdentity)
})

export type Claim = typeof Claim.Type

/** The location of a directory: its identity and those of its parents. */
export type Place = Pick<Claim, "directory" | "above">

const ClaimText = Schema.fromJsonString(Claim)
const decode = Schema.decodeUnknownOption(ClaimText)
const encode = Schema.encodeSync(ClaimText)

/** Age in seconds at which a claim of an unknown owner expires: 25 hours, as no run lives longer than a day. */
const claimSecondsMax = 90_000

const suffix = ".claim.json"

export const make = (options: { readonly directory: string }) => {
  const { directory } = options
  const owner = formatOwner(HostOwner.self())

  const live = attempt(directory, async () => {
    // Another user who could write to it could create or remove claims.
    await OwnFiles.makePrivateDirectory(directory)
    const names = await readdir(directory)
    const found = await Promise.all(
      names
        .filter((name) => name.endsWith(suffix))
        .map(async (name) => ({ name, claim: await readLive(join(directory, name)) }))
    )
    return found.flatMap(({ claim, name }) => (claim === undefined ? [] : [{ name, claim }]))
  })

  /** Fails if the directory is inside or around a claimed one. `own` is the name of the caller's claim. */
  const check = Effect.fnUntraced(function* (held: HeldDirectory, own?: string) {
    const refusals = (yield* live).flatMap((other) =>
      other.name === own ? [] : (conflict(placeOf(held), other.claim) ?? [])
    )
    if (refusals[0] !== undefined) {
      return yield* new WorkspaceFailed({
        path: held.path,
        detail: refusals[0],
        remedy: `Wait until that run has ended (${named("RunStore.list")}), or use a directory beside it`
      })
    }
  })

  const hold = Effect.fnUntraced(function* (
    runId: RunId,
    held: HeldDirectory
  ): Effect.fn.Return<void, WorkspaceFailed | HostFailed, Scope.Scope> {
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
        await OwnFiles.makePrivateDirectory(directory)
        const draft = join(directory, `${name}.new`)
        await OwnFiles.create(draft, encode(mine))
        await OwnFiles.move(draft, join(directory, name))
      }),
      () => Effect.promise(() => rm(join(directory, name), { force: true }).catch(() => undefined))
    )
    yield* check(held, name)
  })

  return {
    /** Makes the same checks as `hold`, without a claim. */
    check: (held: HeldDirectory) => check(held),
    /** Claims a directory for a run until the scope closes. Fails if it is inside or around a claimed one. */
    hold,
    /** Identities of the claimed directories, to which an agent may be writing. */
    inUse: Effect.map(live, (found) =>
      found.map(({ claim }): Identity => ({
        device: BigInt(claim.directory.device),
        inode: BigInt(claim.directory.inode)
      }))
    )
  }
}

/** Returns why a claim excludes a directory, or `undefined` if it does not. Pure. */
export const conflict = (asked: Place, other: Claim): string | undefined => {
  if (isSame(asked.directory, other.directory)) return undefined
  if (asked.above.some((one) => isSame(one, other.directory)))
    return `lies in ${other.path}, in which run ${other.runId} works and could replace it`
  if (other.above.some((one) => isSame(one, asked.directory)))
    return `contains ${other.path}, in which run ${other.runId} works`
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

/**
 * Reads a claim, and removes it if its owner is dead or it has expired. Returns `undefined` for these, and for claims
 * from another boot or machine, where inode numbers mean other directories.
 */
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

const attempt = <A>(directory: string, run: () => Promise<A>): Effect.Effect<A, HostFailed> =>
  Attempt.attempt(run, (_message, thrown) =>
    HostFailed.of(
      directory,
      "cannot store the claims of workspaces",
      thrown,
      `Set ${named("HostWorkspace.claims")} to a directory that only this user can write to`
    )
  )
