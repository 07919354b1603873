/**
 * npm's metadata of a package ("packument"). Pure.
 *
 * It names the address of each file. The mirror replaces these by its own, and remembers where each file is and with
 * which hash. The sandbox cannot influence either.
 */
import * as FileHash from "./FileHash.ts"
import {
  asObject,
  bytesOf,
  type MetadataOutcome,
  type MetadataRequest,
  parseObject,
  type Published,
  unreadable
} from "./Metadata.ts"

/** Versions as npm allows them. */
const version = /^[0-9A-Za-z][0-9A-Za-z.+-]{0,255}$/u

/** Returns the name of a package without its scope. */
const bare = (name: string): string => name.slice(name.lastIndexOf("/") + 1)

/** Returns the name of the file of a version, as npm writes it in a URL. */
export const fileOf = (name: string, of: string): string => `${bare(name)}-${of}.tgz`

/** Replaces the addresses of all files. Versions without an address cannot be installed, and are removed. */
export const rewrite = ({ base, body, name }: MetadataRequest): MetadataOutcome => {
  const packument = parseObject(body)
  const versions = asObject(packument?.["versions"])
  if (packument === undefined || versions === undefined)
    return unreadable("the registry's answer is not the metadata of an npm package")
  if (packument["name"] !== name) return unreadable("the registry's answer is about another package")
  const files: Array<readonly [string, Published]> = []
  const kept: Record<string, unknown> = {}
  for (const [number, manifest] of Object.entries(versions)) {
    const fields = asObject(manifest)
    const dist = asObject(fields?.["dist"])
    const url = dist?.["tarball"]
    if (fields === undefined || dist === undefined || typeof url !== "string" || !version.test(number))
      continue
    const file = fileOf(name, number)
    const hash = FileHash.ofIntegrity(dist["integrity"]) ?? FileHash.ofHex("sha1", dist["shasum"])
    files.push([file, { url, ...(hash === undefined ? {} : { hash }) }])
    kept[number] = { ...fields, dist: { ...dist, tarball: `${base}/${name}/-/${file}` } }
  }
  return {
    _tag: "Rewritten",
    contentType: "application/json",
    body: bytesOf(JSON.stringify({ ...packument, versions: kept })),
    files
  }
}
