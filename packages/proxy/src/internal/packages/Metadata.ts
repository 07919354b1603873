/** Metadata of one package: what a registry says about its files, and what the sandbox gets to read. */
import type { Registry } from "@cogni/sandbox-core/PackagePattern"
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

export type MetadataOutcome = Rewritten | Unreadable

export const unreadable = (detail: string): Unreadable => ({ _tag: "Unreadable", detail })

/** Parses JSON; `undefined` if it is not an object. */
export const parseObject = (body: Uint8Array): Record<string, unknown> | undefined => {
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
