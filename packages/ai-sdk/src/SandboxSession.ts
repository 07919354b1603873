/**
 * An open sandbox as the `experimental_sandbox` of the AI SDK 7.
 *
 * The SDK is not imported: its session type is written out here, and a test assigns one to the other. Nothing is added
 * to the sandbox and nothing is hidden: errors are those of the sandbox, and the caller closes it.
 */
import { fileBytesMax } from "@cogni/sandbox-core/ExecutorLimits"
import type { Sandbox } from "@cogni/sandbox-promise"
import type { FileProblem } from "@cogni/sandbox-promise/Failure"
import * as ByteStream from "./internal/ByteStream.ts"
import * as FileText from "./internal/FileText.ts"
import { orAbsent } from "./internal/FileAbsence.ts"
import * as SessionProcess from "./internal/SessionProcess.ts"

interface PathOptions {
  /** Absolute, or relative to the sandbox's workspace. */
  readonly path: string
  readonly abortSignal?: AbortSignal | undefined
}

interface CommandOptions {
  /** A line for `/bin/sh -c`. */
  readonly command: string
  /** Absolute, or relative to the sandbox's workspace, which is the default. */
  readonly workingDirectory?: string | undefined
  readonly env?: Readonly<Record<string, string>> | undefined
  /** Kills the command, with all its children, when it aborts. */
  readonly abortSignal?: AbortSignal | undefined
}

type Encoding = { readonly encoding?: string | undefined }

/** The AI SDK's `Experimental_SandboxSession`. Every method rejects with the errors of the sandbox. */
export interface SandboxSession {
  /** For instructions of an agent. The SDK does not add it to a prompt. */
  readonly description: string
  /** A stream of the bytes of a file, or null if it does not exist. */
  readonly readFile: (options: PathOptions) => Promise<ReadableStream<Uint8Array> | null>
  readonly readBinaryFile: (options: PathOptions) => Promise<Uint8Array | null>
  /** Lines are counted from 1, and `endLine` is included. */
  readonly readTextFile: (
    options: PathOptions &
      Encoding & { readonly startLine?: number | undefined; readonly endLine?: number | undefined }
  ) => Promise<string | null>
  /** Writes the file when the stream has ended. */
  readonly writeFile: (
    options: PathOptions & { readonly content: ReadableStream<Uint8Array> }
  ) => Promise<void>
  readonly writeBinaryFile: (options: PathOptions & { readonly content: Uint8Array }) => Promise<void>
  readonly writeTextFile: (options: PathOptions & Encoding & { readonly content: string }) => Promise<void>
  readonly stat: (
    options: PathOptions
  ) => Promise<{ readonly type: "file" | "directory" | "other"; readonly size: number } | null>
  readonly listDirectory: (options: PathOptions) => Promise<Array<{
    readonly name: string
    readonly type: "file" | "directory" | "symlink" | "other"
  }> | null>
  /** Returns whether the file existed. Removes a link itself, and rejects for a directory. */
  readonly deleteFile: (options: PathOptions) => Promise<boolean>
  readonly spawn: {
    (options: CommandOptions & { readonly stdin: true }): Promise<SessionProcess.WritableSessionProcess>
    (options: CommandOptions & { readonly stdin?: false | undefined }): Promise<SessionProcess.SessionProcess>
    (
      options: CommandOptions & { readonly stdin?: boolean | undefined }
    ): Promise<SessionProcess.SessionProcess | SessionProcess.WritableSessionProcess>
  }
  /** Runs a command to its end. An exit code other than 0 is a result. */
  readonly run: (options: CommandOptions) => Promise<{
    readonly exitCode: number
    readonly stdout: string
    readonly stderr: string
  }>
}

export interface SandboxSessionOptions {
  /** Replaces the description of the sandbox. */
  readonly description?: string | undefined
}

/** Offers an open sandbox to the AI SDK. Closing the sandbox ends the session. */
export const sandboxSession = (sandbox: Sandbox, options: SandboxSessionOptions = {}): SandboxSession => {
  const { files, workspace } = sandbox

  const readBinaryFile: SandboxSession["readBinaryFile"] = ({ abortSignal, path }) =>
    files.read(path, { signal: abortSignal }).catch(orAbsent(absent, null))

  const writeBinaryFile: SandboxSession["writeBinaryFile"] = ({ abortSignal, content, path }) =>
    files.write(path, content, { signal: abortSignal })

  const asked = ({ abortSignal, env, workingDirectory }: CommandOptions) => ({
    env,
    signal: abortSignal,
    workingDirectory: workingDirectory === undefined ? undefined : below(workspace, workingDirectory)
  })

  const spawn = (given: CommandOptions & { readonly stdin?: boolean | undefined }) =>
    given.stdin === true
      ? SessionProcess.startWritable((stdin) => sandbox.spawn(given.command, { ...asked(given), stdin }))
      : SessionProcess.start(sandbox.spawn(given.command, asked(given)))

  return {
    description: options.description ?? describe(workspace),
    readBinaryFile,
    readFile: async (given) => {
      const bytes = await readBinaryFile(given)
      return bytes === null ? null : ByteStream.of(bytes)
    },
    readTextFile: async (given) => {
      const bytes = await readBinaryFile(given)
      return bytes === null ? null : FileText.lines(FileText.decode(bytes, given.encoding), given)
    },
    writeBinaryFile,
    writeFile: async (given) =>
      writeBinaryFile({
        ...given,
        content: await ByteStream.whole(given.content, fileBytesMax, given.abortSignal)
      }),
    writeTextFile: async (given) =>
      writeBinaryFile({ ...given, content: FileText.encode(given.content, given.encoding) }),
    stat: async ({ abortSignal, path }) => {
      const found = await files.stat(path, { signal: abortSignal }).catch(orAbsent(absent, undefined))
      return found === undefined ? null : { type: typeOf(found.type), size: found.bytes }
    },
    listDirectory: async ({ abortSignal, path }) => {
      const entries = await files.list(path, { signal: abortSignal }).catch(orAbsent(["not_found"], null))
      return entries === null ? null : entries.map(({ name, type }) => ({ name, type }))
    },
    deleteFile: ({ abortSignal, path }) =>
      files.remove(path, { signal: abortSignal }).catch(orAbsent(absent, false)),
    // The type of the result follows from `stdin`, which overloads cannot infer from one function.
    spawn: spawn as SandboxSession["spawn"],
    run: async (given) => {
      const { exitCode, output } = await sandbox.exec(given.command, asked(given))
      return { exitCode, stdout: FileText.ofOutput(output.stdout), stderr: FileText.ofOutput(output.stderr) }
    }
  }
}

/** Nothing has this path. Below a file, there can be nothing. */
const absent: ReadonlyArray<FileProblem> = ["not_found", "not_a_directory"]

const below = (workspace: string, directory: string): string =>
  directory.startsWith("/") ? directory : `${workspace}/${directory}`

/** Links are followed, so that none is left. */
const typeOf = (type: "file" | "directory" | "symlink" | "other") => (type === "symlink" ? "other" : type)

const describe = (workspace: string): string =>
  [
    `A sealed Linux sandbox. Commands are run by /bin/sh and start in ${workspace}, the workspace.`,
    "They have no access to the internet, and no root rights. The system's own files are read-only.",
    `The file operations accept paths in the workspace only. A file that they read or write has at most ${fileBytesMax / 1024 ** 2} MiB.`,
    "Use commands for other and for larger files."
  ].join(" ")
