/**
 * PyPI's simple index of one project, as JSON (PEP 691) or HTML (PEP 503). Pure.
 *
 * The sandbox always gets JSON, rebuilt from the fields that pip and uv read. So nothing of a page of HTML reaches it.
 */
import * as FileHash from "./FileHash.ts"
import {
  asObject,
  bytesOf,
  filesMax,
  type MetadataOutcome,
  type MetadataRequest,
  parseObject,
  type Published,
  unreadable
} from "./Metadata.ts"

export const contentType = "application/vnd.pypi.simple.v1+json"

/** Names of files that the mirror serves. */
export const filePattern = /^[A-Za-z0-9][A-Za-z0-9._+!-]{0,255}$/u

/** Suffix of a file's core metadata (PEP 658). */
const metadataSuffix = ".metadata"

interface Link {
  readonly filename: string
  readonly url: string
  readonly hashes: unknown
  readonly requiresPython: unknown
  readonly yanked: unknown
  /** Hashes of the core metadata; `true` if it exists without a hash. */
  readonly metadata: unknown
}

export const rewrite = (request: MetadataRequest): MetadataOutcome => {
  const { base, contentType: given, from, name } = request
  const links = /html/iu.test(given) ? linksOfHtml(request.body) : linksOfJson(request.body)
  if (links === undefined) return unreadable("the registry's answer is not a simple index")
  const files: Array<readonly [string, Published]> = []
  const listed: Array<unknown> = []
  for (const { filename, hashes, metadata, requiresPython, url, yanked } of links) {
    const place = URL.parse(url, from)
    if (place === null || !filePattern.test(filename) || filename.endsWith(metadataSuffix)) continue
    place.hash = ""
    const hash = FileHash.ofRecord(hashes)
    files.push([filename, published(place.href, hash)])
    const metadataHash = FileHash.ofRecord(metadata)
    const hasMetadata = metadata === true || metadataHash !== undefined
    if (hasMetadata) {
      const beside = new URL(place)
      beside.pathname += metadataSuffix
      files.push([`${filename}${metadataSuffix}`, published(beside.href, metadataHash)])
    }
    listed.push({
      filename,
      url: `${base}/files/${name}/${filename}`,
      hashes: recordOf(hash),
      ...(typeof requiresPython === "string" ? { "requires-python": requiresPython } : {}),
      ...(yanked === undefined || yanked === false
        ? {}
        : { yanked: typeof yanked === "string" ? yanked : true }),
      ...(hasMetadata ? { "core-metadata": metadataHash === undefined ? true : recordOf(metadataHash) } : {})
    })
  }
  return {
    _tag: "Rewritten",
    contentType,
    body: bytesOf(JSON.stringify({ meta: { "api-version": "1.0" }, name, files: listed })),
    files
  }
}

const published = (url: string, hash: FileHash.FileHash | undefined): Published => ({
  url,
  ...(hash === undefined ? {} : { hash })
})

const recordOf = (hash: FileHash.FileHash | undefined): Record<string, string> =>
  hash === undefined ? {} : { [hash.algorithm]: hash.hex }

const linksOfJson = (body: Uint8Array): ReadonlyArray<Link> | undefined => {
  const files = parseObject(body)?.["files"]
  if (!Array.isArray(files)) return undefined
  return files.flatMap((entry): ReadonlyArray<Link> => {
    const fields = asObject(entry)
    const filename = fields?.["filename"]
    const url = fields?.["url"]
    if (fields === undefined || typeof filename !== "string" || typeof url !== "string") return []
    const { hashes, yanked } = fields
    const metadata = fields["core-metadata"] ?? fields["dist-info-metadata"]
    return [{ filename, url, hashes, requiresPython: fields["requires-python"], yanked, metadata }]
  })
}

const anchor = /<a\b([^<>]*)>([^<]*)<\/a\s*>/giu

const attribute = /([A-Za-z][A-Za-z0-9-]*)(?:\s*=\s*(?:"([^"]*)"|'([^']*)'))?/gu

/** Characters of the attributes of one link. */
const attributesCharactersMax = 16 * 1024

const linksOfHtml = (body: Uint8Array): ReadonlyArray<Link> | undefined => {
  const text = new TextDecoder().decode(body)
  if (!/<html\b|<!doctype html/iu.test(text)) return undefined
  const anchors = first(text.matchAll(anchor))
  if (anchors.length > filesMax) return undefined
  return anchors.flatMap(([, inside = "", label = ""]): ReadonlyArray<Link> => {
    if (inside.length > attributesCharactersMax) return []
    const attributes = new Map(
      [...inside.matchAll(attribute)].map(([, name = "", double, single]) => [
        name.toLowerCase(),
        unescaped(double ?? single ?? "")
      ])
    )
    const url = attributes.get("href")
    if (url === undefined) return []
    const metadata = attributes.get("data-core-metadata") ?? attributes.get("data-dist-info-metadata")
    return [
      {
        filename: unescaped(label).trim(),
        url,
        hashes: hashOf(url.slice(url.lastIndexOf("#") + 1)),
        requiresPython: attributes.get("data-requires-python"),
        yanked: attributes.get("data-yanked"),
        metadata: metadata === "true" ? true : metadata === undefined ? undefined : hashOf(metadata)
      }
    ]
  })
}

/** Collects one more than there may be, so that too many are noticed. */
const first = (matches: Iterable<RegExpExecArray>): ReadonlyArray<RegExpExecArray> => {
  const found: Array<RegExpExecArray> = []
  for (const match of matches) {
    found.push(match)
    if (found.length > filesMax) break
  }
  return found
}

/** Reads `sha256=…`. */
const hashOf = (text: string): Record<string, string> | undefined => {
  const [, algorithm, hex] = /^(sha\d+)=([0-9A-Fa-f]+)$/u.exec(text) ?? []
  return algorithm === undefined || hex === undefined ? undefined : { [algorithm]: hex }
}

const entities: Readonly<Record<string, string>> = {
  amp: "&",
  lt: "<",
  gt: ">",
  quot: '"',
  apos: "'",
  "#39": "'"
}

const unescaped = (text: string): string =>
  text.replaceAll(/&(amp|lt|gt|quot|apos|#39);/gu, (_, name: string) => entities[name] ?? "")
