/**
 * Packs packages as they are published: `node .ci/pack.ts DIRECTORY [--for NAME] [--dry-run] [--repository URL]`.
 *
 * Packs each package with pnpm, then adds what depends on the place of the repository: the fields `repository`,
 * `homepage` and `bugs`, the name in the MCP registry, and the targets of links that leave the package. That place is
 * `repository.url` of the root manifest, and nothing else names it. With `--repository`, as in a release, the URL must be
 * the same and on github.com: npm verifies provenance against it. The bytes of a tarball depend only on the files in it,
 * not on this machine or the time.
 *
 * With `--for`, packs only the named packages and those that they need. With `--dry-run`, only prints which these are.
 */
import { execFileSync } from "node:child_process"
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync
} from "node:fs"
import { tmpdir } from "node:os"
import { basename, join, posix, resolve } from "node:path"
import { fileURLToPath } from "node:url"
import { parseArgs } from "node:util"

/** Version of packages that were never released, and so have no changelog. */
const unreleased = "0.0.0"

/** Time in tarballs, in seconds: the one that npm uses, because some programs refuse a file from before 1980. */
const packedAtSeconds = 499_162_500

const secondsMax = 300

/** Folder of the package of images, whose content is also what a checkout builds. */
const images = "images"

const root = fileURLToPath(new URL("..", import.meta.url))

const run = (cwd: string, file: string, ...argv: ReadonlyArray<string>): string =>
  execFileSync(file, [...argv], {
    cwd,
    encoding: "utf8",
    timeout: secondsMax * 1000,
    maxBuffer: 2 ** 26,
    stdio: ["ignore", "pipe", "inherit"]
  })

const stop = (message: string): never => {
  process.stderr.write(`pack: ${message}\n`)
  process.exit(1)
}

/** `git+https://HOST/NAME.git` as the address of its web page. */
const pageOf = (url: string): string => url.replace(/^git\+/u, "").replace(/\.git$/u, "")

/** The only host for which npm verifies provenance. */
const provenanceHost = "github.com"

/** Name in the MCP registry of what a repository of GitHub publishes. */
const registryName = (page: string): string => `io.github.${new URL(page).pathname.slice(1)}`

interface Manifest {
  readonly name: string
  readonly version: string
  readonly repository?: { readonly type: string; readonly url: string }
  readonly dependencies?: Readonly<Record<string, string>>
  readonly peerDependencies?: Readonly<Record<string, string>>
}

const manifestAt = (path: string): Manifest => JSON.parse(readFileSync(path, "utf8"))

/** Makes the links of a page absolute that lead out of its package. */
const withAbsoluteLinks = (page: string, folder: string, repository: string): string =>
  page.replaceAll(/\]\(([^)\s]+)\)/gu, (whole, target: string) => {
    const [path = "", ...fragment] = target.split("#")
    if (path === "" || /^[a-z]+:/u.test(target)) return whole
    const found = posix.normalize(posix.join(folder, path))
    const kind = statSync(join(root, found)).isDirectory() ? "tree" : "blob"
    return `](${[`${repository}/${kind}/HEAD/${found}`, ...fragment].join("#")})`
  })

/** Adds to an entry for the MCP registry what a release knows: its name, the version, and the place of the repository. */
const completeServer = (path: string, folder: string, version: string, page: string): void => {
  const { $schema, ...entry } = JSON.parse(readFileSync(path, "utf8"))
  const completed = {
    $schema,
    name: registryName(page),
    ...entry,
    version,
    repository: { url: page, source: "github", subfolder: folder },
    packages: entry.packages.map((one: object) => ({ ...one, version }))
  }
  writeFileSync(path, `${JSON.stringify(completed, undefined, 2)}\n`)
}

