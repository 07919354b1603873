/**
 * The entry of a crate in cargo's sparse index: one line of JSON for each version. Pure.
 *
 * It names no address: cargo makes the address of a file from `config.json`, which the mirror writes itself.
 */
import * as FileHash from "./FileHash.ts"
import {
  bytesOf,
  filesMax,
  type MetadataOutcome,
  type MetadataRequest,
  parseObject,
  type Published,
  unreadable
} from "./Metadata.ts"

const version = /^[0-9][0-9A-Za-z.+-]{0,255}$/u

/** Directory of a crate in the index, as cargo computes it. */
export const prefixOf = (name: string): string => {
  const lower = name.toLowerCase()
  if (lower.length <= 2) return String(lower.length)
  return lower.length === 3 ? `3/${lower[0]}` : `${lower.slice(0, 2)}/${lower.slice(2, 4)}`
}

/** Path of a crate in the index. */
export const indexPath = (name: string): string => `${prefixOf(name)}/${name.toLowerCase()}`

/** Configuration of the index for the sandbox. `auth-required` is absent: no credential is ever needed. */
export const config = (base: string): string => JSON.stringify({ dl: `${base}/crates`, api: null })

/** Reads where a registry has its files from its own `config.json`. */
export const downloadsOf = (body: Uint8Array): string | undefined => {
  const dl = parseObject(body)?.["dl"]
  return typeof dl === "string" ? dl : undefined
}

/** Makes the address of a file from the registry's template. */
const urlOf = (template: string, name: string, of: string, checksum: string): string => {
  const markers: Readonly<Record<string, string>> = {
    "{crate}": name,
    "{version}": of,
    "{prefix}": prefixOf(name),
    "{lowerprefix}": prefixOf(name),
    "{sha256-checksum}": checksum
  }
  const filled = template.replaceAll(
    /\{(?:crate|version|prefix|lowerprefix|sha256-checksum)\}/gu,
    (marker) => markers[marker] ?? marker
  )
  return filled === template ? `${template}/${name}/${of}/download` : filled
}

const linesOf = (body: Uint8Array): number => {
  let lines = 1
  for (let at = body.indexOf(0x0a); at !== -1; at = body.indexOf(0x0a, at + 1)) lines += 1
  return lines
}

/** Keeps the lines that are about this crate. A line without a checksum cannot be installed. */
export const rewrite = ({ body, downloads, name }: MetadataRequest): MetadataOutcome => {
  if (downloads === undefined)
    return unreadable("the registry's config.json does not say where its files are")
  // Before they are split: empty lines take more memory than their text.
  if (linesOf(body) > filesMax) return unreadable(`the crate has more than ${filesMax} versions`)
  const files: Array<readonly [string, Published]> = []
  const lines = new TextDecoder()
    .decode(body)
    .split("\n")
    .flatMap((line) => {
      const entry = line.trim() === "" ? undefined : parseObject(bytesOf(line))
      if (entry === undefined) return []
      const { cksum, name: crate, vers } = entry
      const hash = FileHash.ofHex("sha256", cksum)
      if (typeof crate !== "string" || crate.toLowerCase() !== name.toLowerCase()) return []
      if (typeof vers !== "string" || !version.test(vers) || hash === undefined) return []
      files.push([vers, { url: urlOf(downloads, crate, vers, hash.hex), hash }])
      return [line]
    })
  return files.length === 0
    ? unreadable("the registry's answer is not the index of this crate")
    : { _tag: "Rewritten", contentType: "text/plain", body: bytesOf(`${lines.join("\n")}\n`), files }
}
