/**
 * What a session is called by whoever talks to it: a chat's name, a user's, a key of several parts.
 *
 * It comes from outside, and is in no path, label or name: what needs one uses its digest.
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

/** A name for files: the same for the same id, and nobody else's. */
export const digest = (sessionId: SessionId): string =>
  createHash("sha256").update(sessionId).digest("hex").slice(0, 32)
