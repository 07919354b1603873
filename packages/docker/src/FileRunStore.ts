/**
 * `RunStore` over a directory of the host: `runs/<run ID>/`, with `record.json`, the agent's output, and the audit.
 *
 * Creating the directory claims the run ID, so two processes can never have the same run. Records are replaced
 * atomically. The usage of a run whose process died is read from its audit.
 */
import * as Attempt from "@cogni/sandbox-host-files/Attempt"
import * as HostTree from "@cogni/sandbox-host-files/HostTree"
import * as OwnFiles from "@cogni/sandbox-host-files/OwnFiles"
import * as ResourceLabels from "@cogni/sandbox-core/ResourceLabels"
import { RunId } from "@cogni/sandbox-core/RunId"
import * as RunSearch from "@cogni/sandbox-core/RunSearch"
import { type OpenRun, RunStore } from "@cogni/sandbox-core/RunStore"
import {
  annotated,
  begun,
  outputOf,
  RunRecordText,
  abandonedIfOver,
  briefOf,
  withoutText,
  withText
} from "@cogni/sandbox-core/RecordForms"
import { type RunRecord } from "@cogni/sandbox-core/RunRecord"
import { type HostFailed, RunIdInUse } from "@cogni/sandbox-core/SandboxReason"
import type { SandboxSpec } from "@cogni/sandbox-core/SandboxSpec"
import type { TrafficOf } from "@cogni/sandbox-core/TrafficOf"
import * as StateDirectory from "@cogni/sandbox-host-files/StateDirectory"
import { Cause, Effect, Layer, Option, Schema } from "effect"
import { mkdir, readdir, readFile, stat } from "node:fs/promises"
import { join } from "node:path"
import * as HostOwner from "./HostOwner.ts"
import { attempt, attemptWhole, unusable } from "./internal/host/StateFailure.ts"
import * as ReapMetrics from "./internal/ReapMetrics.ts"
import * as UnsettledRuns from "./internal/host/UnsettledRuns.ts"
import { keptEntries, isOver } from "./RunEntries.ts"

const { auditLog, runEntries } = StateDirectory

/** Maximum number of listed records. The newest are listed. */
const listedMax = 500

const decodeRecord = Schema.decodeUnknownOption(RunRecordText)
const encodeRecord = Schema.encodeEffect(RunRecordText)

type Records = Effect.Effect<ReadonlyArray<RunRecord>, HostFailed>

const isDefined = <A>(value: A | undefined): value is A => value !== undefined

const isBilled = ({ llm }: SandboxSpec) => llm?.observed !== undefined

const isRunning = ({ outcome }: RunRecord) => outcome.status === "running"

/** Reads the records of all runs, of which `list` has only the newest. */
const recordsOf = (
  ids: Effect.Effect<ReadonlyArray<RunId>, HostFailed>,
  read: (runId: RunId) => Effect.Effect<RunRecord | undefined, HostFailed>
): Records =>
  Effect.flatMap(ids, (names) =>
    Effect.map(Effect.forEach(names, read, { concurrency: 16 }), (found) => found.filter(isDefined))
  )

const orphansOf = (
  ids: Effect.Effect<ReadonlyArray<RunId>, HostFailed>,
  find: (runId: RunId) => Effect.Effect<object | undefined, HostFailed>
): Effect.Effect<ReadonlyArray<RunId>, HostFailed> =>
  Effect.flatMap(ids, (names) => Effect.filter(names, (runId) => Effect.map(find(runId), isDefined)))

const runningOf = (records: Records): Records => Effect.map(records, (found) => found.filter(isRunning))

/** Finds the runs that are over and settled. */
const endedOf = (
  records: Records,
  marks: Effect.Effect<ReadonlyArray<UnsettledRuns.Mark>, HostFailed>
): Effect.Effect<ReadonlyArray<RunId>, HostFailed> =>
  Effect.map(Effect.all([records, marks]), ([found, unsettled]) =>
    found
      .filter((record) => !isRunning(record) && !unsettled.some(({ runId }) => runId === record.runId))
      .map(({ runId }) => runId)
  )

