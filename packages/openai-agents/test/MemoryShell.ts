/** The commands of the suite, and a program that knows them by heart, for a sandbox in memory. */
import type { MemoryCommand, MemoryOutput, MemoryProgram } from "@cogni/sandbox-promise"
import { Buffer } from "node:buffer"

/** Lines for a shell. */
export const lines = {
  both: "printf out; printf err >&2; exit 3",
  cat: "cat",
  long: "printf '%010000d' 0",
  where: "pwd",
  variable: 'printf %s "$WORD"',
  sleeps: "echo ready; exec sleep 1000",
  terminal: "test -t 0 && printf terminal",
  note: "cat notes/one.txt"
}

interface Archive {
  readonly directories: Array<string>
  readonly files: Record<string, string>
}

type Command = Pick<MemoryCommand, "files" | "stdin">

const walk = async ({ files }: Command, excluded: ReadonlySet<string>): Promise<Archive> => {
  const archive: Archive = { directories: [], files: {} }
  const pending = [""]
  for (let at = pending.pop(); at !== undefined; at = pending.pop()) {
    for (const { name, type } of await files.list(at === "" ? "." : at)) {
      const path = at === "" ? name : `${at}/${name}`
      if (excluded.has(path)) continue
      if (type === "directory") {
        archive.directories.push(path)
        pending.push(path)
      } else archive.files[path] = Buffer.from(await files.read(path)).toString("base64")
    }
  }
  return archive
}

const textOf = async ({ stdin }: Command): Promise<string> => {
  const pieces: Array<Uint8Array> = []
  for await (const piece of stdin) pieces.push(piece)
  return Buffer.concat(pieces).toString("utf8")
}

const archiveOf = async (command: Command): Promise<Archive | undefined> => {
  try {
    return JSON.parse(await textOf(command)) as Archive
  } catch {
    return undefined
  }
}

const makeDirectory = async ({ files }: Command, path: string): Promise<void> => {
  await files.write(`${path}/.made`, "")
  await files.remove(`${path}/.made`)
}

/** Scripts of the package, by the name that it gives them. */
const scripts: Readonly<
  Record<string, (command: Command, args: ReadonlyArray<string>) => Promise<MemoryOutput>>
> = {
  "cogni-archive": async (command, excluded) => ({
    stdout: JSON.stringify(await walk(command, new Set(excluded)))
  }),
  "cogni-measure": async (command) => {
    const archive = await archiveOf(command)
    if (archive === undefined) return { stdout: "0 0 2\n" }
    const contents = Object.values(archive.files).map((data) => Buffer.from(data, "base64").byteLength)
    const bytes = contents.reduce((one, other) => one + other, 0)
    return { stdout: `${contents.length + archive.directories.length} ${bytes} 0\n` }
  },
  "cogni-extract": async (command) => {
    const archive = await archiveOf(command)
    for (const { name } of await command.files.list("."))
      await command.files.remove(name, { recursive: true })
    if (archive === undefined) return { exitCode: 2 }
    for (const path of archive.directories) await makeDirectory(command, path)
    for (const [path, data] of Object.entries(archive.files)) {
      await command.files.write(path, Buffer.from(data, "base64"))
    }
    return {}
  },
  "cogni-mode": async () => ({})
}

const inMemory = async (
  line: string | undefined,
  { env, files, signal, stdin, stdout, workingDirectory }: MemoryCommand
): Promise<MemoryOutput> => {
  switch (line) {
    case lines.both:
      return { stdout: "out", stderr: "err", exitCode: 3 }
    case lines.cat:
      for await (const piece of stdin) await stdout(piece)
      return {}
    case lines.long:
      return { stdout: "0".repeat(10_000) }
    case lines.where:
      return { stdout: `${workingDirectory}\n` }
    case lines.variable:
      return { stdout: env["WORD"] ?? "" }
    case lines.note:
      return { stdout: await files.read("notes/one.txt") }
    case lines.sleeps:
      await stdout("ready\n")
      await new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve()))
      return { exitCode: 143 }
    case "command -v script":
      return {}
    default:
      return { exitCode: 127, stderr: `${line}: not found\n` }
  }
}

/** A sandbox in memory runs this in place of the shell. */
export const program: MemoryProgram = async (command) => {
  const [name, , line, script = "", ...args] = command.argv
  if (name === "mkdir") {
    for (const path of command.argv.slice(3)) await makeDirectory(command, path)
    return {}
  }
  if (name === "script") return { stdout: "terminal" }
  return (await scripts[script]?.(command, args)) ?? (await inMemory(line, command))
}
