/** A token that names one run until it expires: `runId.expiry.HMAC`. Only the host and its nginx know the secret. */
import type { RunId } from "@cogni/sandbox-core/RunId"
import * as Redacted from "effect/Redacted"
import { createHmac } from "node:crypto"

/** Size of the secret, in bytes. */
export const secretBytes = 32

/** Signs a token. `expirySeconds` is the time from which it is refused, in seconds since 1970. */
export const sign = (secret: Uint8Array, runId: RunId, expirySeconds: number): Redacted.Redacted<string> => {
  const text = `${runId}.${Math.floor(expirySeconds)}`
  return Redacted.make(`${text}.${createHmac("sha256", secret).update(text).digest("base64url")}`)
}
