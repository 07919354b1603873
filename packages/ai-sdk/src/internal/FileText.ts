/** Text of files and of output: encodings, ranges of lines, and what was dropped. Pure. */
import { Unsupported } from "@cogni/sandbox-promise"
import { Buffer } from "node:buffer"

/** Encodings that text can be written in. Node has other names in the same list, such as `hex`, which are no text. */
const writable: Readonly<Record<string, BufferEncoding>> = {
  "utf-8": "utf8",
  utf8: "utf8",
  "utf-16le": "utf16le",
  utf16le: "utf16le",
  "us-ascii": "ascii",
  ascii: "ascii",
  "iso-8859-1": "latin1",
  latin1: "latin1"
}

/** Decodes in an encoding that can be written, or in one that `TextDecoder` knows. A byte order mark is kept. */
export const decode = (bytes: Uint8Array, encoding = "utf-8"): string => {
  const known = writable[encoding.toLowerCase()]
  // Node would drop the highest bit of each byte.
  if (known !== undefined && known !== "ascii")
    return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString(known)
  try {
    return new TextDecoder(encoding, { ignoreBOM: true }).decode(bytes)
  } catch {
    throw unknown("readTextFile", encoding)
  }
}

/** Encodes, or throws if the encoding does not have all characters of the text. */
export const encode = (text: string, encoding = "utf-8"): Uint8Array => {
  const known = writable[encoding.toLowerCase()]
  if (known === undefined) throw unknown("writeTextFile", encoding)
  // Node writes `ascii` as `latin1`.
  const charactersMax = known === "ascii" ? 0x7f : known === "latin1" ? 0xff : 0xffff
  for (let at = 0; at < text.length; at++) {
    if (text.charCodeAt(at) > charactersMax) {
      throw new RangeError(`${encoding} has no code for the character at ${at}. Write the file as utf-8`)
    }
  }
  return Buffer.from(text, known)
}

const unknown = (operation: string, encoding: string) =>
  new Unsupported({
    operation,
    reason: `the encoding ${JSON.stringify(encoding.slice(0, 40))} is not known. Use utf-8, utf-16le, iso-8859-1 or us-ascii`
  })

/** Returns a range of lines, as `extractLines` of the SDK's provider utilities does. */
export const lines = (
  text: string,
  range: { readonly startLine?: number | undefined; readonly endLine?: number | undefined }
): string => {
  const { endLine, startLine } = range
  if (startLine === undefined && endLine === undefined) return text
  const ending = ["\r\n", "\n", "\r"].find((one) => text.includes(one)) ?? "\n"
  const all = text.split(ending)
  const from = Math.max(1, startLine ?? 1) - 1
  return all.slice(from, Math.min(all.length, Math.max(0, endLine ?? all.length))).join(ending)
}

/** Says at the end how much is missing: the SDK's result cannot. */
export const ofOutput = (output: {
  readonly text: string
  readonly bytes: number
  readonly truncated: boolean
}): string =>
  output.truncated
    ? `${output.text}\n[truncated: the command wrote ${output.bytes} bytes. Send its output to a file to have all of it]`
    : output.text
