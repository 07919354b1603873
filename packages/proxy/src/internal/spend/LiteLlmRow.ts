/**
 * Reads a spend row of LiteLLM. Pure.
 *
 * Versions differ: the call ID is a column, in the metadata, or the ID of the row; the metadata is an object or JSON. A
 * row with values that no row can have is returned as unreadable, because a missing row would say something else.
 */
import { instantOf } from "@cogni/sandbox-ledger/Reconciliation"
import { SpendRow } from "@cogni/sandbox-ledger/SpendRows"
import { rowTextCharactersMax } from "@cogni/sandbox-ledger/SpendFields"
import * as Option from "effect/Option"
import * as Predicate from "effect/Predicate"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"

type Fields = Readonly<Record<PropertyKey, unknown>>

const decodeRow = Schema.decodeUnknownResult(SpendRow)

const decodeMetadata = Schema.decodeUnknownOption(
  Schema.fromJsonString(Schema.Record(Schema.String, Schema.Unknown))
)

/** Returns the row. `index` names a row without an ID. */
export const read = (found: unknown, index: number): SpendRow => {
  const fields: Fields = Predicate.isObject(found) ? found : {}
  const metadata = fieldsOf(fields["metadata"])
  const rowId = text(fields["request_id"]) ?? `unreadable-${index}`
  const known = {
    rowId,
    ...present("callId", callIdOf(fields, metadata)),
    ...present("runKeyHash", text(fields["api_key"])),
    // LiteLLM records accounts, so a row without one bills no account.
    endUser: fields["end_user"] === null ? "" : (account(fields["end_user"]) ?? "")
  }
  const row = Result.flatMap(
    decodeRow({ ...known, ...figuresOf(fields, metadata), status: statusOf(fields["status"]) }),
    (decoded) => (text(fields["request_id"]) === undefined ? Result.fail(undefined) : Result.succeed(decoded))
  )
  return Result.getOrElse(row, () => ({ ...known, status: "unknown", unreadable: true }))
}

const present = <K extends string, V>(name: K, value: V | undefined): { readonly [_ in K]?: V } =>
  value === undefined ? {} : ({ [name]: value } as { readonly [_ in K]?: V })

const text = (value: unknown): string | undefined =>
  typeof value === "string" && value !== "" && value.length <= rowTextCharactersMax ? value : undefined

/** LiteLLM reads headers as Latin-1, so an account in UTF-8 is in its rows byte by byte. */
const account = (value: unknown): string | undefined => {
  const found = text(value)
  if (found === undefined || !/[\u0080-\u00ff]/u.test(found) || /[^\u0000-\u00ff]/u.test(found)) return found
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(Buffer.from(found, "latin1"))
  } catch {
    return found
  }
}

const fieldsOf = (value: unknown): Fields =>
  Predicate.isObject(value)
    ? (value as Fields)
    : typeof value === "string"
      ? Option.getOrElse(decodeMetadata(value), () => ({}))
      : {}

/**
 * The ID of the call. It has a suffix in the row of an answer from LiteLLM's cache, and in the row of an attempt that
 * the provider billed before LiteLLM repeated it.
 */
const callIdOf = (fields: Fields, metadata: Fields): string | undefined =>
  (
    text(fields["litellm_call_id"]) ??
    text(metadata["litellm_call_id"]) ??
    text(fields["request_id"])
  )?.replace(/(?:_cache_hit[0-9.]+|-attempt-\d+)$/u, "")

const statusOf = (status: unknown): SpendRow["status"] =>
  status === "failure"
    ? "failure"
    : status === "success" || status === null || status === undefined
      ? "success"
      : "unknown"

/** Figures as they are. An invalid one makes the row unreadable. A missing one is unknown. */
const figuresOf = (fields: Fields, metadata: Fields) => {
  const usage = fieldsOf(metadata["additional_usage_values"])
  const sent = fieldsOf(metadata["spend_logs_metadata"])
  const started = fields["startTime"]
  const instant = typeof started === "string" ? instantOf(started) : undefined
  return {
    ...told("inputTokens", fields["prompt_tokens"]),
    ...told("outputTokens", fields["completion_tokens"]),
    ...told("cacheReadTokens", usage["cache_read_input_tokens"]),
    ...told("cacheWriteTokens", usage["cache_creation_input_tokens"]),
    ...told("costUsd", fields["spend"]),
    // An answer from LiteLLM's cache costs nothing. Any other cost of 0 may be that of a model without a price.
    ...(fields["spend"] === 0 && fields["cache_hit"] === "True" ? { isFree: true } : {}),
    ...told("model", text(fields["model_group"]) ?? text(fields["model"])),
    metadata: { ...told("runId", sent["run_id"]), ...told("attempt", sent["attempt"]) },
    ...instant
  }
}

const told = (name: string, value: unknown): Fields =>
  value === undefined || value === null ? {} : { [name]: value }
