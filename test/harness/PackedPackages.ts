/**
 * Packs all packages as a release does, and installs them into an empty project outside the repository.
 *
 * Needs no Docker. Dependencies come from the configured registry, or from the client's cache.
 */
import { execFile } from "node:child_process"
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"
import { promisify } from "node:util"
import * as Pace from "./Pace.ts"

const root = fileURLToPath(new URL("../..", import.meta.url))

/** Folders of the packages, relative to the root: the name of a package is the last part. */
export const folders: ReadonlyArray<string> = [
  ...readdirSync(join(root, "packages")).map((name) => `packages/${name}`),
  "images"
]

export const nameOf = (folder: string): string => folder.replace("packages/", "")

/**
 * The environment of a user. Vitest sets `NODE_ENV` to `test`. With it, Vite and Next.js build for development: slower
 * programs, which are not those of a release.
 */
export const environment = (): NodeJS.ProcessEnv => ({ ...process.env, NODE_ENV: undefined })

/** Runs a program as a user does, and returns its standard output. An error contains all output. */
export const run = async (cwd: string, file: string, ...argv: ReadonlyArray<string>): Promise<string> => {
  try {
    const { stdout } = await promisify(execFile)(file, [...argv], {
      cwd,
      env: environment(),
      timeout: Pace.hangMillis,
      maxBuffer: 2 ** 26
    })
    return stdout
  } catch (thrown) {
    const { message, stderr, stdout } = thrown as Error & {
      readonly stdout?: string
      readonly stderr?: string
    }
    throw new Error(`${message}\n${stdout ?? ""}${stderr ?? ""}`, { cause: thrown })
  }
}

/** Time limit of `install`: it waits for other test files that pack, and then packs and installs. */
export const installMillisMax = 3 * Pace.hangMillis

/** Variable with the directory that all test files of one run of vitest share: tarballs, and other builds. */
const variable = "PACKED_RELEASE"

/** Makes that directory, for vitest, once for all projects. The first test file that needs a build makes it. */
export const setup = (): void => {
  process.env[variable] ??= mkdtempSync(join(tmpdir(), "cogni-release-"))
}

export const teardown = (): void => {
  const directory = process.env[variable]
  if (directory !== undefined) rmSync(directory, { recursive: true, force: true })
}

export const shared = (): string => {
  const directory = process.env[variable]
  if (directory === undefined) throw new Error(`${variable} is not set. Run the test with vitest`)
  return directory
}

/** Packs all packages into a directory, unless it is done. */
const packOnce = '[ -e "$2/packed" ] || { "$1" .ci/pack.ts "$2" && touch "$2/packed"; }'

export interface Packed {
  /** The project that has all packages installed. */
  readonly project: string
  /** The tarball of each package, by its name without the scope's prefix. */
  readonly tarballs: ReadonlyMap<string, string>
  readonly remove: () => void
}

const version = (library: string): string =>
  JSON.parse(readFileSync(join(root, "node_modules", library, "package.json"), "utf8")).version as string

interface Manifest {
  readonly dependencies?: Readonly<Record<string, string>>
  readonly peerDependenciesMeta?: Readonly<Record<string, { readonly optional?: boolean }>>
}

/**
 * The frameworks that adapters are for, at our versions. Their users install them: they are optional peers. An adapter
 * builds on `promise`. The optional peers of other packages are for tests.
 */
const frameworks = (): Readonly<Record<string, string>> =>
  Object.fromEntries(
    folders.flatMap((folder) => {
      const { dependencies = {}, peerDependenciesMeta = {} } = JSON.parse(
        readFileSync(join(root, folder, "package.json"), "utf8")
      ) as Manifest
      if (!("@cogni/sandbox-promise" in dependencies)) return []
      return Object.keys(peerDependenciesMeta).map((name) => {
        const path = join(root, folder, "node_modules", name, "package.json")
        return [name, JSON.parse(readFileSync(path, "utf8")).version as string]
      })
    })
  )

/**
 * Packs and installs. `files` are further files of the project, and `libraries` what else it depends on, at our
 * versions.
 */
export const install = async (
  files: Readonly<Record<string, string>> = {},
  libraries: ReadonlyArray<string> = []
): Promise<Packed> => {
  const directory = mkdtempSync(join(tmpdir(), "cogni-package-"))
  const release = shared()
  const project = join(directory, "project")
  // Only one at a time may pack: each build writes the same directories.
  const lock = join(root, ".cogni/pack.lock")
  mkdirSync(dirname(lock), { recursive: true })
  await run(root, "flock", lock, "sh", "-c", packOnce, "pack", process.execPath, release)
  const tarballs = new Map(
    folders.map((folder) => {
      const name = nameOf(folder)
      const packed = readdirSync(release).find((file) =>
        new RegExp(`^cogni-sandbox-${name}-\\d`, "u").test(file)
      )
      return [name, join(release, packed ?? `no tarball of ${name}`)]
    })
  )
  const dependencies = Object.fromEntries(
    [...tarballs].map(([name, path]) => [`@cogni/sandbox-${name}`, `file:${path}`])
  )
  mkdirSync(project)
  writeFileSync(
    join(project, "package.json"),
    JSON.stringify({
      private: true,
      type: "module",
      dependencies: {
        ...dependencies,
        ...frameworks(),
        ...Object.fromEntries(["effect", ...libraries].map((name) => [name, version(name)]))
      }
    })
  )
  // The packages are not published, so they resolve to tarballs. The builds are optional parts of libraries.
  writeFileSync(
    join(project, "pnpm-workspace.yaml"),
    JSON.stringify({ overrides: dependencies, allowBuilds: { "msgpackr-extract": false, sharp: false } })
  )
  for (const [name, text] of Object.entries(files)) writeFileSync(join(project, name), text)
  await run(project, "pnpm", "install", "--prefer-offline", "--reporter=silent")
  return { project, tarballs, remove: () => rmSync(directory, { recursive: true, force: true }) }
}
