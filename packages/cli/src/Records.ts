/**
 * The run store, the ledger and the reservations of accounts: the database that the environment names, with the run
 * directories of this host as its spool.
 *
 * Separate from `Composition`, so that commands that only read records do not load an engine and a proxy.
 */
import * as StateDirectory from "@cogni/sandbox-host-files/StateDirectory"
import * as ResourceLabels from "@cogni/sandbox-core/ResourceLabels"
import * as RunJournal from "@cogni/sandbox-core/RunJournal"
import { RunStore, type RunStoreError } from "@cogni/sandbox-core/RunStore"
import { HostFailed, StoreUnavailable } from "@cogni/sandbox-core/SandboxReason"
import type { SchemaRefused } from "@cogni/sandbox-sql/SchemaVersion"
import * as AccountReservations from "@cogni/sandbox-ledger/AccountReservations"
import * as Ledger from "@cogni/sandbox-ledger/Ledger"
import * as FileRunJournal from "@cogni/sandbox-docker/FileRunJournal"
import * as FileRunStore from "@cogni/sandbox-docker/FileRunStore"
import * as RunEntries from "@cogni/sandbox-docker/RunEntries"
import * as HostOwner from "@cogni/sandbox-docker/HostOwner"
import * as RunSpool from "@cogni/sandbox-docker/RunSpool"
import * as AuditTraffic from "@cogni/sandbox-proxy/AuditTraffic"
import * as RunAudits from "@cogni/sandbox-proxy/RunAudits"
import * as Database from "@cogni/sandbox-sql/Database"
import * as DatabaseAddress from "@cogni/sandbox-sql/DatabaseAddress"
import * as SqlAccountReservations from "@cogni/sandbox-sql/SqlAccountReservations"
import * as SqlLedger from "@cogni/sandbox-sql/SqlLedger"
import * as SqlRunJournal from "@cogni/sandbox-sql/SqlRunJournal"
import * as SqlRunStore from "@cogni/sandbox-sql/SqlRunStore"
import { Effect, FileSystem, Layer, Result } from "effect"
import type { SqlClient } from "effect/sql/SqlClient"
import { join } from "node:path"
import { mapLayerError, type Refusal, refusal } from "./Failure.ts"
import type { Settings } from "./Settings.ts"

/** The run directories of this host. The usage of a run whose process died is read from its audit. */
export const files = ({
  prices,
  stateDirectory
}: Pick<Settings["Service"], "prices" | "stateDirectory">): ReturnType<typeof FileRunStore.make> =>
  FileRunStore.make({ directory: stateDirectory, trafficOf: AuditTraffic.reader({ prices }) })

/** A service in the run database. */
export const inDatabase = <A, E extends { readonly message: string }>(
  settings: Pick<Settings["Service"], "database">,
  kept: Layer.Layer<A, E, SqlClient>,
  otherwise: string
): Layer.Layer<A, Refusal> =>
  Layer.unwrap(
    Effect.map(Effect.fromResult(settings.database), ({ address }) =>
      kept.pipe(
        Layer.provide(Database.layer(address)),
        mapLayerError(({ message }) =>
          refusal(
            "unavailable",
            `${otherwise}: ${message}`,
            address._tag === "Sqlite"
              ? "Set COGNI_STATE_DIR to another directory, or COGNI_DATABASE_URL to another database"
              : "See COGNI_DATABASE_URL"
          )
        )
      )
    )
  )

/** The journals of the runs of this host. */
export const journal = ({
  stateDirectory
}: Pick<Settings["Service"], "stateDirectory">): Layer.Layer<never> =>
  FileRunJournal.layer({ directory: stateDirectory })

/**
 * Journals of this host and those in the run database. `written`: for the server that runs them, which reads its own.
 * `read`: for a server that runs none.
 */
export const sharedJournal = (
  settings: Pick<Settings["Service"], "database" | "stateDirectory">,
  use: "read" | "written"
): Layer.Layer<never, Refusal> =>
  inDatabase(
    settings,
    Layer.effect(
      RunJournal.RunJournal,
      Effect.map(SqlRunJournal.make(), (database) => {
        const files = FileRunJournal.make({ directory: settings.stateDirectory })
        if (use === "written")
          return RunJournal.withHolds({
            write: (runId, event) => Effect.andThen(files.write(runId, event), database.write(runId, event)),
            close: (runId) => Effect.andThen(files.close(runId), database.close(runId)),
            read: files.read
          })
        return RunJournal.withHolds({
          write: () => Effect.void,
          close: () => Effect.void,
          read: (asked) =>
            Effect.flatMap(files.read(asked), (page) =>
              page === undefined ? database.read(asked) : Effect.succeed(page)
            )
        })
      })
    ),
    "events of runs cannot be shared"
  )

