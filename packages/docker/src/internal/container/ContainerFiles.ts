/**
 * Files in the workspace of a supervised container. A program of the image reads, writes and removes them inside.
 *
 * The host never follows a path in a tree that an agent can write. It only reads the program's output, up to a limit.
 */
import type { OutputChunk } from "@cogni/sandbox-core/RunResult"
import type { ContainerError } from "@cogni/sandbox-core/ContainerRuntime"
import { type Files } from "@cogni/sandbox-core/Executor"
import { type FileEntry } from "@cogni/sandbox-core/ExecutorValues"
import { fileEntry } from "@cogni/sandbox-core/ExecutorCommand"
import { entriesMax, fileBytesMax } from "@cogni/sandbox-core/ExecutorLimits"
import * as FilePath from "@cogni/sandbox-core/FilePath"
import type { CommandRefused, FileRefused } from "@cogni/sandbox-core/SandboxReason"
import * as SandboxPlace from "@cogni/sandbox-core/SandboxPlace"
import { Duration, Effect, Stream } from "effect"
import * as JoinedBytes from "./JoinedBytes.ts"
import type { Supervisor } from "./Supervisor.ts"

const program = "/usr/local/bin/cogni-file"

/** Timeout of a file operation in seconds. */
const fileSecondsMax = 60

/** Maximum size of a listing: 300 bytes per entry, enough for a name of 255 bytes and its fields. */
const listingBytesMax = entriesMax * 300

const messageBytesMax = 1000

const problems: Readonly<Record<number, (path: string, why: string) => FileRefused>> = {
  40: FilePath.notFound,
  41: FilePath.notAFile,
  42: FilePath.notADirectory,
  43: FilePath.outside,
  45: FilePath.denied,
  46: FilePath.noSpace,
  47: FilePath.invalid
}

/** Collects up to `bytesMax` bytes, and records whether there were more. */
const collect = (bytesMax: number) => {
  const pieces: Array<Uint8Array> = []
  let bytes = 0
  return {
    add: (piece: Uint8Array) => {
      if (bytes < bytesMax) pieces.push(piece.subarray(0, bytesMax - bytes))
      bytes += piece.byteLength
    },
    all: () => JoinedBytes.of(pieces),
    isOver: () => bytes > bytesMax
  }
}

const entry = (type: string, bytes: string, modifiedAt: string, name: string): FileEntry =>
  fileEntry({
    name,
    type: type === "file" || type === "directory" || type === "symlink" ? type : "other",
    bytes: Number(bytes),
    modifiedMillis: Number(modifiedAt) * 1000
  })

/** Returns whether a name is valid for a directory entry. Any other could leave the directory when used in a path. */
const isName = (name: string): boolean => name !== "" && name !== "." && name !== ".." && !name.includes("/")

/**
 * Parses a listing, sorted by name. Returns `undefined` if it is invalid: a process inside the sandbox can write to the
 * program's output.
 */
const entries = (listing: string): ReadonlyArray<FileEntry> | undefined => {
  const fields = listing.split("\0")
  const found = Array.from({ length: Math.floor(fields.length / 4) }, (_, index) =>
    entry(fields[index * 4]!, fields[index * 4 + 1]!, fields[index * 4 + 2]!, fields[index * 4 + 3]!)
  )
  const isWhole = fields.at(-1) === "" && fields.length % 4 === 1
  return isWhole && found.length <= entriesMax && found.every(({ name }) => isName(name))
    ? found.toSorted((one, other) => (one.name < other.name ? -1 : 1))
    : undefined
}

/** Returns the path in the container. */
const targetOf = (relative: string): string =>
  relative === "" ? SandboxPlace.target : `${SandboxPlace.target}/${relative}`

/** An entry of a file or directory has up to 300 bytes, like those of a listing. */
const entryBytesMax = 300

const malformed = (path: string, what: string) =>
  Effect.fail(FilePath.unreadable(path, `${what} is malformed`))

