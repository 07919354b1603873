/** Loads the package for Temporal, which is optional: its SDK has 263 MB. */
import type { KeeperError } from "@cogni/sandbox-temporal/HostKeeper"
import type { TemporalFailed } from "@cogni/sandbox-temporal/TemporalServer"
import { Effect } from "effect"
import type { ExitName } from "./ExitCode.ts"
import { type Refusal, refusal } from "./Failure.ts"

const missing = refusal(
  "configuration",
  "the package for Temporal is not installed",
  "Install it beside this command: npm install @cogni/sandbox-temporal @temporalio/activity @temporalio/client " +
    "@temporalio/common @temporalio/worker @temporalio/workflow",
  { reason: "TemporalMissing" }
)

/** Imports a module of it. A fault of the module itself stays a defect. */
export const load = <A>(module: () => Promise<A>): Effect.Effect<A, Refusal> =>
  Effect.tryPromise({ try: module, catch: (error) => error as { readonly code?: unknown } }).pipe(
    Effect.catch((error) =>
      error.code === "ERR_MODULE_NOT_FOUND" ? Effect.fail(missing) : Effect.die(error)
    )
  )

const exits: Partial<Record<TemporalFailed["reason"], ExitName>> = {
  AddressInvalid: "usage",
  AddressInsecure: "usage",
  CredentialsInvalid: "configuration",
  Unauthorized: "configuration",
  RunIdInUse: "input",
  RequestTooLarge: "input",
  ScheduleInUse: "input",
  ScheduleInvalid: "input",
  ScheduleNotFound: "notFound",
  SearchAttributesMissing: "configuration",
  NamespaceNotFound: "configuration",
  NotInstalled: "configuration",
  HostNameInUse: "configuration",
  RunNotFound: "notFound",
  OwnerUnknown: "notFound"
}

/** Converts a failure of Temporal, or of the server of this host. */
export const refusalOf = (error: TemporalFailed | KeeperError): Refusal => {
  if (error._tag === "TemporalFailed") {
    const { detail, reason, remedy } = error
    const exit = exits[reason] ?? "unavailable"
    return refusal(exit, detail, remedy, { reason })
  }
  return error._tag === "KeeperRefused"
    ? refusal(
        error.status === 403 ? "configuration" : "unavailable",
        `the server of this host refused (${error.status}): ${error.detail}`,
        "Check the token of --token-file, and that its grant is not revoked",
        { reason: error.reason }
      )
    : refusal(
        "unavailable",
        `the server of this host did not answer: ${error.detail}`,
        "Start it with cogni-sandbox serve, or correct --keeper",
        { reason: error._tag }
      )
}
