/**
 * One commit to one branch of a repository of this host, without any git of the host in it.
 *
 * A container with the repository, as its owner, takes a bundle and adds the branch. No container runs as root; where
 * root owns the repository the container only decides, reading, and the host process puts the files there
 * (`RootDelivery`).
 */
import { relayPaths } from "@cogni/sandbox-host-files/StateDirectory"
import { Effect, Stream } from "effect"
import { join } from "node:path"
import type { Clone } from "../../GitRelay.ts"
import { OriginUnavailable, type PushFault } from "../../GitRelayError.ts"
import * as OriginContainer from "./OriginContainer.ts"
import { CommitId } from "../../Refs.ts"
import type { Held } from "../steps/WorkspaceClone.ts"
import * as BundleImport from "../steps/BundleImport.ts"
import * as HostGit from "../git/HostGit.ts"
import * as PathOrigin from "./PathOrigin.ts"
import { containerFor, faultOf } from "./PathClone.ts"
import * as KeptRuns from "../steps/KeptRuns.ts"
import * as HostRepository from "../git/HostRepository.ts"
import * as RootDelivery from "./RootDelivery.ts"
import { oneLine } from "../git/ShownText.ts"

/** What became of it. */
export type Delivered =
  | { readonly _tag: "Taken" }
  /** The branch is there already, at the commit or with the same files. */
  | { readonly _tag: "There"; readonly at: CommitId }
  | {
      readonly _tag: "Refused"
      readonly fault: PushFault
      readonly detail: string
      readonly remedy: string
      readonly isRetryable: boolean
    }

export interface Delivery {
  readonly clone: Clone
  readonly tip: CommitId
  /** Where the branch may stand and be moved from; absent: it may only be added. */
  readonly expected: CommitId | undefined
}

const answerBytesMax = 4096

/** Does it, or finds it done. Doing it again changes nothing. */
export const deliver = (held: Held, delivery: Delivery) =>
  Effect.gen(function* () {
    const { clone, expected, tip } = delivery
    const gitDirectory = relayPaths(clone.directory).repository
    const origin = yield* PathOrigin.open(clone.request.url)
    const bundleDirectory = yield* bundled(held, delivery)
    const tree = yield* HostRepository.objectAt(gitDirectory, `${tip}^{tree}`)
    const spec = OriginContainer.deliverSpec(containerFor(held, clone.request.runId, origin), {
      branch: clone.branch,
      tip,
      tree: tree ?? "",
      expected,
      bundleDirectory,
      bundleBytesMax: held.limits.bundleBytesMax,
      how: origin.writer === "host" ? "check" : "write"
    })
    const answer = yield* asked(spec, origin)
    if (answer.word !== "may") return meaning(answer, tip)
    const packed = yield* packedTo(bundleDirectory, gitDirectory, delivery)
    return yield* RootDelivery.write(origin.directory, {
      packed,
      branch: clone.branch,
      tip,
      expected: answer.rest === "" ? undefined : answer.rest
    })
  }).pipe(
    Effect.timeoutOrElse({
      duration: `${held.limits.transferSecondsMax} seconds`,
      orElse: () =>
        Effect.fail(
          new OriginUnavailable({
            fault: "timeout",
            detail: `took more than ${held.limits.transferSecondsMax} s to take the branch`,
            remedy: "Try again, or allow it more time",
            isRetryable: true
          })
        )
    }),
    Effect.scoped
  )

/** A directory with the bundle in it, for the container's user to read; gone with the scope. */
const bundled = Effect.fnUntraced(function* (held: Held, { clone, tip }: Delivery) {
  const { delivery, repository } = relayPaths(clone.directory)
  const path = join(delivery, "bundle")
  yield* Effect.acquireRelease(KeptRuns.makeOpen(delivery), () => Effect.ignore(KeptRuns.removeOwn(delivery)))
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
    runtimeSecondsMax: held.limits.transferSecondsMax
  })
  yield* KeptRuns.letRead(path)
  return delivery
})

/** The same objects as a pack that needs no other: for where they are put as a file. */
const packedTo = Effect.fnUntraced(function* (
  directory: string,
  gitDirectory: string,
  { clone, tip }: Delivery
) {
  const stdout = yield* HostGit.runOk(
    {
      gitDirectory,
      argv: ["pack-objects", "-q", "--revs", "--delta-base-offset", join(directory, "pack")],
      runtimeSecondsMax: HostRepository.localSecondsMax
    },
    `${tip}\n^${clone.baseCommit}\n`
  )
  const name = `pack-${stdout.toString("latin1").trim()}`
  return { directory, name }
})

interface Answer {
  readonly word: string
  readonly rest: string
}

/** One line, from a container that may have been made to say anything of its own repository. */
const asked = Effect.fnUntraced(function* (
  spec: Parameters<typeof BundleImport.exported>[0],
  origin: PathOrigin.PathOrigin
) {
  const { ended, stdout } = yield* BundleImport.exported(spec)
  let said = ""
  yield* Stream.runForEach(stdout, (piece) =>
    Effect.sync(() => {
      if (said.length < answerBytesMax) said += Buffer.from(piece).toString("latin1")
    })
  )
  const { exitCode, stderr } = yield* ended
  if (exitCode !== 0) return yield* faultOf(exitCode, stderr, origin)
  const [word = "", ...rest] = said.trimEnd().split(" ")
  return { word, rest: rest.join(" ") } satisfies Answer
})

const isCommit = (text: string) => /^(?:[0-9a-f]{40}|[0-9a-f]{64})$/u.test(text)

const meaning = ({ rest, word }: Answer, tip: CommitId): Delivered => {
  const refused = (fault: PushFault, detail: string, remedy: string, isRetryable = false): Delivered => ({
    _tag: "Refused",
    fault,
    detail,
    remedy,
    isRetryable
  })
  switch (word) {
    case "taken":
      if (rest === tip) return { _tag: "Taken" }
      break
    case "there":
      if (isCommit(rest)) return { _tag: "There", at: CommitId.make(rest) }
      break
    case "exists":
      return refused(
        "branch_exists",
        `it is there already, at ${oneLine(rest).slice(0, 12)}, with something else`,
        "Push under another name (relay retry --branch), or remove that branch"
      )
    case "checkedout":
      return refused(
        "rejected",
        "it is checked out in the repository, and a checked-out branch is never moved",
        "Switch to another branch there, or push under another name (relay retry --branch)"
      )
    case "conflict":
      return refused(
        "rejected",
        `the reference ${oneLine(rest)} is in the way of its name`,
        rest === "refs/heads/sandbox"
          ? // Every name that could be given lies below it.
            "Rename that branch, then try again, or take the work as a patch (relay retry --patch FILE)"
          : "Rename that branch, or push under another name (relay retry --branch)"
      )
    case "vanished":
      return refused(
        "base_vanished",
        "the commit that the work builds on is not in the repository any more",
        "The base branch was rewritten while the agent worked; run it again on the new one"
      )
    case "raced":
      return refused(
        "raced",
        rest === ""
          ? "the branch could not be added"
          : `the branch has just moved to ${oneLine(rest).slice(0, 12)}`,
        "Look whether another git is at work there, or has left a .lock file below refs/heads; then try again",
        true
      )
  }
  return refused("rejected", `its container answered ${oneLine(`${word} ${rest}`)}`, "Look at the repository")
}