/** Cleans up each run, and returns the IDs of those that changed. A run that fails is logged and skipped. */
const each = (names: ReadonlyArray<RunId>, tidy: (runId: RunId) => Effect.Effect<boolean, HostFailed>) =>
  Effect.filter(names, (runId) =>
    tidy(runId).pipe(
      Effect.catchTag("HostFailed", (error) =>
        Effect.as(Effect.logWarning(`cannot clean up run ${runId}`, error.message), false)
      )
    )
  )

interface FileRunStoreOptions {
  /** State directory of this host. */
  readonly directory: string
  /**
   * Reads what a run used from its audit, if its process died: `AuditTraffic.reader` of `@cogni/sandbox-proxy`, with the
   * prices of its gateway. `unknown` for a host whose runs use no model.
   */
  readonly trafficOf: TrafficOf | "unknown"
}

export const make = (options: FileRunStoreOptions) => {
  const { runs } = StateDirectory.paths(options.directory)
  const unsettled = UnsettledRuns.make(options)
  const trafficOf: TrafficOf =
    options.trafficOf === "unknown" ? () => Effect.succeed(undefined) : options.trafficOf
  const owner = ResourceLabels.formatOwner(HostOwner.self())

  const write = writerIn(runs)
  const save = (record: RunRecord): Effect.Effect<void> =>
    write(record).pipe(
      Effect.catchCause((cause) => Effect.logWarning(`cannot write the record of run ${record.runId}`, cause))
    )

  const mark = (runId: RunId, { limits, llm }: SandboxSpec) =>
    llm?.observed === undefined
      ? Effect.void
      : attempt(runs, () => unsettled.mark({ runId, token: llm.observed!.token }, limits.runtimeSecondsMax))

  const read = async (runId: string): Promise<RunRecord | undefined> => {
    const record = Option.getOrUndefined(decodeRecord(await readText(join(runs, runId, runEntries.record))))
    return record && abandonedIfOver(record, isOver)
  }

  /** Adds what a run used to its record, unless the run reported it itself. */
  const withTraffic = (record: RunRecord) =>
    record.spec.llm === undefined || record.llm !== undefined
      ? Effect.succeed(record)
      : Effect.map(
          trafficOf({ runId: record.runId, directory: join(runs, record.runId) }),
          (llm): RunRecord => (llm === undefined ? record : { ...record, llm })
        )

  /** The same, but an audit that cannot be read does not prevent the use of the record. */
  const withReadableTraffic = (record: RunRecord) =>
    withTraffic(record).pipe(Effect.catch(({ message }) => Effect.as(Effect.logWarning(message), record)))

  /** Completes the record of an abandoned run that is read before the run is reaped. */
  const completed = (record: RunRecord | undefined) =>
    record?.outcome.status !== "abandoned" || record.llm !== undefined
      ? Effect.succeed(record)
      : Effect.map(withReadableTraffic(record), ({ llm, ...rest }): RunRecord => {
          if (llm === undefined) return rest
          // A head is evidence only once it is stored beside the audit that it was computed from.
          const { auditHead: _, ...traffic } = llm
          return { ...rest, llm: traffic }
        })

  const get = async (runId: RunId): Promise<RunRecord | undefined> => {
    const record = await read(runId)
    if (record === undefined || outputOf(record) === undefined) return record
    const [stdout, stderr] = await Promise.all([
      readText(join(runs, runId, runEntries.stdout)),
      readText(join(runs, runId, runEntries.stderr))
    ])
    return withText(record, { stdout: stdout ?? "", stderr: stderr ?? "" })
  }

  const ids = attempt(runs, () => readdir(runs).catch(() => [] as Array<string>)).pipe(
    Effect.map((names) => names.filter(Schema.is(RunId)))
  )

  const list = Effect.flatMap(ids, (names) =>
    attempt(runs, async () => {
      const ages = await Promise.all(
        names.map(async (name) => ({ name, at: await changedAt(join(runs, name)) }))
      )
      const newest = ages.toSorted((a, b) => b.at - a.at).slice(0, listedMax)
      const records = await Promise.all(newest.map(({ name }) => read(name)))
      return records
        .filter((record) => record !== undefined)
        .map(withoutText)
        .toSorted((a, b) => b.startedAt.localeCompare(a.startedAt))
    })
  )

  /** Returns the record of a run that is over, and the names in its directory that only a living run needs. */
  const orphanOf = async (runId: RunId) => {
    const entries = await readdir(join(runs, runId)).catch(() => [] as Array<string>)
    const transient = entries.filter((entry) => !keptEntries.includes(entry))
    const record = transient.length === 0 ? undefined : await read(runId)
    return record !== undefined && isOver(record) ? { record, transient } : undefined
  }

  const orphans = orphansOf(ids, (runId) => attempt(runs, () => orphanOf(runId)))
  const records = recordsOf(ids, (runId) => attempt(runs, () => read(runId)))
  const ended = endedOf(records, attempt(runs, unsettled.marks))

  /** Tells the usage of a run, and settles it. Returns false if the next recovery must try again. */
  const told = (orphan: UnsettledRuns.Mark, tell: (record: RunRecord) => Effect.Effect<void, unknown>) =>
    Effect.gen(function* () {
      const directory = join(runs, orphan.runId)
      const text = yield* attempt(directory, () => unlessMissing(join(directory, runEntries.record)))
      // A run without a record had not begun when its process died. One with an audit has lost its record since.
      if (text === undefined && (yield* attempt(directory, () => exists(join(directory, auditLog)))))
        return yield* Effect.fail(unusable(directory, "its record is missing, and its audit is not"))
      if (text !== undefined) {
        const record = yield* attempt(directory, () => read(orphan.runId))
        if (record === undefined) return yield* Effect.fail(unusable(directory, "its record cannot be read"))
        // A start that did not get the run ID has a mark of its own, but no run.
        if (record.spec.llm?.observed?.token === orphan.token) yield* tell(yield* withTraffic(record))
      }
      yield* attemptWhole(directory, () => unsettled.settle(orphan))
      return true
    }).pipe(
      Effect.catchCause((cause) =>
        Cause.hasInterruptsOnly(cause)
          ? Effect.failCause(cause as Cause.Cause<never>)
          : Effect.as(
              Effect.logWarning(
                `the usage of run ${orphan.runId} could not be reported. The next recovery tries again`,
                cause
              ),
              false
            )
      )
    )

  return {
    store: RunStore.of({
      open: Effect.fn("RunStore.open")(function* (runId, spec) {
        const directory = join(runs, runId)
        const first = begun({ runId, spec, owner, startedAt: new Date().toISOString() })
        let over = false
        // An interruption can come before the caller has the record, and must not leave a run recorded as running.
        yield* Effect.acquireRelease(
          claim(runs, directory, runId).pipe(
            Effect.andThen(mark(runId, spec)),
            // A run whose usage is billed must not start without its first record: a recovery needs it.
            Effect.andThen(isBilled(spec) ? write(first) : save(first))
          ),
          () =>
            over
              ? Effect.void
              : save({ ...first, endedAt: new Date().toISOString(), outcome: { status: "interrupted" } })
        )
        const finish = (record: RunRecord) =>
          Effect.suspend(() => {
            over = true
            return save(record)
          })
        return { directory, owner, save: finish } satisfies OpenRun
      }),
      annotate: Effect.fn("RunStore.annotate")(function* (runId, annotations) {
        const directory = join(runs, runId)
        const record = yield* attempt(directory, () => read(runId))
        if (record === undefined) return
        // The output stays in its own files: only the record is rewritten.
        const text = yield* Effect.orDie(encodeRecord(annotated(record, annotations)))
        yield* attemptWhole(directory, () =>
          OwnFiles.replace(join(directory, runEntries.record), `${text}\n`)
        )
      }),
      get: (runId) =>
        Effect.flatMap(
          attempt(runs, () => get(runId)),
          completed
        ),
      describe: (runId) =>
        Effect.flatMap(
          attempt(runs, () => read(runId)),
          (record) => completed(record && withoutText(record))
        ),
      list,
      search: (asked) => Effect.map(records, (found) => RunSearch.search(found.map(briefOf), asked)),
      settle: (runId, token) => attemptWhole(runs, () => unsettled.settle({ runId, token })),
      recover: Effect.fn("RunStore.recover")(function* (tell) {
        const settled: Array<RunId> = []
        for (const orphan of yield* attempt(runs, unsettled.orphaned)) {
          const isSettled = yield* Effect.acquireUseRelease(
            attempt(runs, () => unsettled.claim(orphan)),
            (giveBack) => (giveBack === undefined ? Effect.succeed(false) : told(orphan, tell)),
            (giveBack) =>
              giveBack === undefined ? Effect.void : Effect.ignore(attempt(runs, giveBack), { log: "Debug" })
          )
          if (isSettled) settled.push(orphan.runId)
        }
        return settled
      })
    }),

    /** Runs whose process is alive, or may be. */
    running: runningOf(records),
    /** IDs of the runs that `reap` would clean up. */
    orphans,
    /** IDs of the runs that `forget` would delete. */
    ended,

    /** Removes what orphaned runs left in their directories, and records them as abandoned. Returns their IDs. */
    reap: Effect.flatMap(ids, (names) =>
      each(
        names,
        Effect.fnUntraced(function* (runId) {
          const directory = join(runs, runId)
          const found = yield* attempt(directory, () => orphanOf(runId))
          if (found === undefined) return false
          for (const entry of found.transient) {
            yield* remove(join(directory, entry))
          }
          if (found.record.outcome.status === "abandoned") {
            const record = yield* withReadableTraffic(found.record)
            yield* save({ ...record, endedAt: new Date().toISOString() })
          }
          yield* ReapMetrics.found("run", "removed")
          return true
        })
      )
    ),

    /** Deletes the records and audits of runs that have ended, except for unsettled ones. Returns their IDs. */
    forget: Effect.flatMap(ended, (names) =>
      each(
        names,
        Effect.fnUntraced(function* (runId) {
          const directory = join(runs, runId)
          // The record goes last: without it, the rest could not be identified after a failure.
          const entries = yield* attempt(directory, () => readdir(directory))
          for (const entry of entries.filter((name) => name !== runEntries.record)) {
            yield* remove(join(directory, entry))
          }
          yield* remove(join(directory, runEntries.record))
          yield* remove(directory)
          return true
        })
      )
    )
  }
}

