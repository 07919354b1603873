/**
 * Clones a repository of this host into one of the relay: a container reads it and writes a hostile stream.
 *
 *     repository ─► container, read-only ─► preface: its references ─► bundle ─► index-pack --strict
 */
import { named } from "@cogni/sandbox-core/Remedy"
import type { User } from "@cogni/sandbox-core/Posture"
import type { RunId } from "@cogni/sandbox-core/RunId"
import { Effect, Stream } from "effect"
import { OriginUnavailable, type RelayFailed } from "../../GitRelayError.ts"
import type { CommitId } from "../../Refs.ts"
import * as ContainerGit from "../git/ContainerGit.ts"
import * as HostRepository from "../git/HostRepository.ts"
import { command, oneLine } from "../git/ShownText.ts"
import * as BundleImport from "../steps/BundleImport.ts"
import { RelayContext } from "../steps/RelayContext.ts"
import * as OriginAnswers from "./OriginAnswers.ts"
import * as OriginContainer from "./OriginContainer.ts"
import * as OriginPreface from "./OriginPreface.ts"
import * as PathOrigin from "./PathOrigin.ts"

export interface CloneTarget extends OriginContainer.ReadRequest {
  readonly runId: RunId
  readonly url: string
  /** A bare repository of the relay; created by `begin`. */
  readonly gitDirectory: string
}

/** Branch and commit that a run starts from. */
export interface Base {
  readonly branch: string
  readonly commit: CommitId
}

/** Decides from the advertised references where a run starts, and creates the relay's repository. */
export type Begin = (
  advertised: OriginAnswers.Advertised
) => Effect.Effect<Base, OriginUnavailable | RelayFailed>

/** Settings of every container that opens a repository of this host. */
export const containerFor = (runId: RunId, origin: PathOrigin.PathOrigin) =>
  Effect.map(RelayContext, ({ image, limits }): OriginContainer.OriginRequest => ({
    runId,
    image,
    user: origin.user,
    source: origin.directory.path,
    identity: origin.identity,
    worktree: origin.worktree,
    runtimeSecondsMax: limits.transferSecondsMax
  }))

/** Reads a repository in one container: first the preface, then all objects into the relay's repository. */
export const read = Effect.fnUntraced(
  function* (target: CloneTarget, begin: Begin) {
    const { limits } = yield* RelayContext
    const { baseCommit, gitDirectory, runId, url } = target
    const origin = yield* PathOrigin.open(url)
    const spec = OriginContainer.readSpec(yield* containerFor(runId, origin), target)
    const git = yield* ContainerGit.start(spec)
    const ended = Effect.flatMap(git.ended, (end) =>
      end.exitCode === 0 ? Effect.void : Effect.fail(faultOf(end, origin))
    )
    const stdout = git.stdout.pipe(
      Stream.limitBytes<OriginUnavailable | RelayFailed, never>(limits.cloneBytesMax, () =>
        Stream.fail(OriginAnswers.tooLarge(limits.cloneBytesMax))
      )
    )
    const read = yield* BundleImport.readHead(stdout, OriginPreface.makeReader())
    if (read === undefined) {
      yield* ended
      return yield* BundleImport.unfit("its container wrote nothing")
    }
    const { preface, rest } = read.head
    const { advertised, shallow } = preface
    const base = yield* begin(advertised)
    // Before the import of the objects: a commit without its parents is valid only if it is listed as shallow.
    if (shallow.length > 0) yield* HostRepository.setShallow(gitDirectory, shallow)
    const tip = yield* BundleImport.take(Stream.concat(Stream.succeed(rest), read.rest), ended, {
      gitDirectory,
      expected: {
        objectFormat: advertised.objectFormat,
        ref: OriginContainer.baseRef,
        prerequisites: new Set(),
        objectsMax: limits.cloneObjectsMax
      },
      bytesMax: limits.cloneBytesMax,
      runtimeSecondsMax: limits.transferSecondsMax
    })
    if (tip !== (baseCommit ?? base.commit))
      return yield* BundleImport.unfit("it sent a different commit from the one that it named")
    yield* HostRepository.setRef(gitDirectory, HostRepository.refs.base, tip)
    return { base, objectFormat: advertised.objectFormat }
  },
  (reading) =>
    reading.pipe(
      Effect.catchTag("UnfitBundle", ({ detail }) => Effect.fail(refused(detail))),
      within("read", `Try again, or ask for less history (${named("CloneRequest.depth")})`),
      Effect.scoped
    )
)

/** Limits the time of a container's operation on a repository of this host. */
export const within =
  (what: string, remedy: string) =>
  <A, E, R>(effect: Effect.Effect<A, E, R>) =>
    Effect.flatMap(RelayContext, ({ limits: { transferSecondsMax } }) =>
      Effect.timeoutOrElse(effect, {
        duration: `${transferSecondsMax} seconds`,
        orElse: () =>
          new OriginUnavailable({
            fault: "timeout",
            detail: `took more than ${transferSecondsMax} s to ${what}`,
            remedy,
            isRetryable: true
          })
      })
    )

/** Maps the exit code of a container to an error. */
export const faultOf = (
  { exitCode, stderr }: ContainerGit.Ended,
  { directory, user }: Pick<PathOrigin.PathOrigin, "directory" | "user">
): OriginUnavailable => {
  const { exitCodes } = ContainerGit
  if (exitCode === exitCodes.denied || /permission denied/iu.test(stderr)) {
    // If the directory itself is not accessible, its container can only report the first name that it tried to open.
    const why = isOpenTo(user, directory)
      ? ` (${stderr})`
      : `, which has mode ${(directory.mode & 0o777).toString(8)}`
    return new OriginUnavailable({
      fault: "forbidden",
      detail: `may not be opened by the user ${user.userId}: ${oneLine(directory.path)}${why}`,
      remedy:
        directory.userId === 0 && user.userId === PathOrigin.nobodyId
          ? `No container runs as root: let others read it (${command("chmod -R go+rX", directory.path)}), or ` +
            "give the repository to an ordinary user (chown -R)"
          : "Run as the user that owns the repository"
    })
  }
  switch (exitCode) {
    case exitCodes.unfit:
      return refused(stderr)
    case exitCodes.absent:
      return new OriginUnavailable({
        fault: "not_found",
        detail: `is not a git repository (${stderr})`,
        remedy: "Check the path: it must be the directory that contains .git, or a bare repository"
      })
    case exitCodes.moved:
      return new OriginUnavailable({
        fault: "other",
        detail: `was replaced while it was opened (${stderr})`,
        remedy:
          "Check which process changes the directory, and that the engine runs on this machine; then try again",
        isRetryable: true
      })
    default:
      return new OriginUnavailable({
        fault: "other",
        detail: `cannot be used: its container ended with ${exitCode}${stderr === "" ? "" : ` (${stderr})`}`,
        remedy: "Check it with git fsck, in a copy that you trust"
      })
  }
}

/** Whether a user may list a directory and open the names in it. */
const isOpenTo = (user: User, { groupId, mode, userId }: PathOrigin.PathOrigin["directory"]) => {
  const shift = userId === user.userId ? 6 : groupId === user.groupId ? 3 : 0
  return ((mode >> shift) & 0o5) === 0o5
}

const refused = (detail: string) =>
  new OriginUnavailable({
    fault: "unsupported",
    detail: `is not opened: ${detail}`,
    remedy: "Repair the repository if you trust it, or use an intact one"
  })
