/**
 * What a session is called by whoever talks to it: a chat's name, a user's, a key of several parts.
 *
 * It comes from outside, and is in no path, label or name: what needs one uses its digest.
 */
import { Schema } from "effect"
import { createHash } from "node:crypto"

export const SessionId = Schema.String.check(
  Schema.isPattern(/^[^\p{Cc}\p{Cs}]{1,512}$/u, {
    expected: "1 to 512 characters, none of them a control character"
  })
).pipe(Schema.brand("@cogni/sandbox-sessions/SessionId"))

export type SessionId = typeof SessionId.Type

export const decode = Schema.decodeUnknownEffect(SessionId)

/** A name for files: the same for the same id, and nobody else's. */
export const digest = (sessionId: SessionId): string =>
  createHash("sha256").update(sessionId).digest("hex").slice(0, 32)
