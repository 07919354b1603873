/**
 * Delivers one commit to one branch of a repository of this host, without any git of the host in it.
 *
 * A container with the repository runs as its owner, reads a bundle and adds the branch. No container runs as root. If
 * root owns the repository, the container only reads it and decides, and the host process writes the files
 * (`RootDelivery`).
 */
import { named } from "@cogni/sandbox-core/Remedy"
import { relayPaths } from "@cogni/sandbox-host-files/StateDirectory"
import { Effect } from "effect"
import { join } from "node:path"
import type { Clone } from "../../RelaySteps.ts"
import type { PushFault } from "../../GitRelayError.ts"
import { CommitId } from "../../Refs.ts"
import * as ContainerGit from "../git/ContainerGit.ts"
import * as HostGit from "../git/HostGit.ts"
import * as HostRepository from "../git/HostRepository.ts"
import { letRead, makeOpen, removeOwn } from "../git/RelayFiles.ts"
import { oneLine } from "../git/ShownText.ts"
import { RelayContext } from "../steps/RelayContext.ts"
import * as OriginContainer from "./OriginContainer.ts"
import { containerFor, faultOf, within } from "./PathClone.ts"
import * as PathOrigin from "./PathOrigin.ts"
import { type Delivered, exists, ofOrigin, PushRefusal } from "./PushRefusal.ts"
import * as RootDelivery from "./RootDelivery.ts"

export interface PathDelivery {
  readonly clone: Clone
  readonly tip: CommitId
  /** Commit that the branch pointed to after the last push. The branch may be moved from there. */
  readonly pushedTip: CommitId | undefined
}

const answerBytesMax = 4096

/** Delivers the branch, or finds that it is already delivered. Idempotent. */
export const deliver = Effect.fnUntraced(
  function* (delivery: PathDelivery) {
    const { limits } = yield* RelayContext
    const { clone, pushedTip, tip } = delivery
    const { branch, request } = clone
    const gitDirectory = relayPaths(clone.directory).repository
    const isOurs = pushedTip !== undefined && (yield* HostRepository.isAncestor(gitDirectory, pushedTip, tip))
    const origin = yield* PathOrigin.open(request.url)
    const bundleDirectory = yield* bundled(delivery)
    const spec = OriginContainer.deliverSpec(yield* containerFor(request.runId, origin), {
      branch,
      tip,
      tree: (yield* HostRepository.objectAt(gitDirectory, `${tip}^{tree}`)) ?? "",
      expected: isOurs ? pushedTip : undefined,
      bundleDirectory,
      bundleBytesMax: limits.bundleBytesMax,
      how: origin.writer === "host" ? "check" : "write"
    })
    // The repository can make its own container write anything.
    const end = yield* ContainerGit.run(spec, answerBytesMax)
    if (end.exitCode !== 0) return yield* faultOf(end, origin)
    const [word = "", ...words] = end.said.trimEnd().split(" ")
    const rest = words.join(" ")
    if (word === "taken" && rest === tip) return { at: tip, unchanged: false } satisfies Delivered
    if (word === "there" && /^(?:[0-9a-f]{40}|[0-9a-f]{64})$/u.test(rest))
      return { at: CommitId.make(rest), unchanged: true } satisfies Delivered
    if (word !== "may") return yield* refusalOf(oneLine(word), oneLine(rest))
    yield* RootDelivery.write(origin.directory, {
      packed: yield* packedTo(bundleDirectory, gitDirectory, delivery),
      branch,
      tip,
      expected: rest === "" ? undefined : rest
    })
    return { at: tip, unchanged: false } satisfies Delivered
  },
  (delivering) =>
    delivering.pipe(
      within("add the branch", "Try again, or allow it more time"),
      Effect.catchTag("OriginUnavailable", (error) => Effect.fail(ofOrigin(error))),
      Effect.scoped
    )
)

/** Creates a directory with the bundle, which the container's user can read. It is removed when the scope closes. */
const bundled = Effect.fnUntraced(function* ({ clone, tip }: PathDelivery) {
  const { limits } = yield* RelayContext
  const { delivery, repository } = relayPaths(clone.directory)
  const path = join(delivery, "bundle")
  yield* Effect.acquireRelease(makeOpen(delivery), () => Effect.ignore(removeOwn(delivery)))
  yield* HostRepository.setRef(repository, HostRepository.refs.tip, tip)
  yield* HostGit.runOk({
    gitDirectory: repository,
    argv: [
      "bundle",
      "create",
      "--quiet",
      `--version=${clone.objectFormat === "sha1" ? 2 : 3}`,
      path,
      HostRepository.refs.tip,
      `^${clone.baseCommit}`
    ],
    runtimeSecondsMax: limits.transferSecondsMax
  })
  yield* letRead(path)
  return delivery
})

/** Packs the same objects so that the pack needs no other objects, for repositories to which it is added as a file. */
const packedTo = (directory: string, gitDirectory: string, { clone, tip }: PathDelivery) =>
  Effect.map(
    HostGit.lines(
      {
        gitDirectory,
        argv: ["pack-objects", "-q", "--revs", "--delta-base-offset", join(directory, "pack")]
      },
      `${tip}\n^${clone.baseCommit}\n`
    ),
    ([id]) => ({ directory, name: `pack-${id}` })
  )

const refusalOf = (word: string, rest: string): PushRefusal => {
  const refused = (fault: PushFault, detail: string, remedy: string) =>
    new PushRefusal({ fault, detail, remedy, isRetryable: fault === "raced" })
  switch (word) {
    case "exists":
      return exists(rest)
    case "checkedout":
      return refused(
        "rejected",
        "it is checked out in the repository, and a checked-out branch is never moved",
        `Switch to another branch there, or push under another name (${named("ReopenOptions.branch")})`
      )
    case "conflict":
      return refused(
        "rejected",
        `the reference ${rest} conflicts with its name`,
        rest === "refs/heads/sandbox"
          ? // Every name that a run may have is below it.
            `Rename that branch, then try again, or export the work as a patch (${named("RelayRun.deliver")})`
          : `Rename that branch, or push under another name (${named("ReopenOptions.branch")})`
      )
    case "vanished":
      return refused(
        "base_vanished",
        "the commit that the work builds on is no longer in the repository",
        "The base branch was rewritten while the agent worked; run it again on the new one"
      )
    case "raced":
      return refused(
        "raced",
        rest === "" ? "the branch could not be added" : `the branch has just moved to ${rest.slice(0, 12)}`,
        "Check whether another git is running there, or has left a .lock file below refs/heads; then try again"
      )
    default:
      return refused("rejected", `its container answered ${word} ${rest}`, "Check the repository")
  }
}
