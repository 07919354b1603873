/**
 * `RunStore` over a directory of the host: `runs/<run id>/`, with `record.json` and the audit of the run.
 *
 * Making the directory is what claims an id, so two processes can never have the same run. Records are replaced whole.
 */
import * as ResourceLabels from "@cogni/sandbox-core/ResourceLabels"
import { RunId } from "@cogni/sandbox-core/RunId"
import { type OpenRun, RunRecord, RunStore } from "@cogni/sandbox-core/RunStore"
import { RunIdInUse, WorkspaceFailed } from "@cogni/sandbox-core/SandboxError"
import { Effect, Layer, Option, Schema } from "effect"
import { mkdir, readdir, readFile, rename, rm, stat, writeFile } from "node:fs/promises"
import { homedir } from "node:os"
import { join } from "node:path"
import * as HostOwner from "./HostOwner.ts"

/** What of a run's directory only a living run needs. @category constants */
export const transientEntries = ["workspace", "inputs", "upstream"] as const

/** The newest records that are listed. @category constants */
export const listedMax = 500

const recordFile = "record.json"

const Record = Schema.fromJsonString(Schema.toCodecJson(RunRecord))
const decodeRecord = Schema.decodeUnknownOption(Record)
const encodeRecord = Schema.encodeEffect(Record)

/** `$XDG_STATE_HOME/cogni-sandbox`, or below `~/.local/state`. @category constants */
export const defaultDirectory = (stateHome: string | undefined): string =>
  join(
    stateHome === undefined || stateHome === "" ? join(homedir(), ".local", "state") : stateHome,
    "cogni-sandbox"
  )

// -----------------------------------------------------------------------------
// constructors
// -----------------------------------------------------------------------------

/** @category constructors */
export const make = (options: { readonly directory: string }) => {
  const runs = join(options.directory, "runs")
  const owner = ResourceLabels.formatOwner(HostOwner.self())

  const save = (record: RunRecord): Effect.Effect<void> =>
    Effect.gen(function* () {
      const text = yield* encodeRecord(record)
      const path = join(runs, record.runId, recordFile)
      yield* attempt(path, async () => {
        await writeFile(`${path}.new`, `${text}\n`, { mode: 0o600 })
        await rename(`${path}.new`, path)
      })
    }).pipe(
      Effect.catchCause((cause) =>
        Effect.logWarning(`the record of run ${record.runId} could not be written`, cause)
      )
    )

  const read = async (runId: string): Promise<RunRecord | undefined> => {
    const text = await readFile(join(runs, runId, recordFile), "utf8").catch(() => undefined)
    const record = Option.getOrUndefined(decodeRecord(text))
    if (record?.outcome.status !== "running" || !HostOwner.isLeftover(record.owner, undefined, new Date()))
      return record
    return { ...record, outcome: { status: "abandoned" } }
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

  /** Records of dead owners whose directories still hold what only a living run needs; no other record is read. */
  const abandoned = Effect.flatMap(ids, (names) =>
    attempt(runs, async () => {
      const records = await Promise.all(
        names.map(async (name) => {
          const entries = await readdir(join(runs, name)).catch(() => [] as Array<string>)
          return transientEntries.some((entry) => entries.includes(entry)) ? read(name) : undefined
        })
      )
      return records.filter((record) => record?.outcome.status === "abandoned").map((record) => record!)
    })
  )

  return {
    store: RunStore.of({
      open: Effect.fn("RunStore.open")(function* (runId, spec) {
        const directory = join(runs, runId)
        yield* claim(runs, directory, runId)
        yield* save({
          runId,
          spec,
          owner,
          startedAt: new Date().toISOString(),
          outcome: { status: "running" },
          timings: []
        })
        return { directory, owner, save } satisfies OpenRun
      }),
      get: (runId) => attempt(runs, () => read(runId)),
      list
    }),

    /** Remove what runs of dead owners left in their directories, and say so in their records. Answers their ids. */
    reap: Effect.gen(function* () {
      const found = yield* abandoned
      for (const record of found) {
        yield* attempt(join(runs, record.runId), () =>
          Promise.all(
            transientEntries.map((entry) =>
              rm(join(runs, record.runId, entry), { recursive: true, force: true })
            )
          )
        )
        yield* save({ ...record, endedAt: new Date().toISOString() })
      }
      return found.map((record) => record.runId)
    }),

    /** Forget runs that have ended: their records and audits. Answers their ids. */
    forget: Effect.gen(function* () {
      const ended = (yield* list).filter((record) => record.outcome.status !== "running")
      for (const { runId } of ended) {
        yield* attempt(join(runs, runId), () => rm(join(runs, runId), { recursive: true, force: true }))
      }
      return ended.map((record) => record.runId)
    })
  }
}

/** @category layers */
export const layer = (options: { readonly directory: string }): Layer.Layer<RunStore> =>
  Layer.sync(RunStore, () => make(options).store)

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

const changedAt = (path: string): Promise<number> =>
  stat(path).then(
    ({ mtimeMs }) => mtimeMs,
    () => 0
  )

const attempt = <A>(path: string, run: () => Promise<A>): Effect.Effect<A, WorkspaceFailed> =>
  Effect.tryPromise({
    try: run,
    catch: (thrown) =>
      new WorkspaceFailed({
        path,
        detail: `cannot be used: ${thrown instanceof Error ? thrown.message : String(thrown)}`,
        remedy: "Set COGNI_STATE_DIR to a directory this user can write"
      })
  })

const claim = (runs: string, directory: string, runId: RunId) =>
  Effect.tryPromise({
    try: async () => {
      await mkdir(runs, { recursive: true, mode: 0o700 })
      await mkdir(directory, { mode: 0o700 })
    },
    catch: (thrown) =>
      (thrown as NodeJS.ErrnoException).code === "EEXIST"
        ? new RunIdInUse({ runId })
        : new WorkspaceFailed({
            path: directory,
            detail: `cannot be made: ${thrown instanceof Error ? thrown.message : String(thrown)}`,
            remedy: "Set COGNI_STATE_DIR to a directory this user can write"
          })
  })
