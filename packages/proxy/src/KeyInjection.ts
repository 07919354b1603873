/**
 * Where the real key meets a request. Nothing else in this repository unwraps it.
 *
 * In: the key, who pays, and what the client said about itself. Out: every header the upstream gets, credential and
 * identity included, and nothing the client could have chosen beyond the short list in `RoutePolicy`. Identity goes
 * out twice because LiteLLM ranks `x-litellm-customer-id` above `x-litellm-end-user-id`: setting only the one that its
 * documentation names would leave the other to the sandbox.
 */
import * as Redacted from "effect/Redacted"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import type { RunId } from "@cogni/sandbox-core/RunId"
import type { LlmIdentity } from "@cogni/sandbox-core/SandboxSpec"
import { admit, type Header } from "./internal/policy/RoutePolicy.ts"

/** The real key. It stays redacted up to the line that writes it into a header. */
export type UpstreamKey = Redacted.Redacted<string>

export interface Injection {
  readonly upstreamKey: UpstreamKey
  readonly identity: LlmIdentity
  readonly runId: RunId
  /** All headers of the client's request; what is not allowlisted is dropped here. */
  readonly client: ReadonlyArray<Header>
  /** Ours, new for every call. LiteLLM makes it the key of the call's row, so it must never be the client's. */
  readonly callId?: string | undefined
  /** Which header the upstream reads the key from. LiteLLM and OpenAI: `authorization`, the usual one. */
  readonly keyHeader?: KeyHeader | undefined
}

export type KeyHeader = "authorization" | "x-api-key"

/** The most one header may hold. */
export const headerBytesMax = 16 * 1024

/** The headers that say who pays and prove that it may, in the order in which they are written. */
export const injectedHeaderNames = [
  "authorization",
  "x-litellm-customer-id",
  "x-litellm-end-user-id",
  "x-litellm-spend-logs-metadata"
] as const

/** A value that no header can carry unchanged. Never shows the value: it may be the key. */
export class UnusableHeader extends Schema.TaggedError<UnusableHeader>()("UnusableHeader", {
  subject: Schema.Literals(["key", "billing account"]),
  problem: Schema.String
}) {
  override get message(): string {
    return `the ${this.subject} ${this.problem}, so no header can carry it`
  }
  get remedy(): string {
    return this.subject === "key"
      ? "Give the key alone, on one line and without spaces around it"
      : "Give identity.billingAccountId as plain text, on one line and without spaces around it"
  }
}

/**
 * The headers the upstream gets, in order; names in lower case, each once.
 *
 * **Gotchas** A key or billing account beyond ASCII goes out as the bytes of its UTF-8 form; an upstream that reads
 * headers as Latin-1 (LiteLLM does) then shows it in that spelling. Ids in plain ASCII are read the same everywhere.
 */
export const inject = (injection: Injection): Result.Result<ReadonlyArray<Header>, UnusableHeader> => {
  const key = Redacted.value(injection.upstreamKey)
  const account = injection.identity.billingAccountId
  const problem = problemOf("key", key) ?? problemOf("billing account", account)
  if (problem !== undefined) return Result.fail(problem)
  return Result.succeed([
    injection.keyHeader === "x-api-key" ? ["x-api-key", key] : ["authorization", `Bearer ${key}`],
    ["x-litellm-customer-id", account],
    ["x-litellm-end-user-id", account],
    ["x-litellm-spend-logs-metadata", spendMetadata(injection.runId, injection.identity)],
    ...(injection.callId === undefined ? [] : [["x-litellm-call-id", injection.callId] as const]),
    ["accept-encoding", "identity"],
    ["content-type", "application/json"],
    ...admit(injection.client)
  ])
}

/**
 * What the ledger keeps beside a call: always the same keys, `null` where the run has none, and only ASCII, so that
 * its bytes mean the same to every reader of headers.
 */
export const spendMetadata = (runId: RunId, identity: LlmIdentity): string =>
  JSON.stringify({
    run_id: runId,
    attempt: identity.attempt,
    user_id: identity.userId ?? null,
    graph_id: identity.graphId ?? null,
    existing_trace_id: identity.existingTraceId ?? null,
    session_id: identity.sessionId ?? null,
    trace_user_id: identity.traceUserId ?? null
  }).replace(/[^\x20-\x7e]/gu, (character) =>
    Array.from(
      { length: character.length },
      (_, index) => `\\u${character.charCodeAt(index).toString(16).padStart(4, "0")}`
    ).join("")
  )

/** For a server of the host's own that a tool asks; not the model's key. */
export const bearer = (token: Redacted.Redacted<string>): string => `Bearer ${Redacted.value(token)}`

/** A text of unknown origin without the key, however it was quoted in it. */
export const scrub = (text: string, upstreamKey: UpstreamKey): string => {
  const key = Redacted.value(upstreamKey)
  const spellings = new Set([key, JSON.stringify(key).slice(1, -1), encodeURIComponent(key.toWellFormed())])
  return [...spellings]
    .filter((spelling) => spelling !== "")
    .reduce((clean, spelling) => clean.replaceAll(spelling, "[key]"), text)
}

/** The key in plain text, to be sent to a thread that serves runs, in a message and nowhere else. */
export const handedOver = (upstreamKey: UpstreamKey): string => Redacted.value(upstreamKey)

/** The key again, in the thread that it was sent to. */
export const received = (key: string): UpstreamKey => Redacted.make(key)

const problemOf = (subject: UnusableHeader["subject"], value: string): UnusableHeader | undefined => {
  const problem = problems.find(([has]) => has(value))?.[1]
  return problem === undefined ? undefined : new UnusableHeader({ subject, problem })
}

/** The first that is true is the one that is said. */
const problems: ReadonlyArray<readonly [has: (value: string) => boolean, problem: string]> = [
  [(value) => value === "", "is empty"],
  [(value) => /[\r\n]/u.test(value), "contains a line break"],
  [(value) => /\p{Cc}/u.test(value), "contains a control character"],
  [(value) => value.trim() !== value, "begins or ends with a space"],
  [(value) => !value.isWellFormed(), "is not well-formed Unicode"],
  [
    (value) => new TextEncoder().encode(value).byteLength > headerBytesMax,
    `is longer than ${headerBytesMax} bytes`
  ]
]
