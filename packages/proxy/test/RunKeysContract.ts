/** The contract of every `RunKeys`: keys are different, can be deleted without knowing them, and are listed by alias. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer, Redacted, Schedule } from "effect"
import * as RunId from "@cogni/sandbox-core/RunId"
import { hashOf } from "../src/internal/keys/RunKeyAlias.ts"
import { RunKeys, type RunKeyTerms } from "../src/RunKeys.ts"

export interface Fixture<R> {
  /** Aliases of the keys that exist for a run. */
  readonly existing: (runId: RunId.RunId) => Effect.Effect<ReadonlyArray<string>, never, R>
}

export const termsOf = (runId: RunId.RunId, over: Partial<RunKeyTerms> = {}): RunKeyTerms => ({
  runId,
  models: ["chat"],
  routes: ["/v1/chat/completions", "/v1/messages"],
  lifetimeSeconds: 960,
  budgetUsdMax: 2,
  concurrentCallsMax: 8,
  requestsPerMinuteMax: 1200,
  spendMetadata: { run_id: runId, attempt: 0, user_id: null },
  ...over
})

export const suite = <R, E>(
  name: string,
  layer: Layer.Layer<RunKeys | R, E>,
  fixture: Fixture<NoInfer<R>>,
  memoMap = Layer.makeMemoMapUnsafe()
): void =>
  it.layer(layer, { excludeTestServices: true, memoMap })(`RunKeys (${name})`, (it) => {
    it.effect("creates a key for each attempt, with its hash and expiry, and deletes it by its alias", () =>
      Effect.gen(function* () {
        const keys = yield* RunKeys
        const runId = yield* RunId.generate
        const aliases = [keys.aliasOf(runId), keys.aliasOf(runId)]
        const [one, other] = yield* Effect.forEach(aliases, (alias) => keys.create(alias, termsOf(runId)))
        assert.notStrictEqual(one!.hash, other!.hash)
        assert.strictEqual(one!.hash, hashOf(Redacted.value(one!.key)))
        const lifetime = (Date.parse(one!.expiresAt) - Date.now()) / 1000
        assert.isTrue(lifetime > 600 && lifetime < 1300, one!.expiresAt)
        assert.notInclude(JSON.stringify(one), Redacted.value(one!.key))
        assert.sameMembers([...(yield* fixture.existing(runId))], aliases)
        yield* keys.remove(one!.alias)
        assert.deepStrictEqual(yield* fixture.existing(runId), [other!.alias])
        yield* keys.remove(other!.alias)
        assert.deepStrictEqual(yield* fixture.existing(runId), [])
      })
    )

    it.effect("accepts the deletion of a key that does not exist", () =>
      Effect.gen(function* () {
        const keys = yield* RunKeys
        const alias = keys.aliasOf(yield* RunId.generate)
        yield* keys.remove(alias)
        yield* Effect.repeat(keys.remove(alias), Schedule.recurs(1))
      })
    )

    it.effect("keeps a key whose process is alive when it reaps", () =>
      Effect.gen(function* () {
        const keys = yield* RunKeys
        const runId = yield* RunId.generate
        const { alias } = yield* keys.create(keys.aliasOf(runId), termsOf(runId))
        const { deleted, left } = yield* keys.reap
        assert.notInclude([...deleted, ...left], alias)
        assert.deepStrictEqual(yield* fixture.existing(runId), [alias])
        yield* keys.remove(alias)
      })
    )
  })
