/** Words about deliveries and their errors for remote callers, who must not learn about the network of this host. */
import { patchAnnotation } from "@cogni/sandbox-core/RunFacts"
import type { GitRelayError, OriginFault } from "@cogni/sandbox-git-relay/GitRelayError"
import * as PatchFiles from "@cogni/sandbox-git-relay/PatchFiles"
import type * as DeliveryRecord from "@cogni/sandbox-git-relay/DeliveryRecord"
import { RepositoryUnavailable } from "@cogni/sandbox-graph-provider/RepositoryUse"
import { Effect, type Schema } from "effect"
import { changedFilesMax } from "./RunView.ts"

/** Length of the stored part of a patch. */
const patchCharsMax = 256 * 1024

/** Returns what pushed commits change, as annotations of the run's record. */
export const changesOf = (delivery: DeliveryRecord.Delivery): Readonly<Record<string, Schema.Json>> => {
  const bytes = delivery._tag === "Pushed" ? delivery.patch : undefined
  if (bytes === undefined) return {}
  const text = new TextDecoder("utf-8").decode(bytes)
  const patch = text.slice(0, patchCharsMax)
  const { commits, files, filesTotal } = PatchFiles.summarize(text, changedFilesMax)
  return {
    changes: {
      commits,
      files: files.map((file) => ({ ...file })),
      filesTotal,
      patchBytes: bytes.byteLength,
      patchTruncated: patch.length < text.length
    },
    [patchAnnotation]: patch
  }
}

/** Reason of every failure to reach a server. */
export const notReached: GitRelayError["reason"]["_tag"] = "OriginUnavailable"

/** The message for closed, filtered, refused, unresolvable, untrusted and disallowed servers, equal for all of them. */
export const unreachable =
  "the repository cannot be reached from this server. Check its URL; this server only reaches the forges that its operator allows, over https"

/** Faults that a reachable forge reports about a repository. Any other would reveal what exists at an address. */
const tellable: ReadonlySet<OriginFault> = new Set([
  "unauthorized",
  "forbidden",
  "not_found",
  "empty",
  "base_missing",
  "base_unnamed"
])

/** Returns the message of an error for a remote caller. It does not reveal whether a port is open or closed. */
const messageOf = ({ message, reason }: GitRelayError): string => {
  switch (reason._tag) {
    case "OriginUnavailable":
      return tellable.has(reason.fault) ? message : unreachable
    case "PushRefused":
      return reason.fault === "unreachable" || reason.fault === "timeout" ? unreachable : message
    case "PullRequestFailed":
      return "the branch was pushed, but the pull request could not be opened. Open it by hand, or ask the operator for the reason in the log"
    default:
      return message
  }
}

/** Returns the problem of a delivery for a remote caller. */
export const problemOf = (error: GitRelayError) => ({ reason: error.reason._tag, message: messageOf(error) })

/** Logs the full message for the operator, if the caller gets a different one. */
export const logged = (error: GitRelayError) =>
  messageOf(error) === error.message ? Effect.void : Effect.logWarning("repository error", error.message)

/** Fails with what a remote caller may know about an error. */
export const refusedBy = (error: GitRelayError): Effect.Effect<never, RepositoryUnavailable> =>
  Effect.andThen(
    logged(error),
    Effect.fail(new RepositoryUnavailable({ reason: error.reason._tag, detail: messageOf(error) }))
  )
