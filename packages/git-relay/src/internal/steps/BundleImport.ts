/**
 * From a stream that an agent may have written to objects in a repository of the host.
 *
 *     container ─► header, read here ─► index-pack --strict, in the relay's repository
 *                                  └──► the bundle, kept as it came
 *
 * Bytes, objects, memory and time are limited; whichever side fails, both end and nothing of it counts.
 */
import * as OwnFiles from "@cogni/sandbox-host-files/OwnFiles"
import {
  type ContainerError,
  ContainerRuntime,
  type ContainerSpec
} from "@cogni/sandbox-core/ContainerRuntime"
import type { PostureMismatch } from "@cogni/sandbox-core/SandboxError"
import { Data, Duration, Effect, Result, type Scope, Stream } from "effect"
import { createHash } from "node:crypto"
import { type FileHandle, mkdir, rm } from "node:fs/promises"
import { join } from "node:path"
import * as Bundle from "../git/Bundle.ts"
import type { CollectedBundle } from "../../GitRelay.ts"
import { RelayFailed } from "../../GitRelayError.ts"
import { exitCodes } from "../origin/OriginContainer.ts"
import type { CommitId } from "../../Refs.ts"
import * as HostGit from "../git/HostGit.ts"
import { attempt, removeOwn } from "./KeptRuns.ts"
import * as HostRepository from "../git/HostRepository.ts"
import { oneLine } from "../git/ShownText.ts"

export interface CollectingLimits {
  readonly bundleBytesMax: number
  readonly objectsMax: number
  readonly runtimeSecondsMax: number
}

/**
 * It is no bundle that may be opened: git in the container had nothing to write (`nothing`), or could not (`export`),
 * or what it wrote will not do (`content`).
 */
export class Unfit extends Data.TaggedError("Unfit")<{
  readonly kind: "nothing" | "export" | "content"
  readonly detail: string
}> {}

export interface Imported {
  readonly tip: CommitId
  readonly bundle: CollectedBundle
}

const stderrBytesMax = 4096

/** An agent that makes its git say so has nothing pushed, and that is all. */
const emptyBundle = /Refusing to create empty bundle/u

/** What a container of the relay's wrote, as it comes; fails after its output when it did not end well. */
export interface Exported {
  readonly stdout: Stream.Stream<Uint8Array, RelayFailed>
  /** Settles after `stdout` has ended. */
  readonly ended: Effect.Effect<{ readonly exitCode: number; readonly stderr: string }, RelayFailed>
}

/** Removed with the scope, whatever it is doing. */
export const exported = Effect.fnUntraced(function* (spec: ContainerSpec) {
  const runtime = yield* ContainerRuntime
  const container = yield* runtime.acquire(spec).pipe(Effect.mapError(broken))
  yield* container.start.pipe(Effect.mapError(broken))
  let said = ""
  return {
    stdout: container.output.pipe(
      Stream.mapError(broken),
      Stream.tap((chunk) =>
        Effect.sync(() => {
          if (chunk.channel === "stderr" && said.length < stderrBytesMax)
            said += Buffer.from(chunk.bytes).toString("utf8")
        })
      ),
      Stream.filter(({ channel }) => channel === "stdout"),
      Stream.map(({ bytes }) => bytes)
    ),
    ended: Effect.map(Effect.mapError(container.exit, broken), ({ exitCode }) => ({
      exitCode,
      stderr: oneLine(said)
    }))
  } satisfies Exported
})

const broken = (error: ContainerError | PostureMismatch): RelayFailed =>
  new RelayFailed({
    detail: `the container that opens the repository failed: ${error.message}`,
    remedy: "Try again (relay retry)",
    isRetryable: true
  })

/** What a stream brought, once its objects are in the relay's repository. */
export interface Taken {
  readonly tip: CommitId
  readonly bytes: number
  /** SHA-256 of what was kept, in hexadecimal. */
  readonly digest: string
}

/** An import under way: pieces of a bundle, and its end. */
export interface Importing {
  readonly take: (piece: Uint8Array) => Effect.Effect<void, Unfit | RelayFailed, Scope.Scope>
  /** Checks the objects, and makes them count. */
  readonly finish: Effect.Effect<Taken, Unfit | RelayFailed>
}

