/**
 * Asks the source of an upstream's key, in the main thread, for the threads that serve runs.
 *
 * A key is asked for by one caller at a time and kept for a bounded time. If the upstream refuses it, it is asked for
 * again earlier, but not more often than every few seconds: an agent may be able to cause refusals.
 */
import { Clock, Duration, Effect, Redacted, Semaphore } from "effect"
import * as KeyInjection from "../../KeyInjection.ts"
import * as UpstreamKey from "../../UpstreamKey.ts"
import type { KeyAsk, KeyKind, KeyTold } from "../gateway/UpstreamKeys.ts"

/** The key of an upstream, an effect that returns the current one, or a signer of each call. */
export type KeySource =
  | KeyInjection.UpstreamKey
  | Effect.Effect<KeyInjection.UpstreamKey, UpstreamKey.KeyUnavailable>
  | UpstreamKey.Signer

export interface KeyDesk {
  readonly kind: KeyKind
  /** The key, if it never changes. */
  readonly fixed: KeyInjection.UpstreamKey | undefined
  /** The current key; `undefined` if calls are signed. */
  readonly current: Effect.Effect<KeyInjection.UpstreamKey | undefined, UpstreamKey.KeyUnavailable>
  /** Answers a thread. */
  readonly answer: (ask: KeyAsk) => Effect.Effect<KeyTold>
}

interface KeyDeskOptions {
  /** How long a key from an effect is used, in seconds. */
  readonly keySecondsMax: number
  /** How long its source, or a signer, may take, in seconds. */
  readonly keyWaitSecondsMax: number
}

/** Minimum age of a key that is asked for again because the upstream refused it. */
const refusedMillisMin = 5000

/** How long a failure answers all who ask, so that those who wait do not ask one after the other. */
const failedMillisMax = 1000

interface Kept {
  readonly key: KeyInjection.UpstreamKey
  readonly version: number
  readonly atMillis: number
}

export const make = (source: KeySource, options: KeyDeskOptions): KeyDesk => {
  if (Redacted.isRedacted(source)) {
    return {
      kind: "fixed",
      fixed: source,
      current: Effect.succeed(source),
      answer: () => Effect.succeed(told({ key: source, version: 0, atMillis: 0 }, 0))
    }
  }
  const bounded = bounding(options.keyWaitSecondsMax)
  if (!Effect.isEffect(source)) {
    return {
      kind: "signed",
      fixed: undefined,
      current: Effect.succeed(undefined),
      answer: (ask) =>
        ask.type === "sign"
          ? // With its result, because a program without types can return anything.
            Effect.suspend(() => source.sign(ask.request)).pipe(
              Effect.map((headers): KeyTold => ({
                _tag: "Signed",
                headers: Object.entries(headers).map(([name, value]) => [
                  name,
                  KeyInjection.handedOver(value)
                ])
              })),
              bounded,
              Effect.catch((error) => Effect.succeed(unavailable(error)))
            )
          : Effect.succeed(unavailable(misused))
    }
  }
  const keyMillis = options.keySecondsMax * 1000
  const turn = Semaphore.makeUnsafe(1)
  let kept: Kept | undefined
  let failed: { readonly error: UpstreamKey.KeyUnavailable; readonly atMillis: number } | undefined
  let versions = 0

  const isUsable = ({ atMillis, version }: Kept, now: number, refused: number | undefined) =>
    now - atMillis < keyMillis && !(version === refused && now - atMillis >= refusedMillisMin)

  const current = (refused?: number) =>
    Effect.gen(function* () {
      const now = yield* Clock.currentTimeMillis
      if (kept !== undefined && isUsable(kept, now, refused)) return kept
      if (failed !== undefined && now - failed.atMillis < failedMillisMax) return yield* failed.error
      const key = yield* Effect.tapError(bounded(source), (error) =>
        Effect.map(Clock.currentTimeMillis, (atMillis) => {
          failed = { error, atMillis }
        })
      )
      failed = undefined
      versions += 1
      kept = { key, version: versions, atMillis: yield* Clock.currentTimeMillis }
      return kept
    }).pipe(turn.withPermit)

  return {
    kind: "renewed",
    fixed: undefined,
    current: Effect.map(current(), ({ key }) => key),
    answer: (ask) =>
      ask.type === "key"
        ? Effect.gen(function* () {
            const found = yield* current(ask.refused)
            const age = (yield* Clock.currentTimeMillis) - found.atMillis
            return told(found, Math.max(0, keyMillis - age))
          }).pipe(Effect.catch((error) => Effect.succeed(unavailable(error))))
        : Effect.succeed(unavailable(misused))
  }
}

const bounding =
  (secondsMax: number) =>
  <A>(asked: Effect.Effect<A, UpstreamKey.KeyUnavailable>): Effect.Effect<A, UpstreamKey.KeyUnavailable> =>
    asked.pipe(
      Effect.timeoutOrElse({
        duration: Duration.seconds(secondsMax),
        orElse: () =>
          Effect.fail(
            new UpstreamKey.KeyUnavailable({
              detail: `its source did not answer within ${secondsMax} s`,
              remedy: "Check the service that issues the key",
              isRetryable: true
            })
          )
      }),
      // The text of a defect may contain the key.
      Effect.catchDefect(() =>
        Effect.fail(
          new UpstreamKey.KeyUnavailable({
            detail: "its source has a defect",
            remedy: "Make the source fail with KeyUnavailable",
            isRetryable: false
          })
        )
      ),
      Effect.mapError(
        ({ detail, isRetryable, remedy }) =>
          new UpstreamKey.KeyUnavailable({ detail: short(detail), remedy: short(remedy), isRetryable })
      )
    )

/** Characters of a failure that reach the audit of every call and an error. A vault may answer with a whole page. */
const wordsMax = 500

const short = (words: string): string =>
  words.length > wordsMax ? `${words.slice(0, wordsMax - 1)}…` : words

const misused = new UpstreamKey.KeyUnavailable({
  detail: "a thread asked for the wrong kind of credential",
  remedy: "Report this",
  isRetryable: false
})

const told = ({ key, version }: Kept, freshMillis: number): KeyTold => ({
  _tag: "Key",
  key: KeyInjection.handedOver(key),
  version,
  freshMillis
})

const unavailable = ({ detail, isRetryable }: UpstreamKey.KeyUnavailable): KeyTold => ({
  _tag: "Unavailable",
  detail,
  isRetryable
})
