/** What the policy has let through, on its way to where it is wanted: a branch, a pull request, a patch. */
import { relayPaths } from "@cogni/sandbox-host-files/StateDirectory"
import { Effect } from "effect"
import type { Checked, Pushed, PullRequestText as Text } from "../../GitRelay.ts"
import { type OriginFault, PullRequestFailed, type PushFault, PushRefused } from "../../GitRelayError.ts"
import * as OriginAnswers from "../origin/OriginAnswers.ts"
import * as PullRequestText from "../forge/PullRequestText.ts"
import { PullRequests } from "../../forge/PullRequests.ts"
import { isLocal } from "../../Refs.ts"
import { type Held, originOf } from "./WorkspaceClone.ts"
import * as GitObject from "../git/GitObject.ts"
import * as GitObjects from "../git/GitObjects.ts"
import * as HostGit from "../git/HostGit.ts"
import { openOrFind } from "../forge/OpenOrFind.ts"
import * as RemoteOrigin from "../origin/RemoteOrigin.ts"
import * as PathDelivery from "../origin/PathDelivery.ts"
import * as HostRepository from "../git/HostRepository.ts"
import { stateOf } from "./BundleExport.ts"

/** Of how many commits the text of a pull request is made. */
const describedMax = 50

export const patch = (held: Held, { clone, tip }: Checked) =>
  HostGit.runOk({
    gitDirectory: relayPaths(clone.directory).repository,
    argv: [
      "format-patch",
      "--stdout",
      "--binary",
      "--full-index",
      "--no-signature",
      "--no-ext-diff",
      "--no-textconv",
      "--keep-subject",
      `${clone.baseCommit}..${tip}`
    ],
    stdoutBytesMax: held.limits.patchBytesMax,
    runtimeSecondsMax: held.limits.checkSecondsMax
  })

export const push = Effect.fnUntraced(function* (held: Held, checked: Checked) {
  const { clone, tip } = checked
  const { branch, request } = clone
  const gitDirectory = relayPaths(clone.directory).repository
  const state = yield* stateOf(held, clone)
  const ref = `refs/heads/${branch}`
  const origin = originOf(held, request.url)
  const standing = Effect.map(RemoteOrigin.advertised(origin, [ref], "push"), ({ refs }) => refs.get(ref))
  const done = Effect.fnUntraced(function* (at: typeof tip, unchanged: boolean) {
    yield* held.directory.save({
      ...state,
      stage: state.createPr ? "pushed" : "settled",
      pushedTip: at
    })
    return { checked, branch, tip: at, unchanged } satisfies Pushed
  })
  const refuse = (reason: Pick<PushRefused, "fault" | "detail" | "remedy" | "isRetryable">) => {
    const { detail, fault, isRetryable, remedy } = reason
    return new PushRefused({ fault, detail, remedy, isRetryable, branch, keptAt: clone.directory })
  }

  if (isLocal(request.url)) {
    const { pushedTip } = state
    const ours = pushedTip !== undefined && (yield* descends(gitDirectory, pushedTip, tip))
    const delivered = yield* PathDelivery.deliver(held, {
      clone,
      tip,
      expected: ours ? pushedTip : undefined
    }).pipe(
      Effect.catchTag("OriginUnavailable", ({ detail, fault, isRetryable, remedy }) =>
        Effect.fail(
          refuse({ fault: pathFaultOf(fault), detail: `the origin ${detail}`, remedy, isRetryable })
        )
      )
    )
    if (delivered._tag === "Refused") return yield* refuse(delivered)
    return yield* delivered._tag === "Taken" ? done(tip, false) : done(delivered.at, true)
  }
  const there = yield* standing.pipe(
    Effect.catchTag("OriginUnavailable", ({ detail, fault }) => {
      const meant = OriginAnswers.pushFaultOf(detail)
      return Effect.fail(
        refuse({
          ...meant,
          fault: fault === "timeout" ? "timeout" : meant.fault,
          detail: `the origin ${detail}`
        })
      )
    })
  )
  if (there === tip) return yield* done(tip, true)
  if (there !== undefined && (yield* sameContent(origin, { gitDirectory, branch, tip })))
    return yield* done(there, true)
  const ours = there !== undefined && there === state.pushedTip
  if (there !== undefined && !(ours && (yield* descends(gitDirectory, there, tip)))) {
    return yield* refuse({
      fault: "branch_exists",
      detail: `it is there already, at ${there.slice(0, 12)}, with something else`,
      remedy: "Push under another name (relay retry --branch), or remove that branch",
      isRetryable: false
    })
  }
  const answer = yield* RemoteOrigin.push(origin, { gitDirectory, branch, tip, expected: there ?? "" }).pipe(
    Effect.catchTag("RelayFailed", ({ detail }) => Effect.succeed({ taken: false, said: detail }))
  )
  if (answer.taken) return yield* done(tip, false)
  // What broke off may have got there: the origin knows.
  const after = yield* Effect.option(standing)
  if (after._tag === "Some" && after.value === tip) return yield* done(tip, false)
  const meant = OriginAnswers.pushFaultOf(answer.said)
  return yield* refuse({ ...meant, detail: answer.said === "" ? "git said nothing" : answer.said })
})

