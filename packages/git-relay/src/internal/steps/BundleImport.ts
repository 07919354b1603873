/**
 * From a stream that an agent may have written to objects in a repository of the host.
 *
 *     container ─► header, read here ─► index-pack --strict, in the relay's repository
 *                                  └──► the bundle, kept as it came
 *
 * Bytes, objects, memory and time are limited; whichever side fails, both end and nothing of it counts.
 */
import * as OwnFiles from "@cogni/sandbox-host-files/OwnFiles"
import { Data, Effect, Result, Sink, Stream } from "effect"
import { createHash } from "node:crypto"
import { mkdir, rm } from "node:fs/promises"
import { join } from "node:path"
import type { CollectedBundle } from "../../GitRelay.ts"
import type { RelayFailed } from "../../GitRelayError.ts"
import * as Bundle from "../git/Bundle.ts"
import * as ContainerGit from "../git/ContainerGit.ts"
import * as HostGit from "../git/HostGit.ts"
import * as HostRepository from "../git/HostRepository.ts"
import { attempt, removeOwn } from "../git/RelayFiles.ts"
import { oneLine } from "../git/ShownText.ts"

/**
 * It is no bundle that may be opened: git in the container had nothing to write (`nothing`), or could not (`export`),
 * or what it wrote will not do (`content`).
 */
export class UnfitBundle extends Data.TaggedError("UnfitBundle")<{
  readonly kind: "nothing" | "export" | "content"
  readonly detail: string
}> {}

/** A bundle whose objects are in the repository. */
export type Imported = Effect.Success<ReturnType<typeof keep>>

export const unfit = (detail: string) => new UnfitBundle({ kind: "content", detail })

export interface ImportTarget {
  readonly gitDirectory: string
  readonly expected: Bundle.BundleExpectation
  readonly bytesMax: number
  readonly runtimeSecondsMax: number
}

/** What a reader makes of the beginning of a stream (`undefined`: it ended before that), and what comes after. */
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

/** The tip of a bundle whose objects are in the repository from then on: once its container has `ended` well. */
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
      // In bytes: git takes no unit here, and would read 1m as 1.
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
  // From here on they count: what was refused before has left nothing that a later bundle could build on.
  yield* HostRepository.transplant(quarantine, gitDirectory, "link")
  return read.head.tip
})

/** An agent that makes its git say so has nothing pushed, and that is all. */
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

/** What an agent's container wrote, taken whole and kept as it came at `path`. */
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
    yield* attempt(path, () => OwnFiles.move(draft, path))
    const bundle: CollectedBundle = { path, bytes, digest: digest.digest("hex") }
    return { tip, bundle }
  },
  (effect, _, __, { runtimeSecondsMax }) =>
    Effect.timeoutOrElse(effect, {
      duration: `${runtimeSecondsMax} seconds`,
      orElse: () => Effect.fail(unfit(`taking it over took more than ${runtimeSecondsMax} s`))
    })
)

/** A directory for objects, which goes with the scope. */
const emptied = (path: string) =>
  Effect.acquireRelease(
    attempt(path, async () => {
      await rm(path, { recursive: true, force: true })
      await mkdir(join(path, "objects", "pack"), { recursive: true, mode: 0o700 })
      return path
    }),
    () => Effect.ignore(removeOwn(path))
  )

const unsound = (stderr: string) => Effect.fail(unfit(`its objects are not sound: ${oneLine(stderr)}`))

/** With back-pressure. A git that has ended takes nothing more, and says why when it is asked. */
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
