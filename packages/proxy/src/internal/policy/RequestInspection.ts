/**
 * All that is found out about the body of a request before it may pass: what goes upstream in its stead, its digests,
 * the canaries in it.
 *
 * Plain data in, plain data out, so that it can be done beside the event loop: a large body takes long to read, and
 * other runs must not wait for it.
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
  /** SHA-256 of what goes upstream, in hexadecimal. */
  readonly digest: string
}

export interface Inspection {
  /** SHA-256 of what the agent sent, in hexadecimal. */
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
    // What was escaped in the request is spelt plainly in what was made of it.
    sightings:
      canaries.length === 0 ? [] : Canary.look(canaries, outcome._tag === "Sent" ? outcome.sent.body : body),
    outcome
  }
}

const digest = (bytes: Uint8Array): string => hash("sha256", bytes, "hex")
