/**
 * A seeded plan of runs: which calls an agent makes, on which it hangs up, and what ends the run. Data only.
 *
 * The same seed makes the same plan. The text of a call says what the model does (`BillingModel.ts`), so that one model
 * serves all runs.
 */
import { Effect, Random } from "effect"

/** APIs, with their paths. */
export const paths = {
  chat: "/v1/chat/completions",
  responses: "/v1/responses",
  messages: "/v1/messages"
} as const

export type Api = keyof typeof paths

export interface PlannedCall {
  readonly path: string
  readonly body: Readonly<Record<string, unknown>>
  /** The agent hangs up this long after its request was sent, or when the first bytes of the answer arrive. */
  readonly hangUp?: { readonly millis: number } | "answering"
}

export const fates = ["ends", "hangs up", "is killed", "loses its host"] as const

/** `hangs up`: the agent abandons about half of its calls. `loses its host`: the host process is killed. */
export type Fate = (typeof fates)[number]

export interface PlannedRun {
  readonly index: number
  /** Number of the attempt (default 0). */
  readonly attempt?: number | undefined
  readonly billingAccountId: string
  readonly fate: Fate
  /** Runs in a sealed container. The others use the same socket from a process of this host. */
  readonly isSealed: boolean
  /** Calls of one step are made at the same time. */
  readonly steps: ReadonlyArray<ReadonlyArray<PlannedCall>>
  /** Number of the call, from 0, in the middle of which the run or its host is killed. */
  readonly killedAt: number
}

export interface PlanOptions {
  readonly seed: string
  readonly runs: number
  /** Number of runs in sealed containers. */
  readonly sealed: number
  readonly callsMin: number
  readonly callsMax: number
}

const accounts = 10

/** Every tenth run hangs up. Every tenth is killed, and every second of these with its host. */
const fateOf = (index: number): Fate =>
  index % 10 === 3
    ? "hangs up"
    : index % 20 === 7
      ? "loses its host"
      : index % 20 === 17
        ? "is killed"
        : "ends"

/** Models: of an OpenAI-compatible provider, and of Anthropic. LiteLLM offers both in all three APIs. */
const models = ["priced", "priced-claude"] as const

const asked = (api: Api, text: string) =>
  api === "responses"
    ? { input: text, max_output_tokens: 200 }
    : { messages: [{ role: "user", content: text }], max_tokens: 200 }

const hangUpOf = Effect.gen(function* () {
  const part = yield* Random.next
  if (part < 0.5) return {}
  return part < 0.75
    ? { hangUp: { millis: yield* Random.nextIntBetween(0, 60) } }
    : { hangUp: "answering" as const }
})

const call = Effect.fnUntraced(function* (fate: Fate) {
  const api = yield* Random.choice(Object.keys(paths) as [Api, ...Array<Api>])
  const stream = yield* Random.nextBoolean
  const model = yield* Random.choice(models)
  const part = yield* Random.next
  const words = yield* Random.nextIntBetween(1, 40)
  const isSlow = part < (fate === "ends" ? 0.02 : 0.15)
  // The one answer that is slow is a stream of the OpenAI-compatible provider.
  if (isSlow) {
    const text = `slow ${yield* Random.nextIntBetween(3, 40)}`
    const body = { model: models[0], stream: true, ...asked("chat", text) }
    return { path: paths.chat, body, ...(fate === "hangs up" ? { hangUp: "answering" as const } : {}) }
  }
  const text = part > 0.97 ? "refuse" : part > 0.95 ? "fail" : `say ${words}`
  const body = { model, stream, ...asked(api, text) }
  return { path: paths[api], body, ...(fate === "hangs up" ? yield* hangUpOf : {}) }
})

/** Cuts calls into steps of one to four. */
export const stepsOf = Effect.fnUntraced(function* (calls: ReadonlyArray<PlannedCall>) {
  const made: Array<ReadonlyArray<PlannedCall>> = []
  for (let from = 0; from < calls.length;) {
    const size = (yield* Random.nextBoolean) ? 1 : yield* Random.nextIntBetween(2, 4)
    made.push(calls.slice(from, from + size))
    from += size
  }
  return made
})

export const make = (options: PlanOptions): Effect.Effect<ReadonlyArray<PlannedRun>> =>
  Effect.gen(function* () {
    const indexes = Array.from({ length: options.runs }, (_, index) => index)
    const sealed = new Set((yield* Random.shuffle(indexes)).slice(0, options.sealed))
    return yield* Effect.forEach(
      indexes,
      Effect.fnUntraced(function* (index) {
        const fate = fateOf(index)
        const length = yield* Random.nextIntBetween(options.callsMin, options.callsMax)
        const calls = yield* Effect.forEach(Array.from({ length }), () => call(fate))
        return {
          index,
          billingAccountId: `account-${yield* Random.nextIntBetween(1, accounts)}`,
          fate,
          isSealed: sealed.has(index),
          steps: yield* stepsOf(calls),
          killedAt: yield* Random.nextIntBetween(0, length - 1)
        }
      })
    )
  }).pipe(Random.withSeed(options.seed))
