/**
 * The fields of spend rows and of queries for them, with their limits.
 */
import * as Schema from "effect/Schema"

/** Maximum characters of an ID or a name in a row. */
export const rowTextCharactersMax = 512

export const Text = Schema.String.check(Schema.isMaxLength(rowTextCharactersMax))

/** Maximum calls of one query. */
export const queryCallsMax = 500

/** Printable ASCII, so that no upstream reads it as another text. */
const filterPattern = /^[\x21-\x7e](?:[\x20-\x7e]{0,510}[\x21-\x7e])?$/u

export const Filter = Schema.String.check(Schema.isPattern(filterPattern))

/**
 * Returns whether rows can be asked for by this text: an account, or the upstream's ID of a call. Every call can be
 * asked for by the host's ID.
 */
export const isFilter = (text: string | undefined): text is string =>
  text !== undefined && filterPattern.test(text)

export const keyHashPattern = /^[0-9a-f]{64}$/u

/** Returns whether rows can be asked for by this key. */
export const isKeyFilter = (runKeyHash: string | undefined): runKeyHash is string =>
  runKeyHash !== undefined && keyHashPattern.test(runKeyHash)

const Instant = Schema.String.check(Schema.isPattern(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z$/u))

/** A span of time by the upstream's clock: ISO 8601, in UTC. */
export const Window = Schema.Struct({ from: Instant, to: Instant })

export type Window = typeof Window.Type

/** A call to look up: by the host's ID, and by the upstream's own if the upstream ignores the host's. */
export const CallKey = Schema.Struct({ callId: Filter, upstreamCallId: Schema.optionalKey(Filter) })

export type CallKey = typeof CallKey.Type
