/**
 * The word with which a caller shows a grant: `cgs_` and 32 random bytes.
 *
 * Whoever has it has the grant, so it is told once and never kept: a store has its SHA-256. It is as random as the hash
 * is long, so neither a salt nor a slow hash would add anything. This is the one module that unwraps such a token.
 */
import { Effect, Redacted } from "effect"
import { createHash } from "node:crypto"

/** Tells scanners of secrets what they found. */
export const prefix = "cgs_"

export const randomBytes = 32

/** A new one. */
export const generate: Effect.Effect<Redacted.Redacted<string>> = Effect.sync(() =>
  Redacted.make(`${prefix}${base64Url(crypto.getRandomValues(new Uint8Array(randomBytes)))}`, {
    label: "grant token"
  })
)

/** SHA-256 of any text, in hexadecimal: what is no token at all has a hash that no grant has. */
export const hash = (token: Redacted.Redacted<string>): Effect.Effect<string> =>
  Effect.sync(() => createHash("sha256").update(Redacted.value(token)).digest("hex"))

/** Whether a text could be a token: what could not is no token of any grant. */
export const isWellFormed = (token: Redacted.Redacted<string>): boolean =>
  /^cgs_[A-Za-z0-9_-]{43}$/u.test(Redacted.value(token))

/** For whoever it is issued to, once. */
export const tell = (token: Redacted.Redacted<string>): string => Redacted.value(token)

const base64Url = (bytes: Uint8Array): string =>
  btoa(String.fromCharCode(...bytes))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll("=", "")
