/**
 * The upstream's key in a thread that serves runs: fixed, renewed by the main thread, or replaced by a signature of
 * each call.
 */
import * as Effect from "effect/Effect"
import * as KeyInjection from "../../KeyInjection.ts"
import type { Header } from "../policy/RoutePolicy.ts"

/** A request as it will be sent, for a signer. */
export interface SigningRequest {
  readonly method: "POST"
  /** Value of the `host` header. */
  readonly authority: string
  /** Path and query, as written in the request line. */
  readonly target: string
  /** All other headers, with names in lower case. A connection adds its own, which no signature may cover. */
  readonly headers: ReadonlyArray<readonly [name: string, value: string]>
  /** SHA-256 of the body, in hexadecimal. */
  readonly bodySha256: string
  readonly bodyBytes: number
}

export type KeyKind = "fixed" | "renewed" | "signed"

/** Question to the main thread. */
export type KeyAsk =
  /** The current key. `refused` is the version of one that the upstream did not accept. */
  | { readonly type: "key"; readonly refused?: number | undefined }
  | { readonly type: "sign"; readonly request: SigningRequest }

/** Answer of the main thread, with the credential in plain text. It is redacted again where it arrives. */
export type KeyTold =
  | { readonly _tag: "Key"; readonly key: string; readonly version: number; readonly freshMillis: number }
  | { readonly _tag: "Signed"; readonly headers: ReadonlyArray<Header> }
  | { readonly _tag: "Unavailable"; readonly detail: string; readonly isRetryable: boolean }

/** Asks the main thread, over the port of a run. */
export type KeyAsker = (ask: KeyAsk) => Effect.Effect<KeyTold>

/** A key, with the version by which a refusal names it. */
interface VersionedKey {
  readonly key: KeyInjection.UpstreamKey
  readonly version: number
}

export interface UpstreamKeys {
  readonly kind: KeyKind
  /** Returns the current key, or why it is missing. Asks the main thread if the last one is too old or was refused. */
  readonly current: (ask: KeyAsker) => Effect.Effect<VersionedKey | Extract<KeyTold, { _tag: "Unavailable" }>>
  /** Marks a key that the upstream did not accept. */
  readonly refused: (version: number) => void
  /** Whether another key may follow the current one. */
  readonly renews: () => boolean
}

/**
 * Without a fixed key, one of the kind `fixed` is asked for: a run's own once, the gateway's as often as it changes.
 */
export const make = (kind: KeyKind, fixed: string | undefined): UpstreamKeys => {
  let last: (VersionedKey & { readonly untilMs: number }) | undefined =
    fixed === undefined
      ? undefined
      : { key: KeyInjection.received(fixed), version: 0, untilMs: Number.POSITIVE_INFINITY }
  let refused: number | undefined
  const renews = () => kind === "renewed" || (last !== undefined && Number.isFinite(last.untilMs))
  return {
    kind,
    current: (ask) =>
      Effect.suspend(() => {
        if (last !== undefined && performance.now() < last.untilMs && last.version !== refused)
          return Effect.succeed(last)
        return Effect.map(ask({ type: "key", refused }), (told) => {
          if (told._tag === "Unavailable") return told
          if (told._tag === "Signed") return { _tag: "Unavailable", detail: "no key", isRetryable: false }
          last = {
            key: KeyInjection.received(told.key),
            version: told.version,
            untilMs: performance.now() + told.freshMillis
          }
          return last
        })
      }),
    refused: (version) => {
      if (renews() && last?.version === version) refused = version
    },
    renews
  }
}
