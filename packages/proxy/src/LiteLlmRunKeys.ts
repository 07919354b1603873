/**
 * Keys of runs that LiteLLM issues (`/key/generate`), stores in its database, and enforces.
 *
 * It needs the key of an administrator, which stays in the host's main thread. The alias of a key names its deployment
 * and its run; its metadata names the host process. A key is deleted only if all three are those of a dead run.
 */
import { formatOwner, type Owner } from "@cogni/sandbox-core/ResourceLabels"
import { Misconfigured } from "@cogni/sandbox-core/SandboxReason"
import { named } from "@cogni/sandbox-core/Remedy"
import { Clock, Effect, Exit, Layer, Redacted, Result, Schema } from "effect"
import * as LiteLlmAdmin from "./internal/keys/LiteLlmAdmin.ts"
import * as ManagementRequest from "./internal/ManagementRequest.ts"
import { reapEach } from "./internal/keys/Reaping.ts"
import * as RunKeyAlias from "./internal/keys/RunKeyAlias.ts"
import type { UpstreamKey } from "./KeyInjection.ts"
import * as LiteLlmVersion from "./LiteLlmVersion.ts"
import * as RunKeys from "./RunKeys.ts"
import * as Upstream from "./Upstream.ts"
import type { KeyUnavailable } from "./UpstreamKey.ts"

/** Identifies processes, and reports whether they are gone. `HostOwner` of `@cogni/sandbox-docker` is one. */
interface Owners {
  readonly self: () => Owner
  /** Whether the owner is dead, or cannot be checked and its key expired before `now`. */
  readonly isOrphaned: (owner: string | undefined, expiresAt: string | undefined, now: Date) => boolean
}

export interface LiteLlmRunKeysOptions extends ManagementRequest.Connection {
  /** URL of LiteLLM, with or without `/v1`. */
  readonly url: string
  /** LiteLLM's master key, or an effect that returns the current one. It is used for these requests only. */
  readonly key: UpstreamKey | Effect.Effect<UpstreamKey, KeyUnavailable>
  /** Name of this deployment: it finds its own keys by it, among those of others in the same LiteLLM. */
  readonly deployment: string
  readonly owners: Owners
  /** How long one request may take, in seconds (default 10). */
  readonly requestSecondsMax?: number | undefined
}

const requestSecondsMax = 10

/** How long the version of LiteLLM is not asked for again, unless it is refused. */
const versionLifetime = "10 minutes"

/** How much later or earlier than asked a key may expire: the clocks of two hosts differ. */
const skewSecondsMax = 300

/** Seconds after its expiry until a key counts as left behind, if its owner cannot be checked. */
const graceSeconds = 3600

const pageSize = 100

/** Pages of keys that one round reads. More keys than that are found by the next rounds. */
const pagesMax = 50

const NullableNumber = Schema.NullOr(Schema.Finite)

const Created = Schema.Struct({
  key: Schema.String.check(Schema.isMinLength(16), Schema.isMaxLength(1024)),
  token: Schema.optionalKey(Schema.NullOr(Schema.String)),
  expires: Schema.NullOr(Schema.String),
  models: Schema.NullOr(Schema.Array(Schema.String)),
  allowed_routes: Schema.optionalKey(Schema.NullOr(Schema.Array(Schema.String))),
  max_budget: Schema.optionalKey(NullableNumber),
  max_parallel_requests: Schema.optionalKey(NullableNumber),
  rpm_limit: Schema.optionalKey(NullableNumber),
  tpm_limit: Schema.optionalKey(NullableNumber)
})

const Deleted = Schema.Struct({ deleted_keys: Schema.Array(Schema.Unknown) })

/** Only what a deletion is decided by. */
const Page = Schema.Struct({
  keys: Schema.Array(
    Schema.Struct({
      key_alias: Schema.NullOr(Schema.String),
      expires: Schema.NullOr(Schema.String),
      metadata: Schema.NullOr(Schema.Record(Schema.String, Schema.Unknown))
    })
  ),
  total_pages: Schema.NullOr(Schema.Int)
})

