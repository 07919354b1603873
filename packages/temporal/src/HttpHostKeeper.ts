/**
 * The keeper of a host over the HTTP API of `cogni-sandbox serve`.
 *
 * Reads only the fields that it needs, so that worker and server can be updated one after the other.
 */
import { Effect, type Redacted, Schema, Stream } from "effect"
import * as Sse from "effect/encoding/Sse"
import * as HttpClient from "effect/http/HttpClient"
import type * as HttpClientError from "effect/http/HttpClientError"
import * as HttpClientRequest from "effect/http/HttpClientRequest"
import * as HttpClientResponse from "effect/http/HttpClientResponse"
import {
  isOver,
  type Keeper,
  type KeeperError,
  type KeeperEvent,
  KeeperRefused,
  type KeeperRun,
  KeeperUnreachable
} from "./HostKeeper.ts"

export interface HttpKeeperOptions {
  /** Address of the server, such as `http://127.0.0.1:8787`. */
  readonly url: string
  /** Token of the grant. */
  readonly token: Redacted.Redacted
}

/** Time for one answer, without the events of a run. A start is answered after at most 30 seconds. */
const answerSecondsMax = 60

/** An event stream has a comment every 15 seconds. */
const silenceSecondsMax = 60

/** Longest event. The keeper cuts texts to 16,384 characters, of at most six each in JSON. */
const eventCharsMax = 1024 * 1024

const Spend = Schema.Struct({
  costUsd: Schema.optionalKey(Schema.Finite),
  calls: Schema.Int,
  callsWithoutCost: Schema.Int,
  isSettled: Schema.Boolean
})

const Usage = Schema.Struct({
  inputTokens: Schema.optional(Schema.Int),
  outputTokens: Schema.optional(Schema.Int)
})

const View = Schema.Struct({
  runId: Schema.String,
  status: Schema.String,
  isUnderWay: Schema.optional(Schema.Boolean),
  /** Written when the graph has ended. */
  events: Schema.optional(Schema.Unknown),
  exitCode: Schema.optional(Schema.Int),
  error: Schema.optional(Schema.Struct({ reason: Schema.String })),
  llm: Schema.optional(Schema.Struct({ callsTotal: Schema.Int, usage: Schema.optional(Usage) })),
  cost: Schema.optional(Spend),
  relay: Schema.optional(
    Schema.Struct({
      status: Schema.String,
      branch: Schema.String,
      pullRequestUrl: Schema.optional(Schema.String)
    })
  )
})

const Grant = Schema.Struct({
  grant: Schema.Struct({
    id: Schema.String,
    billingAccountId: Schema.String,
    allowSandbox: Schema.Boolean,
    mayWrite: Schema.Boolean
  })
})

const Agents = Schema.Struct({ agents: Schema.Array(Schema.Struct({ graphId: Schema.String })) })

const Host = Schema.Struct({
  hostId: Schema.optional(Schema.String),
  missingGraphIds: Schema.Array(Schema.String)
})

const Started = Schema.Struct({ runId: Schema.String })

const Delivered = Schema.Struct({
  relay: Schema.Struct({ status: Schema.String }),
  problem: Schema.optional(
    Schema.Struct({
      reason: Schema.String,
      message: Schema.String,
      isRetryable: Schema.optional(Schema.Boolean)
    })
  )
})

const Refusal = Schema.Struct({ error: Schema.Struct({ reason: Schema.String, message: Schema.String }) })

const Entry = Schema.fromJsonString(Schema.Struct({ seq: Schema.Int, type: Schema.String }))

const decodeEntry = Schema.decodeUnknownEffect(Entry)

const unreachable = (error: HttpClientError.HttpClientError | { readonly message: string }) =>
  new KeeperUnreachable({ detail: error.message })

/**
 * Returns how the graph of a run ended. A record can be over before that: its server then still delivers the commits.
 * The record of a sandbox that was open, such as that of a task, never tells. It stays `closed` if its server ended
 * first.
 */
const statusOf = ({ error, events, isUnderWay, status }: typeof View.Type): string => {
  if (isUnderWay === true) return isOver({ status }) ? "running" : status
  if (status !== "closed" || events === undefined) return status
  return error === undefined ? "succeeded" : "failed"
}

/** Returns the whole view of a run, in our words. */
const runOf = (view: typeof View.Type): KeeperRun => {
  const { cost, error, exitCode, llm, relay, runId } = view
  return {
    runId,
    status: statusOf(view),
    reason: error?.reason,
    exitCode,
    spend: {
      calls: cost?.calls ?? llm?.callsTotal ?? 0,
      // A run whose model was never asked is in no ledger.
      isFinal: cost === undefined ? llm?.callsTotal === 0 : cost.isSettled && cost.callsWithoutCost === 0,
      ...(cost?.costUsd === undefined ? {} : { costUsd: cost.costUsd }),
      ...(llm?.usage?.inputTokens === undefined ? {} : { inputTokens: llm.usage.inputTokens }),
      ...(llm?.usage?.outputTokens === undefined ? {} : { outputTokens: llm.usage.outputTokens })
    },
    isSettled: cost?.isSettled ?? true,
    delivery: relay?.status,
    branch: relay?.branch,
    pullRequestUrl: relay?.pullRequestUrl
  }
}

