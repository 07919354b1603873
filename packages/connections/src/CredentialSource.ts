/**
 * A source issues the credentials of one kind of connection: from the environment, a forge, the database or a service.
 *
 * A source is asked only with a permit. Its answer is not trusted: {@link accept} compares what the issuer says with
 * what was permitted, and a credential for anything else is never used.
 */
import { type Effect, type Redacted, Result } from "effect"
import type { Connection, Kind } from "./Connection.ts"
import type { Permit } from "./ConnectionDecision.ts"
import {
  type Claim,
  type ConnectionStoreUnavailable,
  CredentialMismatch,
  type SecretUnreadable,
  type SourceRefused,
  type SourceUnavailable
} from "./ConnectionError.ts"
import * as SecretUse from "./internal/SecretUse.ts"

/** Claims of an issuer about its credential. */
export interface IssuedClaims {
  readonly account?: string | undefined
  readonly connection?: string | undefined
  readonly server?: string | undefined
  /** URLs of all repositories that the credential opens. */
  readonly repository?: ReadonlyArray<string> | undefined
  readonly tool?: string | undefined
}

/** A credential, as its issuer described it. */
export interface Issued {
  /** Default: that of the connection. */
  readonly username?: string | undefined
  readonly secret: Redacted.Redacted<string>
  /** When it expires, if the issuer said so. */
  readonly expiresAt: Date | undefined
  readonly claims: IssuedClaims
  /** Makes the credential invalid when its use is over. A failure is logged: the credential expires by itself. */
  readonly revoke?: Effect.Effect<void, SourceProblem> | undefined
}

export type SourceProblem =
  | ConnectionStoreUnavailable
  | CredentialMismatch
  | SecretUnreadable
  | SourceRefused
  | SourceUnavailable

/** A permitted use, and access to the stored secret of its connection alone. */
export interface SourceUse {
  readonly permit: Permit
  readonly connection: Connection
  /** Reads and decrypts the secret. */
  readonly secret: Effect.Effect<
    Redacted.Redacted<string>,
    SecretUnreadable | SourceUnavailable | ConnectionStoreUnavailable
  >
  /** Gives exclusive access to the secret, for secrets that change with each use. `next` replaces it. */
  readonly rotated: <A>(
    exchange: (
      secret: Redacted.Redacted<string>
    ) => Effect.Effect<
      { readonly value: A; readonly next: Redacted.Redacted<string> | undefined },
      SourceProblem
    >
  ) => Effect.Effect<A, SourceProblem>
}

export interface CredentialSource {
  readonly kind: Kind
  /** Claims that the issuer must state. Others are compared only if it does. */
  readonly states: ReadonlyArray<keyof IssuedClaims>
  readonly issue: (use: SourceUse) => Effect.Effect<Issued, SourceProblem>
}

/** A credential that is as permitted. */
export interface Accepted {
  readonly username: string
  readonly secret: Redacted.Redacted<string>
  readonly expiresAt: Date
}

/** Compares an issued credential with the permit. Pure. */
export const accept = (
  { states }: Pick<CredentialSource, "states">,
  { connection, permit }: Pick<SourceUse, "connection" | "permit">,
  issued: Issued,
  now: Date
): Result.Result<Accepted, CredentialMismatch> => {
  const mismatch = (claim: Claim) =>
    Result.fail(new CredentialMismatch({ connection: permit.connectionName, claim }))
  const expected: IssuedClaims = {
    account: permit.billingAccountId,
    connection: permit.connectionName,
    server: permit.server,
    repository: permit.repository === undefined ? undefined : [permit.repository],
    tool: permit.toolId
  }
  const claims = Object.keys(expected) as ReadonlyArray<keyof IssuedClaims>
  const wrong = claims.find((claim) =>
    issued.claims[claim] === undefined
      ? states.includes(claim) && expected[claim] !== undefined
      : comparable(issued.claims[claim]) !== comparable(expected[claim])
  )
  if (wrong !== undefined) return mismatch(wrong)
  const { expiresAt = permit.expiresAt, secret, username = connection.username } = issued
  if (!SecretUse.isPlain(secret) || !isUsername(username)) return mismatch("format")
  if (!(expiresAt.getTime() > now.getTime())) return mismatch("expiry")
  return Result.succeed({
    username,
    secret,
    expiresAt: new Date(Math.min(expiresAt.getTime(), permit.expiresAt.getTime()))
  })
}

/** A colon would end the user name in HTTP, and a line end would add a line to what git reads. */
const isUsername = (username: string): boolean => /^[\x21-\x39\x3b-\x7e]{1,200}$/u.test(username)

/** A text that is the same for the same things. Forges ignore case and `.git` in the names of repositories. */
const comparable = (claim: string | ReadonlyArray<string> | undefined): string | undefined =>
  typeof claim === "object"
    ? [...new Set(claim.map((url) => url.toLowerCase().replace(/(?:\.git)?\/?$/u, "")))].toSorted().join("\n")
    : claim
