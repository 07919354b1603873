/**
 * The workspace as a tar archive, which is made, examined and extracted inside the sandbox.
 *
 * Agents write the content of an archive, so it is hostile. The host only moves its bytes, up to a limit. It reads none
 * of its names, and opens no path.
 */
import type { Sandbox } from "@cogni/sandbox-promise"
import {
  type SandboxArchiveLimits,
  SandboxArchiveError,
  SandboxWorkspaceArchiveReadError,
  SandboxWorkspaceArchiveWriteError
} from "@openai/agents-core/sandbox"

/** Time limit of one step, in seconds. */
const stepSecondsMax = 600

const pieceBytes = 64 * 1024

/** Leaves out the paths that are its arguments. Exit code 1 means that a file has changed while it was read. */
const makeScript = `
for path do
  shift
  set -- "$@" "--exclude=./$path"
done
tar --create --sparse --anchored --no-wildcards "$@" --file=- . || [ $? -eq 1 ]`

/** Prints the number of members, the bytes of the extracted files, and the exit code of tar. */
const measureScript = `
{ LC_ALL=C tar --list --verbose --numeric-owner --quoting-style=escape --file=-; echo "end $?"; } |
awk '$1 == "end" { code = $2; next } { members++; if (/^-/) bytes += $3 } END { printf "%.0f %.0f %d\\n", members, bytes, code }'`

/** Empties the working directory, then extracts into it. The argument is a name that stays, or empty. */
const extractScript = `
chmod -R u+rwX . 2>/dev/null
find . -mindepth 1 -maxdepth 1 \${1:+! -name "$1"} -exec rm -rf -- {} + &&
tar --extract --no-same-owner --preserve-permissions --anchored --no-wildcards \${1:+"--exclude=./$1"} --file=-`

const script = (name: string, text: string, ...args: ReadonlyArray<string>) =>
  ["/bin/sh", "-c", text, `cogni-${name}`, ...args] as const

export interface Limits {
  /** Bytes of an archive that the host moves. */
  readonly archiveBytesMax: number
  /** Limits of the SDK, which may be narrower. */
  readonly given: SandboxArchiveLimits | null | undefined
}

/** A directory of the workspace that the host mounts read-only. It is in no archive, and stays. */
export type ReadOnlyName = typeof inputsName | undefined

/** Where a sandbox has its inputs, unless its spec says otherwise. */
export const inputsName = ".cogni"

/** Makes an archive of the workspace. `excluded` are paths relative to it. */
export const persist = async (
  sandbox: Sandbox,
  excluded: ReadonlyArray<string>,
  readOnly: ReadOnlyName,
  { archiveBytesMax }: Limits
): Promise<Uint8Array> => {
  const signal = AbortSignal.timeout(stepSecondsMax * 1000)
  const command = script("archive", makeScript, ...excluded, ...(readOnly === undefined ? [] : [readOnly]))
  try {
    return await read(sandbox, command, archiveBytesMax, signal)
  } catch (cause) {
    if (cause !== signal.reason) throw cause
    throw Object.assign(
      new SandboxWorkspaceArchiveReadError(
        `The workspace was not archived within ${stepSecondsMax} seconds. Remove files, or mark entries of the manifest as ephemeral.`
      ),
      { cause }
    )
  }
}

const read = async (
  sandbox: Sandbox,
  command: ReturnType<typeof script>,
  archiveBytesMax: number,
  signal: AbortSignal
): Promise<Uint8Array> => {
  await using process = await sandbox.spawn(command, { signal })
  let all = new Uint8Array(pieceBytes)
  let size = 0
  for await (const { bytes, channel } of process.output) {
    if (channel === "stderr") continue
    const before = size
    size += bytes.byteLength
    if (size > archiveBytesMax) {
      throw new SandboxWorkspaceArchiveReadError(
        `The workspace is larger than ${archiveBytesMax} bytes as an archive. Remove files, mark entries of the manifest as ephemeral, or raise archiveBytesMax.`,
        { archiveBytesMax }
      )
    }
    // One array, because an agent may cut the output into many small pieces.
    if (size > all.byteLength)
      all = extended(all, Math.max(size, Math.min(2 * all.byteLength, archiveBytesMax)))
    all.set(bytes, before)
  }
  const { exitCode } = await process.exit
  if (exitCode !== 0) {
    throw new SandboxWorkspaceArchiveReadError(
      `The workspace could not be archived: tar ended with exit code ${exitCode}. Check that the agent can read all its files, and that the image has GNU tar.`,
      { exitCode }
    )
  }
  return all.slice(0, size)
}

/** Replaces the content of the workspace. Nothing is changed if the archive is invalid, or exceeds a limit. */
export const hydrate = async (
  sandbox: Sandbox,
  archive: Uint8Array,
  readOnly: ReadOnlyName,
  { archiveBytesMax, given }: Limits
): Promise<void> => {
  within("input", archive.byteLength, Math.min(archiveBytesMax, given?.maxInputBytes ?? Infinity))
  const measured = await sandbox.exec(script("measure", measureScript), step(archive))
  const [members = 0, extractedBytes = 0, code = 2] = measured.stdout.trim().split(" ").map(Number)
  if (measured.exitCode !== 0 || code !== 0) {
    throw new SandboxArchiveError(
      "The data is not a tar archive that this sandbox can read, so the workspace is unchanged. Give it the bytes that persistWorkspace() has returned."
    )
  }
  within("members", members, given?.maxMembers ?? Infinity)
  within("extracted bytes", extractedBytes, given?.maxExtractedBytes ?? Infinity)
  const { exitCode } = await sandbox.exec(script("extract", extractScript, readOnly ?? ""), step(archive))
  if (exitCode !== 0) {
    throw new SandboxWorkspaceArchiveWriteError(
      `The archive could not be extracted completely: exit code ${exitCode}. The workspace may be full: raise its limit, or use a new sandbox.`,
      { exitCode }
    )
  }
}

const step = (archive: Uint8Array) => ({
  stdin: piecesOf(archive),
  timeoutSecondsMax: stepSecondsMax,
  outputRetainedBytesMax: 4096
})

const within = (what: string, actual: number, limit: number): void => {
  if (actual <= limit) return
  throw new SandboxArchiveError(
    `The archive has ${actual} ${what === "input" ? "bytes" : what}, and at most ${limit} are allowed. Raise the limit, or persist less.`,
    { reason: `archive ${what} exceeds limit`, limit, actual }
  )
}

/** A stream: standard input that is given as a whole has a lower limit. */
const piecesOf = async function* (bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.byteLength; at += pieceBytes) yield bytes.subarray(at, at + pieceBytes)
}

const extended = (bytes: Uint8Array<ArrayBuffer>, size: number): Uint8Array<ArrayBuffer> => {
  const longer = new Uint8Array(size)
  longer.set(bytes)
  return longer
}
