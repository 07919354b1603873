/**
 * Inspects the body of a request before it may pass: rebuilds it for the upstream, computes digests, finds canaries.
 *
 * Takes and returns plain data, so that it can run outside the event loop: a large body takes long to read, and other
 * runs must not wait for it.
 */
import * as Result from "effect/Result"
import { hash } from "node:crypto"
import * as Canary from "@cogni/sandbox-core/Canary"
import type { GatewayError } from "../gateway/GatewayAnswers.ts"
import type { BodyPolicy } from "./BodyRules.ts"
import * as RequestBody from "./RequestBody.ts"

export interface InspectionRequest {
  readonly body: Uint8Array
  readonly policy: BodyPolicy
  readonly canaries: ReadonlyArray<Canary.Canary>
}

export interface Sent extends Omit<RequestBody.Rebuilt, "body"> {
  readonly body: Uint8Array
  /** SHA-256 of the body that goes upstream, in hexadecimal. */
  readonly digest: string
}

export interface Inspection {
  /** SHA-256 of the agent's body, in hexadecimal. */
  readonly digest: string
  readonly sightings: ReadonlyArray<Canary.Sighting>
  readonly outcome:
    | { readonly _tag: "Sent"; readonly sent: Sent }
    | { readonly _tag: "Refused"; readonly refused: GatewayError }
}

const encoder = new TextEncoder()

export const inspect = ({ body, canaries, policy }: InspectionRequest): Inspection => {
  const outcome = Result.match(RequestBody.rebuild(body, policy), {
    onFailure: ({ code, message, param, status }): Inspection["outcome"] => ({
      _tag: "Refused",
      refused: { status, code, message, param, final: true }
    }),
    onSuccess: ({ body: rebuilt, ...rest }): Inspection["outcome"] => {
      const bytes = typeof rebuilt === "string" ? encoder.encode(rebuilt) : rebuilt
      return { _tag: "Sent", sent: { ...rest, body: bytes, digest: digest(bytes) } }
    }
  })
  return {
    digest: digest(body),
    // Escapes in the request can hide a canary; the rebuilt body has it in plain text.
    sightings:
      canaries.length === 0 ? [] : Canary.look(canaries, outcome._tag === "Sent" ? outcome.sent.body : body),
    outcome
  }
}

const digest = (bytes: Uint8Array): string => hash("sha256", bytes, "hex")
