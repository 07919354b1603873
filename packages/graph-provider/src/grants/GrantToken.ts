/**
 * Bearer token of a grant: `cgs_` and 32 random bytes. And the secret of a sign-in: `cgi_` and as many.
 *
 * Anyone who has the token has the grant, so it is shown once and never stored: a store keeps its SHA-256. The token is
 * as random as the hash is long, so neither a salt nor a slow hash would add security. Only this module unwraps it. The
 * two prefixes keep the two apart: a browser's secret is refused where a token belongs, and the other way round.
 */
import { Effect, Redacted } from "effect"
import { createHash, createHmac } from "node:crypto"

/** Identifies the token to secret scanners. */
export const prefix = "cgs_"

/** Identifies the secret of a sign-in. */
const signInPrefix = "cgi_"

export const randomBytes = 32

/** Maximum number of sign-ins of one grant at a time. One more ends the oldest. */
export const signInsPerGrantMax = 32

const random = (begin: string, label: string): Effect.Effect<Redacted.Redacted<string>> =>
  Effect.sync(() =>
    Redacted.make(`${begin}${base64Url(crypto.getRandomValues(new Uint8Array(randomBytes)))}`, { label })
  )

/** Generates a new token. */
export const generate: Effect.Effect<Redacted.Redacted<string>> = random(prefix, "grant token")

/** Generates the secret of a new sign-in. */
export const generateSignIn: Effect.Effect<Redacted.Redacted<string>> = random(signInPrefix, "sign-in")

/** Returns the SHA-256 of any text, in hexadecimal. A text that is not a token has the hash of no grant. */
export const hash = (token: Redacted.Redacted<string>): Effect.Effect<string> =>
  Effect.sync(() => createHash("sha256").update(Redacted.value(token)).digest("hex"))

/** Returns another secret, which only an owner of the token can compute, and from which it cannot be computed. */
export const derive = (token: Redacted.Redacted<string>, purpose: string): Effect.Effect<string> =>
  Effect.sync(() => createHmac("sha256", Redacted.value(token)).update(purpose).digest("hex"))

/** Returns true if a text has the format of a token. Any other text belongs to no grant. */
export const isWellFormed = (token: Redacted.Redacted<string>): boolean =>
  /^cgs_[A-Za-z0-9_-]{43}$/u.test(Redacted.value(token))

/** Returns true if a text has the format of a sign-in's secret. */
export const isSignIn = (secret: Redacted.Redacted<string>): boolean =>
  /^cgi_[A-Za-z0-9_-]{43}$/u.test(Redacted.value(secret))

/** Unwraps a token, to show it once to its new owner. */
export const tell = (token: Redacted.Redacted<string>): string => Redacted.value(token)

const base64Url = (bytes: Uint8Array): string =>
  btoa(String.fromCharCode(...bytes))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll("=", "")
