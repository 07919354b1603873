/** Why a use is denied, and what to do about it. */
import { named } from "@cogni/sandbox-core/Remedy"
import { Schema } from "effect"

/** Why a use is not in both the grant and the request. */
export const Denial = Schema.Literals([
  "no_user",
  "invalid_request",
  "grant_revoked",
  "grant_expired",
  "account_mismatch",
  "no_connection",
  "connection_revoked",
  "connection_expired",
  "connection_not_granted",
  "purpose_not_granted",
  "repository_not_granted",
  "tool_not_granted"
])

export type Denial = typeof Denial.Type

export const denials: Readonly<Record<Denial, string>> = {
  no_user: "the use is not on behalf of a grant",
  invalid_request: "the request does not name what its use needs",
  grant_revoked: "the grant was revoked",
  grant_expired: "the grant has expired",
  account_mismatch: "the grant does not act for this account",
  no_connection: "the account has no connection to this server",
  connection_revoked: "the connection was removed",
  connection_expired: "the connection has expired",
  connection_not_granted: "the grant does not open this connection",
  purpose_not_granted: "the grant or the connection does not allow this use",
  repository_not_granted: "the grant or the connection does not allow this repository",
  tool_not_granted: "the grant or the connection does not allow this tool"
}

const otherGrant = "Ask its owner for a grant that does"
const addAgain = `Add it again (${named("ConnectionStore.add")})`

export const remedies: Readonly<Record<Denial, string>> = {
  no_user: `Provide the grant of the run around the operation (${named("ConnectionUser")})`,
  invalid_request: "Name a repository by its https URL, or a tool and its connection",
  grant_revoked: "Ask its owner for a new one",
  grant_expired: "Ask its owner for a new one",
  account_mismatch: "Use the account that it was issued for",
  no_connection: `Add one (${named("ConnectionStore.add")})`,
  connection_revoked: addAgain,
  connection_expired: `Remove it and add it again (${named("ConnectionStore.add")})`,
  connection_not_granted: otherGrant,
  purpose_not_granted: otherGrant,
  repository_not_granted: `Name another repository, or ask for a grant that does`,
  tool_not_granted: otherGrant
}
