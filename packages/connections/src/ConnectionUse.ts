/**
 * Audit of connections: one entry for each request of a credential, and for each end of a lease. No entry contains a
 * credential.
 */
import { Schema } from "effect"
import { Identifier, Purpose } from "./ConnectionFields.ts"

/** Maximum number of entries in a list. */
export const listedMax = 1000

export const ConnectionUse = Schema.Struct({
  /** ID of the request, which all entries of its lease share. */
  leaseId: Identifier,
  at: Schema.DateFromString,
  event: Schema.Literals([
    /** A credential was handed out. */
    "issued",
    /** The grant or the connection does not allow the use. No credential was looked at. */
    "denied",
    /** No credential was issued, or the one that was issued was not as permitted. */
    "failed",
    /** The lease was revoked while its credential may have been in use. */
    "revoked",
    /** The use is over. */
    "ended"
  ]),
  billingAccountId: Identifier,
  grantId: Identifier,
  runId: Schema.NullOr(Identifier),
  connectionId: Schema.NullOr(Identifier),
  purpose: Purpose,
  repository: Schema.NullOr(Schema.String.check(Schema.isMaxLength(2000))),
  toolId: Schema.NullOr(Schema.String.check(Schema.isMaxLength(200))),
  /** Description of the use by a tool, such as the method and the address of a request. */
  target: Schema.NullOr(Schema.String.check(Schema.isMaxLength(2000))),
  /** Why there is no credential, such as `grant_expired` or `SourceUnavailable`. */
  reason: Schema.NullOr(Schema.String.check(Schema.isMaxLength(200))),
  /** End of the lease. */
  expiresAt: Schema.NullOr(Schema.DateFromString)
})

export type ConnectionUse = typeof ConnectionUse.Type

/** Entries to list, newest first. */
export interface ConnectionUseQuery {
  readonly billingAccountId: string
  readonly connectionId?: string | undefined
  readonly runId?: string | undefined
  readonly leaseId?: string | undefined
  /** Default: {@link listedMax}. */
  readonly limit?: number | undefined
}
