/**
 * Checks that an upstream bills a call to the account that the host names: sends one marked call, and reads its row.
 *
 * The call has the headers of a run's calls, and costs what one short answer costs. If runs have keys of their own, it
 * has one too, as a run does: created for it, on its row, and deleted after it. It is no run, so the ledger does not
 * have it: its account at the upstream is {@link account}.
 */
import type { LlmIdentity } from "@cogni/sandbox-core/SpecFields"
import * as RunId from "@cogni/sandbox-core/RunId"
import { type SpendRow, SpendRows, type SpendRowsUnavailable } from "@cogni/sandbox-ledger/SpendRows"
import { Clock, Data, Effect, Option, Redacted, Schedule, type Scope, Stream } from "effect"
import type { GatewayLlmProxyOptions } from "./GatewayLlmProxy.ts"
import * as KeyInjection from "./KeyInjection.ts"
import * as RunKeyLease from "./internal/keys/RunKeyLease.ts"
import * as RunKeyTerms from "./internal/keys/RunKeyTerms.ts"
import * as ManagementRequest from "./internal/ManagementRequest.ts"
import * as Upstream from "./Upstream.ts"
import type { KeyUnavailable } from "./UpstreamKey.ts"
import type { UpstreamProfile } from "./UpstreamProfile.ts"

export interface IdentityCheckOptions extends ManagementRequest.Connection {
  /** URL of the upstream, with or without `/v1`. */
  readonly url: string
  /** Key of the call, unless runs have keys of their own. */
  readonly key: KeyInjection.UpstreamKey | Effect.Effect<KeyInjection.UpstreamKey, KeyUnavailable>
  /** Keys of runs, as the gateway has them: the call then proves such a key instead of the gateway's. */
  readonly runKeys?: GatewayLlmProxyOptions["runKeys"]
  /** Name of a cheap model at the upstream. */
  readonly model: string
  /** How long the upstream collects rows before it writes them, in seconds, if that is known. */
  readonly rowsSeconds?: number | undefined
  /**
   * How long to wait for the row, in seconds. Default: three times `rowsSeconds`, and at least 180. LiteLLM writes rows
   * every 10 seconds, unless configured.
   */
  readonly waitSecondsMax?: number | undefined
}

/** The upstream bills calls to another account, or the check could not find out. Runs must not start. */
export class IdentityUnproven extends Data.TaggedError("IdentityUnproven")<{
  readonly detail: string
  readonly remedy: string
}> {
  /** The message without the remedy. */
  get problem(): string {
    return `it is not shown that calls are billed to their account: ${this.detail}`
  }
  override get message(): string {
    return `${this.problem}. ${this.remedy}`
  }
}

export interface Proof {
  /** ID of the marked call. */
  readonly callId: string
  /** SHA-256 of the key that was created for the call, if runs have keys of their own. Its row names it. */
  readonly runKeyHash?: string | undefined
  /** Cost of the call by its row, if it has one. */
  readonly costUsd?: number | undefined
}

/** Account of the marked call. */
export const account = "cogni-sandbox-identity-check"

const identity: LlmIdentity = { billingAccountId: account, attempt: 0 }

const callSecondsMax = 60

/** How long to wait for the row: so many times as long as the upstream collects rows, and at least so many seconds. */
const waitFactor = 3
const waitSecondsMin = 180
const answerBytesMax = 1024 * 1024

const fail = (detail: string, remedy: string) => Effect.fail(new IdentityUnproven({ detail, remedy }))

/** Says what is wrong with the row of the marked call; `undefined` if it is as it was sent. Pure. */
const problemOf = (
  row: SpendRow,
  { keyHash, runId }: MarkedCall
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
  if (keyHash !== undefined && row.runKeyHash !== keyHash)
    return {
      detail:
        row.runKeyHash === undefined
          ? "its row names no key"
          : "its row is not under the key that it was sent with",
      remedy: "Check proxies between this host and the upstream: none may replace the key of a call"
    }
  return undefined
}

interface MarkedCall {
  readonly runId: RunId.RunId
  readonly callId: string
  /** Hash of the key that was created for the call. */
  readonly keyHash: string | undefined
}

/** Returns the key of the call: a run's key, which is deleted with the scope, or the gateway's. */
const keyOf = Effect.fnUntraced(function* (
  { key, model, runKeys }: IdentityCheckOptions,
  runId: RunId.RunId,
  profile: UpstreamProfile
) {
  const own = Effect.map(
    Redacted.isRedacted(key)
      ? Effect.succeed(key)
      : Effect.mapError(key, ({ detail, remedy }) => new IdentityUnproven({ detail, remedy })),
    (upstreamKey) => ({ upstreamKey, keyHash: undefined })
  )
  if (runKeys === undefined) return yield* own
  const leases = yield* RunKeyLease.make(runKeys.keys)
  const run = { runId, runtimeSecondsMax: callSecondsMax }
  const lease = yield* leases.open(RunKeyTerms.make(run, { identity, model, models: {} }, profile))
  return yield* Effect.matchEffect(lease.key, {
    onSuccess: ({ hash, key: upstreamKey }) => Effect.succeed({ upstreamKey, keyHash: hash }),
    onFailure: ({ detail, message, remedy }) =>
      runKeys.fallback === "masterKey"
        ? Effect.andThen(Effect.logWarning(`The marked call uses the gateway's key: ${message}`), own)
        : fail(`a key for the marked call cannot be created: ${detail}`, remedy)
  })
})

/** Sends the marked call. Returns nothing of its answer, because it proves nothing. */
const call = Effect.fnUntraced(function* (
  options: IdentityCheckOptions
): Effect.fn.Return<MarkedCall, IdentityUnproven, Scope.Scope> {
  const runId = yield* RunId.generate
  const callId = crypto.randomUUID()
  const { address, profile } = yield* Effect.mapError(
    Effect.fromResult(Upstream.resolve({ type: "host", url: options.url }, { profile: "litellm" })),
    ({ problem, remedy }) => new IdentityUnproven({ detail: `the URL of the upstream ${problem}`, remedy })
  )
  const connections = yield* Effect.mapError(
    Effect.fromResult(ManagementRequest.connections(address.display, options)),
    ({ detail, remedy }) => new IdentityUnproven({ detail, remedy })
  )
  const { keyHash, upstreamKey } = yield* keyOf(options, runId, profile)
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
  return { runId, callId, keyHash }
}, Effect.scoped)

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
  const marked = yield* call(options)
  const { rowsSeconds = 0, waitSecondsMax = Math.max(waitSecondsMin, waitFactor * rowsSeconds) } = options
  const row = yield* rowOf(marked.callId, waitSecondsMax)
  const problem = problemOf(row, marked)
  if (problem !== undefined) return yield* new IdentityUnproven(problem)
  return { callId: marked.callId, runKeyHash: marked.keyHash, costUsd: row.costUsd }
})
