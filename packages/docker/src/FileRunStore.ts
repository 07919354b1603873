/**
 * `RunStore` over a directory of the host: `runs/<run ID>/`, with `record.json`, the agent's output, and the audit.
 *
 * Creating the directory claims the run ID, so two processes can never have the same run. Records are replaced
 * atomically.
 */
import * as Attempt from "@cogni/sandbox-host-files/Attempt"
import * as HostTree from "@cogni/sandbox-host-files/HostTree"
import * as OwnFiles from "@cogni/sandbox-host-files/OwnFiles"
import * as ResourceLabels from "@cogni/sandbox-core/ResourceLabels"
import { RunId } from "@cogni/sandbox-core/RunId"
import {
  annotated,
  begun,
  type OpenRun,
  outputOf,
  type RunRecord,
  RunRecordText,
  RunStore,
  abandonedIfOver,
  withoutText,
  withText
} from "@cogni/sandbox-core/RunStore"
import { type HostFailed, RunIdInUse } from "@cogni/sandbox-core/SandboxError"
import * as StateDirectory from "@cogni/sandbox-host-files/StateDirectory"
import { Effect, Layer, Option, Schema } from "effect"
import { mkdir, readdir, readFile, stat } from "node:fs/promises"
import { join } from "node:path"
import * as HostOwner from "./HostOwner.ts"
import { attempt, attemptWhole, unusable } from "./internal/host/StateFailure.ts"

const { runEntries } = StateDirectory

/** Names in a run's directory that stay after the run. All others belong to the living run. */
export const keptEntries: ReadonlyArray<string> = Object.values(runEntries)

/** Maximum number of listed records. The newest are listed. */
const listedMax = 500

const decodeRecord = Schema.decodeUnknownOption(RunRecordText)
const encodeRecord = Schema.encodeEffect(RunRecordText)

/** Returns whether the owner of a run is dead, or is unknown and the run has expired. */
export const isOver = ({ owner, spec, startedAt }: RunRecord): boolean => {
  const secondsMax = spec.limits.runtimeSecondsMax + HostOwner.expiryGraceSeconds
  const expiresAt = new Date(Date.parse(startedAt) + secondsMax * 1000)
  return HostOwner.isOrphaned(owner, expiresAt.toISOString(), new Date())
}

export const make = (options: { readonly directory: string }) => {
  const { runs } = StateDirectory.paths(options.directory)
  const owner = ResourceLabels.formatOwner(HostOwner.self())

  const save = (record: RunRecord): Effect.Effect<void> =>
    Effect.gen(function* () {
      const text = yield* encodeRecord(withoutText(record))
      const directory = join(runs, record.runId)
      const output = outputOf(record)
      yield* attemptWhole(directory, async () => {
        if (output !== undefined) {
          await OwnFiles.replace(join(directory, runEntries.stdout), output.stdout.text)
          await OwnFiles.replace(join(directory, runEntries.stderr), output.stderr.text)
        }
        await OwnFiles.replace(join(directory, runEntries.record), `${text}\n`)
      })
    }).pipe(
      Effect.catchCause((cause) => Effect.logWarning(`cannot write the record of run ${record.runId}`, cause))
    )

  const read = async (runId: string): Promise<RunRecord | undefined> => {
    const record = Option.getOrUndefined(decodeRecord(await readText(join(runs, runId, runEntries.record))))
    return record && abandonedIfOver(record, isOver)
  }

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

  /** Cleans up each run, and returns the IDs of those that changed. A run that fails is logged and skipped. */
  const each = (names: ReadonlyArray<RunId>, tidy: (runId: RunId) => Effect.Effect<boolean, HostFailed>) =>
    Effect.filter(names, (runId) =>
      tidy(runId).pipe(
        Effect.catchTag("HostFailed", (error) =>
          Effect.as(Effect.logWarning(`cannot clean up run ${runId}`, error.message), false)
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
        yield* Effect.acquireRelease(Effect.andThen(claim(runs, directory, runId), save(first)), () =>
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
      get: (runId) => attempt(runs, () => get(runId)),
      describe: (runId) => attempt(runs, () => read(runId)),
      list
    }),

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
            yield* save({ ...found.record, endedAt: new Date().toISOString() })
          }
          return true
        })
      )
    ),

    /** Deletes the records and audits of runs that have ended. Returns their IDs. */
    forget: Effect.flatMap(list, (records) =>
      each(
        records.filter(({ outcome }) => outcome.status !== "running").map(({ runId }) => runId),
        Effect.fnUntraced(function* (runId) {
          const directory = join(runs, runId)
          // The record goes last: without it, the rest could not be identified after a failure.
          const entries = yield* attempt(directory, () => readdir(directory))
          for (const entry of entries.filter((name) => name !== runEntries.record)) {
            yield* remove(join(directory, entry))
          }
          yield* remove(directory)
          return true
        })
      )
    )
  }
}

export const layer = (options: { readonly directory: string }): Layer.Layer<RunStore> =>
  Layer.sync(RunStore, () => make(options).store)

const readText = (path: string): Promise<string | undefined> => readFile(path, "utf8").catch(() => undefined)

const changedAt = (path: string): Promise<number> =>
  stat(path).then(
    ({ mtimeMs }) => mtimeMs,
    () => 0
  )

const claim = (runs: string, directory: string, runId: RunId) =>
  Attempt.attempt(
    async () => {
      await mkdir(runs, { recursive: true, mode: 0o700 })
      await mkdir(directory, { mode: 0o700 })
    },
    (_message, thrown) =>
      (thrown as NodeJS.ErrnoException).code === "EEXIST"
        ? new RunIdInUse({ runId })
        : unusable(directory, thrown)
  )

const remove = (path: string) => Effect.mapError(HostTree.remove(path), (error) => unusable(path, error))
