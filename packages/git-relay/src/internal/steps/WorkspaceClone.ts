/** Before the run: from an origin to a workspace. */
import { relayPaths } from "@cogni/sandbox-host-files/StateDirectory"
import type { RunId } from "@cogni/sandbox-core/RunId"
import { Effect, type Redacted } from "effect"
import { join } from "node:path"
import * as CommitPolicy from "../../CommitPolicy.ts"
import type { GitNetwork } from "../git/GitEnvironment.ts"
import type { Clone, CloneRequest, ReopenOptions } from "../../GitRelay.ts"
import { OriginUnavailable } from "../../GitRelayError.ts"
import type { PrivateServers } from "../../OriginAddress.ts"
import type { RelayLimits } from "../../HostGitRelay.ts"
import * as OriginAnswers from "../origin/OriginAnswers.ts"
import { type BranchName, branchOf, isLocal, type ObjectFormat } from "../../Refs.ts"
import * as CheckoutSize from "../git/CheckoutSize.ts"
import type { MirrorCache } from "../origin/MirrorCache.ts"
import * as RemoteOrigin from "../origin/RemoteOrigin.ts"
import * as PathClone from "../origin/PathClone.ts"
import * as KeptRuns from "./KeptRuns.ts"
import * as HostRepository from "../git/HostRepository.ts"

/** What one relay of the host has to work with. */
export interface Held {
  readonly directory: KeptRuns.KeptRuns
  readonly cache: MirrorCache | undefined
  readonly image: string
  readonly limits: RelayLimits
  readonly policies?: CommitPolicy.Policies | undefined
  readonly secrets?: ReadonlyArray<{ readonly name: string; readonly secret: Redacted.Redacted<string> }>
  readonly author: { readonly name: string; readonly email: string }
  readonly agentUser: { readonly userId: number; readonly groupId: number }
  readonly network?: GitNetwork | undefined
  readonly privateServers?: PrivateServers | undefined
  /** Runs that this process holds. */
  readonly busy: Set<RunId>
}

export const originOf = (held: Held, url: string): RemoteOrigin.OriginOptions => ({
  url,
  network: held.network,
  privateServers: held.privateServers ?? [],
  transferSecondsMax: held.limits.transferSecondsMax,
  cloneBytesMax: held.limits.cloneBytesMax
})

