/**
 * Versions of LiteLLM that must not be used with this gateway: compromised ones, ones with a known vulnerability, and
 * ones that bill wrongly. Reads the version from LiteLLM itself.
 */
import { Effect, Redacted, Schema } from "effect"
import * as LiteLlmAdmin from "./internal/keys/LiteLlmAdmin.ts"
import * as ManagementRequest from "./internal/ManagementRequest.ts"
import type { UpstreamKey } from "./KeyInjection.ts"
import { RunKeyFailed } from "./RunKeys.ts"
import type { KeyUnavailable } from "./UpstreamKey.ts"

export interface Problem {
  readonly detail: string
  readonly remedy: string
}

type Version = readonly [major: number, minor: number, patch: number]

interface Range {
  readonly from: Version
  /** The last version that is affected. */
  readonly to: Version
  readonly detail: string
}

const ranges: ReadonlyArray<Range> = [
  {
    from: [1, 82, 7],
    to: [1, 82, 8],
    detail: "was published by an attacker. Treat every key on that host as stolen"
  },
  { from: [1, 81, 16], to: [1, 83, 6], detail: "has an SQL injection" },
  {
    from: [1, 102, 0],
    to: [1, 102, 3],
    detail: "writes two rows for one call, so that a call is billed twice"
  },
  { from: [1, 105, 0], to: [1, 105, 0], detail: "bills calls wrongly" }
]

const compare = (one: Version, other: Version): number =>
  one[0] - other[0] || one[1] - other[1] || one[2] - other[2]

/** Returns why a version must not be used; `undefined` if nothing is known against it. */
export const problemOf = (version: string): Problem | undefined => {
  const [, major, minor, patch] = /^v?(\d{1,6})\.(\d{1,6})\.(\d{1,6})/u.exec(version) ?? []
  if (major === undefined) return undefined
  const parsed: Version = [Number(major), Number(minor), Number(patch)]
  const found = ranges.find(({ from, to }) => compare(parsed, from) >= 0 && compare(parsed, to) <= 0)
  return found === undefined
    ? undefined
    : {
        detail: `LiteLLM ${major}.${minor}.${patch} ${found.detail}`,
        remedy: "Update LiteLLM to 1.106.2 or later"
      }
}

const Details = Schema.Struct({
  litellm_version: Schema.optionalKey(Schema.NullOr(Schema.String)),
  db: Schema.optionalKey(Schema.NullOr(Schema.String))
})

export interface Found {
  /** Absent if LiteLLM does not tell it. */
  readonly version?: string | undefined
  /** Whether its database is connected. Keys and spend rows need one. */
  readonly hasDatabase: boolean
}

export interface Options extends ManagementRequest.Connection {
  /** URL of LiteLLM, without `/v1`. */
  readonly url: string
  /** LiteLLM's master key. */
  readonly key: UpstreamKey | Effect.Effect<UpstreamKey, KeyUnavailable>
  readonly requestSecondsMax?: number | undefined
}

/** Asks LiteLLM for its version. */
export const read = (options: Options): Effect.Effect<Found, RunKeyFailed> =>
  Effect.gen(function* () {
    const { key, requestSecondsMax = 10, url } = options
    const connections = yield* Effect.fromResult(ManagementRequest.connections(url, options)).pipe(
      Effect.mapError(
        ({ detail, remedy }) =>
          new RunKeyFailed({ operation: "list", detail, remedy, isRetryable: false, isUncertain: false })
      )
    )
    const { db, litellm_version: version } = yield* LiteLlmAdmin.ask(
      { url, connections, key: Redacted.isRedacted(key) ? Effect.succeed(key) : key, requestSecondsMax },
      { operation: "list", method: "GET", path: "/health/readiness/details", answer: Details, absent: {} }
    )
    return {
      ...(typeof version === "string" ? { version } : {}),
      hasDatabase: db === "connected"
    }
  })
