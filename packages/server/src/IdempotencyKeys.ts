/**
 * Run IDs derived from an account, its idempotency key and a secret of the server.
 *
 * The same key of the same account gives the same run ID, also after a restart and in another process on the same
 * database. Another account can neither compute such an ID nor request one: it is an HMAC, and callers may not specify
 * IDs of its form.
 */
import { RunId } from "@cogni/sandbox-core/RunId"
import { Context, Effect, Layer } from "effect"
import * as Hex from "effect/encoding/Hex"

export class IdempotencyKeys extends Context.Service<
  IdempotencyKeys,
  {
    readonly runIdOf: (billingAccountId: string, idempotencyKey: string) => Effect.Effect<RunId>
    /** Returns whether an ID has a form that only the server may create. */
    readonly isReserved: (runId: string) => boolean
  }
>()("@cogni/sandbox-server/IdempotencyKeys") {}

/** Prefix of run IDs that are derived from a key. */
export const prefix = "key-"

/** Prefix in a server that submits its runs: the server of the host, which gets the ID, does not reserve it. */
export const submittedPrefix = "durable-"

/**
 * Returns whether an ID has a form that only the server may create. Includes the form of earlier versions, which
 * derived IDs without a secret: such IDs may still be stored.
 */
export const isReserved = (runId: string): boolean =>
  runId.startsWith(prefix) || /^run-[0-9a-f]{32}$/u.test(runId)

/**
 * The end of the run IDs of schedules, and of their later attempts. A server that submits runs reserves it: a caller
 * could take the ID of a firing before it is due.
 */
const scheduledEnd = /-\d{8}t\d{6}z(?:-a\d+)?$/u

/** Length of the secret in bytes. */
export const secretBytes = 32

/** Derives IDs with a secret of {@link secretBytes} bytes, which cannot be extracted again. */
export const make = Effect.fnUntraced(function* (
  secret: Uint8Array<ArrayBuffer>,
  idPrefix: typeof prefix | typeof submittedPrefix = prefix
) {
  const key = yield* Effect.promise(() =>
    crypto.subtle.importKey("raw", secret, { name: "HMAC", hash: "SHA-256" }, false, ["sign"])
  )
  return IdempotencyKeys.of({
    isReserved: (runId) =>
      isReserved(runId) ||
      runId.startsWith(idPrefix) ||
      (idPrefix === submittedPrefix && scheduledEnd.test(runId)),
    runIdOf: (billingAccountId, idempotencyKey) =>
      Effect.map(
        Effect.promise(() =>
          crypto.subtle.sign(
            "HMAC",
            key,
            new TextEncoder().encode(JSON.stringify([billingAccountId, idempotencyKey]))
          )
        ),
        (mac) => RunId.make(`${idPrefix}${Hex.encode(new Uint8Array(mac, 0, 16))}`)
      )
  })
})

/** Uses a random secret of this process: after a restart, the same key starts a new run. */
export const layerMemory: Layer.Layer<IdempotencyKeys> = Layer.effect(
  IdempotencyKeys,
  Effect.suspend(() => make(crypto.getRandomValues(new Uint8Array(secretBytes))))
)

/** Uses a given secret of {@link secretBytes} bytes, such as one that all processes of a database share. */
export const layer = <E, R>(
  secret: Effect.Effect<Uint8Array<ArrayBuffer>, E, R>,
  idPrefix?: typeof prefix | typeof submittedPrefix
): Layer.Layer<IdempotencyKeys, E, R> =>
  Layer.effect(
    IdempotencyKeys,
    Effect.flatMap(secret, (bytes) => make(bytes, idPrefix))
  )