export const openPullRequest = Effect.fnUntraced(function* (held: Held, pushed: Pushed, text: Text) {
  const { clone } = pushed.checked
  const { url } = clone.request
  if (isLocal(url)) {
    return yield* new PullRequestFailed({
      detail: "the origin is a directory of this host",
      remedy: "Ask for one where the origin is a forge, or merge the branch by hand",
      isRetryable: false
    })
  }
  const made = PullRequestText.make({
    runId: clone.request.runId,
    baseBranch: clone.baseBranch,
    messages: yield* messages(pushed)
  })
  const pullRequest = yield* openOrFind(
    yield* PullRequests,
    { url, baseBranch: clone.baseBranch, branch: pushed.branch },
    { title: text.title ?? made.title, body: text.body ?? made.body, draft: text.draft ?? true }
  )
  const state = yield* held.directory.read(clone.request.runId)
  if (state !== undefined) yield* held.directory.save({ ...state, stage: "settled" })
  return pullRequest
})

/** Why a repository of this host took nothing, where it could not even be opened. */
const pathFaultOf = (fault: OriginFault): PushFault =>
  fault === "timeout" || fault === "forbidden" || fault === "not_found" ? fault : "rejected"

/** What the commits say of themselves, the oldest first. */
const messages = Effect.fnUntraced(function* ({ checked: { clone, tip } }: Pushed) {
  const reader = yield* GitObjects.make(relayPaths(clone.directory).repository)
  const commits = yield* reader.commits(tip, clone.baseCommit, describedMax)
  return yield* Effect.forEach(commits.toReversed(), ({ id }) =>
    Effect.map(reader.content(id), (content) => {
      const parsed = content === undefined ? undefined : GitObject.parseCommit(content, clone.objectFormat)
      return parsed === undefined ? "" : Buffer.from(parsed.message, "latin1").toString("utf8")
    })
  )
})

const descends = (gitDirectory: string, ancestor: string, descendant: string) =>
  Effect.map(
    HostGit.run({
      gitDirectory,
      argv: ["merge-base", "--is-ancestor", ancestor, descendant],
      runtimeSecondsMax: HostRepository.localSecondsMax
    }),
    ({ exitCode }) => exitCode === 0
  )

/** The branch is at another commit with the very same files: what was asked twice is done once. */
const sameContent = Effect.fnUntraced(function* (
  origin: RemoteOrigin.OriginOptions,
  what: { readonly gitDirectory: string; readonly branch: string; readonly tip: string }
) {
  const { there } = HostRepository.refs
  const got = yield* Effect.result(
    RemoteOrigin.fetch(origin, {
      gitDirectory: what.gitDirectory,
      source: `refs/heads/${what.branch}`,
      depth: 1,
      into: there
    })
  )
  if (got._tag === "Failure") return false
  const theirs = yield* HostRepository.objectAt(what.gitDirectory, `${there}^{tree}`)
  return (
    theirs !== undefined &&
    theirs === (yield* HostRepository.objectAt(what.gitDirectory, `${what.tip}^{tree}`))
  )
})
