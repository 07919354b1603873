/**
 * Marks for the runs whose records a database may lack: one empty file per run, in a directory of the host.
 *
 * A mark is created before a run begins and removed once the database has the final record. If the process is killed or
 * the database is unavailable, the mark stays, so no record is lost. Each database has its own marks. The first use of
 * a database with this directory marks every run in it, which imports older records into the new database.
 */
import * as OwnFiles from "@cogni/sandbox-host-files/OwnFiles"
import { RunId } from "@cogni/sandbox-core/RunId"
import * as StateDirectory from "@cogni/sandbox-host-files/StateDirectory"
import { Schema } from "effect"
import { createHash } from "node:crypto"
import { readdir, rm } from "node:fs/promises"
import { join } from "node:path"
import { attempt } from "./internal/host/StateFailure.ts"

export const make = (options: {
  /** The directory of `FileRunStore`. */
  readonly directory: string
  /** Name of the database, without secrets. */
  readonly database: string
}) => {
  const digest = createHash("sha256").update(options.database).digest("hex").slice(0, 16)
  const { pending: spools, runs: allRuns } = StateDirectory.paths(options.directory)
  const spool = join(spools, digest)

  /** Marks all runs atomically, so that no process sees only a part of the marks. */
  const begin = async (): Promise<ReadonlyArray<string>> => {
    const runs = await namesIn(allRuns)
    const draft = join(spools, `${digest}.${crypto.randomUUID()}.new`)
    await OwnFiles.makeDirectory(draft)
    for (const runId of runs) await OwnFiles.touch(join(draft, runId))
    try {
      await OwnFiles.move(draft, spool)
    } catch {
      // Another process was faster, and marked the same runs.
      await rm(draft, { recursive: true, force: true })
    }
    return runs
  }

  return {
    pending: attempt(spool, async (): Promise<ReadonlyArray<RunId>> => {
      const marked: ReadonlyArray<string> = await readdir(spool).catch(begin)
      return marked.filter(isRunId)
    }),
    mark: (runId: RunId) =>
      attempt(spool, async () => {
        const path = join(spool, runId)
        await OwnFiles.touch(path).catch(async () => {
          await begin()
          await OwnFiles.touch(path)
        })
      }),
    clear: (runId: RunId) => attempt(spool, () => rm(join(spool, runId), { force: true }))
  }
}

const isRunId = Schema.is(RunId)

const namesIn = (path: string) => readdir(path).catch((): Array<string> => [])