/** Takes a bundle piece by piece. `bundlePath` keeps it as it came. */
export const importing = Effect.fnUntraced(function* (into: {
  readonly gitDirectory: string
  readonly bundlePath?: string | undefined
  readonly expected: Omit<Bundle.BundleExpectation, "objectsMax">
  readonly limits: CollectingLimits
}): Effect.fn.Return<Importing, RelayFailed, Scope.Scope> {
  const { bundlePath, limits } = into
  const reader = Bundle.makeReader({ ...into.expected, objectsMax: limits.objectsMax })
  const file = bundlePath === undefined ? undefined : yield* scratch(`${bundlePath}.new`)
  const quarantine = yield* emptied(join(into.gitDirectory, "quarantine"))
  const digest = createHash("sha256")
  let header: Bundle.BundleHeader | undefined
  let indexing: HostGit.RunningGit | undefined
  let bytes = 0
  let held: Array<Uint8Array> = []

  const take = Effect.fnUntraced(function* (piece: Uint8Array) {
    bytes += piece.byteLength
    if (bytes > limits.bundleBytesMax)
      return yield* new Unfit({
        kind: "content",
        detail: `the bundle is larger than ${limits.bundleBytesMax} bytes`
      })
    if (file !== undefined) {
      digest.update(piece)
      yield* attempt(bundlePath!, () => file.writeFile(piece))
    }
    if (indexing !== undefined) return yield* feed(indexing, piece)
    held.push(piece)
    const read = reader.push(piece)
    if (read === undefined) return
    if (Result.isFailure(read)) return yield* new Unfit({ kind: "content", detail: read.failure })
    header = read.success
    indexing = yield* indexPack({ gitDirectory: into.gitDirectory, quarantine }, limits)
    const pack = Buffer.concat(held).subarray(header.packOffset)
    held = []
    yield* feed(indexing, pack)
  })

  const finish = Effect.gen(function* () {
    if (header === undefined || indexing === undefined)
      return yield* new Unfit({ kind: "content", detail: reader.end() })
    indexing.stdin.end()
    const answer = yield* indexing.answer
    if (answer.exitCode !== 0)
      return yield* new Unfit({
        kind: "content",
        detail: `its objects are not sound: ${oneLine(answer.stderr)}`
      })
    // From here on they count: what was refused before has left nothing that a later bundle could build on.
    yield* HostRepository.transplant(quarantine, into.gitDirectory, "link")
    return { tip: header.tip, bytes, digest: digest.digest("hex") }
  })
  return { take, finish }
})

/** What an agent's container wrote, taken whole and kept as it came. */
export const imported = Effect.fnUntraced(
  function* (
    { ended, stdout }: Exported,
    into: {
      readonly gitDirectory: string
      readonly bundlePath: string
      readonly expected: Omit<Bundle.BundleExpectation, "objectsMax">
      readonly limits: CollectingLimits
    }
  ): Effect.fn.Return<Imported, Unfit | RelayFailed, Scope.Scope> {
    const { finish, take } = yield* importing(into)
    yield* Stream.runForEach(stdout, take)
    const end = yield* ended
    if (end.exitCode === exitCodes.unfit || end.exitCode === exitCodes.absent)
      return yield* new Unfit({ kind: "content", detail: end.stderr })
    if (end.exitCode !== 0)
      return yield* new Unfit({
        kind: emptyBundle.test(end.stderr) ? "nothing" : "export",
        detail: `git in its repository ended with ${end.exitCode}: ${end.stderr}`
      })
    const { bytes, digest, tip } = yield* finish
    yield* attempt(into.bundlePath, () => OwnFiles.move(`${into.bundlePath}.new`, into.bundlePath))
    return { tip, bundle: { path: into.bundlePath, bytes, digest } }
  },
  (effect, _, { limits }) =>
    Effect.timeoutOrElse(effect, {
      duration: Duration.seconds(limits.runtimeSecondsMax),
      orElse: () =>
        Effect.fail(
          new Unfit({
            kind: "content",
            detail: `taking it over took more than ${limits.runtimeSecondsMax} s`
          })
        )
    })
)

const scratch = (path: string) =>
  Effect.acquireRelease(
    attempt(path, () => OwnFiles.openScratch(path)),
    (file: FileHandle) => Effect.promise(() => file.close())
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

const indexPack = (
  where: { readonly gitDirectory: string; readonly quarantine: string },
  limits: CollectingLimits
) =>
  HostGit.start({
    ...where,
    argv: [
      "index-pack",
      "--stdin",
      "--fix-thin",
      "--strict",
      // In bytes: git takes no unit here, and would read 1m as 1.
      `--max-input-size=${limits.bundleBytesMax}`,
      "--threads=1"
    ],
    runtimeSecondsMax: limits.runtimeSecondsMax
  })

/** With back-pressure. A git that has ended takes nothing more, and says why when it is asked. */
const feed = (
  { answer, stdin }: HostGit.RunningGit,
  piece: Uint8Array
): Effect.Effect<void, Unfit | RelayFailed> =>
  stdin.destroyed || stdin.write(piece)
    ? Effect.void
    : Effect.raceFirst(
        Effect.callback<void>((resume) => {
          const drained = () => resume(Effect.void)
          stdin.once("drain", drained)
          return Effect.sync(() => stdin.off("drain", drained))
        }),
        Effect.flatMap(answer, ({ stderr }) =>
          Effect.fail(new Unfit({ kind: "content", detail: `its objects are not sound: ${oneLine(stderr)}` }))
        )
      )
