/**
 * Packs every package as it is published: `node .ci/pack.ts DIRECTORY [--repository URL]`.
 *
 * Packs each package with pnpm, then adds what depends on the place of the repository: the fields `repository`,
 * `homepage` and `bugs`, and the targets of links that leave the package. That place is `repository.url` of the root
 * manifest, and nothing else names it. With `--repository`, the URL must be the same: npm verifies provenance against
 * it. The bytes of a tarball depend only on the files in it, not on this machine or the time.
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

interface Manifest {
  readonly name: string
  readonly version: string
  readonly repository?: { readonly type: string; readonly url: string }
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

/** Adds to an entry for the MCP registry what a release knows: the version, and the place of the repository. */
const completeServer = (path: string, folder: string, version: string, page: string): void => {
  const entry = JSON.parse(readFileSync(path, "utf8"))
  const completed = {
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
    const published = {
      ...manifest,
      repository: { ...repository, directory: folder },
      homepage: `${page}/tree/HEAD/${folder}#readme`,
      bugs: `${page}/issues`
    }
    writeFileSync(join(packed, "package.json"), `${JSON.stringify(published, undefined, 2)}\n`)
    const readme = join(packed, "README.md")
    writeFileSync(readme, withAbsoluteLinks(readFileSync(readme, "utf8"), folder, page))
    copyFileSync(join(root, "LICENSE"), join(packed, "LICENSE"))
    const server = join(packed, "server.json")
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

const main = (argv: ReadonlyArray<string>): void => {
  const [directory = stop("name the directory for the tarballs"), flag, url] = argv
  const { repository = stop("the root package.json names no repository") } = manifestAt(
    join(root, "package.json")
  )
  if (flag === "--repository" && pageOf(url ?? "") !== pageOf(repository.url)) {
    stop(`this is ${url}, but the root package.json names ${repository.url}. Correct repository.url there`)
  }
  mkdirSync(directory, { recursive: true })
  const folders = [...readdirSync(join(root, "packages")).map((name) => `packages/${name}`), images]
  for (const folder of folders.filter((one) => existsSync(join(root, one, "package.json")))) {
    process.stdout.write(`${basename(packOne(folder, resolve(directory), repository))}\n`)
  }
}

main(process.argv.slice(2))