export const layer = (options: FileRunStoreOptions): Layer.Layer<RunStore> =>
  Layer.sync(RunStore, () => make(options).store)

const unlessMissing = (path: string): Promise<string | undefined> =>
  readFile(path, "utf8").catch((thrown: NodeJS.ErrnoException) =>
    thrown.code === "ENOENT" ? undefined : Promise.reject(thrown)
  )

/** Writes a record below the directory of all runs, with its output in files of their own. */
const writerIn = (runs: string) => (record: RunRecord) =>
  Effect.gen(function* () {
    const directory = join(runs, record.runId)
    // The text of the error would quote the record.
    const text = yield* Effect.mapError(encodeRecord(withText(record, { stdout: "", stderr: "" })), () =>
      unusable(directory, "its record cannot be encoded")
    )
    const output = outputOf(record)
    yield* attemptWhole(directory, async () => {
      if (output !== undefined) {
        await OwnFiles.replace(join(directory, runEntries.stdout), output.stdout.text)
        await OwnFiles.replace(join(directory, runEntries.stderr), output.stderr.text)
      }
      await OwnFiles.replace(join(directory, runEntries.record), `${text}\n`)
    })
  })

const exists = (path: string): Promise<boolean> =>
  stat(path).then(
    () => true,
    (thrown: NodeJS.ErrnoException) => (thrown.code === "ENOENT" ? false : Promise.reject(thrown))
  )

const readText = (path: string): Promise<string | undefined> => readFile(path, "utf8").catch(() => undefined)

const changedAt = (path: string): Promise<number> =>
  stat(path).then(
    ({ mtimeMs }) => mtimeMs,
    () => 0
  )

const claim = (runs: string, directory: string, runId: RunId) =>
  Attempt.attempt(
    async () => {
      await OwnFiles.makeDirectory(runs)
      await mkdir(directory, { mode: 0o700 })
    },
    (_message, thrown) =>
      (thrown as NodeJS.ErrnoException).code === "EEXIST"
        ? new RunIdInUse({ runId })
        : unusable(directory, thrown)
  )

const remove = (path: string) => Effect.mapError(HostTree.remove(path), (error) => unusable(path, error))
