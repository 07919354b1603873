/**
 * Settings of the run database: a URL, or a file that contains one, because the URL may contain a password.
 *
 * The default is a SQLite file beside the records. A URL is parsed when it is read, and its password is redacted.
 */
import * as StateDirectory from "@cogni/sandbox-host-files/StateDirectory"
import * as DatabaseAddress from "@cogni/sandbox-sql/DatabaseAddress"
import { Effect } from "effect"
import { type Refusal, refusal } from "./Failure.ts"
import * as KeyFile from "./KeyFile.ts"

/** Values of the environment variables. */
interface DatabaseVariables {
  readonly url: ReturnType<typeof DatabaseAddress.parse> | undefined
  readonly urlFile: string | undefined
}

/** The run database. */
export interface DatabaseSettings {
  readonly address: DatabaseAddress.DatabaseAddress
  /** The variable that names it; `undefined` for the default file. */
  readonly variable: "COGNI_DATABASE_URL" | "COGNI_DATABASE_URL_FILE" | undefined
}

/** Returns the default: a SQLite file beside the records. */
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