/** Deletes the events of runs from the run database. */
export const forgetEvents = (
  settings: Pick<Settings["Service"], "database">,
  runIds: ReadonlyArray<string>
): Effect.Effect<void, Refusal> =>
  Effect.scoped(
    Effect.asVoid(
      Layer.build(
        inDatabase(
          settings,
          Layer.effectDiscard(SqlRunJournal.forget(runIds)),
          "events of runs cannot be deleted"
        )
      )
    )
  )

/** The audits of the runs of this host. */
export const audits = ({
  stateDirectory
}: Pick<Settings["Service"], "stateDirectory">): Layer.Layer<RunAudits.RunAudits> =>
  RunAudits.layer({ directoryOf: (runId) => join(StateDirectory.paths(stateDirectory).runs, runId) })

/** Run store, ledger and reservations, in one database, for commands that run, and that delete records. */
export const store = (
  settings: Settings["Service"]
): Layer.Layer<
  RunStore | SqlRunStore.SqlRunStore | Ledger.Ledger | AccountReservations.AccountReservations,
  Refusal | RunStoreError
> =>
  Layer.unwrap(
    Effect.map(Effect.fromResult(settings.database), ({ address, variable }) =>
      SqlRunStore.layer({
        owner: ResourceLabels.formatOwner(HostOwner.self()),
        host: HostOwner.machineName(),
        isOver: RunEntries.isOver,
        spool: {
          store: files(settings).store,
          ...RunSpool.make({ directory: settings.stateDirectory, database: DatabaseAddress.nameOf(address) })
        }
      }).pipe(
        Layer.merge(Layer.merge(SqlLedger.layer, SqlAccountReservations.layer)),
        Layer.provide(Database.layer(address)),
        mapLayerError((error) =>
          error._tag === "StoreUnavailable"
            ? error
            : error._tag === "LedgerUnavailable"
              ? new StoreUnavailable({ detail: `has no ledger: it ${error.detail}`, remedy: error.remedy })
              : unusable(error, settings, variable)
        )
      )
    )
  )

/** Run store, ledger and reservations for commands that only read. Creates nothing if no run was ever started. */
export const looked = (
  settings: Settings["Service"]
): Layer.Layer<
  RunStore | Ledger.Ledger | AccountReservations.AccountReservations,
  Refusal | RunStoreError,
  FileSystem.FileSystem
> =>
  Layer.unwrap(
    Effect.map(anythingRun(settings), (found) =>
      found
        ? store(settings)
        : Layer.merge(
            Layer.sync(RunStore, () => files(settings).store),
            Layer.provideMerge(AccountReservations.layerMemory, Ledger.layerMemory())
          )
    )
  )

/** Converts a database error. An error of the default file concerns the state directory, and is not retryable. */
const unusable = (
  error: DatabaseAddress.DatabaseUnavailable | SchemaRefused,
  settings: Settings["Service"],
  variable: string | undefined
): RunStoreError =>
  error._tag === "SchemaRefused"
    ? new StoreUnavailable({ detail: `cannot be used: ${error.detail}`, remedy: error.remedy })
    : variable === undefined
      ? new HostFailed({
          path: settings.stateDirectory,
          problem: "unusable",
          detail: `cannot keep records: ${error.what}`,
          remedy:
            "Set COGNI_STATE_DIR to a directory this user can write, or move away a cogni.db that is not a database"
        })
      : new StoreUnavailable({ detail: `cannot be used: ${error.what}`, remedy: error.remedy })

const anythingRun = Effect.fnUntraced(function* ({ database, stateDirectory }: Settings["Service"]) {
  if (Result.isFailure(database) || database.success.variable !== undefined) return true
  const fs = yield* FileSystem.FileSystem
  const { database: file, runs } = StateDirectory.paths(stateDirectory)
  const looked = yield* Effect.forEach([file, runs], (path) =>
    Effect.orElseSucceed(fs.exists(path), () => true)
  )
  return looked.includes(true)
})