/** Fields of a key's metadata that are ours. */
const field = {
  deployment: "cogni_sandbox_deployment",
  owner: "cogni_sandbox_owner",
  runId: "cogni_sandbox_run"
}

export const make = Effect.fnUntraced(function* (options: LiteLlmRunKeysOptions) {
  const { deployment, key, owners } = options
  const refuse = (option: "deployment" | "url", detail: string, remedy: string) =>
    new Misconfigured({ option: named(`LiteLlmRunKeys.${option}`), detail, remedy })
  if (!Schema.is(RunKeyAlias.Deployment)(deployment))
    return yield* refuse("deployment", "is not a name", "Use 1 to 40 lower-case letters, digits and hyphens")
  const { address, profile } = yield* Effect.fromResult(
    Result.mapError(Upstream.resolve({ type: "host", url: options.url }), ({ problem, remedy }) =>
      refuse("url", problem, remedy)
    )
  )
  if (profile.name !== "litellm")
    return yield* refuse("url", "is not LiteLLM's, and only LiteLLM issues keys", "Turn keys for runs off")
  const connections = yield* Effect.fromResult(
    Result.mapError(
      ManagementRequest.connections(address.display, options),
      ({ problem, remedy }) =>
        new Misconfigured({ option: named("GatewayLlmProxy.egressProxy"), detail: problem, remedy })
    )
  )
  const admin: LiteLlmAdmin.LiteLlmAdminOptions = {
    url: address.display,
    connections,
    key: Redacted.isRedacted(key) ? Effect.succeed(key) : key,
    requestSecondsMax: options.requestSecondsMax ?? requestSecondsMax
  }

  const remove = (alias: string) =>
    Effect.asVoid(
      LiteLlmAdmin.ask(admin, {
        operation: "delete",
        method: "POST",
        path: "/key/delete",
        body: { key_aliases: [alias] },
        answer: Deleted,
        absent: { deleted_keys: [] }
      })
    )

  /** Fails for a version that must not be used. A version that cannot be read is accepted. */
  const version = yield* Effect.cachedWithTTL(
    LiteLlmVersion.read({
      ...options,
      url: address.display,
      requestSecondsMax: admin.requestSecondsMax
    }).pipe(
      Effect.catch(() => Effect.succeed({ version: undefined })),
      Effect.flatMap(({ version: found = "" }) => {
        const problem = LiteLlmVersion.problemOf(found)
        return problem === undefined
          ? Effect.void
          : Effect.fail(
              // Its key may exist all the same.
              new RunKeys.RunKeyFailed({
                operation: "create",
                ...problem,
                isRetryable: false,
                isUncertain: true
              })
            )
      })
    ),
    (exit) => (Exit.isSuccess(exit) ? versionLifetime : 0)
  )

  const create = Effect.fnUntraced(function* (alias: string, terms: RunKeys.RunKeyTerms) {
    const asked = LiteLlmAdmin.ask(admin, {
      operation: "create",
      method: "POST",
      path: "/key/generate",
      body: bodyOf(alias, terms, { deployment, owner: formatOwner(owners.self()) }),
      answer: Created
    })
    const [created] = yield* Effect.all([asked, version], { concurrency: 2 })
    const now = yield* Clock.currentTimeMillis
    const problem = problemOf(created, terms, now)
    if (problem !== undefined)
      // `isUncertain` has the caller delete the key.
      return yield* new RunKeys.RunKeyFailed({
        operation: "create",
        detail: `LiteLLM created a key ${problem}`,
        remedy: "Update LiteLLM, and compare its clock with this host's",
        isRetryable: false,
        isUncertain: true
      })
    return {
      key: LiteLlmAdmin.issued(created.key),
      hash: RunKeyAlias.hashOf(created.key),
      alias,
      expiresAt: new Date(Date.parse(created.expires!)).toISOString()
    }
  })

  const orphaned = Effect.gen(function* () {
    const found: Array<string> = []
    const now = new Date((yield* Clock.currentTimeMillis) - graceSeconds * 1000)
    const prefix = encodeURIComponent(RunKeyAlias.prefixOf(deployment))
    for (let page = 1; page <= pagesMax; page++) {
      const { keys, total_pages: pages } = yield* LiteLlmAdmin.ask(admin, {
        operation: "list",
        method: "GET",
        path: `/key/list?page=${page}&size=${pageSize}&return_full_object=true&substring_matching=true&key_alias=${prefix}`,
        answer: Page
      })
      for (const { expires, key_alias: alias, metadata } of keys) {
        const owner = metadata?.[field.owner]
        if (
          alias !== null &&
          RunKeyAlias.runOf(deployment, alias) === metadata?.[field.runId] &&
          metadata?.[field.deployment] === deployment &&
          typeof owner === "string" &&
          owners.isOrphaned(owner, expires ?? undefined, now)
        )
          found.push(alias)
      }
      if (page >= (pages ?? 0)) break
    }
    return found
  })

  return RunKeys.RunKeys.of({
    aliasOf: (runId) => RunKeyAlias.make(deployment, runId),
    create,
    remove,
    reap: Effect.flatMap(orphaned, (aliases) => reapEach(aliases, remove))
  })
})

