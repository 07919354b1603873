/**
 * Checks the size of a commit's checkout before it is written, with a listing that stops at the limits.
 *
 * A repository packs a tree or a file once, even if it has many names. A few hundred kilobytes can expand to a billion
 * files, which git would hold in memory, or to terabytes on disk.
 */
import { Deferred, Effect } from "effect"
import { OriginUnavailable, RelayFailed } from "../../GitRelayError.ts"
import type { CommitId } from "../../Refs.ts"
import type { RelayLimits } from "../steps/RelayContext.ts"
import * as HostGit from "./HostGit.ts"

export type CheckoutLimits = Pick<RelayLimits, "checkoutPathsMax" | "checkoutBytesMax" | "checkSecondsMax">

/** Maximum length of a path on Linux. */
const pathBytesMax = 4096

/**
 * Maximum length of all paths together. Git holds each path whole during a checkout, even if they share a beginning.
 */
const pathsBytesMax = 256 * 1024 * 1024

/** Fails if the commit is larger than a workspace may be. */
export const check = Effect.fnUntraced(function* (
  gitDirectory: string,
  commit: CommitId,
  limits: CheckoutLimits
) {
  const tooLarge = yield* Deferred.make<never, OriginUnavailable>()
  const count = makeCounter(limits)
  const git = yield* HostGit.start(
    {
      // Includes directories, because there can be many without files.
      argv: ["ls-tree", "-r", "-t", "-z", "--full-tree", "--format=%(objectsize)%x09%(path)", commit],
      gitDirectory,
      runtimeSecondsMax: limits.checkSecondsMax
    },
    (piece) => {
      const refused = count(piece)
      if (refused !== undefined) Deferred.doneUnsafe(tooLarge, Effect.fail(refused))
    }
  )
  git.stdin.end()
  const { exitCode, stderr } = yield* Effect.raceFirst(Deferred.await(tooLarge), git.answer)
  if (exitCode !== 0)
    return yield* new RelayFailed({
      detail: `git ls-tree ended with ${exitCode}: ${stderr.trim()}`,
      remedy: "Check the origin for missing or corrupt objects (git fsck)"
    })
}, Effect.scoped)

/**
 * Counts entries of the form `SIZE TAB PATH NUL …`, in pieces of any size. Returns a refusal once a limit is exceeded.
 */
const makeCounter = ({ checkoutBytesMax, checkoutPathsMax }: CheckoutLimits) => {
  let [paths, bytes, pathsBytes] = [0, 0, 0]
  let rest = ""
  return (piece: Buffer): OriginUnavailable | undefined => {
    const entries = (rest + piece.toString("latin1")).split("\0")
    rest = entries.pop() ?? ""
    for (const entry of entries) {
      const [size = ""] = entry.split("\t", 1)
      const pathBytes = entry.length - size.length - 1
      paths++
      // Directories and submodules have the size `-`.
      bytes += Number(size) || 0
      pathsBytes += pathBytes
      if (paths > checkoutPathsMax)
        return refusal(`${checkoutPathsMax} files and directories`, "limits.checkoutPathsMax")
      if (bytes > checkoutBytesMax)
        return refusal(`${checkoutBytesMax} bytes of files`, "limits.checkoutBytesMax")
      if (pathBytes > pathBytesMax) return refusal(`${pathBytesMax} bytes in one path`)
      if (pathsBytes > pathsBytesMax) return refusal(`${pathsBytesMax} bytes in all paths together`)
    }
    // An unfinished entry is refused once it is longer than any allowed size and path, because git may never end it.
    return rest.length > 32 + pathBytesMax ? refusal(`${pathBytesMax} bytes in one path`) : undefined
  }
}

const refusal = (limit: string, name?: string) =>
  new OriginUnavailable({
    fault: "unsupported",
    detail: `has a base with more than ${limit} when it is checked out`,
    remedy: `Start from a smaller commit${name === undefined ? "" : `, or allow more (${name})`}`
  })
