/** Clones an origin into a workspace, before the run. */
import type { RunId } from "@cogni/sandbox-core/RunId"
import { relayPaths } from "@cogni/sandbox-host-files/StateDirectory"
import { Effect } from "effect"
import type { Clone, CloneRequest, ReopenOptions } from "../../RelaySteps.ts"
import { branchOf, isLocal } from "../../Refs.ts"
import * as CheckoutSize from "../git/CheckoutSize.ts"
import * as HostRepository from "../git/HostRepository.ts"
import * as OriginAnswers from "../origin/OriginAnswers.ts"
import * as PathClone from "../origin/PathClone.ts"
import * as RemoteClone from "../origin/RemoteClone.ts"
import * as PolicyGate from "../policy/PolicyGate.ts"
import type * as KeptRuns from "./KeptRuns.ts"
import { RelayContext } from "./RelayContext.ts"

/** User of the agent if the host process is root. Otherwise, the agent has the user of the host process. */
export const agentUser = { userId: 1000, groupId: 1000 } as const

export const clone = Effect.fnUntraced(function* (request: CloneRequest) {
  const { limits, policies, runs } = yield* RelayContext
  const { runId, url } = request
  const branch = request.branch ?? branchOf(runId)
  const directory = runs.directoryOf(runId)
  const { repository: gitDirectory, workspace: path } = relayPaths(directory)
  const { canaries = [], createPr = false, deliver, depth = 1, uncommittedMessage } = request
  const claimed = yield* runs.claim({
    runId,
    url,
    branch,
    workspaceBranch: branch,
    canaries,
    createPr,
    deliver,
    commitLeftovers: uncommittedMessage,
    depth
  })
  /** Decides from the origin's references whether a run may start, and creates the repository for its objects. */
  const begin: PathClone.Begin = Effect.fnUntraced(function* (advertised) {
    const base = yield* Effect.fromResult(OriginAnswers.baseOf(advertised, request.baseBranch))
    yield* PolicyGate.mayPush(policies, { url, branch, baseBranch: base.branch })
    yield* HostRepository.initBare(gitDirectory, advertised.objectFormat)
    return base
  })
  const read = isLocal(url) ? PathClone.read : RemoteClone.read
  const { base, objectFormat } = yield* read({ ...request, gitDirectory, depth }, begin)
  const baseCommit = yield* HostRepository.commitAt(gitDirectory, HostRepository.refs.base)
  yield* CheckoutSize.check(gitDirectory, baseCommit, limits)
  const user = process.getuid?.() === 0 ? agentUser : undefined
  yield* HostRepository.workspace({
    from: gitDirectory,
    path,
    objectFormat,
    baseBranch: base.branch,
    baseCommit,
    branch,
    remoteUrl: isLocal(url) ? undefined : url,
    user
  })
  const state: KeptRuns.State = {
    ...claimed,
    stage: "cloned",
    baseBranch: base.branch,
    baseCommit,
    objectFormat,
    user: user ?? { userId: process.getuid?.() ?? 0, groupId: process.getgid?.() ?? 0 }
  }
  yield* runs.save(state)
  return cloneOf(state, directory)
})

/** Resumes an earlier run with the facts that were recorded when it was cloned. */
export const reopen = Effect.fnUntraced(function* (runId: RunId, changed: ReopenOptions) {
  const { policies, runs } = yield* RelayContext
  const taken = yield* runs.take(runId)
  const { branch = taken.branch, createPr = taken.createPr } = changed
  const { baseBranch = "", url } = taken
  yield* PolicyGate.mayPush(policies, { url, branch, baseBranch })
  const state = { ...taken, branch, createPr }
  yield* runs.save(state)
  return cloneOf(state, runs.directoryOf(runId))
})

const cloneOf = (state: KeptRuns.State, directory: string): Clone => {
  const { branch, canaries, commitLeftovers, createPr, deliver, depth, runId, url } = state
  return {
    request: { runId, url, branch, depth, createPr, deliver, uncommittedMessage: commitLeftovers, canaries },
    baseBranch: state.baseBranch!,
    branch,
    baseCommit: state.baseCommit!,
    objectFormat: state.objectFormat!,
    workspacePath: relayPaths(directory).workspace,
    directory
  }
}
