/**
 * The only place that unwraps git credentials, with one function for each use. Pure.
 *
 * Each result is passed to one pipe, one header or one search, and is not stored.
 */
import type { Canary } from "@cogni/sandbox-core/Canary"
import { Redacted } from "effect"
import type { GitCredential } from "../../GitCredentials.ts"

/** A secret of the host, with a name for reports. */
export interface NamedSecret {
  readonly name: string
  readonly secret: Redacted.Redacted<string>
}

/** Text that git reads on descriptor 3, in the format of `git-credential`. */
export const pipeText = ({ password, username }: GitCredential): string =>
  `username=${username}\npassword=${Redacted.value(password)}\n`

/** Token for the API of a forge. */
export const apiToken = ({ password }: GitCredential): string => Redacted.value(password)

/** Private key that signs for a GitHub App. */
export const privateKey = (key: Redacted.Redacted<string>): string => Redacted.value(key)

/** All forms in which git and its servers repeat a credential. */
export const formsOf = ({ password, username }: GitCredential): ReadonlyArray<string> => {
  const secret = Redacted.value(password)
  const escaped = encodeURIComponent(secret)
  // git escapes with hexadecimal digits in lower case, other programs in upper case.
  const small = escaped.replace(/%[0-9A-F]{2}/gu, (code) => code.toLowerCase())
  return [secret, escaped, small, ...encodings(`${username}:${secret}`), ...encodings(secret)]
}

/** A secret to search for in commits, by value. */
export const soughtAfter = ({ name, secret }: NamedSecret): Canary => ({
  name,
  secret: Redacted.value(secret)
})

const encodings = (text: string): ReadonlyArray<string> => {
  const bytes = Buffer.from(text, "utf8")
  return [
    bytes.toString("base64"),
    bytes.toString("base64").replace(/=+$/u, ""),
    bytes.toString("base64url"),
    bytes.toString("hex")
  ]
}
