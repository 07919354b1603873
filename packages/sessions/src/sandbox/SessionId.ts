/**
 * Session IDs: names that callers choose, such as the name of a chat or of a user, or a key of several parts.
 *
 * An ID is untrusted input and never part of a path, label or name: these use its digest.
 */
import { Schema } from "effect"
import { createHash } from "node:crypto"

/** Text of a bounded length, without control characters. */
export const plain = (charactersMax: number) =>
  Schema.String.check(
    Schema.isPattern(new RegExp(`^[^\\p{Cc}\\p{Cs}]{1,${charactersMax}}$`, "u"), {
      expected: `1 to ${charactersMax} characters, none of them a control character`
    })
  )

export const SessionId = plain(512).pipe(Schema.brand("@cogni/sandbox-sessions/SessionId"))

export type SessionId = typeof SessionId.Type

export const decode = Schema.decodeUnknownEffect(SessionId)

/** Maximum length of a name of a caller in the identity that an upstream learns. */
const identifierCharactersMax = 200

/** Returns a name as an identifier of a bounded length. Two long names that begin alike have different ones. */
export const identifierOf = (name: string): string =>
  name.length <= identifierCharactersMax
    ? name
    : `${name.slice(0, identifierCharactersMax - 33).toWellFormed()}-${sha256(name).slice(0, 32)}`

/** Returns a file name for an ID: the first 128 bits of its SHA-256 in hexadecimal. */
export const digest = (sessionId: SessionId): string => sha256(sessionId).slice(0, 32)

const sha256 = (text: string): string => createHash("sha256").update(text).digest("hex")
