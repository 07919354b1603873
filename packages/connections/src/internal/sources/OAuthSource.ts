/**
 * Access tokens for a refresh token (RFC 6749, section 6). The refresh token is stored encrypted, and replaced when the
 * server returns another one.
 *
 * An access token is used until it is about to expire: servers such as GitLab make the earlier one invalid with each
 * refresh, which would break another use that is under way. One process at a time refreshes.
 */
import { named } from "@cogni/sandbox-core/Remedy"
import { Clock, Effect, Redacted, Schema } from "effect"
import type { Means } from "../../ConnectionFields.ts"
import { SourceRefused } from "../../ConnectionReason.ts"
import type { CredentialSource, Issued, SourceUse } from "../../CredentialSource.ts"
import * as IssuerApi from "../IssuerApi.ts"
import * as SecretUse from "../SecretUse.ts"
import { SecretUnreadable } from "../UseReasons.ts"

/** Seconds that an access token must still be valid to be used again, but at most half of its lifetime. */
const freshSecondsMin = 300

const Secret = Schema.RedactedFromValue(
  Schema.String.check(Schema.isMinLength(1), Schema.isMaxLength(16_384))
)

/** The secret of a connection of this kind, as JSON. */
const OAuthSecret = Schema.Struct({
  refreshToken: Secret,
  /** For confidential clients. */
  clientSecret: Schema.optionalKey(Secret),
  access: Schema.optionalKey(
    Schema.Struct({
      token: Secret,
      expiresAt: Schema.DateFromString,
      lifetimeSeconds: Schema.optionalKey(Schema.Finite)
    })
  )
})

type OAuthSecret = typeof OAuthSecret.Type

const Stored = Schema.fromJsonString(OAuthSecret)
const decodeStored = Schema.decodeUnknownEffect(Stored)
const encodeStored = Schema.encodeEffect(Stored)

const Answer = Schema.Struct({
  access_token: Secret,
  token_type: Schema.optionalKey(Schema.String),
  expires_in: Schema.optionalKey(Schema.Finite),
  refresh_token: Schema.optionalKey(Secret)
})

/** Encodes the secret of a new connection. */
export const secretOf = (secret: OAuthSecret): Effect.Effect<Redacted.Redacted<string>> =>
  Effect.map(Effect.orDie(encodeStored(secret)), (text) => Redacted.make(text))

export const make: CredentialSource = {
  kind: "oauth",
  states: [],
  issue: (use) =>
    Effect.gen(function* () {
      const { connection, rotated, secret } = use
      const { means, name } = connection
      if (means.kind !== "oauth") return yield* notOAuth(name)
      const kept = yield* freshOf(yield* Effect.flatMap(secret, storedOf(name)))
      if (kept !== undefined) return kept
      return yield* rotated((sealed) =>
        Effect.gen(function* () {
          const stored = yield* storedOf(name)(sealed)
          // Another process may have refreshed it meanwhile.
          const fresh = yield* freshOf(stored)
          if (fresh !== undefined) return { value: fresh, next: undefined }
          return yield* refreshed(use, means, stored)
        })
      )
    })
}

const notOAuth = (connection: string) =>
  new SourceRefused({
    connection,
    detail: "it has no OAuth settings",
    remedy: `Remove it and add it again (${named("ConnectionStore.add")})`
  })

const storedOf = (connection: string) => (secret: Redacted.Redacted<string>) =>
  Effect.mapError(
    decodeStored(SecretUse.fieldOf(secret)),
    () =>
      new SecretUnreadable({
        connection,
        detail: "is not a refresh token",
        remedy: `Remove the connection and add it again (${named("ConnectionStore.add")})`
      })
  )

const issuedOf = (access: NonNullable<OAuthSecret["access"]>): Issued => ({
  secret: access.token,
  expiresAt: access.expiresAt,
  claims: {}
})

const freshOf = ({ access }: OAuthSecret): Effect.Effect<Issued | undefined> =>
  Effect.map(Clock.currentTimeMillis, (now) =>
    access !== undefined &&
    access.expiresAt.getTime() - now >=
      Math.min(freshSecondsMin, (access.lifetimeSeconds ?? Number.POSITIVE_INFINITY) / 2) * 1000 &&
    access.expiresAt.getTime() > now
      ? issuedOf(access)
      : undefined
  )

const refreshed = Effect.fnUntraced(function* (
  { connection: { name } }: SourceUse,
  { clientId, tokenUrl }: Extract<Means, { kind: "oauth" }>,
  stored: OAuthSecret
) {
  const { clientSecret, refreshToken } = stored
  const request = new Request(tokenUrl, {
    method: "POST",
    headers: { accept: "application/json" },
    body: new URLSearchParams({
      grant_type: "refresh_token",
      refresh_token: SecretUse.fieldOf(refreshToken),
      client_id: clientId,
      ...(clientSecret === undefined ? {} : { client_secret: SecretUse.fieldOf(clientSecret) })
    })
  })
  const answer = yield* IssuerApi.ask(name, request, Answer)
  if (answer.token_type !== undefined && answer.token_type.toLowerCase() !== "bearer") {
    return yield* new SourceRefused({
      connection: name,
      detail: "its issuer's tokens are not bearer tokens",
      remedy: "Use a server that issues bearer tokens"
    })
  }
  const now = yield* Clock.currentTimeMillis
  // Without an expiry, the token is used once: nothing says how long it is valid.
  const lifetimeSeconds = Math.min(answer.expires_in ?? 0, daySeconds)
  const expiresAt = new Date(now + lifetimeSeconds * 1000)
  const access = { token: answer.access_token, expiresAt, lifetimeSeconds }
  const next = yield* secretOf({
    ...stored,
    refreshToken: answer.refresh_token ?? refreshToken,
    access
  })
  return {
    next,
    value: answer.expires_in === undefined ? { ...issuedOf(access), expiresAt: undefined } : issuedOf(access)
  }
})

/** Longest time for which a token is kept, in seconds. */
const daySeconds = 24 * 60 * 60
