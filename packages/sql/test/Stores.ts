/** Run stores for tests: a database and a host's spool, in a temporary directory. */
import * as ResourceLabels from "@cogni/sandbox-core/ResourceLabels"
import type { RunId } from "@cogni/sandbox-core/RunId"
import type { OpenRun } from "@cogni/sandbox-core/RunStore"
import type { RunRecord } from "@cogni/sandbox-core/RunRecord"
import type * as SandboxSpec from "@cogni/sandbox-core/SandboxSpec"
import * as SpecDecoder from "@cogni/sandbox-core/SpecDecoder"
import * as FileRunStore from "@cogni/sandbox-docker/FileRunStore"
import * as RunEntries from "@cogni/sandbox-docker/RunEntries"
import * as HostOwner from "@cogni/sandbox-docker/HostOwner"
import * as RunSpool from "@cogni/sandbox-docker/RunSpool"
import * as SqliteDatabase from "../src/SqliteDatabase.ts"
import * as SqlRunStore from "@cogni/sandbox-sql/SqlRunStore"
import { Effect, Layer } from "effect"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"

export const directory = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-sql-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
)

export const owner = ResourceLabels.formatOwner(HostOwner.self())

/** An owner on this machine that is dead. */
export const deadOwner = ResourceLabels.formatOwner({
  ...HostOwner.self(),
  startTicks: HostOwner.self().startTicks + 1
})

/** An owner on another machine. */
export const foreignOwner = ResourceLabels.formatOwner({ bootId: "elsewhere-1", processId: 7, startTicks: 7 })

export const options = (
  path: string,
  changes: Partial<SqlRunStore.Options> & { readonly database?: string } = {}
): SqlRunStore.Options => ({
  owner,
  host: "here",
  isOver: RunEntries.isOver,
  ...changes,
  spool: {
    store: FileRunStore.make({ directory: path, trafficOf: "unknown" }).store,
    ...RunSpool.make({ directory: path, database: changes.database ?? "test" }),
    ...changes.spool
  }
})

/** A run store in SQLite, with its file and its spool in one directory. */
export const sqlite = (path: string, changes?: Partial<SqlRunStore.Options>) =>
  SqlRunStore.layer(options(path, changes)).pipe(
    Layer.provideMerge(SqliteDatabase.layer({ path: join(path, "state", "cogni.db") }))
  )

/** Creates the final record of a run that timed out. */
export const finished = (
  runId: RunId,
  { owner }: Pick<OpenRun, "owner">,
  spec: SandboxSpec.SandboxSpec,
  text: { readonly stdout: string; readonly message?: string } = { stdout: "" }
): RunRecord => ({
  runId,
  spec,
  owner,
  startedAt: new Date(1_000).toISOString(),
  endedAt: new Date(2_000).toISOString(),
  outcome: {
    status: "failed",
    reason: "TimedOut",
    code: "timeout",
    message: text.message ?? "the agent was still running",
    output: {
      stdout: { text: text.stdout, bytes: 7, truncated: false },
      stderr: { text: "", bytes: 0, truncated: false }
    }
  },
  timings: []
})

export const spec = SpecDecoder.decode({ image: "i", argv: ["true"] })
