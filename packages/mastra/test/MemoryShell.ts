/** A sandbox in memory runs this in place of a shell. It knows a few lines, and the scripts of the file operations. */
import type { MemoryCommand, MemoryOutput, MemoryProgram } from "@cogni/sandbox-promise"

/** Lines that both this program and a real shell understand. */
export const lines = {
  both: "printf out; printf err >&2; exit 3",
  cat: "cat",
  where: "pwd",
  variable: 'printf %s "$WORD"',
  sleeps: "echo ready; sleep 1000",
  floods: "head -c 9000000 /dev/zero | tr '\\0' e; echo done",
  arguments: "printf '%s|'",
  echo: "cat note.txt"
}

const filler = "e".repeat(100_000)

export const program: MemoryProgram = async (command) => {
  const { argv, env, files, signal, stdin, stdout, workingDirectory } = command
  if (argv[0] === "chmod") return {}
  if (argv[3] !== undefined) return await fileScript(command)
  const line = argv[2] ?? ""
  const aborted = new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve()))
  if (line.startsWith(lines.arguments)) return { stdout: "a b|$HOME|it's|" }
  switch (line) {
    case lines.both:
      return { stdout: "out", stderr: "err", exitCode: 3 }
    case lines.cat:
      for await (const piece of stdin) await stdout(piece)
      return {}
    case lines.where:
      return { stdout: `${workingDirectory}\n` }
    case lines.variable:
      return { stdout: env["WORD"] ?? "" }
    case lines.sleeps:
      await stdout("ready\n")
      await aborted
      return {}
    case lines.floods:
      for (let at = 0; at < 90; at++) await stdout(filler)
      return { stdout: "done\n" }
    case lines.echo:
      return { stdout: await files.read("note.txt") }
    default:
      return { exitCode: 127, stderr: `${line}: not found\n` }
  }
}

const fileScript = async ({ argv, files, stdin }: MemoryCommand): Promise<MemoryOutput> => {
  const [, , , operation, path = "", source = "", , overwrites] = argv
  const found = await files.stat(path)
  const content = async () => {
    const pieces: Array<Uint8Array> = []
    for await (const piece of stdin) pieces.push(piece)
    return Buffer.concat(pieces)
  }
  switch (operation) {
    case "append":
      if (found?.type === "directory") return { exitCode: 41 }
      await files.write(
        path,
        Buffer.concat([found === undefined ? Buffer.alloc(0) : await files.read(path), await content()])
      )
      return {}
    case "create":
      if (found !== undefined) return { exitCode: 43 }
      await files.write(path, await content())
      return {}
    case "copy":
    case "move":
      if ((await files.stat(source)) === undefined) return { exitCode: 40 }
      if (found !== undefined && overwrites !== "overwrite") return { exitCode: 43 }
      await files.write(path, await files.read(source))
      if (operation === "move") await files.remove(source)
      return {}
    default:
      return { exitCode: 127, stderr: `${operation}: not found\n` }
  }
}