const packOne = (folder: string, directory: string, repository: { type: string; url: string }): string => {
  const work = mkdtempSync(join(tmpdir(), "cogni-pack-"))
  try {
    run(join(root, folder), "pnpm", "pack", "--pack-destination", work)
    const [tarball = stop(`${folder}: pnpm packed nothing`)] = readdirSync(work)
    run(work, "tar", "-xzf", tarball)
    const packed = join(work, "package")
    const manifest = manifestAt(join(packed, "package.json"))
    if (manifest.version !== unreleased && !existsSync(join(packed, "CHANGELOG.md"))) {
      stop(`${folder} has no CHANGELOG.md. Make it with: pnpm release:version`)
    }
    const page = pageOf(repository.url)
    const server = join(packed, "server.json")
    const published = {
      ...manifest,
      ...(existsSync(server) ? { mcpName: registryName(page) } : {}),
      repository: { ...repository, directory: folder },
      homepage: `${page}/tree/HEAD/${folder}#readme`,
      bugs: `${page}/issues`
    }
    writeFileSync(join(packed, "package.json"), `${JSON.stringify(published, undefined, 2)}\n`)
    const readme = join(packed, "README.md")
    writeFileSync(readme, withAbsoluteLinks(readFileSync(readme, "utf8"), folder, page))
    copyFileSync(join(root, "LICENSE"), join(packed, "LICENSE"))
    if (existsSync(server)) completeServer(server, folder, manifest.version, page)
    // The installed command asks for exactly these images, on every architecture.
    if (folder === images)
      writeFileSync(join(packed, "tags"), run(root, join(root, images, "build"), "--print-all"))
    const destination = join(directory, tarball)
    run(
      work,
      "tar",
      "--sort=name",
      "--format=ustar",
      `--mtime=@${packedAtSeconds}`,
      "--owner=0",
      "--group=0",
      "--numeric-owner",
      "--mode=u=rwX,go=rX",
      // gzip would otherwise write the time into its header.
      "--use-compress-program=gzip -n",
      "-cf",
      destination,
      "package"
    )
    return destination
  } finally {
    rmSync(work, { recursive: true, force: true })
  }
}

/** Folders of all packages, by their names. */
const packages = (): ReadonlyMap<string, { readonly folder: string; readonly manifest: Manifest }> =>
  new Map(
    [...readdirSync(join(root, "packages")).map((name) => `packages/${name}`), images]
      .filter((folder) => existsSync(join(root, folder, "package.json")))
      .map((folder) => {
        const manifest = manifestAt(join(root, folder, "package.json"))
        return [manifest.name, { folder, manifest }]
      })
  )

/** Names of the packages that these need, and their own. `promise` is short for its whole name. */
const neededBy = (asked: ReadonlyArray<string>, all: ReturnType<typeof packages>): ReadonlySet<string> => {
  const found = new Set<string>()
  const add = (name: string) => {
    const one = all.get(name)
    if (one === undefined || found.has(name)) return
    found.add(name)
    const { dependencies, peerDependencies } = one.manifest
    for (const other of Object.keys({ ...dependencies, ...peerDependencies })) add(other)
  }
  for (const name of asked) {
    const whole = all.has(name) ? name : `@cogni/sandbox-${name}`
    if (!all.has(whole)) stop(`there is no package ${name}. Choose one of ${[...all.keys()].join(", ")}`)
    add(whole)
  }
  return found
}

const main = (argv: ReadonlyArray<string>): void => {
  const { positionals, values } = parseArgs({
    args: [...argv],
    allowPositionals: true,
    options: {
      for: { type: "string", multiple: true },
      "dry-run": { type: "boolean" },
      repository: { type: "string" }
    }
  })
  const [directory = stop("name the directory for the tarballs")] = positionals
  const { repository = stop("the root package.json names no repository") } = manifestAt(
    join(root, "package.json")
  )
  const page = pageOf(repository.url)
  if (values.repository !== undefined) {
    if (new URL(page).host !== provenanceHost) {
      stop(
        `repository.url in the root package.json is ${page}, which is a placeholder or not on ${provenanceHost}. Correct it there`
      )
    }
    if (pageOf(values.repository) !== page) {
      stop(
        `this is ${values.repository}, but the root package.json names ${page}. Correct repository.url there`
      )
    }
  }
  const all = packages()
  const needed = values.for === undefined ? undefined : neededBy(values.for, all)
  const chosen = [...all.values()].filter(({ manifest }) => needed?.has(manifest.name) ?? true)
  if (values["dry-run"] === true) {
    for (const { manifest } of chosen) process.stdout.write(`${manifest.name}\n`)
    return
  }
  mkdirSync(directory, { recursive: true })
  const tarballs = chosen.map(({ folder }) => {
    const tarball = packOne(folder, resolve(directory), repository)
    process.stdout.write(`${basename(tarball)}\n`)
    return tarball
  })
  if (needed !== undefined) {
    const ranges = chosen.flatMap(({ manifest }) => manifest.peerDependencies?.["effect"] ?? [])
    const range = ranges.find((one) => one.startsWith("~")) ?? ranges[0] ?? "latest"
    process.stderr.write(`Install them together: npm install ${tarballs.join(" ")} effect@${range}\n`)
  }
}

main(process.argv.slice(2))