export const make = Effect.fnUntraced(function* ({
  token,
  url
}: HttpKeeperOptions): Effect.fn.Return<Keeper, never, HttpClient.HttpClient> {
  const base = `${url.replace(/\/+$/u, "")}/api/v1`
  const client = (yield* HttpClient.HttpClient).pipe(
    HttpClient.mapRequest((request) =>
      request.pipe(HttpClientRequest.prependUrl(base), HttpClientRequest.bearerToken(token))
    )
  )

  /** Returns an answer with a status below 300, or fails with what the keeper says. */
  const ask = (request: HttpClientRequest.HttpClientRequest) =>
    client.execute(request).pipe(
      Effect.mapError(unreachable),
      Effect.flatMap((response) =>
        response.status < 300 ? Effect.succeed(response) : Effect.flip(refusalOf(response))
      ),
      Effect.timeoutOrElse({
        duration: `${answerSecondsMax} seconds`,
        orElse: () =>
          Effect.fail(new KeeperUnreachable({ detail: `no answer in ${answerSecondsMax} seconds` }))
      })
    )

  const get = <A>(path: string, schema: Schema.Codec<A, unknown>) =>
    ask(HttpClientRequest.get(path)).pipe(
      Effect.flatMap((response) =>
        HttpClientResponse.schemaBodyJson(schema)(response).pipe(Effect.mapError(unreachable))
      )
    )

  const describe = (runId: string) =>
    get(`/runs/${encodeURIComponent(runId)}`, View).pipe(Effect.map(runOf), unlessMissing)

  return {
    grant: Effect.map(get("/sign-in", Grant), ({ grant }) => grant),
    graphIds: Effect.map(get("/ai/agents", Agents), ({ agents }) => agents.map(({ graphId }) => graphId)),
    // A server of an earlier version has no such route.
    host: Effect.map(unlessMissing(get("/host", Host)), (found) => found ?? { missingGraphIds: [] }),
    describe,
    start: Effect.fnUntraced(function* ({ attempt, request, runId }) {
      const asked = HttpClientRequest.post("/runs").pipe(
        HttpClientRequest.bodyJsonUnsafe({ ...request, runId, attempt })
      )
      return yield* ask(asked).pipe(
        Effect.flatMap(HttpClientResponse.schemaBodyJson(Started)),
        Effect.as("started" as const),
        Effect.catch((error) => {
          if (error._tag === "KeeperUnreachable") return Effect.fail(error)
          if (error._tag !== "KeeperRefused") return Effect.fail(unreachable(error))
          if (error.status !== 409) return Effect.fail(error)
          // The ID is in use. It is ours unless another account has it.
          return Effect.flatMap(describe(runId), (found) =>
            found === undefined ? Effect.fail(error) : Effect.succeed("repeated" as const)
          )
        })
      )
    }),
    follow: (runId, after) =>
      ask(
        HttpClientRequest.get(`/runs/${encodeURIComponent(runId)}/events`).pipe(
          HttpClientRequest.setHeader("last-event-id", String(after))
        )
      ).pipe(
        Effect.map((response) => (response.status === 204 ? Stream.empty : eventsOf(response))),
        Stream.unwrap
      ),
    cancel: (runId) =>
      ask(HttpClientRequest.delete(`/runs/${encodeURIComponent(runId)}`)).pipe(
        Effect.asVoid,
        Effect.catchIf(
          (error) => error._tag === "KeeperRefused" && (error.reason === "RunOver" || error.status === 404),
          () => Effect.void
        )
      ),
    deliver: (runId) =>
      ask(HttpClientRequest.post(`/runs/${encodeURIComponent(runId)}/relay/retry`)).pipe(
        Effect.flatMap((response) =>
          HttpClientResponse.schemaBodyJson(Delivered)(response).pipe(Effect.mapError(unreachable))
        ),
        Effect.flatMap(({ problem, relay }) =>
          problem?.isRetryable === true ? Effect.fail(undelivered(problem)) : Effect.succeed(relay.status)
        ),
        Effect.catchIf(
          (error) => error._tag === "KeeperRefused" && error.reason === "RunUnderWay",
          () => Effect.succeed("underWay")
        ),
        unlessMissing
      )
  }
})

/** The origin did not take the commits, and may take them later. */
const undelivered = ({ message, reason }: { readonly message: string; readonly reason: string }) =>
  new KeeperRefused({ status: 503, reason, detail: message })

/** `undefined` in the place of "not found". */
const unlessMissing = <A>(effect: Effect.Effect<A, KeeperError>): Effect.Effect<A | undefined, KeeperError> =>
  Effect.catchIf(
    effect,
    (error) => error._tag === "KeeperRefused" && error.status === 404,
    () => Effect.succeed(undefined)
  )

const refusalOf = (response: HttpClientResponse.HttpClientResponse) =>
  HttpClientResponse.schemaBodyJson(Refusal)(response).pipe(
    Effect.map(({ error }) => error),
    Effect.orElseSucceed(() => ({ reason: `Status${response.status}`, message: "the answer has no reason" })),
    Effect.map(({ message, reason }) => {
      const seconds = Number(response.headers["retry-after"])
      return new KeeperRefused({
        status: response.status,
        reason,
        detail: message,
        ...(Number.isSafeInteger(seconds) && seconds > 0 ? { retrySeconds: seconds } : {})
      })
    })
  )

/** Reads server-sent events. An event that is not understood fails the stream. */
const eventsOf = (response: HttpClientResponse.HttpClientResponse): Stream.Stream<KeeperEvent, KeeperError> =>
  response.stream.pipe(
    Stream.timeoutOrElse({
      duration: `${silenceSecondsMax} seconds`,
      orElse: () => Stream.fail(new KeeperUnreachable({ detail: `no event in ${silenceSecondsMax} seconds` }))
    }),
    Stream.decodeText(),
    Stream.pipeThroughChannel(Sse.decode({ maxEventSize: eventCharsMax })),
    Stream.mapEffect(({ data }) => decodeEntry(data)),
    Stream.map(({ seq, type }) => ({ id: seq, type })),
    Stream.mapError((error) =>
      error._tag === "KeeperUnreachable"
        ? error
        : new KeeperUnreachable({ detail: `its events cannot be read: ${error._tag}` })
    )
  )
