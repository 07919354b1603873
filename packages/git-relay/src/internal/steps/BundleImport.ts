/**
 * Imports objects from a stream that an agent may have written into a repository of the host.
 *
 *     container ─► header, read here ─► index-pack --strict, in the relay's repository
 *                                  └──► the bundle, stored unchanged
 *
 * Bytes, objects, memory and time are limited. If either side fails, both end and nothing is imported.
 */
import * as OwnFiles from "@cogni/sandbox-host-files/OwnFiles"
import { Data, Effect, Result, Sink, Stream } from "effect"
import { createHash } from "node:crypto"
import { rm } from "node:fs/promises"
import { join } from "node:path"
import type { CollectedBundle } from "../../RelaySteps.ts"
import type { RelayFailed } from "../../GitRelayError.ts"
import * as Bundle from "../git/Bundle.ts"
import * as ContainerGit from "../git/ContainerGit.ts"
import * as HostGit from "../git/HostGit.ts"
import * as HostRepository from "../git/HostRepository.ts"
import { attempt, attemptWhole, removeOwn } from "../git/RelayFiles.ts"
import { oneLine } from "../git/ShownText.ts"

/**
 * The export is not a valid bundle: git in the container had nothing to write (`nothing`), failed (`export`), or wrote
 * an invalid bundle (`content`).
 */
export class UnfitBundle extends Data.TaggedError("UnfitBundle")<{
  readonly kind: "nothing" | "export" | "content"
  readonly detail: string
}> {}

/** A bundle whose objects are in the repository. */
export type Imported = Effect.Success<ReturnType<typeof keep>>

export const unfit = (detail: string) => new UnfitBundle({ kind: "content", detail })

interface ImportTarget {
  readonly gitDirectory: string
  readonly expected: Bundle.BundleExpectation
  readonly bytesMax: number
  readonly runtimeSecondsMax: number
}

/**
 * Returns what a reader made of the beginning of a stream, and the rest of the stream. Returns `undefined` if the
 * stream ended first.
 */
export const readHead = <A, E, R>(
  stream: Stream.Stream<Uint8Array, E, R>,
  { push }: { readonly push: (piece: Uint8Array) => Result.Result<A, string> | undefined }
) =>
  Effect.gen(function* () {
    const head = Sink.reduceWhile<Result.Result<A, string> | undefined, Uint8Array>(
      () => undefined,
      (read) => read === undefined,
      (_, piece) => push(piece)
    )
    const [read, rest] = yield* Stream.peel(stream, head)
    if (read === undefined) return undefined
    if (Result.isFailure(read)) return yield* unfit(read.failure)
    return { head: read.success, rest }
  })

/**
 * Imports a bundle and returns its tip. Its objects are added to the repository only after its container has `ended`
 * without an error.
 */
export const take = Effect.fnUntraced(function* <E, R, E2, R2>(
  stream: Stream.Stream<Uint8Array, E, R>,
  ended: Effect.Effect<unknown, E2, R2>,
  { bytesMax, expected, gitDirectory, runtimeSecondsMax }: ImportTarget
) {
  const quarantine = yield* emptied(join(gitDirectory, "quarantine"))
  const reader = Bundle.makeReader(expected)
  const pieces: Array<Uint8Array> = []
  const push = (piece: Uint8Array) => {
    pieces.push(piece)
    return reader.push(piece)
  }
  const read = yield* readHead(stream, { push })
  if (read === undefined) {
    yield* ended
    return yield* unfit(reader.end())
  }
  const git = yield* HostGit.start({
    gitDirectory,
    quarantine,
    argv: [
      "index-pack",
      "--stdin",
      "--fix-thin",
      "--strict",
      // In bytes: git accepts no unit here, and would read 1m as 1.
      `--max-input-size=${bytesMax}`,
      "--threads=1"
    ],
    runtimeSecondsMax
  })
  yield* feed(git, Buffer.concat(pieces).subarray(read.head.packOffset))
  yield* Stream.runForEach(read.rest, (piece) => feed(git, piece))
  yield* ended
  git.stdin.end()
  const { exitCode, stderr } = yield* git.answer
  if (exitCode !== 0) return yield* unsound(stderr)
  // The objects count from here on. A bundle that was refused earlier leaves nothing that a later one could build on.
  yield* HostRepository.transplant(quarantine, gitDirectory, "link")
  return read.head.tip
})

/** git's message for an empty bundle. An agent that fakes it only prevents its own push. */
const emptyBundle = /Refusing to create empty bundle/u

const requireExported = ({ exitCode, stderr }: ContainerGit.Ended) => {
  const { absent, unfit: refused } = ContainerGit.exitCodes
  if (exitCode === 0) return Effect.void
  if (exitCode === refused || exitCode === absent) return unfit(stderr)
  return new UnfitBundle({
    kind: emptyBundle.test(stderr) ? "nothing" : "export",
    detail: `git in its repository ended with ${exitCode}: ${stderr}`
  })
}

/** Imports the whole output of an agent's container, and stores the bundle unchanged at `path`. */
export const keep = Effect.fnUntraced(
  function* ({ ended, stdout }: ContainerGit.RunningGit, path: string, target: ImportTarget) {
    const draft = `${path}.new`
    const file = yield* Effect.acquireRelease(
      attempt(draft, () => OwnFiles.openScratch(draft)),
      (file) => Effect.promise(() => file.close())
    )
    const digest = createHash("sha256")
    let bytes = 0
    const kept = stdout.pipe(
      Stream.limitBytes<RelayFailed | UnfitBundle, never>(target.bytesMax, () =>
        Stream.fail(unfit(`the bundle is larger than ${target.bytesMax} bytes`))
      ),
      Stream.tap((piece) => {
        bytes += piece.byteLength
        digest.update(piece)
        return attempt(draft, () => file.writeFile(piece))
      })
    )
    const tip = yield* take(kept, Effect.flatMap(ended, requireExported), target)
    yield* attemptWhole(path, () => OwnFiles.move(draft, path))
    const bundle: CollectedBundle = { path, bytes, digest: digest.digest("hex") }
    return { tip, bundle }
  },
  (effect, _, __, { runtimeSecondsMax }) =>
    Effect.timeoutOrElse(effect, {
      duration: `${runtimeSecondsMax} seconds`,
      orElse: () => Effect.fail(unfit(`the import took more than ${runtimeSecondsMax} s`))
    })
)

/** Creates a directory for objects, which is removed when the scope closes. */
const emptied = (path: string) =>
  Effect.acquireRelease(
    attempt(path, async () => {
      await rm(path, { recursive: true, force: true })
      await OwnFiles.makeDirectory(join(path, "objects", "pack"))
      return path
    }),
    () => Effect.ignore(removeOwn(path))
  )

const unsound = (stderr: string) => Effect.fail(unfit(`its objects are invalid: ${oneLine(stderr)}`))

/** Writes with back-pressure. A git that has ended accepts nothing more; its answer says why. */
const feed = ({ answer, stdin }: HostGit.RunningGit, piece: Uint8Array) =>
  stdin.destroyed || stdin.write(piece)
    ? Effect.void
    : Effect.raceFirst(
        Effect.callback<void>((resume) => {
          const drained = () => resume(Effect.void)
          stdin.once("drain", drained)
          return Effect.sync(() => stdin.off("drain", drained))
        }),
        Effect.flatMap(answer, ({ stderr }) => unsound(stderr))
      )
