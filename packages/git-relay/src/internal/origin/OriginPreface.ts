/**
 * Parser for the preface that a container writes about a repository of this host, as a hostile stream. Pure.
 *
 *     cogni-origin 1
 *     format sha1
 *     head <branch>                  absent if HEAD names no branch
 *     ref <commit> <reference>       HEAD and the base branch, if they exist
 *     shallow <commit>               commits whose parents are not sent
 *                                    an empty line, then a bundle if the branch exists
 */
import { Result } from "effect"
import type { Advertised } from "./OriginAnswers.ts"
import { CommitId, type ObjectFormat } from "../../Refs.ts"

export interface OriginPreface {
  readonly advertised: Advertised
  readonly shallow: ReadonlyArray<CommitId>
}

/** Maximum size of a preface. 100,000 shallow commits take 8 MB. */
const prefaceBytesMax = 9 * 1024 * 1024

const signature = "cogni-origin 1"
const refsMax = 2

/**
 * Collects pieces until the preface is complete, then returns it with the bytes after it, or the reason for its
 * refusal.
 */
export const makeReader = () => {
  const pieces: Array<Uint8Array> = []
  let bytes = 0
  return {
    push: (piece: Uint8Array) => {
      pieces.push(piece)
      bytes += piece.byteLength
      // The empty line may begin in the previous piece.
      const isWhole = Buffer.concat(pieces.slice(-2)).includes("\n\n")
      const all = isWhole ? Buffer.concat(pieces) : undefined
      const end = all?.indexOf("\n\n") ?? bytes
      if (end > prefaceBytesMax) return Result.fail(`its preface is larger than ${prefaceBytesMax} bytes`)
      if (all === undefined) return undefined
      return Result.map(parse(all.toString("utf8", 0, end)), (preface) => ({
        preface,
        rest: all.subarray(end + 2)
      }))
    }
  }
}

/** Parses the lines of a preface, without the empty one. */
export const parse = (text: string): Result.Result<OriginPreface, string> => {
  const [first, second, ...lines] = text.split("\n")
  const format = /^format (sha1|sha256)$/u.exec(second ?? "")?.[1] as ObjectFormat | undefined
  if (first !== signature || format === undefined)
    return Result.fail("its preface does not begin with the expected format")
  const digits = format === "sha1" ? 40 : 64
  const line = new RegExp(`^(?:ref ([0-9a-f]{${digits}}) (\\S{1,600})|shallow ([0-9a-f]{${digits}}))$`, "u")
  const refs = new Map<string, CommitId>()
  const shallow: Array<CommitId> = []
  const head = /^head (\S{1,500})$/u.exec(lines[0] ?? "")?.[1]
  for (const text of head === undefined ? lines : lines.slice(1)) {
    const [, id, name, cut] = line.exec(text) ?? []
    if (cut !== undefined) shallow.push(CommitId.make(cut))
    else if (id === undefined || name === undefined || refs.size >= refsMax)
      return Result.fail("its preface has an invalid line")
    else refs.set(name, CommitId.make(id))
  }
  const headBranch = refs.has("HEAD") ? head : undefined
  return Result.succeed({ advertised: { headBranch, refs, objectFormat: format }, shallow })
}
