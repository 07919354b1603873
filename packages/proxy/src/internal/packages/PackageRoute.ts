/**
 * Decides what a request to the mirror asks for. Pure.
 *
 *     /packages/npm/<name>              /packages/npm/<name>/-/<file>.tgz
 *     /packages/pypi/simple/<name>/     /packages/pypi/files/<name>/<file>
 *     /packages/cargo/index/<path>      /packages/cargo/crates/<name>/<version>/download
 *
 * A path is decoded once. The rest must be a name that the registry itself could have, and that the run's patterns
 * allow. Everything else of the request is ignored, and never leaves the host.
 */
import * as PackagePattern from "@cogni/sandbox-core/PackagePattern"
import * as CargoCrate from "./CargoCrate.ts"
import * as PypiProject from "./PypiProject.ts"

export const prefix = "/packages/"

/** Metadata of a package, or one of its files. */
export interface PackageAsk {
  readonly registry: PackagePattern.Registry
  readonly name: string
  /** Name of the file in the mirror; absent for metadata. */
  readonly file?: string | undefined
  /** npm's metadata with only what an installation needs. */
  readonly isAbbreviated: boolean
}

interface PackageRefusal {
  readonly _tag: "Refused"
  readonly status: 403 | 404 | 405
  readonly code: string
  readonly message: string
}

export type PackageDecision =
  | { readonly _tag: "Asked"; readonly ask: PackageAsk }
  /** The configuration of cargo's index, which the mirror writes itself. */
  | { readonly _tag: "CargoConfig" }
  | PackageRefusal

interface PackageRequest {
  readonly method: string
  /** As written in the request line. */
  readonly target: string
  /** Value of the `accept` header. */
  readonly accept: string
  readonly patterns: ReadonlyArray<PackagePattern.PackagePattern>
}

const refused = (status: PackageRefusal["status"], code: string, message: string): PackageRefusal => ({
  _tag: "Refused",
  status,
  code,
  message
})

const notOffered = refused(
  403,
  "package_path_not_allowed",
  "the package mirror of this sandbox serves only metadata and files of packages"
)

const notAllowed = (registry: PackagePattern.Registry, name: string, patterns: ReadonlyArray<string>) =>
  refused(
    403,
    "package_not_allowed",
    `${registry}:${name} is not a package that this sandbox may install. ${
      patterns.length === 0 ? `It may install none of ${registry}` : `It may install ${shown(patterns)}`
    }`
  )

/** Lists patterns for a reader; the rest is counted. */
const shown = (patterns: ReadonlyArray<string>): string =>
  patterns.length <= patternsShownMax
    ? patterns.join(", ")
    : `${patterns.slice(0, patternsShownMax).join(", ")} and ${patterns.length - patternsShownMax} more patterns`

const patternsShownMax = 8

export const decide = ({ accept, method, patterns, target }: PackageRequest): PackageDecision => {
  if (method !== "GET" && method !== "HEAD")
    return refused(
      405,
      "package_method_not_allowed",
      "the package mirror of this sandbox only reads. Use GET"
    )
  const path = decoded(target)
  if (path === undefined) return notOffered
  if (path === "cargo/index/config.json") return { _tag: "CargoConfig" }
  const asked = askOf(path, accept)
  if (asked === undefined) return notOffered
  return PackagePattern.allows(patterns, asked.registry, asked.name)
    ? { _tag: "Asked", ask: asked }
    : notAllowed(
        asked.registry,
        asked.name,
        patterns.filter((pattern) => PackagePattern.registryOf(pattern) === asked.registry)
      )
}

const pathCharactersMax = 1024

/** Returns the path after the prefix, decoded once, without its query; `undefined` if it could mean two things. */
const decoded = (target: string): string | undefined => {
  const [path = ""] = target.split("?", 1)
  if (!path.startsWith(prefix) || path.length > pathCharactersMax) return undefined
  try {
    const plain = decodeURIComponent(path.slice(prefix.length))
    return /^[A-Za-z0-9@._~+!/-]+$/u.test(plain) ? plain : undefined
  } catch {
    return undefined
  }
}

const npmName = "(?:@[A-Za-z0-9~-][A-Za-z0-9._~-]*/)?[A-Za-z0-9~-][A-Za-z0-9._~-]*"
const pypiName = "[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
const crateName = "[A-Za-z0-9][A-Za-z0-9_-]*"

const patterns = {
  npm: new RegExp(`^npm/(${npmName})(?:/-/([^/]+\\.tgz))?$`, "u"),
  pypiIndex: new RegExp(`^pypi/simple/(${pypiName})/?$`, "u"),
  pypiFile: new RegExp(`^pypi/files/(${pypiName})/([^/]+)$`, "u"),
  cargoIndex: new RegExp(`^cargo/index/([^@]+)/(${crateName})$`, "u"),
  cargoFile: new RegExp(`^cargo/crates/(${crateName})/([0-9][0-9A-Za-z.+-]*)/download$`, "u")
} as const

const nameCharactersMax = 214

const askOf = (path: string, accept: string): PackageAsk | undefined => {
  const asked = readAsk(path, accept)
  return asked === undefined || asked.name.length > nameCharactersMax ? undefined : asked
}

const readAsk = (path: string, accept: string): PackageAsk | undefined => {
  const npm = patterns.npm.exec(path)
  if (npm !== null) {
    const isAbbreviated = accept.includes("application/vnd.npm.install-v1+json")
    return { registry: "npm", name: npm[1]!, ...fileOf(npm[2]), isAbbreviated }
  }
  const project = patterns.pypiIndex.exec(path) ?? patterns.pypiFile.exec(path)
  if (project !== null) {
    const [, name = "", file] = project
    if (file !== undefined && !PypiProject.filePattern.test(file)) return undefined
    return {
      registry: "pypi",
      name: PackagePattern.canonical("pypi", name),
      ...fileOf(file),
      isAbbreviated: false
    }
  }
  const crate = patterns.cargoFile.exec(path)
  if (crate !== null) return { registry: "cargo", name: crate[1]!, ...fileOf(crate[2]), isAbbreviated: false }
  const entry = patterns.cargoIndex.exec(path)
  if (entry === null || `${entry[1]}/${entry[2]}` !== CargoCrate.indexPath(entry[2]!)) return undefined
  return { registry: "cargo", name: entry[2]!, isAbbreviated: false }
}

const fileOf = (file: string | undefined) => (file === undefined ? {} : { file })
