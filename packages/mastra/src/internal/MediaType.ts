/** Media types that Mastra's `read_file` treats in a special way: what a model can see, and what is no text. */
import { posix } from "node:path"

const types: Readonly<Record<string, string>> = {
  ".gif": "image/gif",
  ".gz": "application/gzip",
  ".jpeg": "image/jpeg",
  ".jpg": "image/jpeg",
  ".pdf": "application/pdf",
  ".png": "image/png",
  ".tar": "application/x-tar",
  ".wasm": "application/wasm",
  ".webp": "image/webp",
  ".zip": "application/zip"
}

/** Undefined for all others, which Mastra reads as text. */
export const mediaTypeOf = (name: string): string | undefined => types[posix.extname(name).toLowerCase()]