export const layer = (options: LiteLlmRunKeysOptions): Layer.Layer<RunKeys.RunKeys, Misconfigured> =>
  Layer.effect(RunKeys.RunKeys, make(options))

const bodyOf = (
  alias: string,
  terms: RunKeys.RunKeyTerms,
  { deployment, owner }: { readonly deployment: string; readonly owner: string }
) => ({
  key_alias: alias,
  duration: `${Math.ceil(terms.lifetimeSeconds)}s`,
  models: terms.models,
  allowed_routes: terms.routes,
  max_budget: terms.budgetUsdMax ?? null,
  max_parallel_requests: terms.concurrentCallsMax ?? null,
  rpm_limit: terms.requestsPerMinuteMax ?? null,
  tpm_limit: terms.tokensPerMinuteMax ?? null,
  metadata: {
    [field.deployment]: deployment,
    [field.owner]: owner,
    [field.runId]: terms.runId,
    spend_logs_metadata: terms.spendMetadata
  }
})

const isSame = (one: ReadonlyArray<string> | null | undefined, other: ReadonlyArray<string>): boolean =>
  new Set(one).size === new Set(other).size && other.every((name) => one?.includes(name) === true)

/** Returns how a created key differs from its terms. An old LiteLLM ignores fields that it does not know. */
const problemOf = (
  created: typeof Created.Type,
  terms: RunKeys.RunKeyTerms,
  nowMillis: number
): string | undefined => {
  const { expires, token } = created
  if (!isSame(created.models, terms.models)) return "for other models"
  if (!isSame(created.allowed_routes, terms.routes)) return "for other routes"
  if ((created.max_budget ?? undefined) !== terms.budgetUsdMax) return "with another budget"
  if ((created.max_parallel_requests ?? undefined) !== terms.concurrentCallsMax)
    return "with another limit of concurrent calls"
  if ((created.rpm_limit ?? undefined) !== terms.requestsPerMinuteMax) return "with another limit of requests"
  if ((created.tpm_limit ?? undefined) !== terms.tokensPerMinuteMax) return "with another limit of tokens"
  if (typeof token === "string" && token !== RunKeyAlias.hashOf(created.key)) return "with another hash"
  const late = (Date.parse(expires ?? "") - nowMillis) / 1000 - terms.lifetimeSeconds
  if (!Number.isFinite(late)) return "without an expiry"
  return Math.abs(late) > skewSecondsMax ? `that expires ${Math.round(late)} s later than asked` : undefined
}
