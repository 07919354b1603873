/**
 * Which runs a database may not know all of: a mark for each, in a directory of the host.
 *
 * A mark is made before a run begins and taken away once the database has its last word, so that a process that was
 * killed, or a database that was away, leaves a mark and never a gap. Every database has marks of its own; for one that
 * was never used with this directory, every run in it is marked, which is how older records get into a new database.
 */
import * as OwnFiles from "@cogni/sandbox-host-files/OwnFiles"
import { RunId } from "@cogni/sandbox-core/RunId"
import * as StateDirectory from "@cogni/sandbox-host-files/StateDirectory"
import { Schema } from "effect"
import { createHash } from "node:crypto"
import { mkdir, readdir, rm } from "node:fs/promises"
import { join } from "node:path"
import { attempt } from "./internal/host/StateFailure.ts"

export const make = (options: {
  /** That of `FileRunStore`. */
  readonly directory: string
  /** What the database is called; no secret in it. */
  readonly database: string
}) => {
  const digest = createHash("sha256").update(options.database).digest("hex").slice(0, 16)
  const { pending: spools, runs: allRuns } = StateDirectory.paths(options.directory)
  const spool = join(spools, digest)

  /** Half of the marks are never taken for all of them. */
  const begin = async (): Promise<ReadonlyArray<string>> => {
    const runs = await namesIn(allRuns)
    const draft = join(spools, `${digest}.${crypto.randomUUID()}.new`)
    await mkdir(draft, { recursive: true, mode: 0o700 })
    for (const runId of runs) await OwnFiles.touch(join(draft, runId))
    try {
      await OwnFiles.move(draft, spool)
    } catch {
      // Another process was faster, and marked as many.
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
