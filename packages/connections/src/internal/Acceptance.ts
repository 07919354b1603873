/** Compares an issued credential with the permit. Pure. */
import { type Redacted, Result } from "effect"
import { CredentialMismatch } from "../ConnectionReason.ts"
import type { CredentialSource, Issued, SourceUse } from "../CredentialSource.ts"
import type { Claim } from "./Claim.ts"
import * as SecretUse from "./SecretUse.ts"

/** A credential that is as permitted. */
export interface Accepted {
  readonly username: string
  readonly secret: Redacted.Redacted<string>
  readonly expiresAt: Date
}

/** Compares an issued credential with the permit. Pure. */
export const accept = (
  { ignoresCase = false, states }: Pick<CredentialSource, "ignoresCase" | "states">,
  { connection, permit }: Pick<SourceUse, "connection" | "permit">,
  issued: Issued,
  now: Date
): Result.Result<Accepted, CredentialMismatch> => {
  const mismatch = (claim: Claim) =>
    Result.fail(new CredentialMismatch({ connection: permit.connectionName, claim }))
  const expected: Issued["claims"] = {
    account: permit.billingAccountId,
    connection: permit.connectionName,
    server: permit.server,
    repository: permit.repository === undefined ? undefined : [permit.repository],
    tool: permit.toolId
  }
  const claims = Object.keys(expected) as ReadonlyArray<keyof Issued["claims"]>
  const wrong = claims.find((claim) =>
    issued.claims[claim] === undefined
      ? states.includes(claim) && expected[claim] !== undefined
      : comparable(issued.claims[claim], ignoresCase) !== comparable(expected[claim], ignoresCase)
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

/** A text that is the same for the same things. Forges ignore `.git` at the end of the names of repositories. */
const comparable = (
  claim: string | ReadonlyArray<string> | undefined,
  ignoresCase: boolean
): string | undefined => {
  if (typeof claim !== "object") return claim
  const names = claim.map((url) => url.replace(/(?:\.git)?\/?$/u, ""))
  return [...new Set(ignoresCase ? names.map((name) => name.toLowerCase()) : names)].toSorted().join("\n")
}
