/**
 * The port that keeps what is known of a run, while it runs and after.
 *
 * Opening a run claims its id for ever; the record is written again when it ends, on every path. Records hold no
 * secret: a spec has none.
 */
import { Context, Effect, Layer, Ref, Schema, type Scope } from "effect"
import { RunId } from "./RunId.ts"
import { Evidence, LlmTraffic, Output, Peak, RunResult, Timing } from "./RunResult.ts"
import { RunIdInUse, type StoreUnavailable, type WorkspaceFailed } from "./SandboxError.ts"
import { SandboxSpec } from "./SandboxSpec.ts"
import { Posture } from "./Posture.ts"

export const Outcome = Schema.Union([
  Schema.Struct({ status: Schema.Literal("running") }),
  Schema.Struct({ status: Schema.Literal("exited"), result: RunResult }),
  Schema.Struct({
    status: Schema.Literal("failed"),
    reason: Schema.String,
    code: Schema.String,
    message: Schema.String,
    output: Schema.optionalKey(Output),
    peak: Schema.optionalKey(Peak)
  }),
  /** An open sandbox was closed by its owner. */
  Schema.Struct({ status: Schema.Literal("closed") }),
  Schema.Struct({ status: Schema.Literal("interrupted") }),
  /** The host process died while the run was running; said when the record is read, or by the reaper. */
  Schema.Struct({ status: Schema.Literal("abandoned") })
])

export type Outcome = typeof Outcome.Type

export const RunRecord = Schema.Struct({
  runId: RunId,
  spec: SandboxSpec,
  /** `ResourceLabels.formatOwner` of the host process. */
  owner: Schema.String,
  startedAt: Schema.String,
  endedAt: Schema.optionalKey(Schema.String),
  outcome: Outcome,
  posture: Schema.optionalKey(Posture),
  /** The run's model calls, however it ended. */
  llm: Schema.optionalKey(LlmTraffic),
  /** Canaries that were seen on a way out, however it ended. */
  suspicions: Schema.optionalKey(Schema.Array(Evidence)),
  timings: Schema.Array(Timing),
  /** What others have to say of the run, each under its own name: `relay` is what became of its commits. */
  annotations: Schema.optionalKey(Schema.Record(Schema.String, Schema.Json))
})

export type RunRecord = typeof RunRecord.Type

/** A record as text: JSON, whatever keeps it. */
export const RunRecordText = Schema.fromJsonString(Schema.toCodecJson(RunRecord))

/** The first record of a run. */
export const begun = (run: Pick<RunRecord, "runId" | "spec" | "owner" | "startedAt">): RunRecord => ({
  ...run,
  outcome: { status: "running" },
  timings: []
})

/** As a record is read: a run whose process is gone is abandoned, although nothing has written so. */
export const abandonedIfOver = (record: RunRecord, isOver: (record: RunRecord) => boolean): RunRecord =>
  record.outcome.status === "running" && isOver(record)
    ? { ...record, outcome: { status: "abandoned" } }
    : record

/** The record with another output, where it has one. */
const mapOutput = (record: RunRecord, change: (output: Output) => Output): RunRecord => {
  const { outcome } = record
  if (outcome.status === "exited") {
    const result = { ...outcome.result, output: change(outcome.result.output) }
    return { ...record, outcome: { ...outcome, result } }
  }
  return outcome.status === "failed" && outcome.output !== undefined
    ? { ...record, outcome: { ...outcome, output: change(outcome.output) } }
    : record
}

/** The record with what the agent wrote. */
export const withText = (
  record: RunRecord,
  text: { readonly stdout: string; readonly stderr: string }
): RunRecord =>
  mapOutput(record, ({ stderr, stdout }) => ({
    stdout: { ...stdout, text: text.stdout },
    stderr: { ...stderr, text: text.stderr }
  }))

/** What the agent wrote can be megabytes: a record among many has its counts, and `get` the text. */
export const withoutText = (record: RunRecord): RunRecord => withText(record, { stdout: "", stderr: "" })

/** The output of a run, where it had one. */
export const outputOf = ({ outcome }: RunRecord): Output | undefined =>
  outcome.status === "exited"
    ? outcome.result.output
    : outcome.status === "failed"
      ? outcome.output
      : undefined

export const annotated = (
  record: RunRecord,
  annotations: Readonly<Record<string, Schema.Json>>
): RunRecord => ({ ...record, annotations: { ...record.annotations, ...annotations } })

/** An open run: where its files may lie, and how its record is finished. */
export interface OpenRun {
  /** A directory of the host for this run only; absent where nothing is kept on disk. */
  readonly directory?: string | undefined
  readonly owner: string
  /** Replace the record. Called once when the run ends. */
  readonly save: (record: RunRecord) => Effect.Effect<void>
}

/** The disk will not do, or what is kept elsewhere cannot be reached. */
export type RunStoreError = WorkspaceFailed | StoreUnavailable

export class RunStore extends Context.Service<
  RunStore,
  {
    /** Claim the id and write the first record. Closing the scope frees what only a living run needs. */
    readonly open: (
      runId: RunId,
      spec: SandboxSpec
    ) => Effect.Effect<OpenRun, RunIdInUse | RunStoreError, Scope.Scope>
    /**
     * Say more of a run that has ended; what was said under the same name before is replaced. Of a run that is not on
     * record: nothing.
     */
    readonly annotate: (
      runId: RunId,
      annotations: Readonly<Record<string, Schema.Json>>
    ) => Effect.Effect<void, RunStoreError>
    readonly get: (runId: RunId) => Effect.Effect<RunRecord | undefined, RunStoreError>
    /** The same, {@link withoutText}, and so without reading it. */
    readonly describe: (runId: RunId) => Effect.Effect<RunRecord | undefined, RunStoreError>
    /** The newest first, {@link withoutText}. */
    readonly list: Effect.Effect<ReadonlyArray<RunRecord>, RunStoreError>
  }
>()("@cogni/sandbox-core/RunStore") {}

export const makeMemory = Effect.gen(function* () {
  const records = yield* Ref.make<ReadonlyMap<RunId, RunRecord>>(new Map())
  const save = (record: RunRecord) => Ref.update(records, (all) => new Map(all).set(record.runId, record))
  const open = Effect.fn("RunStore.open")(function* (runId: RunId, spec: SandboxSpec) {
    const owner = "memory/1/0"
    const claimed = yield* Ref.modify(records, (all): readonly [boolean, ReadonlyMap<RunId, RunRecord>] =>
      all.has(runId)
        ? [false, all]
        : [true, new Map(all).set(runId, begun({ runId, spec, owner, startedAt: new Date(0).toISOString() }))]
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
    list: Effect.map(Ref.get(records), (all) => [...all.values()].toReversed().map(withoutText))
  })
})

export const layerMemory: Layer.Layer<RunStore> = Layer.effect(RunStore, makeMemory)
