/** Properties of an issued credential, in words. */
import { Schema } from "effect"

/** The property of an issued credential that is not as permitted. */
export const Claim = Schema.Literals([
  "account",
  "connection",
  "expiry",
  "format",
  "repository",
  "rights",
  "server",
  "tool"
])

export type Claim = typeof Claim.Type

export const claims: Readonly<Record<Claim, string>> = {
  account: "is for another account",
  connection: "is for another connection",
  expiry: "has expired already",
  format: "has a format that no server accepts",
  repository: "is for another repository, or for more than one",
  rights: "has more rights than were asked for, or lacks some",
  server: "is for another server",
  tool: "is for another tool"
}
