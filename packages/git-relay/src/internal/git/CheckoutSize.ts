/**
 * How much a commit becomes when it is checked out: found before that is done, by a listing that ends at the limits.
 *
 * Trees and files that a repository names many times are packed once. A few hundred kilobytes can be a thousand million
 * files, which git would hold in memory, or terabytes on the disk.
 */
import { Deferred, Effect } from "effect"
import { OriginUnavailable, RelayFailed } from "../../GitRelayError.ts"
import type { CommitId } from "../../Refs.ts"
import type { RelayLimits } from "../steps/RelayContext.ts"
import * as HostGit from "./HostGit.ts"

export type CheckoutLimits = Pick<RelayLimits, "checkoutPathsMax" | "checkoutBytesMax" | "checkSecondsMax">

/** What Linux takes as one path. */
const pathBytesMax = 4096

/** Git holds every path whole while it checks out, however many begin alike. */
const pathsBytesMax = 256 * 1024 * 1024

/** Fails when the commit is larger than a workspace may be. */
export const check = Effect.fnUntraced(function* (
  gitDirectory: string,
  commit: CommitId,
  limits: CheckoutLimits
) {
  const tooLarge = yield* Deferred.make<never, OriginUnavailable>()
  const count = makeCounter(limits)
  const git = yield* HostGit.start(
    {
      // With directories, which may be many and hold no file.
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
      remedy: "Look whether the origin is whole (git fsck)"
    })
}, Effect.scoped)

/** Takes `SIZE TAB PATH NUL …` in whatever pieces it comes; answers once there is too much. */
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
      // A directory has `-`, and so has a submodule.
      bytes += Number(size) || 0
      pathsBytes += pathBytes
      if (paths > checkoutPathsMax)
        return refusal(`${checkoutPathsMax} files and directories`, "limits.checkoutPathsMax")
      if (bytes > checkoutBytesMax)
        return refusal(`${checkoutBytesMax} bytes of files`, "limits.checkoutBytesMax")
      if (pathBytes > pathBytesMax) return refusal(`${pathBytesMax} bytes in one path`)
      if (pathsBytes > pathsBytesMax) return refusal(`${pathsBytesMax} bytes in all paths together`)
    }
    // The longest size, and a path that is longer than it may be: git need not end it.
    return rest.length > 32 + pathBytesMax ? refusal(`${pathBytesMax} bytes in one path`) : undefined
  }
}

const refusal = (limit: string, name?: string) =>
  new OriginUnavailable({
    fault: "unsupported",
    detail: `has a base with more than ${limit} when it is checked out`,
    remedy: `Start from a smaller commit${name === undefined ? "" : `, or allow more (${name})`}`
  })
