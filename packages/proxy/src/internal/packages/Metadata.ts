/** Metadata of one package: what a registry says about its files, and what the sandbox gets to read. */
import type { Registry } from "@cogni/sandbox-core/PackagePattern"
import * as JsonSurvey from "@cogni/sandbox-core/JsonSurvey"
import type { FileHash } from "./FileHash.ts"

/** A file of a package. */
export interface Published {
  /** URL at the registry. The mirror only fetches it if its origin is allowed. */
  readonly url: string
  readonly hash?: FileHash | undefined
}

/** Metadata as it came from a registry. */
export interface MetadataRequest {
  readonly registry: Registry
  readonly name: string
  /** URL of the mirror for this registry, as the sandbox sees it. */
  readonly base: string
  /** URL from which the metadata came, for relative links. */
  readonly from: string
  readonly contentType: string
  /** Where cargo downloads crates: a URL, or a template of one. */
  readonly downloads?: string | undefined
  readonly body: Uint8Array
}

/** Metadata for the sandbox, and where its files are. */
export interface Rewritten {
  readonly _tag: "Rewritten"
  readonly contentType: string
  readonly body: Uint8Array
  /** By the file's name in the mirror. */
  readonly files: ReadonlyArray<readonly [file: string, published: Published]>
}

/** Metadata that does not have the format of its registry, or is about another package. */
export interface Unreadable {
  readonly _tag: "Unreadable"
  readonly detail: string
}

/** Files of one package. Those with the most versions have some thousands. */
export const filesMax = 50_000

/** Characters of the addresses of all files of one package. */
const addressCharactersMax = 16 * 1024 * 1024

/** Returns why so many files cannot be remembered; `undefined` if they can. */
export const tooMany = (files: Rewritten["files"]): string | undefined => {
  if (files.length > filesMax) return `the package has more than ${filesMax} files`
  const characters = files.reduce((sum, [, { url }]) => sum + url.length, 0)
  return characters > addressCharactersMax
    ? `the addresses of its files have more than ${addressCharactersMax} characters`
    : undefined
}

export type MetadataOutcome = Rewritten | Unreadable

export const unreadable = (detail: string): Unreadable => ({ _tag: "Unreadable", detail })

/**
 * Maximum memory of parsed metadata, without its text. A parser that exhausts the memory of its thread aborts the whole
 * process.
 */
const structureBytesMax = 384 * 1024 * 1024

/** Parses JSON; `undefined` if it is not an object, or takes too much memory. */
export const parseObject = (body: Uint8Array): Record<string, unknown> | undefined => {
  if (JsonSurvey.survey(body).structureBytes > structureBytesMax) return undefined
  try {
    return asObject(JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(body)))
  } catch {
    return undefined
  }
}

export const asObject = (value: unknown): Record<string, unknown> | undefined =>
  typeof value === "object" && value !== null && !Array.isArray(value)
    ? (value as Record<string, unknown>)
    : undefined

const encoder = new TextEncoder()

/** Writes JSON into memory of its own, so that it can be transferred to another thread. */
export const bytesOf = (text: string): Uint8Array => encoder.encode(text)
