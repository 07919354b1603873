/** Delivers commits that passed the policy: to a branch, a pull request or a patch. */
import { relayPaths } from "@cogni/sandbox-host-files/StateDirectory"
import { Duration, Effect } from "effect"
import type { Checked, Pushed, PullRequestText as Text } from "../../RelaySteps.ts"
import { PullRequestFailed, PushRefused } from "../../GitRelayError.ts"
import * as PullRequestText from "../forge/PullRequestText.ts"
import { PullRequests } from "../../forge/PullRequests.ts"
import { late, openOrFind, openSecondsMax } from "../forge/OpenOrFind.ts"
import { isLocal } from "../../Refs.ts"
import * as GitObject from "../git/GitObject.ts"
import * as GitObjects from "../git/GitObjects.ts"
import * as HostGit from "../git/HostGit.ts"
import * as PathDelivery from "../origin/PathDelivery.ts"
import * as RemoteDelivery from "../origin/RemoteDelivery.ts"
import { RelayContext } from "./RelayContext.ts"

/** Maximum number of commits that the text of a pull request describes. */
const describedMax = 50

export const patch = ({ clone, tip }: Checked) =>
  Effect.flatMap(RelayContext, ({ limits }) =>
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
      stdoutBytesMax: limits.patchBytesMax,
      runtimeSecondsMax: limits.checkSecondsMax
    })
  )

const deliver = Effect.fnUntraced(function* (what: PathDelivery.PathDelivery) {
  return yield* isLocal(what.clone.request.url) ? PathDelivery.deliver(what) : RemoteDelivery.deliver(what)
})

export const push = Effect.fnUntraced(function* (checked: Checked) {
  const { runs } = yield* RelayContext
  const { clone, tip } = checked
  const { branch, directory: keptAt, request } = clone
  const state = yield* runs.read(request.runId)
  const { at, unchanged } = yield* deliver({ clone, tip, pushedTip: state.pushedTip }).pipe(
    Effect.catchTag("PushRefusal", ({ detail, fault, isRetryable, remedy }) =>
      Effect.fail(new PushRefused({ fault, detail, remedy, isRetryable, branch, keptAt }))
    )
  )
  yield* runs.save({ ...state, stage: state.createPr ? "pushed" : "settled", pushedTip: at })
  return { checked, branch, tip: at, unchanged } satisfies Pushed
})

export const openPullRequest = Effect.fnUntraced(function* (pushed: Pushed, text: Text) {
  const { clone } = pushed.checked
  const { url } = clone.request
  if (isLocal(url)) {
    return yield* new PullRequestFailed({
      detail: "the origin is a directory of this host",
      remedy: "Use an origin on a forge, or merge the branch by hand"
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
  yield* (yield* RelayContext).runs.settle(clone.request.runId)
  return pullRequest
}, Effect.scoped)

export const findPullRequest = Effect.fnUntraced(function* ({ branch, checked: { clone } }: Pushed) {
  const { baseBranch, request } = clone
  if (isLocal(request.url)) return undefined
  const found = yield* (yield* PullRequests)
    .find({ url: request.url, baseBranch, branch })
    .pipe(
      Effect.timeoutOrElse({ duration: Duration.seconds(openSecondsMax), orElse: () => Effect.fail(late()) })
    )
  return found === undefined ? undefined : { ...found, existing: true }
}, Effect.scoped)

/** Returns the messages of the commits, oldest first. */
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
