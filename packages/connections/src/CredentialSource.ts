/**
 * A source issues the credentials of one kind of connection: from the environment, a forge, the database or a service.
 *
 * A source is asked only with a permit. Its answer is not trusted: the broker compares what the issuer says with what
 * was permitted, and a credential for anything else is never used.
 */
import type { Effect, Redacted } from "effect"
import type { Connection } from "./Connection.ts"
import type { Kind } from "./ConnectionFields.ts"
import type { Permit } from "./ConnectionDecision.ts"
import type {
  ConnectionStoreUnavailable,
  CredentialMismatch,
  SourceRefused,
  SourceUnavailable
} from "./ConnectionReason.ts"
import type { SecretUnreadable } from "./internal/UseReasons.ts"

/** Claims of an issuer about its credential. */
interface IssuedClaims {
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
  /** Whether its server ignores the case of letters in the names of repositories, as GitHub does. Default: no. */
  readonly ignoresCase?: boolean | undefined
  readonly issue: (use: SourceUse) => Effect.Effect<Issued, SourceProblem>
}
