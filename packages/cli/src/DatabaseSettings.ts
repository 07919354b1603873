/**
 * What the environment says of the database of runs: a URL, or a file with one in it, because it may hold a password.
 *
 * Where it says nothing, it is a file of SQLite beside the records. A URL is taken apart as it is read, and its
 * password redacted.
 */
import * as StateDirectory from "@cogni/sandbox-host-files/StateDirectory"
import * as DatabaseAddress from "@cogni/sandbox-sql/DatabaseAddress"
import { Effect } from "effect"
import { type Refusal, refusal } from "./Failure.ts"
import * as KeyFile from "./KeyFile.ts"

/** As the variables have it. */
export interface DatabaseVariables {
  readonly url: ReturnType<typeof DatabaseAddress.parse> | undefined
  readonly urlFile: string | undefined
}

/** Where runs are on record. */
export interface DatabaseSettings {
  readonly address: DatabaseAddress.DatabaseAddress
  /** What says so; nothing where it is the file beside the records. */
  readonly variable: "COGNI_DATABASE_URL" | "COGNI_DATABASE_URL_FILE" | undefined
}

/** The file beside the records. */
export const besideRecords = (stateDirectory: string): DatabaseSettings => ({
  address: { _tag: "Sqlite", path: StateDirectory.paths(stateDirectory).database },
  variable: undefined
})

export const make = Effect.fnUntraced(function* (
  found: DatabaseVariables,
  stateDirectory: string
): Effect.fn.Return<DatabaseSettings, Refusal> {
  const { url, urlFile } = found
  if (url !== undefined && urlFile !== undefined) {
    return yield* KeyFile.refuseBoth("COGNI_DATABASE_URL")
  }
  const variable =
    urlFile !== undefined ? "COGNI_DATABASE_URL_FILE" : url !== undefined ? "COGNI_DATABASE_URL" : undefined
  if (variable === undefined) return besideRecords(stateDirectory)
  const parsed =
    urlFile === undefined
      ? url
      : DatabaseAddress.parse(yield* KeyFile.readText(urlFile, "COGNI_DATABASE_URL_FILE"))
  const address = yield* Effect.mapError(
    Effect.fromResult(parsed ?? DatabaseAddress.parse("")),
    ({ remedy, what }) => refusal("configuration", `${variable}: ${what}`, remedy)
  )
  return { address, variable }
})
