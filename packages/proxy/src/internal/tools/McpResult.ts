/** The result of an MCP tool as agents get it: text and JSON. Pure. */
import type { McpAnswer } from "@cogni/sandbox-loop/McpClient"

/** One part of a result. */
type McpPart =
  | { readonly type: "text"; readonly text: string }
  | { readonly type: "resource"; readonly uri: string; readonly text: string }
  | { readonly type: "link"; readonly uri: string; readonly name: string }
  /** A part that is not passed on, such as an image. */
  | {
      readonly type: "unsupported"
      readonly kind: string
      readonly mediaType: string
      readonly base64Characters: number
    }

export interface McpResult {
  readonly content: ReadonlyArray<McpPart>
  readonly structured?: unknown
}

export const make = ({ content, structured }: McpAnswer): McpResult => ({
  content: content.map(partOf),
  ...(structured === undefined ? {} : { structured })
})

/** Whether nothing of a result can be passed on. */
export const isUnsupported = ({ content, structured }: McpResult): boolean =>
  structured === undefined && content.length > 0 && content.every(({ type }) => type === "unsupported")

/** Returns the text of a result. */
export const textOf = ({ content }: McpResult): string =>
  content.flatMap((part) => ("text" in part ? [part.text] : [])).join("\n")

const partOf = (part: Readonly<Record<string, unknown>>): McpPart => {
  const { resource, type } = part
  if (type === "text") return { type, text: stringOf(part["text"]) }
  if (type === "resource_link")
    return { type: "link", uri: stringOf(part["uri"]), name: stringOf(part["name"]) }
  if (type !== "resource" || typeof resource !== "object" || resource === null) return unsupported(part)
  const embedded = resource as Readonly<Record<string, unknown>>
  return typeof embedded["text"] === "string"
    ? { type, uri: stringOf(embedded["uri"]), text: embedded["text"] }
    : unsupported({ ...embedded, type: "resource" })
}

const unsupported = (part: Readonly<Record<string, unknown>>): McpPart => ({
  type: "unsupported",
  kind: stringOf(part["type"]).slice(0, 100),
  mediaType: stringOf(part["mimeType"]).slice(0, 200),
  base64Characters: stringOf(part["data"] ?? part["blob"]).length
})

const stringOf = (value: unknown): string => (typeof value === "string" ? value : "")
