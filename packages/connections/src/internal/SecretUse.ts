/**
 * The only place that unwraps the credentials of connections and the keys that encrypt them, with one function for each
 * use. Pure.
 *
 * Each result goes into one ciphertext, one request or one comparison, and is not stored.
 */
import { Redacted } from "effect"

/** Longest credential, in characters. No HTTP header carries a longer one. */
const secretCharactersMax = 16 * 1024

/** Bytes of a secret, to encrypt it. */
export const bytesOf = (secret: Redacted.Redacted<string>): Uint8Array =>
  new TextEncoder().encode(Redacted.value(secret))

/** A secret that was decrypted. */
export const secretOf = (bytes: Uint8Array): Redacted.Redacted<string> =>
  Redacted.make(new TextDecoder().decode(bytes), { label: "secret of a connection" })

/** A key, to encrypt or decrypt with it. */
export const keyOf = (key: Redacted.Redacted<Uint8Array>): Uint8Array => Redacted.value(key)

/** A secret as the field of a form, or of a JSON document. */
export const fieldOf = (secret: Redacted.Redacted<string>): string => Redacted.value(secret)

/** A secret as the value of an `Authorization` header. */
export const bearerOf = (secret: Redacted.Redacted<string>): string => `Bearer ${Redacted.value(secret)}`

/**
 * Whether a credential has a format that git and HTTP pass on unchanged. A line end in one would add a line to what git
 * reads.
 */
export const isPlain = (secret: Redacted.Redacted<string>): boolean => {
  const text = Redacted.value(secret)
  return text.length <= secretCharactersMax && /^[\x21-\x7e]+$/u.test(text)
}
