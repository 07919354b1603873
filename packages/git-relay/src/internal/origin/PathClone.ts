/**
 * A repository of this host into one of the relay's own: by a container that reads it, as a hostile stream.
 *
 *     repository ─► container, read-only ─► preface: what stands where ─► bundle ─► index-pack --strict
 */
import type { User } from "@cogni/sandbox-core/Posture"
import type { RunId } from "@cogni/sandbox-core/RunId"
import { Effect, Result, type Scope, Stream } from "effect"
import { OriginUnavailable, type RelayFailed } from "../../GitRelayError.ts"
import type { Advertised } from "./OriginAnswers.ts"
import * as OriginContainer from "./OriginContainer.ts"
import type { CommitId } from "../../Refs.ts"
import type { Held } from "../steps/WorkspaceClone.ts"
import * as BundleImport from "../steps/BundleImport.ts"
import * as OriginPreface from "./OriginPreface.ts"
import * as PathOrigin from "./PathOrigin.ts"
import * as HostRepository from "../git/HostRepository.ts"
import { command, oneLine } from "../git/ShownText.ts"

export interface PathRequest {
  readonly runId: RunId
  readonly path: string
  /** A bare repository of the relay's own, once it has begun. */
  readonly gitDirectory: string
  readonly baseBranch?: string | undefined
  readonly baseCommit?: CommitId | undefined
  readonly depth: number
}

/** Where a run starts. */
export interface Base {
  readonly branch: string
  readonly commit: CommitId
}

/** Decides, from what stands where, and makes the relay's repository. */
export type Begin = (advertised: Advertised) => Effect.Effect<Base, OriginUnavailable | RelayFailed>

/** What is asked of every container that opens a repository of this host. */
export const containerFor = (
  { image, limits }: Pick<Held, "image" | "limits">,
  runId: RunId,
  origin: PathOrigin.PathOrigin
): OriginContainer.OriginRequest => ({
  runId,
  image,
  user: origin.user,
  source: origin.directory.path,
  identity: origin.identity,
  worktree: origin.worktree,
  runtimeSecondsMax: limits.transferSecondsMax
})

/** Reads it, in one container. */
export const read = (held: Held, request: PathRequest, begin: Begin) =>
  Effect.gen(function* () {
    const origin = yield* PathOrigin.open(request.path)
    const spec = OriginContainer.readSpec(containerFor(held, request.runId, origin), request)
    const { ended, stdout } = yield* BundleImport.exported(spec)
    const reading = reader(held, request, begin)
    yield* Stream.runForEach(stdout, reading.take)
    const { exitCode, stderr } = yield* ended
    if (exitCode !== 0) return yield* faultOf(exitCode, stderr, origin)
    return yield* reading.finish
  }).pipe(
    Effect.catchTag("Unfit", ({ detail }) => Effect.fail(refused(detail))),
    Effect.timeoutOrElse({
      duration: `${held.limits.transferSecondsMax} seconds`,
      orElse: () =>
        Effect.fail(
          new OriginUnavailable({
            fault: "timeout",
            detail: `took more than ${held.limits.transferSecondsMax} s to read`,
            remedy: "Try again, or ask for less history (--depth)",
            isRetryable: true
          })
        )
    }),
    Effect.scoped
  )

