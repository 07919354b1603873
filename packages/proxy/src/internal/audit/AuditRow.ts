/**
 * Parses one line of an audit: its place in the chain, whether its hash is valid, and its entry.
 *
 * Trusts nothing in the line, because anyone who can write to the file may have written it.
 */
import type { AuditHead } from "@cogni/sandbox-core/RunFigures"
import { Option, Schema } from "effect"
import { AuditLine } from "../../AuditEntry.ts"
import type { Row } from "../ByteRows.ts"
import { sha256 } from "./AuditChain.ts"

/** Relation of a line to the head of a chain. */
export type Look =
  | { readonly _tag: "Next"; readonly hash: string; readonly line: AuditLine | undefined }
  /** The line's hash is valid, but the line does not come next. */
  | { readonly _tag: "Elsewhere"; readonly seq: number; readonly prev: string }
  | { readonly _tag: "Changed" }
  | { readonly _tag: "Unreadable" }

const hashBytes = `,"hash":"${"0".repeat(64)}"}`.length
const prevBytes = `,"prev":"${"0".repeat(64)}"`.length

export const lookAt = ({ bytes }: Row, head: AuditHead): Look => {
  if (bytes === undefined) return { _tag: "Unreadable" }
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const start = /^\{"seq":([1-9]\d{0,15}),"at":/u.exec(buffer.toString("latin1", 0, 32))
  const tail = buffer.toString("latin1", Math.max(0, buffer.length - prevBytes - hashBytes))
  const ends = /^,"prev":"([0-9a-f]{64})","hash":"([0-9a-f]{64})"\}$/u.exec(tail)
  if (ends === null && start === null && !/"[0-9a-f]{64}"\}$/u.test(tail)) return { _tag: "Unreadable" }
  if (ends === null || start === null) return { _tag: "Changed" }
  const [, prev, own] = ends as unknown as readonly [string, string, string]
  if (sha256(buffer.subarray(0, buffer.length - hashBytes)) !== own) return { _tag: "Changed" }
  const seq = Number(start[1])
  if (seq !== head.entries + 1 || prev !== head.hash) return { _tag: "Elsewhere", seq, prev }
  const line = decode(bytes)
  // The decoded values must equal the checked ones, because a name can occur twice in a line.
  const same = line?.seq === seq && line.prev === prev && line.hash === own
  return { _tag: "Next", hash: own, line: same ? line : undefined }
}

const decodeLine = Schema.decodeUnknownOption(AuditLine)
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })

/** Returns the entry of a line, or `undefined` if it is not a known one. */
export const decode = (bytes: Uint8Array | undefined): AuditLine | undefined => {
  if (bytes === undefined) return undefined
  try {
    return Option.getOrUndefined(decodeLine(JSON.parse(utf8.decode(bytes))))
  } catch {
    return undefined
  }
}
