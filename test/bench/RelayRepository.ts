/** A large repository, the same every time: files of noise below a line that history changes. */
import { execFileSync, spawn } from "node:child_process"
import { createCipheriv } from "node:crypto"
import { once } from "node:events"
import { readdirSync, statSync } from "node:fs"
import { join } from "node:path"

export interface Shape {
  readonly files: number
  readonly bytes: number
  readonly commits: number
}

export const full: Shape = { files: 20_000, bytes: 300e6, commits: 401 }
export const small: Shape = { files: 2000, bytes: 30e6, commits: 41 }

/** Files that each later commit changes. */
const filesPerCommit = 7

/** Excludes the machine's own configuration of git. */
export const environment: Readonly<Record<string, string>> = {
  PATH: process.env["PATH"] ?? "/usr/local/bin:/usr/bin:/bin",
  HOME: "/nonexistent",
  LC_ALL: "C",
  GIT_CONFIG_NOSYSTEM: "1",
  GIT_CONFIG_GLOBAL: "/dev/null",
  GIT_TERMINAL_PROMPT: "0"
}

/** Returns bytes that do not compress, and are the same in every run. */
export const noise = (seed: number): ((bytes: number) => Buffer) => {
  const key = Buffer.alloc(16)
  key.writeUInt32BE(seed)
  const cipher = createCipheriv("aes-128-ctr", key, Buffer.alloc(16))
  return (bytes) => cipher.update(Buffer.alloc(bytes))
}

/** Makes a bare repository at `path` with its history in one pack, like a recently packed origin. */
export const make = async (path: string, { bytes, commits, files }: Shape): Promise<void> => {
  const git = (...argv: ReadonlyArray<string>) => execFileSync("git", argv, { env: environment })
  git("init", "-q", "--bare", "--template=", "--initial-branch=main", "--", path)
  for (const [name, value] of [
    ["gc.auto", "0"],
    ["receive.autogc", "false"],
    // More effort does not make noise smaller.
    ["pack.compression", "1"],
    ["http.receivepack", "true"]
  ])
    git("--git-dir", path, "config", name!, value!)
  const child = spawn("git", ["--git-dir", path, "fast-import", "--quiet"], {
    env: environment,
    stdio: ["pipe", "ignore", "inherit"]
  })
  const ended = once(child, "exit")
  const write = async (piece: Buffer | string) => {
    if (!child.stdin.write(piece)) await once(child.stdin, "drain")
  }
  const next = noise(1)
  const sizes = next(files)
  // From a third to five thirds of the mean.
  const sizeOf = (file: number) => Math.round((bytes / files) * (1 / 3 + (4 / 3) * (sizes[file]! / 255)))
  for (let commit = 0; commit < commits; commit++) {
    const message = `Change ${commit}\n`
    await write(
      `commit refs/heads/main\ncommitter Bench <bench@example.invalid> ${1_760_000_000 + commit * 60} +0000\n` +
        `data ${message.length}\n${message}\n`
    )
    const changed =
      commit === 0
        ? Array.from({ length: files }, (_, file) => file)
        : Array.from({ length: filesPerCommit }, (_, index) => (commit * 7919 + index * 104_729) % files)
    for (const file of changed) {
      const content = Buffer.concat([Buffer.from(`file ${file}, change ${commit}\n`), next(sizeOf(file))])
      const directory = `d${file % 20}/e${Math.floor(file / 20) % 25}`
      await write(`M 100644 inline ${directory}/f${file}.bin\ndata ${content.byteLength}\n`)
      await write(content)
      await write("\n")
    }
  }
  child.stdin.end("done\n")
  const [code] = (await ended) as [number | null]
  if (code !== 0) throw new Error(`git fast-import ended with ${code}`)
}

/** Returns the size of all packs. */
export const packBytes = (path: string): number => {
  const directory = join(path, "objects", "pack")
  return readdirSync(directory).reduce((sum, name) => sum + statSync(join(directory, name)).size, 0)
}
