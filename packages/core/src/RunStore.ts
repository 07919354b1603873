/**
 * The port that stores run records.
 *
 * Opening a run claims its ID permanently. The record is written again when the run ends, however it ends. Records
 * contain no secret, because a spec contains none.
 */
import { Clock, Context, Effect, Layer, Ref, Schema, type Scope } from "effect"
import { longAnnotations } from "./RunFacts.ts"
import { PoolUse } from "./PoolUse.ts"
import { RunId } from "./RunId.ts"
import { Evidence, LlmTraffic, Output, Peak, RunResult, Timing } from "./RunResult.ts"
import { type HostFailed, RunIdInUse, type StoreUnavailable } from "./SandboxError.ts"
import * as RunSearch from "./RunSearch.ts"
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
  /** The host process died during the run. Determined when the record is read, or by the reaper. */
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
  /** Canaries seen leaving the sandbox, however the run ended. */
  suspicions: Schema.optionalKey(Schema.Array(Evidence)),
  timings: Schema.Array(Timing),
  /** How the run got its sandbox; absent if its process had no pool. */
  pool: Schema.optionalKey(PoolUse),
  /** Data that other components attach to the run, by name: `relay` is the delivery of its commits. */
  annotations: Schema.optionalKey(Schema.Record(Schema.String, Schema.Json))
})

export type RunRecord = typeof RunRecord.Type

/** A record as JSON text, the same in every store. */
export const RunRecordText = Schema.fromJsonString(Schema.toCodecJson(RunRecord))

/** Returns the first record of a run. */
export const begun = (run: Pick<RunRecord, "runId" | "spec" | "owner" | "startedAt">): RunRecord => ({
  ...run,
  outcome: { status: "running" },
  timings: []
})

/** Marks a running record as abandoned if the run is over. Applied when a record is read. */
export const abandonedIfOver = (record: RunRecord, isOver: (record: RunRecord) => boolean): RunRecord =>
  record.outcome.status === "running" && isOver(record)
    ? { ...record, outcome: { status: "abandoned" } }
    : record

/** Changes the output of a record that has one. */
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

/** Sets the text of a record's output. */
export const withText = (
  record: RunRecord,
  text: { readonly stdout: string; readonly stderr: string }
): RunRecord =>
  mapOutput(record, ({ stderr, stdout }) => ({
    stdout: { ...stdout, text: text.stdout },
    stderr: { ...stderr, text: text.stderr }
  }))

/** Removes the texts of a record that can be long: output, answer and commits. Only `get` returns them. */
export const withoutText = (record: RunRecord): RunRecord => {
  const { annotations, ...rest } = withText(record, { stdout: "", stderr: "" })
  if (annotations === undefined) return rest
  const others = Object.entries(annotations).filter(([name]) => !longAnnotations.includes(name))
  return others.length === 0 ? rest : { ...rest, annotations: Object.fromEntries(others) }
}

/** Names of the annotations that lists show. */
const briefAnnotations: ReadonlySet<string> = new Set(["graph", "relay"])

/**
 * Returns what lists show of a record. Lists are read every few seconds, so they have nothing that can be long: no
 * texts, inputs, arguments and variables of the program, and no single calls or canaries.
 */
export const briefOf = (record: RunRecord): RunRecord => {
  const { annotations = {}, llm, outcome, posture: _, spec, suspicions: __, ...rest } = withoutText(record)
  const shown = Object.entries(annotations).filter(([name]) => briefAnnotations.has(name))
  return {
    ...rest,
    spec: { ...spec, argv: [spec.argv[0].slice(0, briefArgumentChars)], env: {}, inputs: [] },
    outcome: outcome.status === "exited" ? { ...outcome, result: briefResultOf(outcome.result) } : outcome,
    ...(llm === undefined ? {} : { llm: { ...llm, calls: [] } }),
    ...(shown.length === 0 ? {} : { annotations: Object.fromEntries(shown) })
  }
}

const briefArgumentChars = 200

const briefResultOf = ({ llm, ...result }: RunResult): RunResult => ({
  ...result,
  suspicions: [],
  ...(llm === undefined ? {} : { llm: { ...llm, calls: [] } })
})

/** Returns the output of a run, if it has one. */
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
