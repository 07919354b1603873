/** Removes credentials from text: by value, and in the forms in which git and its servers repeat them. */
import * as CredentialUse from "./CredentialUse.ts"
import type { GitCredential } from "../../GitCredentials.ts"
import { oneLine } from "./ShownText.ts"

/** Minimum length of a secret. Shorter ones would redact half of every message. */
const secretCharactersMin = 4

/** @internal */
type Redact = (text: string) => string

/** Returns a function that makes text one line, without the secrets and without the user part of any URL. */
export const make = (credentials: ReadonlyArray<GitCredential>): Redact => {
  const forms = [...new Set(credentials.flatMap(CredentialUse.formsOf))]
    .filter((form) => form.length >= secretCharactersMin)
    .toSorted((a, b) => b.length - a.length)
  return (text) =>
    oneLine(
      forms
        .reduce((clean, form) => clean.replaceAll(form, "[redacted]"), text)
        .replace(/\/\/[^\s/@]*@/gu, "//[redacted]@")
    )
}
