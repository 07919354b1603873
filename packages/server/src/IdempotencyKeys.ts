/**
 * Run ids that follow from an account and its idempotency key, under a secret of the server.
 *
 * The same key of the same account is the same run, also after a restart and in another process on the same database.
 * Another account can neither compute such an id nor ask for one: it is an HMAC, and callers may not name ids of its
 * form themselves.
 */
import { RunId } from "@cogni/sandbox-core/RunId"
import { Context, Effect, Layer } from "effect"
import * as Hex from "effect/encoding/Hex"

export class IdempotencyKeys extends Context.Service<
  IdempotencyKeys,
  {
    readonly runIdOf: (billingAccountId: string, idempotencyKey: string) => Effect.Effect<RunId>
  }
>()("@cogni/sandbox-server/IdempotencyKeys") {}

/** What ids that follow from a key begin with. */
export const prefix = "key-"

/**
 * Whether only the server may make an id of this form: its own, and that of earlier versions, whose ids followed from
 * account and key without a secret and may still be on record.
 */
export const isReserved = (runId: string): boolean =>
  runId.startsWith(prefix) || /^run-[0-9a-f]{32}$/u.test(runId)

/** Bytes of the secret. */
export const secretBytes = 32

/** From a secret of {@link secretBytes} bytes; it cannot be read back. */
export const make = Effect.fnUntraced(function* (secret: Uint8Array<ArrayBuffer>) {
  const key = yield* Effect.promise(() =>
    crypto.subtle.importKey("raw", secret, { name: "HMAC", hash: "SHA-256" }, false, ["sign"])
  )
  return IdempotencyKeys.of({
    runIdOf: (billingAccountId, idempotencyKey) =>
      Effect.map(
        Effect.promise(() =>
          crypto.subtle.sign(
            "HMAC",
            key,
            new TextEncoder().encode(JSON.stringify([billingAccountId, idempotencyKey]))
          )
        ),
        (mac) => RunId.make(`${prefix}${Hex.encode(new Uint8Array(mac, 0, 16))}`)
      )
  })
})

/** A secret of this process: after a restart, a key starts a new run. */
export const layerMemory: Layer.Layer<IdempotencyKeys> = Layer.effect(
  IdempotencyKeys,
  Effect.suspend(() => make(crypto.getRandomValues(new Uint8Array(secretBytes))))
)

/** Under a secret of {@link secretBytes} bytes, such as one that all processes on a database share. */
export const layer = <E, R>(
  secret: Effect.Effect<Uint8Array<ArrayBuffer>, E, R>
): Layer.Layer<IdempotencyKeys, E, R> => Layer.effect(IdempotencyKeys, Effect.flatMap(secret, make))
