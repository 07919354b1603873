/**
 * The port that issues a key of its own to each run.
 *
 * The upstream then limits what one run can spend, and counts its calls by that key, independent of the gateway. The
 * key is created before the run's first call, is used by the gateway alone, and is deleted when the run ends. If the
 * host dies, it expires. `reap` deletes keys that dead hosts left behind.
 */
import { Clock, Context, Effect, Layer, Redacted, Ref, Schema } from "effect"
import * as Hex from "effect/encoding/Hex"
import type { RunId } from "@cogni/sandbox-core/RunId"
import * as RunKeyAlias from "./internal/keys/RunKeyAlias.ts"
import { reapEach } from "./internal/keys/Reaping.ts"
import type { UpstreamKey } from "./KeyInjection.ts"

/** Permissions of a key. Limits that are absent are not set. */
export interface RunKeyTerms {
  readonly runId: RunId
  /** Model names at the upstream. The key opens no other. */
  readonly models: ReadonlyArray<string>
  /** Paths at the upstream. The key opens no other. */
  readonly routes: ReadonlyArray<string>
  /** Seconds until the key expires, counted by the upstream's clock. */
  readonly lifetimeSeconds: number
  readonly budgetUsdMax?: number | undefined
  readonly concurrentCallsMax?: number | undefined
  readonly requestsPerMinuteMax?: number | undefined
  readonly tokensPerMinuteMax?: number | undefined
  /** Spend metadata: the upstream stores it with the key, and with every call that brings no other. */
  readonly spendMetadata: Readonly<Record<string, string | number | null>>
}

/** A key of one run. */
export interface RunKey {
  readonly key: UpstreamKey
  /** SHA-256 of the key, by which the upstream lists its calls. It is not secret. */
  readonly hash: string
  /** Name of the key at the upstream. */
  readonly alias: string
  /** When it expires, in ISO 8601 and UTC, by the upstream's clock. */
  readonly expiresAt: string
}

/** Result of `reap`. */
export interface Reaped {
  /** Aliases of deleted keys. */
  readonly deleted: ReadonlyArray<string>
  /** Aliases of keys that should have been deleted, and were not. */
  readonly left: ReadonlyArray<string>
}

/** A key could not be created, deleted or listed. The detail never contains a key. */
export class RunKeyFailed extends Schema.TaggedError<RunKeyFailed>()("RunKeyFailed", {
  operation: Schema.Literals(["create", "delete", "list"]),
  detail: Schema.String,
  remedy: Schema.String,
  /** Whether the same request may succeed later. If not, the host's operator must change something. */
  isRetryable: Schema.Boolean,
  /** Whether the upstream may have done it all the same: it did not answer in time, or not in its own format. */
  isUncertain: Schema.Boolean
}) {
  override get message(): string {
    const what =
      this.operation === "list"
        ? "keys of runs cannot be listed"
        : `the run's key cannot be ${this.operation}d`
    return `${what}: ${this.detail}. ${this.remedy}`
  }
}

export class RunKeys extends Context.Service<
  RunKeys,
  {
    /** Returns the alias of a new key. It is known before the key exists, so that the key can always be deleted. */
    readonly aliasOf: (runId: RunId) => string
    /** Creates a key. Its answer is checked: a key that permits more than its terms is deleted and refused. */
    readonly create: (alias: string, terms: RunKeyTerms) => Effect.Effect<RunKey, RunKeyFailed>
    /** Deletes a key by its alias. A key that does not exist is no error. */
    readonly remove: (alias: string) => Effect.Effect<void, RunKeyFailed>
    /** Deletes the keys of this deployment whose host process is dead. Never deletes another's. */
    readonly reap: Effect.Effect<Reaped, RunKeyFailed>
  }
>()("@cogni/sandbox-proxy/RunKeys") {}

/** Operations on which a memory implementation fails. */
export interface MemoryRunKeysOptions {
  readonly deployment?: string | undefined
  /** Text that every key begins with, for tests that search for it (default `sk-run-`). */
  readonly keyPrefix?: string | undefined
  /** Called before each operation: fails, delays, or does nothing. */
  readonly fault?:
    | ((operation: RunKeyFailed["operation"], alias: string) => Effect.Effect<void, RunKeyFailed>)
    | undefined
  /** Whether the process that created a key is dead (default: never). */
  readonly isOrphaned?: ((alias: string) => boolean) | undefined
}

/** A key that exists, in memory. */
interface MemoryRunKey {
  readonly runKey: RunKey
  readonly terms: RunKeyTerms
}

/** Keys in memory, with everything that was ever created. */
export const makeMemory = Effect.fnUntraced(function* (options: MemoryRunKeysOptions = {}) {
  const {
    deployment = "memory",
    fault = () => Effect.void,
    isOrphaned = () => false,
    keyPrefix = "sk-run-"
  } = options
  const keys = yield* Ref.make<ReadonlyMap<string, MemoryRunKey>>(new Map())
  const created = yield* Ref.make<ReadonlyArray<MemoryRunKey>>([])
  const forget = (alias: string) =>
    Ref.update(keys, (all) => new Map([...all].filter(([other]) => other !== alias)))
  const remove = (alias: string) => Effect.andThen(fault("delete", alias), forget(alias))
  const service = RunKeys.of({
    aliasOf: (runId) => RunKeyAlias.make(deployment, runId),
    create: Effect.fnUntraced(function* (alias, terms) {
      yield* fault("create", alias)
      const key = `${keyPrefix}${Hex.encode(crypto.getRandomValues(new Uint8Array(12)))}`
      const expires = (yield* Clock.currentTimeMillis) + terms.lifetimeSeconds * 1000
      const runKey = {
        key: Redacted.make(key),
        hash: RunKeyAlias.hashOf(key),
        alias,
        expiresAt: new Date(expires).toISOString()
      }
      yield* Ref.update(keys, (all) => new Map(all).set(alias, { runKey, terms }))
      yield* Ref.update(created, (all) => [...all, { runKey, terms }])
      return runKey
    }),
    remove,
    reap: Effect.gen(function* () {
      yield* fault("list", "")
      const orphaned = [...(yield* Ref.get(keys)).keys()].filter(isOrphaned)
      return yield* reapEach(orphaned, remove)
    })
  })
  return { ...service, existing: Ref.get(keys), created: Ref.get(created) }
})

export const layerMemory = (options?: MemoryRunKeysOptions): Layer.Layer<RunKeys> =>
  Layer.effect(RunKeys, makeMemory(options))
