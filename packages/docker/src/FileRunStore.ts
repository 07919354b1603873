/**
 * `RunStore` over a directory of the host: `runs/<run id>/`, with `record.json`, what the agent wrote, and the audit.
 *
 * Making the directory is what claims an id, so two processes can never have the same run. Records are replaced whole.
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
import { RunIdInUse, type WorkspaceFailed } from "@cogni/sandbox-core/SandboxError"
import * as StateDirectory from "@cogni/sandbox-host-files/StateDirectory"
import { Effect, Layer, Option, Schema } from "effect"
import { mkdir, readdir, readFile, stat } from "node:fs/promises"
import { join } from "node:path"
import * as HostOwner from "./HostOwner.ts"
import { attempt, unusable } from "./internal/host/StateFailure.ts"

const { runEntries } = StateDirectory

/** What of a run's directory stays. Everything else in it belongs to the living run. */
export const keptEntries: ReadonlyArray<string> = Object.values(runEntries)

/** The newest records that are listed. */
const listedMax = 500

const decodeRecord = Schema.decodeUnknownOption(RunRecordText)
const encodeRecord = Schema.encodeEffect(RunRecordText)

/** Whether a run on record as running is none any more: its owner is dead, or unseen and long over. */
export const isOver = ({ owner, spec, startedAt }: RunRecord): boolean => {
  const secondsMax = spec.limits.runtimeSecondsMax + HostOwner.expiryGraceSeconds
  const expiresAt = new Date(Date.parse(startedAt) + secondsMax * 1000)
  return HostOwner.isLeftover(owner, expiresAt.toISOString(), new Date())
}

export const make = (options: { readonly directory: string }) => {
  const { runs } = StateDirectory.paths(options.directory)
  const owner = ResourceLabels.formatOwner(HostOwner.self())

  const save = (record: RunRecord): Effect.Effect<void> =>
    Effect.gen(function* () {
      const text = yield* encodeRecord(withoutText(record))
      const directory = join(runs, record.runId)
      const output = outputOf(record)
      yield* attempt(directory, async () => {
        if (output !== undefined) {
          await OwnFiles.replace(join(directory, runEntries.stdout), output.stdout.text)
          await OwnFiles.replace(join(directory, runEntries.stderr), output.stderr.text)
        }
        await OwnFiles.replace(join(directory, runEntries.record), `${text}\n`)
      })
    }).pipe(
      Effect.catchCause((cause) =>
        Effect.logWarning(`the record of run ${record.runId} could not be written`, cause)
      )
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

  /** Names in the directory of a run that is over, whatever its record says, that only a living one needs. */
  const leftover = async (runId: RunId) => {
    const entries = await readdir(join(runs, runId)).catch(() => [] as Array<string>)
    const transient = entries.filter((entry) => !keptEntries.includes(entry))
    const record = transient.length === 0 ? undefined : await read(runId)
    return record !== undefined && isOver(record) ? { record, transient } : undefined
  }

  /** One run that cannot be tidied up must not keep the others from it. */
  const each = (
    names: ReadonlyArray<RunId>,
    tidy: (runId: RunId) => Effect.Effect<boolean, WorkspaceFailed>
  ) =>
    Effect.filter(names, (runId) =>
      tidy(runId).pipe(
        Effect.catchTag("WorkspaceFailed", (error) =>
          Effect.as(Effect.logWarning(`run ${runId} could not be tidied up`, error.message), false)
        )
      )
    )

  return {
    store: RunStore.of({
      open: Effect.fn("RunStore.open")(function* (runId, spec) {
        const directory = join(runs, runId)
        const first = begun({ runId, spec, owner, startedAt: new Date().toISOString() })
        let over = false
        // Never half-way, and never left as running: an interruption can come before the run knows its record.
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
        // Its text stays where it is: only the record is written anew.
        const text = yield* Effect.orDie(encodeRecord(annotated(record, annotations)))
        yield* attempt(directory, () => OwnFiles.replace(join(directory, runEntries.record), `${text}\n`))
      }),
      get: (runId) => attempt(runs, () => get(runId)),
      describe: (runId) => attempt(runs, () => read(runId)),
      list
    }),

    /** Remove what runs of dead owners left in their directories, and say so in their records. Answers their ids. */
    reap: Effect.flatMap(ids, (names) =>
      each(
        names,
        Effect.fnUntraced(function* (runId) {
          const directory = join(runs, runId)
          const found = yield* attempt(directory, () => leftover(runId))
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

    /** Forget runs that have ended: their records and audits. Answers their ids. */
    forget: Effect.flatMap(list, (records) =>
      each(
        records.filter(({ outcome }) => outcome.status !== "running").map(({ runId }) => runId),
        Effect.fnUntraced(function* (runId) {
          const directory = join(runs, runId)
          // The record goes last: without it nothing would know what the rest is.
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
    (message, thrown) =>
      (thrown as NodeJS.ErrnoException).code === "EEXIST"
        ? new RunIdInUse({ runId })
        : unusable(directory, message)
  )

const remove = (path: string) =>
  Effect.mapError(HostTree.remove(path), ({ message }) => unusable(path, message))
