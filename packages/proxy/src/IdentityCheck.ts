/**
 * Checks that an upstream bills a call to the account that the host names: sends one marked call, and reads its row.
 *
 * The call has the headers of a run's calls, and costs what one short answer costs. It is no run, so the ledger does
 * not have it: its account at the upstream is {@link account}.
 */
import type { LlmIdentity } from "@cogni/sandbox-core/SandboxSpec"
import * as RunId from "@cogni/sandbox-core/RunId"
import { type SpendRow, SpendRows, type SpendRowsUnavailable } from "@cogni/sandbox-ledger/SpendRows"
import { Clock, Data, Effect, Option, Redacted, Schedule, Stream } from "effect"
import * as KeyInjection from "./KeyInjection.ts"
import * as ManagementRequest from "./internal/ManagementRequest.ts"
import * as Upstream from "./Upstream.ts"
import type { KeyUnavailable } from "./UpstreamKey.ts"

export interface IdentityCheckOptions extends ManagementRequest.Connection {
  /** URL of the upstream, with or without `/v1`. */
  readonly url: string
  /** Key of the call. */
  readonly key: KeyInjection.UpstreamKey | Effect.Effect<KeyInjection.UpstreamKey, KeyUnavailable>
  /** Name of a cheap model at the upstream. */
  readonly model: string
  /** How long to wait for the row, in seconds (default 180). LiteLLM writes rows every 10 seconds, unless configured. */
  readonly waitSecondsMax?: number | undefined
}

/** The upstream bills calls to another account, or the check could not find out. Runs must not start. */
export class IdentityUnproven extends Data.TaggedError("IdentityUnproven")<{
  readonly detail: string
  readonly remedy: string
}> {
  override get message(): string {
    return `it is not shown that calls are billed to their account: ${this.detail}. ${this.remedy}`
  }
}

export interface Proof {
  /** ID of the marked call. */
  readonly callId: string
  /** Cost of the call by its row, if it has one. */
  readonly costUsd?: number | undefined
}

/** Account of the marked call. */
export const account = "cogni-sandbox-identity-check"

const identity: LlmIdentity = { billingAccountId: account, attempt: 0 }

const callSecondsMax = 60
const waitSecondsDefault = 180
const answerBytesMax = 1024 * 1024

const fail = (detail: string, remedy: string) => Effect.fail(new IdentityUnproven({ detail, remedy }))

/** Says what is wrong with the row of the marked call; `undefined` if it is as it was sent. Pure. */
const problemOf = (
  row: SpendRow,
  runId: RunId.RunId
): { readonly detail: string; readonly remedy: string } | undefined => {
  const { endUser, metadata = {} } = row
  if (endUser !== account)
    return {
      detail:
        endUser === "" || endUser === undefined
          ? "its row bills no account"
          : "its row bills another account",
      remedy:
        "Let the upstream read the account from x-litellm-end-user-id, and give its key no account of its own. " +
        "Check proxies between this host and the upstream: they must pass headers on"
    }
  if (metadata.runId !== runId || metadata.attempt !== identity.attempt)
    return {
      detail: "its row does not name the run",
      remedy: "Use a version of LiteLLM that stores the header x-litellm-spend-logs-metadata"
    }
  return undefined
}

/** Sends the marked call. Returns nothing else than success, because its answer proves nothing. */
const call = Effect.fnUntraced(function* (options: IdentityCheckOptions, runId: RunId.RunId, callId: string) {
  const { address, profile } = yield* Effect.mapError(
    Effect.fromResult(Upstream.resolve({ type: "host", url: options.url }, { profile: "litellm" })),
    ({ problem, remedy }) => new IdentityUnproven({ detail: `the URL of the upstream ${problem}`, remedy })
  )
  const connections = yield* Effect.mapError(
    Effect.fromResult(ManagementRequest.connections(address.display, options)),
    ({ detail, remedy }) => new IdentityUnproven({ detail, remedy })
  )
  const upstreamKey = Redacted.isRedacted(options.key)
    ? options.key
    : yield* Effect.mapError(options.key, ({ detail, remedy }) => new IdentityUnproven({ detail, remedy }))
  const headers = yield* Effect.mapError(
    Effect.fromResult(KeyInjection.inject({ profile, upstreamKey, identity, runId, client: [], callId })),
    ({ detail, remedy }) => new IdentityUnproven({ detail, remedy })
  )
  const { status } = yield* Effect.tryPromise({
    try: (signal) =>
      ManagementRequest.send({
        connections,
        url: `${address.display}/v1/chat/completions`,
        key: upstreamKey,
        headers,
        signal,
        method: "POST",
        body: {
          model: options.model,
          max_tokens: 16,
          messages: [{ role: "user", content: "Answer with one letter." }]
        },
        answerBytesMax
      }),
    catch: () =>
      new IdentityUnproven({
        detail: "the upstream cannot be reached",
        remedy: "Check its address and whether it runs"
      })
  }).pipe(
    Effect.timeoutOrElse({
      duration: `${callSecondsMax} seconds`,
      orElse: () =>
        fail(`the marked call had no answer within ${callSecondsMax} s`, "Check the upstream and its model")
    })
  )
  if (status < 200 || status >= 300)
    return yield* fail(
      `the marked call was answered with ${status}`,
      `Check the key, and whether the upstream has the model ${options.model}`
    )
})

/** Waits for the row of the marked call. */
const rowOf = Effect.fnUntraced(function* (callId: string, waitSecondsMax: number) {
  const rows = yield* SpendRows
  const find = Effect.flatMap(
    Stream.runHead(rows.rowsOf({ _tag: "Calls", calls: [{ callId }] })),
    Option.match({ onNone: () => Effect.fail("absent" as const), onSome: Effect.succeed })
  )
  const until = (yield* Clock.currentTimeMillis) + waitSecondsMax * 1000
  return yield* find.pipe(
    Effect.retry({
      schedule: Schedule.spaced("2 seconds"),
      while: (error: "absent" | SpendRowsUnavailable) =>
        error === "absent" || error.isRetryable
          ? Effect.map(Clock.currentTimeMillis, (now) => now < until)
          : Effect.succeed(false)
    }),
    Effect.catch((error) =>
      error === "absent"
        ? fail(
            `the upstream has no row of the marked call after ${waitSecondsMax} s`,
            "Check its database, and how often it writes rows (proxy_batch_write_at of LiteLLM)"
          )
        : fail(`its row cannot be read: ${error.detail}`, error.remedy)
    )
  )
})

/** Fails unless the upstream's own row of a marked call has the account and the run that were sent. */
export const check = Effect.fnUntraced(function* (
  options: IdentityCheckOptions
): Effect.fn.Return<Proof, IdentityUnproven, SpendRows> {
  const { abilities, upstream } = yield* SpendRows
  if (!abilities.calls || !abilities.accounts)
    return yield* fail(
      `${upstream} keeps no rows that name an account, so nothing can show it`,
      "Turn this check off, and compare its bill with `spend`"
    )
  const runId = yield* RunId.generate
  const callId = crypto.randomUUID()
  yield* call(options, runId, callId)
  const row = yield* rowOf(callId, options.waitSecondsMax ?? waitSecondsDefault)
  const problem = problemOf(row, runId)
  return problem === undefined ? { callId, costUsd: row.costUsd } : yield* new IdentityUnproven(problem)
})
