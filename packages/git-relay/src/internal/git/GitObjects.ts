/** `ObjectReader` for a repository of the host. One `cat-file` process stays open and answers requests in order. */
import { named } from "@cogni/sandbox-core/Remedy"
import { Effect } from "effect"
import { RelayFailed } from "../../GitRelayError.ts"
import { CommitId } from "../../Refs.ts"
import * as HostGit from "./HostGit.ts"
import type { ObjectInfo, ObjectReader, ObjectType } from "./ObjectReader.ts"
import { isAncestor } from "./HostRepository.ts"

interface Waiting {
  readonly wants: "info" | "content"
  readonly answered: (answer: Answer) => void
}

type Answer = { readonly info: ObjectInfo; readonly content?: Uint8Array } | undefined

const missing = /^(?:[0-9a-f]+|.*) (?:missing|ambiguous)$/u

export const make = (gitDirectory: string) =>
  Effect.gen(function* () {
    const waiting: Array<Waiting> = []
    const parser = makeParser(waiting)
    const git = yield* HostGit.start({ gitDirectory, argv: ["cat-file", "--batch-command"] }, parser)
    const ended = Effect.flatMap(
      git.answer,
      ({ exitCode, stderr }) =>
        new RelayFailed({
          detail: `git cat-file ended with ${exitCode}: ${stderr}`,
          remedy: `Try again (${named("GitRelay.reopen")})`,
          isRetryable: true
        })
    )
    const ask = (wants: Waiting["wants"], ids: ReadonlyArray<string>) =>
      Effect.raceFirst(
        Effect.callback<ReadonlyArray<Answer>>((resume) => {
          const answers: Array<Answer> = []
          if (ids.length === 0) return resume(Effect.succeed(answers))
          for (const _ of ids)
            waiting.push({
              wants,
              answered: (answer) => {
                answers.push(answer)
                if (answers.length === ids.length) resume(Effect.succeed(answers))
              }
            })
          git.stdin.write(ids.map((id) => `${wants === "info" ? "info" : "contents"} ${id}\n`).join(""))
        }),
        ended
      )
    return {
      info: (ids) => Effect.map(ask("info", ids), (answers) => answers.map((answer) => answer?.info)),
      content: (id) => Effect.map(ask("content", [id]), ([answer]) => answer?.content),
      commits: (tip, base, max) => commits(gitDirectory, tip, base, max),
      isAncestor: (ancestor, descendant) => isAncestor(gitDirectory, ancestor, descendant)
    } satisfies ObjectReader<RelayFailed>
  })

const commits = (gitDirectory: string, tip: CommitId, base: CommitId, max: number) =>
  Effect.map(
    HostGit.lines({
      gitDirectory,
      argv: ["rev-list", "--parents", "--topo-order", `--max-count=${max}`, tip, `^${base}`]
    }),
    (lines) =>
      lines.map((line) => {
        const [id = "", ...parents] = line.split(" ")
        return { id: CommitId.make(id), parents: parents.map((parent) => CommitId.make(parent)) }
      })
  )

/**
 * Parses answers, which arrive in the order of the requests: one line each, and then the content if it was requested.
 */
const makeParser = (waiting: Array<Waiting>) => {
  let rest: Buffer = Buffer.alloc(0)
  let body: { readonly info: ObjectInfo; readonly pieces: Array<Buffer>; bytes: number } | undefined

  const settle = (answer: Answer) => waiting.shift()?.answered(answer)

  /** Reads part of a body, and returns the offset after it. */
  const takeBody = (piece: Buffer, from: number): number => {
    const wanted = body!.info.bytes + 1 - body!.bytes
    const part = piece.subarray(from, from + wanted)
    body!.pieces.push(part)
    body!.bytes += part.byteLength
    if (part.byteLength === wanted) {
      const { info, pieces } = body!
      body = undefined
      settle({ info, content: Buffer.concat(pieces).subarray(0, info.bytes) })
    }
    return from + part.byteLength
  }

  return (piece: Buffer): void => {
    const all = rest.byteLength === 0 ? piece : Buffer.concat([rest, piece])
    rest = Buffer.alloc(0)
    let from = 0
    while (from < all.byteLength) {
      if (body !== undefined) {
        from = takeBody(all, from)
        continue
      }
      const end = all.indexOf(0x0a, from)
      if (end === -1) {
        rest = all.subarray(from)
        return
      }
      const info = infoOf(all.toString("latin1", from, end))
      from = end + 1
      if (info === undefined) settle(undefined)
      else if (waiting[0]?.wants === "content") body = { info, pieces: [], bytes: 0 }
      else settle({ info })
    }
  }
}

const infoOf = (line: string): ObjectInfo | undefined => {
  if (missing.test(line)) return undefined
  const found = /^[0-9a-f]+ (commit|tree|blob|tag) (\d+)$/u.exec(line)
  return found === null ? undefined : { type: found[1] as ObjectType, bytes: Number(found[2]) }
}
