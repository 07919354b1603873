/** Files and directories of a manifest: what a sealed sandbox can have of one, and how it gets there. */
import * as SandboxPlace from "@cogni/sandbox-core/SandboxPlace"
import { type Sandbox, Unsupported } from "@cogni/sandbox-promise"
import {
  type Entry,
  type Manifest,
  permissionsForSandboxEntry,
  SandboxWorkspaceWriteTypeError
} from "@openai/agents-core/sandbox"
import * as HostReader from "./HostReader.ts"

/** Entries of one manifest. */
const entriesMax = 10_000

/** Paths of one command. */
const pathsAtOnce = 200

/** Throws `Unsupported` for everything that a sealed sandbox cannot have, before anything is made. */
export const check = (manifest: Manifest): void => {
  if (manifest.root !== SandboxPlace.target) {
    throw no("manifest.root", `the workspace of a sandbox is ${SandboxPlace.target}. Leave out root`)
  }
  if (manifest.users.length > 0) {
    throw no("manifest.users", "a sandbox has one user, which cannot become another. Leave out users")
  }
  if (manifest.groups.length > 0) {
    throw no("manifest.groups", "a sandbox has one user and one group. Leave out groups")
  }
  if (manifest.extraPathGrants.length > 0) {
    throw no(
      "manifest.extraPathGrants",
      "a sandbox sees no directory of the host but its workspace. Copy the files with localDir or localFile, or open the sandbox with the option workspace"
    )
  }
  let entries = 0
  for (const { entry, logicalPath } of manifest.iterEntries()) {
    if (++entries > entriesMax) {
      throw no("manifest.entries", `there are more than ${entriesMax}. Use localDir for a directory`)
    }
    checkEntry(logicalPath, entry)
  }
}

const checkEntry = (path: string, entry: Entry): void => {
  const operation = `manifest entry ${JSON.stringify(path.slice(0, 200))} of type ${entry.type}`
  if (entry.group !== undefined) throw no(`${operation} with a group`, "a sandbox has one group")
  switch (entry.type) {
    case "dir":
    case "file":
    case "local_file":
    case "local_dir":
      return
    case "git_repo":
      throw no(
        operation,
        "a sandbox has no network. Clone the repository on the host and copy it with localDir"
      )
    default:
      throw no(
        operation,
        "a sandbox mounts nothing and has no network. Copy the files with localDir, or open the sandbox with the option workspace"
      )
  }
}

const no = (operation: string, reason: string) => new Unsupported({ operation, reason })

/** Makes the entries of a checked manifest. `localSources` are the host directories that they may be copied from. */
export const materialize = async (
  sandbox: Sandbox,
  manifest: Manifest,
  localSources: ReadonlyArray<string>
): Promise<void> => {
  const all = [...manifest.iterEntries()].map(({ entry, logicalPath }) => ({
    entry,
    path: logicalPath === "" ? "." : logicalPath
  }))
  // All sources, before the first change.
  const sources = new Map<string, HostReader.Source>()
  for (const { entry, path } of all) {
    if (entry.type === "local_file" || entry.type === "local_dir") {
      sources.set(path, await HostReader.source(entry.type, entry.src, localSources))
    }
  }
  const directories = all.filter(({ entry }) => entry.type === "dir" || entry.type === "local_dir")
  await inBatches(
    directories.map(({ path }) => path),
    (paths) => run(sandbox, ["mkdir", "-p", "--", ...paths.map(below)])
  )
  for (const { entry, path } of all) {
    if (entry.type === "file") await sandbox.files.write(path, entry.content)
    const source = sources.get(path)
    if (source === undefined) continue
    for await (const copied of source.copy()) {
      const target = copied.path === "" ? path : path === "." ? copied.path : `${path}/${copied.path}`
      await sandbox.files.write(target, copied.bytes)
    }
  }
  // Children first: a directory may become one that cannot be entered.
  await inBatches(
    all.toReversed().filter(({ path }) => path !== "."),
    (some) =>
      run(sandbox, [
        "/bin/sh",
        "-c",
        modeScript,
        "cogni-mode",
        ...some.flatMap(({ entry, path }) => [modeOf(entry), below(path)])
      ])
  )
}

/** Sets modes, given as pairs of a mode and a path. */
const modeScript = 'while [ $# -gt 0 ]; do chmod -- "$1" "$2" || exit 1; shift 2; done'

const modeOf = ({ permissions }: Entry): string =>
  (permissionsForSandboxEntry(permissions).toMode() & 0o1777).toString(8)

/** Never an option of a command. */
const below = (path: string): string => `./${path}`

const inBatches = async <A>(all: ReadonlyArray<A>, use: (some: ReadonlyArray<A>) => Promise<void>) => {
  for (let at = 0; at < all.length; at += pathsAtOnce) await use(all.slice(at, at + pathsAtOnce))
}

const run = async (sandbox: Sandbox, command: readonly [string, ...ReadonlyArray<string>]): Promise<void> => {
  const { exitCode } = await sandbox.exec(command)
  if (exitCode === 0) return
  throw new SandboxWorkspaceWriteTypeError(
    `The manifest could not be made in the workspace: ${command[0]} ended with exit code ${exitCode}. A file may have the name of a directory, or the other way round.`,
    { exitCode }
  )
}
