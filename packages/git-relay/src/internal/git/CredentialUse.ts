/**
 * The only place that unwraps a git credential, and each use that is made of one. Pure.
 *
 * What comes out of here is handed to one pipe, one header or one search, and kept nowhere.
 */
import type { Canary } from "@cogni/sandbox-core/Canary"
import { Redacted } from "effect"
import type { GitCredential } from "../../GitCredentials.ts"

/** A secret of the host. */
export interface NamedSecret {
  readonly name: string
  readonly secret: Redacted.Redacted<string>
}

/** What git reads on descriptor 3, in the words of `git-credential`. */
export const pipeText = ({ password, username }: GitCredential): string =>
  `username=${username}\npassword=${Redacted.value(password)}\n`

/** What the API of a forge is shown. */
export const apiToken = ({ password }: GitCredential): string => Redacted.value(password)

/** A key that signs for an App. */
export const privateKey = (key: Redacted.Redacted<string>): string => Redacted.value(key)

/** Every form in which git and its servers repeat a credential. */
export const formsOf = ({ password, username }: GitCredential): ReadonlyArray<string> => {
  const secret = Redacted.value(password)
  const escaped = encodeURIComponent(secret)
  // git writes its hexadecimal digits small, others do not.
  const small = escaped.replace(/%[0-9A-F]{2}/gu, (code) => code.toLowerCase())
  return [secret, escaped, small, ...encodings(`${username}:${secret}`), ...encodings(secret)]
}

/** A secret that is looked for in commits, by value. */
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
