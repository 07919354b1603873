/**
 * The port that stores run records.
 *
 * Opening a run claims its ID permanently. The record is written again when the run ends, however it ends. Records
 * contain no secret, because a spec contains none.
 */
import type { Schema } from "effect"
import { Clock, Context, Effect, Layer, Ref, type Scope } from "effect"
import type { RunId } from "./RunId.ts"
import { type HostFailed, RunIdInUse, type StoreUnavailable } from "./SandboxReason.ts"
import * as RunSearch from "./RunSearch.ts"
import type { SandboxSpec } from "./SandboxSpec.ts"
import type { RunRecord } from "./RunRecord.ts"
import { begun, withoutText, briefOf, annotated } from "./RecordForms.ts"

/** An open run: the directory for its files, and how to write its final record. */
export interface OpenRun {
  /** A host directory for this run only; absent if nothing is stored on disk. */
  readonly directory?: string | undefined
  readonly owner: string
  /** Replace the record. Called once when the run ends. */
  readonly save: (record: RunRecord) => Effect.Effect<void>
}

/** The disk cannot be used, or the store cannot be reached. */
export type RunStoreError = HostFailed | StoreUnavailable

export class RunStore extends Context.Service<
  RunStore,
  {
    /** Claim the ID and write the first record. Closing the scope releases what only a running run needs. */
    readonly open: (
      runId: RunId,
      spec: SandboxSpec
    ) => Effect.Effect<OpenRun, RunIdInUse | RunStoreError, Scope.Scope>
    /**
     * Add annotations to a run that has ended, and replace those of the same name. Does nothing if the run has no
     * record.
     */
    readonly annotate: (
      runId: RunId,
      annotations: Readonly<Record<string, Schema.Json>>
    ) => Effect.Effect<void, RunStoreError>
    readonly get: (runId: RunId) => Effect.Effect<RunRecord | undefined, RunStoreError>
    /** Like `get`, but {@link withoutText}: the text is not even read. */
    readonly describe: (runId: RunId) => Effect.Effect<RunRecord | undefined, RunStoreError>
    /** All records, newest first, {@link withoutText}. */
    readonly list: Effect.Effect<ReadonlyArray<RunRecord>, RunStoreError>
    /** Selects runs, newest first, and returns {@link briefOf} each. Finds all runs, also those that `list` omits. */
    readonly search: (
      asked: RunSearch.RunSearch
    ) => Effect.Effect<RunSearch.RunPage<RunRecord>, RunStoreError>
    /**
     * Note that the observer of a run has accepted its usage. `token` is that of the spec's `llm.observed`: a start
     * that did not get the run ID settles nothing.
     */
    readonly settle: (runId: RunId, token: string) => Effect.Effect<void, RunStoreError>
    /**
     * Call `tell` for each unsettled run of a dead process on this host, and settle the run if `tell` succeeds. A run
     * whose `tell` fails is logged and stays unsettled. Only one of several concurrent recoveries, in any processes,
     * gets a run. If a process dies between `tell` and the note that it succeeded, the next recovery tells again.
     */
    readonly recover: (
      tell: (record: RunRecord) => Effect.Effect<void, unknown>
    ) => Effect.Effect<ReadonlyArray<RunId>, RunStoreError>
  }
>()("@cogni/sandbox-core/RunStore") {}

const makeMemory = Effect.gen(function* () {
  const records = yield* Ref.make<ReadonlyMap<RunId, RunRecord>>(new Map())
  const save = (record: RunRecord) => Ref.update(records, (all) => new Map(all).set(record.runId, record))
  const open = Effect.fn("RunStore.open")(function* (runId: RunId, spec: SandboxSpec) {
    const owner = "memory/1/0"
    const startedAt = new Date(yield* Clock.currentTimeMillis).toISOString()
    const claimed = yield* Ref.modify(records, (all): readonly [boolean, ReadonlyMap<RunId, RunRecord>] =>
      all.has(runId)
        ? [false, all]
        : [true, new Map(all).set(runId, begun({ runId, spec, owner, startedAt }))]
    )
    if (!claimed) return yield* new RunIdInUse({ runId })
    return { owner, save } satisfies OpenRun
  })
  return RunStore.of({
    open,
    annotate: (runId, annotations) =>
      Ref.update(records, (all) => {
        const record = all.get(runId)
        return record === undefined ? all : new Map(all).set(runId, annotated(record, annotations))
      }),
    get: (runId) => Effect.map(Ref.get(records), (all) => all.get(runId)),
    describe: (runId) =>
      Effect.map(Ref.get(records), (all) => {
        const record = all.get(runId)
        return record && withoutText(record)
      }),
    list: Effect.map(Ref.get(records), (all) => [...all.values()].toReversed().map(withoutText)),
    search: (asked) =>
      Effect.map(Ref.get(records), (all) => RunSearch.search([...all.values()].map(briefOf), asked)),
    // Its runs end with its process, and nothing of them is left to recover.
    settle: () => Effect.void,
    recover: () => Effect.succeed([])
  })
})

export const layerMemory: Layer.Layer<RunStore> = Layer.effect(RunStore, makeMemory)