export const make = (supervisor: Supervisor): Files<ContainerError | FileRefused> => {
  /** Runs the program once. Returns its output, or fails with the problem of the path. */
  const ask = Effect.fnUntraced(
    function* (
      path: string,
      argv: readonly [string, ...Array<string>],
      options: { readonly bytesMax: number; readonly stdin?: Uint8Array; readonly tooLarge: FileRefused }
    ): Effect.fn.Return<Uint8Array, ContainerError | CommandRefused | FileRefused, never> {
      const said = { stdout: collect(options.bytesMax), stderr: collect(messageBytesMax) }
      const { stdin } = options
      const { exitCode } = yield* Effect.scoped(
        Effect.gen(function* () {
          const running = yield* supervisor.exec({ argv, env: {}, stdin })
          yield* Stream.runForEach(running.output, ({ bytes, channel }: OutputChunk) => {
            said[channel].add(bytes)
            // Stop at the limit: another process inside may write to the output without end.
            return said.stdout.isOver() ? Effect.fail(options.tooLarge) : Effect.void
          })
          return yield* running.exit
        })
      )
      if (exitCode === 0 && !said.stdout.isOver()) return said.stdout.all()
      if (exitCode === 0 || exitCode === 44) return yield* options.tooLarge
      const why = new TextDecoder().decode(said.stderr.all())
      return yield* (problems[exitCode] ?? FilePath.unreadable)(path, why)
    },
    (asked, path) =>
      asked.pipe(
        Effect.timeoutOrElse({
          duration: Duration.seconds(fileSecondsMax),
          orElse: () => Effect.fail(FilePath.unreadable(path, `no answer within ${fileSecondsMax} s`))
        }),
        // The program and its working directory exist, so a refusal means that the sandbox is out of resources.
        Effect.catchTag("CommandRefused", ({ detail }) => Effect.fail(FilePath.unreadable(path, detail)))
      )
  )

  const inside = (path: string) => Effect.map(FilePath.relative(path), targetOf)

  return {
    read: (path, options) =>
      Effect.gen(function* () {
        const found = yield* inside(path)
        const bytesMax = yield* FilePath.readBytesMax(path, options?.bytesMax)
        return yield* ask(path, [program, "read", found, String(bytesMax)], {
          bytesMax,
          tooLarge: FilePath.tooLarge(path, bytesMax)
        })
      }),
    write: (path, content) =>
      Effect.flatMap(inside(path), (found) => {
        const stdin = typeof content === "string" ? new TextEncoder().encode(content) : content
        const tooLarge = FilePath.tooLarge(path, fileBytesMax)
        return stdin.byteLength > fileBytesMax
          ? Effect.fail(tooLarge)
          : Effect.asVoid(
              ask(path, [program, "write", found, String(stdin.byteLength)], { bytesMax: 0, stdin, tooLarge })
            )
      }),
    list: (path) =>
      Effect.flatMap(inside(path), (found) =>
        ask(path, [program, "list", found, String(entriesMax)], {
          bytesMax: listingBytesMax,
          tooLarge: FilePath.tooManyEntries(path)
        })
      ).pipe(
        Effect.flatMap((listing) => {
          const found = entries(new TextDecoder().decode(listing))
          return found === undefined ? malformed(path, "the listing") : Effect.succeed(found)
        })
      ),
    stat: (path) =>
      Effect.gen(function* () {
        const relative = yield* FilePath.relative(path)
        const tooLarge = FilePath.unreadable(path, "its description is malformed")
        const said = yield* ask(path, [program, "stat", targetOf(relative)], {
          bytesMax: entryBytesMax,
          tooLarge
        })
        const [type = "", bytes = "", modifiedAt = "", , ...rest] = new TextDecoder().decode(said).split("\0")
        // Links were followed, and the name is the one that was asked for.
        return rest.join("") === "" && rest.length === 1 && type !== "symlink"
          ? entry(type, bytes, modifiedAt, FilePath.nameOf(relative))
          : yield* malformed(path, "its description")
      }),
    remove: (path, options) =>
      Effect.gen(function* () {
        const relative = yield* FilePath.relative(path)
        if (relative === "") return yield* FilePath.theWorkspace(path)
        const how = options?.recursive === true ? ["recursive"] : []
        yield* ask(path, [program, "remove", targetOf(relative), ...how], {
          bytesMax: 0,
          tooLarge: FilePath.unreadable(path, "its removal wrote output")
        })
      }).pipe(
        Effect.catchIf(
          (refused) => refused._tag === "FileRefused" && refused.problem === "not_a_file",
          () => Effect.fail(FilePath.aDirectory(path))
        )
      )
  }
}
