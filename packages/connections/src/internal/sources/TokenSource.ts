/** Tokens that the owner of an account stored, encrypted. They are handed out as they are. */
import { Effect } from "effect"
import type { CredentialSource } from "../../CredentialSource.ts"

export const make: CredentialSource = {
  kind: "token",
  states: [],
  issue: ({ secret }) => Effect.map(secret, (token) => ({ secret: token, expiresAt: undefined, claims: {} }))
}