/** Why its container ended with that code. */
export const faultOf = (
  exitCode: number,
  said: string,
  { directory, user }: Pick<PathOrigin.PathOrigin, "directory" | "user">
): OriginUnavailable => {
  const { exitCodes } = OriginContainer
  if (exitCode === exitCodes.denied || /permission denied/iu.test(said)) {
    // Where the directory itself is closed, its container can say no more than which name it tried first in it.
    const why = isOpenTo(user, directory.stats)
      ? ` (${said})`
      : `, which has mode ${(directory.stats.mode & 0o777n).toString(8)}`
    return new OriginUnavailable({
      fault: "forbidden",
      detail: `may not be opened by the user ${user.userId}: ${oneLine(directory.path)}${why}`,
      remedy:
        directory.stats.uid === 0n && user.userId === PathOrigin.nobodyId
          ? `No container runs as root: let others read it (${command("chmod -R go+rX", directory.path)}), or ` +
            "give the repository to an ordinary user (chown -R)"
          : "Run as the user that owns the repository",
      isRetryable: false
    })
  }
  switch (exitCode) {
    case exitCodes.unfit:
      return refused(said)
    case exitCodes.absent:
      return new OriginUnavailable({
        fault: "not_found",
        detail: `is not a git repository (${said})`,
        remedy: "Check the path: it is the directory that has .git in it, or a bare repository",
        isRetryable: false
      })
    case exitCodes.moved:
      return new OriginUnavailable({
        fault: "other",
        detail: `was replaced while it was opened (${said})`,
        remedy: "Look who changes the directory, and whether the engine runs on this machine; then try again",
        isRetryable: true
      })
    default:
      return new OriginUnavailable({
        fault: "other",
        detail: `cannot be used: its container ended with ${exitCode}${said === "" ? "" : ` (${said})`}`,
        remedy: "Check it with git fsck, in a copy that you trust",
        isRetryable: false
      })
  }
}

/** Whether a directory lets a user look for names in it, and list them. */
const isOpenTo = (
  { groupId, userId }: User,
  { gid, mode, uid }: PathOrigin.PathOrigin["directory"]["stats"]
) => {
  const shift = uid === BigInt(userId) ? 6n : gid === BigInt(groupId) ? 3n : 0n
  return ((mode >> shift) & 0o5n) === 0o5n
}

const refused = (detail: string) =>
  new OriginUnavailable({
    fault: "unsupported",
    detail: `is not opened: ${detail}`,
    remedy: "Repair that if you trust the repository, or name one that is whole",
    isRetryable: false
  })

const tooLarge = (bytesMax: number) =>
  new OriginUnavailable({
    fault: "unsupported",
    detail: `sends more than ${bytesMax} bytes`,
    remedy: "Ask for less history (--depth), or allow more (limits.cloneBytesMax)",
    isRetryable: false
  })

/** The preface first, and then everything into the relay's repository. */
const reader = ({ limits }: Held, { baseCommit, gitDirectory }: PathRequest, begin: Begin) => {
  const preface = OriginPreface.makeReader()
  let began: { readonly base: Base; readonly advertised: Advertised } | undefined
  let importing: BundleImport.Importing | undefined
  let bytes = 0

  const take = (
    piece: Uint8Array
  ): Effect.Effect<void, OriginUnavailable | RelayFailed | BundleImport.Unfit, Scope.Scope> =>
    Effect.gen(function* () {
      bytes += piece.byteLength
      if (bytes > limits.cloneBytesMax) return yield* tooLarge(limits.cloneBytesMax)
      if (importing !== undefined) return yield* importing.take(piece)
      const read = preface.push(piece)
      if (read === undefined) return
      if (Result.isFailure(read))
        return yield* new BundleImport.Unfit({ kind: "content", detail: read.failure })
      const { advertised, shallow } = read.success.preface
      began = { base: yield* begin(advertised), advertised }
      // Before the objects: a commit whose parents are not sent is sound only where that is known.
      if (shallow.length > 0) yield* HostRepository.setShallow(gitDirectory, shallow)
      importing = yield* BundleImport.importing({
        gitDirectory,
        expected: {
          objectFormat: advertised.objectFormat,
          ref: OriginContainer.baseRef,
          prerequisites: new Set()
        },
        limits: {
          bundleBytesMax: limits.cloneBytesMax,
          objectsMax: limits.cloneObjectsMax,
          runtimeSecondsMax: limits.transferSecondsMax
        }
      })
      if (read.success.rest.byteLength > 0) yield* importing.take(read.success.rest)
    })

  const finish = Effect.gen(function* () {
    if (began === undefined || importing === undefined)
      return yield* new BundleImport.Unfit({ kind: "content", detail: "its container said nothing of it" })
    const { tip } = yield* importing.finish
    if (tip !== (baseCommit ?? began.base.commit))
      return yield* new BundleImport.Unfit({
        kind: "content",
        detail: "it sent another commit than it named"
      })
    yield* HostRepository.setRef(gitDirectory, HostRepository.refs.base, tip)
    return { base: began.base, objectFormat: began.advertised.objectFormat }
  })
  return { take, finish }
}
