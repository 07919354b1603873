/**
 * Computes the maximum input tokens that a request can be billed, at any provider. The result is reserved before the
 * call, and charged if the upstream never reports the true figure.
 *
 * | Part of a request | Tokens at most |
 * |---|---|
 * | text, and all JSON around it | one for every byte: byte-level tokenizers have no smaller piece |
 * | an image | `imageTokens`; its bytes do not count as text |
 * | any number of files and sounds | `windowTokens`: they are compressed, so their size says nothing |
 * | a reference to a tool | once more the definition of the tool, which the provider inserts |
 * | additions of the provider | `ownTokens` |
 */
import type { ApiRules, Body } from "./BodyRules.ts"

/**
 * Maximum tokens of an image: 2048 × 768 pixels for gpt-4o-mini, with 2833 tokens and 5667 for each of 8 tiles of
 * 512 × 512. OpenAI scales images to this size (platform.openai.com/docs/guides/images-vision). Other models count
 * less: 10,000 patches at up to 2.46 tokens each (the same page, `detail: original`), 4784 for Claude
 * (platform.claude.com/docs/en/build-with-claude/vision), 16,384 for Qwen-VL (`max_pixels`).
 */
export const imageTokens = 2833 + 8 * 5667

/**
 * The largest context window of a model that reads files or hears sounds: that of Gemini 1.5 Pro
 * (ai.google.dev/gemini-api/docs/models). No call is billed more input than the context window of its model.
 */
export const windowTokens = 2_097_152

/**
 * Maximum tokens that a provider adds. More than is published for tool instructions (at most 530, docs.anthropic.com,
 * "Tool use pricing and tokens") and for structured outputs.
 */
export const ownTokens = 1024

/** Returns the bound for a body that is sent in `bytes` bytes. */
export const of = (body: Body, { conversation }: Pick<ApiRules, "conversation">, bytes: number): number => {
  const found: Found = { images: 0, imageBytes: 0, files: 0, references: [] }
  for (const entry of listOf(body[conversation])) {
    // Embeddings read texts, or the numbers of tokens: each is at least one byte.
    if (typeof entry !== "object") continue
    const { content, output } = entry as Body
    count(content, found)
    count(output, found)
  }
  count((body["prediction"] as Body | null | undefined)?.["content"], found)
  return (
    ownTokens +
    Math.max(0, bytes - found.imageBytes) +
    found.images * imageTokens +
    (found.files > 0 ? windowTokens : 0) +
    definitionBytes(body, found.references)
  )
}

interface Found {
  images: number
  /** Size of the images' data, which has only characters of one byte. */
  imageBytes: number
  files: number
  /** Names of the referenced tools. */
  readonly references: Array<unknown>
}

const listOf = (value: unknown): ReadonlyArray<unknown> => (Array.isArray(value) ? value : [])

/** Counts parts where they can occur. Similar objects in the arguments of a tool are text. */
const count = (parts: unknown, found: Found): void => {
  for (const part of listOf(parts) as ReadonlyArray<Body>)
    switch (part["type"]) {
      case "image_url":
        countImage((part["image_url"] as Body)["url"], found)
        break
      case "input_image":
        countImage(part["image_url"], found)
        break
      case "image": {
        const { data, media_type } = part["source"] as Body
        countImage(data, found, `data:${String(media_type)};`)
        break
      }
      case "document":
        countDocument(part, found)
        break
      case "file":
      case "input_audio":
      case "input_file":
        found.files += 1
        break
      case "tool_reference":
        found.references.push(part["tool_name"])
        break
      case "tool_result":
        count(part["content"], found)
    }
}

/** Formats of single images. Proxies that translate between APIs send PDF files and videos in the same field. */
const picture = /^data:image\/(?:avif|bmp|gif|heic|heif|jpe?g|png|webp)[;,]/iu

const countImage = (data: unknown, found: Found, head = data): void => {
  if (typeof data !== "string" || !picture.test(String(head).slice(0, 32))) found.files += 1
  else {
    found.images += 1
    found.imageBytes += data.length
  }
}

/** Counts a document. If citations are enabled, it counts as a file: the provider numbers each sentence of its text. */
const countDocument = ({ citations, source }: Body, found: Found): void => {
  const { content, type } = source as Body
  if (type === "base64" || (citations as Body | null | undefined)?.["enabled"] === true) found.files += 1
  count(content, found)
}

const definitionBytes = ({ tools }: Body, references: ReadonlyArray<unknown>): number => {
  if (references.length === 0) return 0
  const bytesOf = new Map<unknown, number>()
  for (const tool of listOf(tools) as ReadonlyArray<Body>)
    bytesOf.set(
      tool["name"],
      Math.max(bytesOf.get(tool["name"]) ?? 0, Buffer.byteLength(JSON.stringify(tool)))
    )
  return references.reduce<number>((sum, name) => sum + (bytesOf.get(name) ?? 0), 0)
}