export const clone = Effect.fnUntraced(function* (held: Held, request: CloneRequest) {
  const { directory } = held
  const { runId, url } = request
  const branch = request.branch ?? branchOf(runId)
  const root = directory.directoryOf(runId)
  const paths = relayPaths(root)
  const claimed: KeptRuns.State = {
    version: 1,
    runId,
    url,
    branch,
    workspaceBranch: branch,
    stage: "cloning",
    owner: directory.own,
    since: new Date().toISOString(),
    canaries: request.canaries ?? [],
    createPr: request.createPr ?? false,
    ...(request.deliver === undefined ? {} : { deliver: request.deliver }),
    ...(request.commitLeftovers === undefined ? {} : { commitLeftovers: request.commitLeftovers }),
    depth: request.depth ?? 1
  }
  yield* clearHalfMade(held, runId)
  yield* directory.claim(claimed)
  /** What the origin has is known: whether a run may start there, and where its objects go. */
  const begin = Effect.fnUntraced(function* (advertised: OriginAnswers.Advertised) {
    const base = yield* Effect.fromResult(OriginAnswers.baseOf(advertised, request.baseBranch))
    yield* mayPush(held, url, branch, base.branch)
    yield* HostRepository.initBare(paths.repository, advertised.objectFormat)
    return base
  })
  const { base, objectFormat } = yield* isLocal(url)
    ? PathClone.read(
        held,
        { ...request, path: url, gitDirectory: paths.repository, depth: claimed.depth },
        begin
      )
    : overNetwork(held, request, { gitDirectory: paths.repository, depth: claimed.depth }, begin)
  const baseCommit = yield* HostRepository.commitAt(paths.repository, HostRepository.refs.base)
  yield* CheckoutSize.check(paths.repository, baseCommit, held.limits)
  const user = process.getuid?.() === 0 ? held.agentUser : undefined
  yield* HostRepository.workspace({
    from: paths.repository,
    path: paths.workspace,
    objectFormat,
    baseBranch: base.branch,
    baseCommit,
    branch,
    remoteUrl: isLocal(url) ? undefined : url,
    author: held.author,
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
  yield* directory.save(state)
  return cloneOf(state, root)
})

/** What an earlier one has left, with the facts of its time. */
export const reopen = Effect.fnUntraced(function* (held: Held, runId: RunId, changed: ReopenOptions) {
  const taken = yield* held.directory.take(runId)
  const state = {
    ...taken,
    ...(changed.branch === undefined ? {} : { branch: changed.branch }),
    ...(changed.createPr === undefined ? {} : { createPr: changed.createPr })
  }
  yield* mayPush(held, state.url, state.branch, state.baseBranch ?? "")
  yield* held.directory.save(state)
  return cloneOf(state, held.directory.directoryOf(runId))
})

const mayPush = (held: Held, url: string, branch: BranchName, baseBranch: string) => {
  const refused = CommitPolicy.branchAllowed(CommitPolicy.policyFor(held.policies, url), branch, baseBranch)
  return refused === undefined
    ? Effect.void
    : Effect.fail(
        new OriginUnavailable({
          fault: "unsupported",
          detail: `must not get the branch ${branch}: ${refused.detail}`,
          remedy: refused.remedy,
          isRetryable: false
        })
      )
}

/** A process that died while it cloned has left nothing that anybody could want. */
const clearHalfMade = Effect.fnUntraced(function* ({ directory }: Held, runId: RunId) {
  if (!(yield* directory.isOver(runId))) return
  const root = directory.directoryOf(runId)
  yield* KeptRuns.removeTree(relayPaths(root).workspace)
  yield* KeptRuns.removeOwn(root)
})

/** From an origin that is spoken to: the git of the host asks it, and fetches from it. */
const overNetwork = Effect.fnUntraced(function* <E, R>(
  held: Held,
  request: CloneRequest,
  into: { readonly gitDirectory: string; readonly depth: number },
  begin: (advertised: OriginAnswers.Advertised) => Effect.Effect<{ readonly branch: string }, E, R>
) {
  const origin = originOf(held, request.url)
  const wanted = request.baseBranch === undefined ? [] : [`refs/heads/${request.baseBranch}`]
  const advertised = yield* RemoteOrigin.advertised(origin, ["HEAD", ...wanted])
  const base = yield* begin(advertised)
  const { objectFormat } = advertised
  const source = request.baseCommit ?? `refs/heads/${base.branch}`
  yield* Effect.scoped(
    fetched(held, origin, { root: into.gitDirectory, source, depth: into.depth, objectFormat })
  )
  return { base, objectFormat }
})

const fetched = Effect.fnUntraced(function* (
  { cache }: Held,
  origin: RemoteOrigin.OriginOptions,
  what: {
    readonly root: string
    readonly source: string
    readonly depth: number
    readonly objectFormat: ObjectFormat
  }
) {
  const mirror = yield* cache?.fetched(origin, what) ?? Effect.succeed(undefined)
  if (mirror === undefined) {
    yield* RemoteOrigin.fetch(origin, { gitDirectory: what.root, ...what, into: HostRepository.refs.base })
    return
  }
  yield* HostRepository.transplant(mirror, what.root, "link")
  const tip = yield* HostRepository.commitAt(mirror, HostRepository.refs.base)
  yield* HostRepository.setRef(what.root, HostRepository.refs.base, tip)
})

const cloneOf = (state: KeptRuns.State, root: string): Clone => ({
  request: {
    runId: state.runId,
    url: state.url,
    branch: state.branch,
    depth: state.depth,
    createPr: state.createPr,
    ...(state.deliver === undefined ? {} : { deliver: state.deliver }),
    commitLeftovers: state.commitLeftovers,
    canaries: state.canaries
  },
  baseBranch: state.baseBranch!,
  branch: state.branch,
  baseCommit: state.baseCommit!,
  objectFormat: state.objectFormat!,
  workspacePath: join(root, "workspace"),
  directory: root
})
