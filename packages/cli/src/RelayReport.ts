/** Reports the delivery of a run's commits, as lines, as JSON and as an exit code. Pure. */
import type { GitRelayError } from "@cogni/sandbox-git-relay/GitRelayError"
import type { Kept } from "@cogni/sandbox-git-relay/RelaySteps"
import { type Delivery, DeliveryRecord, recordOf } from "@cogni/sandbox-git-relay/DeliveryRecord"
import * as ShellWord from "@cogni/sandbox-host-files/ShellWord"
import { Schema } from "effect"
import type { ExitName } from "./ExitCode.ts"
import { formatMillis, plural } from "./Quantity.ts"
import { inFlags } from "./RemedyWords.ts"
import { columns, oneLine } from "./TerminalText.ts"

const encode = Schema.encodeSync(Schema.toCodecJson(DeliveryRecord))

export const toJson = (delivery: Delivery): Schema.Json => {
  const { message, ...record } = recordOf(delivery)
  const told = message === undefined ? record : { ...record, message: inFlags(message) }
  return encode(told) as Schema.Json
}

/** Adds a delivery to the report of a run. A failed delivery sets `ok` to false. */
export const withDelivery = (report: object, delivery: Delivery): object => {
  const relay = { relay: toJson(delivery) }
  if (delivery._tag !== "Failed") return { ...report, ...relay }
  const { error } = delivery
  return {
    ...report,
    ok: false,
    ...("error" in report
      ? {}
      : {
          error: {
            code: exitOf(error),
            reason: error.reason._tag,
            message: inFlags(error.message),
            isRetryable: error.isRetryable
          }
        }),
    ...relay
  }
}

/** Returns the command that retries a delivery. It repeats `--patch`, because a retry without it pushes. */
const retry = (runId: string, patch: string | undefined): string =>
  `cogni-sandbox relay retry ${runId}${patch === undefined ? "" : ` --patch ${ShellWord.quoted(patch)}`}`

/** Describes a delivery in one line; `patch` is the requested file. */
export const describe = (delivery: Delivery, patch: string | undefined): string => {
  switch (delivery._tag) {
    case "Skipped":
      return patch === undefined
        ? "nothing was committed, so nothing was pushed"
        : `nothing was committed: ${patch} is empty`
    case "Pushed": {
      const { checked, pullRequest, unchanged } = delivery
      const what = unchanged
        ? `${checked.clone.branch} already exists with the same content`
        : `pushed ${checked.clone.branch} (${plural(checked.commits, "commit")}, ${plural(checked.paths, "path")})`
      return pullRequest === undefined
        ? what
        : `${what}; pull request ${pullRequest.existing ? "was already open" : "opened"}: ${pullRequest.url}`
    }
    case "Patched":
      return `wrote ${plural(delivery.checked.commits, "commit")} to ${patch}`
    case "Kept":
      return `the run failed, so its commits are kept and not ${
        patch === undefined ? "pushed" : "written"
      }. To deliver them: ${retry(delivery.clone.request.runId, patch)}`
    case "Failed":
      return problem(delivery.error, delivery.clone.request.runId, patch)
  }
}

export const problem = (error: GitRelayError, runId: string, patch: string | undefined): string =>
  oneLine(
    `${runId}: ${inFlags(error.message).replace(/\.$/u, "")}. Then: ${retry(runId, patch)}, or relay drop`
  )

/** Returns the name of the exit code for an error of the relay. */
export const exitOf = ({ operation, reason }: GitRelayError): ExitName => {
  switch (reason._tag) {
    case "PolicyRefused":
    case "BundleRefused":
    case "PatchRefused":
      return "refused"
    case "NotKept":
      return "notFound"
    case "CredentialsDenied":
      return "refused"
    case "CredentialsUnavailable":
      return "configuration"
    case "OriginUnavailable":
      return reason.isRetryable ? "unavailable" : "input"
    case "RelayUnavailable":
    case "RelayFailed":
      return operation === "clone" ? "fault" : "undelivered"
    case "PushRefused":
    case "PullRequestFailed":
      return "undelivered"
  }
}

export const keptJson = (kept: Kept): object => ({
  runId: kept.runId,
  origin: kept.url,
  branch: kept.branch,
  stage: kept.stage,
  since: kept.since.toISOString(),
  inUse: kept.inUse,
  keptAt: kept.directory
})

export const list = (kept: ReadonlyArray<Kept>, now: Date): ReadonlyArray<string> =>
  columns([
    ["RUN", "STAGE", "SINCE", "BRANCH", "ORIGIN"],
    ...kept.map((one) => [
      one.runId,
      one.inUse ? `${one.stage} (in use)` : one.stage,
      `${formatMillis(now.getTime() - one.since.getTime())} ago`,
      one.branch,
      oneLine(one.url)
    ])
  ])
