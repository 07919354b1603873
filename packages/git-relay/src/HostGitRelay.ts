/**
 * `GitRelay` over the git of this host and a container that has none of the host's rights.
 *
 *     origin ─► mirror ─► relay.git ──copied packs──► workspace/repo ─► (the agent)
 *                            ▲                                               │
 *     origin ◄── one id ── policy ◄── index-pack --strict ◄── bundle ◄── container, read-only
 *
 * No git of the host ever runs in a directory that an agent could write: after the run, its repository is opened in a
 * container only, and what comes out of that is a stream of bytes. All that is said to the origin is said from
 * `relay.git`, which was made before the agent lived.
 */
import { relayPaths } from "@cogni/sandbox-host-files/StateDirectory"
import { ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import type { RunId } from "@cogni/sandbox-core/RunId"
import * as Telemetry from "@cogni/sandbox-core/Telemetry"
import { Duration, Effect, Layer, type Redacted, type Scope } from "effect"
import type * as CommitPolicy from "./CommitPolicy.ts"
import { GitCredentials } from "./GitCredentials.ts"
import type { GitNetwork } from "./internal/git/GitEnvironment.ts"
import { type Clone, GitRelay, type Kept } from "./GitRelay.ts"
import { GitRelayError, type GitRelayReason, NotKept, type Operation, PatchRefused } from "./GitRelayError.ts"
import * as CommitCheck from "./internal/steps/CommitCheck.ts"
import * as WorkspaceClone from "./internal/steps/WorkspaceClone.ts"
import * as Delivery from "./internal/steps/Delivery.ts"
import * as HostGit from "./internal/git/HostGit.ts"
import * as MirrorCache from "./internal/origin/MirrorCache.ts"
import * as KeptRuns from "./internal/steps/KeptRuns.ts"
import * as BundleExport from "./internal/steps/BundleExport.ts"
import type { PrivateServers } from "./OriginAddress.ts"
import { PullRequests } from "./forge/PullRequests.ts"

export interface HostGitRelayOptions {
  /** What is kept of runs that are not pushed. Made, and read by nobody else. */
  readonly directory: string
  /** An image of ours, with git and `cogni-repo` in it: the runtime image. */
  readonly image: string
  /** `HostOwner` of `@cogni/sandbox-docker`, or what answers the same. */
  readonly owners: KeptRuns.Owners
  /** What may be pushed, as `CommitPolicy.decode` has it. Left out: `CommitPolicy.defaults`. */
  readonly policies?: CommitPolicy.Policies | undefined
  /** Secrets of the host that must not be in any commit: the key of the model, tokens. */
  readonly secrets?: ReadonlyArray<{
    readonly name: string
    readonly secret: Redacted.Redacted<string>
  }>
  /** Where fetched objects are kept between runs; nothing is, when it is left out. */
  readonly cache?: { readonly directory: string; readonly bytesMax?: number | undefined } | undefined
  /** In whose name an agent commits unless it says otherwise. */
  readonly author?: { readonly name: string; readonly email: string } | undefined
  readonly limits?: Partial<RelayLimits> | undefined
  readonly network?: GitNetwork | undefined
  /** Servers whose addresses may be private, or this host's own. Left out: none. */
  readonly privateServers?: PrivateServers | undefined
}

export interface RelayLimits {
  readonly bundleBytesMax: number
  readonly objectsMax: number
  /** To take the commits out of the workspace. */
  readonly collectSecondsMax: number
  /** To list what is checked out, and to hold what comes back to the policy. */
  readonly checkSecondsMax: number
  /** What an origin may send; counted as it comes, packed. */
  readonly cloneBytesMax: number
  /** Objects that a repository of this host may send. */
  readonly cloneObjectsMax: number
  /** Files and directories that the base may have when it is checked out. */
  readonly checkoutPathsMax: number
  /** What its files may weigh together, not compressed. */
  readonly checkoutBytesMax: number
  /** For one conversation with the origin. */
  readonly transferSecondsMax: number
  readonly patchBytesMax: number
}

const MiB = 1024 * 1024

export const limits: RelayLimits = {
  // Not compressed: as much as the policy lets a run add, and its listings.
  bundleBytesMax: 256 * MiB,
  objectsMax: 60_000,
  collectSecondsMax: 120,
  checkSecondsMax: 120,
  cloneBytesMax: 4096 * MiB,
  cloneObjectsMax: 20_000_000,
  // With more, no workspace can be watched.
  checkoutPathsMax: 1_000_000,
  checkoutBytesMax: 16 * 1024 * MiB,
  transferSecondsMax: 900,
  patchBytesMax: 64 * MiB
}

export const cacheBytesMax = 4096 * MiB

/** Who an agent is when the host process is root; otherwise it is who the host process is. */
export const agentUser = { userId: 1000, groupId: 1000 } as const

export const author = { name: "Cogni Sandbox", email: "agent@sandbox.invalid" } as const

/** The oldest git of the host that has all that a relay asks of it (`http.curloptResolve`). */
export const gitVersionMin = "2.37"

/** Which git there is, such as `2.39.5`; `undefined` where none can be started. */
export const gitVersion: Effect.Effect<string | undefined> = HostGit.run({
  argv: ["--version"],
  runtimeSecondsMax: 10
}).pipe(
  Effect.map(({ stdout }) => /\d+(?:\.\d+)+/u.exec(stdout.toString("latin1"))?.[0]),
  Effect.catch(() => Effect.succeed(undefined))
)

export const make = Effect.fnUntraced(function* (options: HostGitRelayOptions) {
  const runtime = yield* ContainerRuntime
  const credentials = yield* GitCredentials
  const pullRequests = yield* PullRequests
  const directory = KeptRuns.make(options)
  const cache =
    options.cache === undefined
      ? undefined
      : yield* MirrorCache.make({
          directory: options.cache.directory,
          bytesMax: options.cache.bytesMax ?? cacheBytesMax,
          own: directory.own,
          owners: options.owners
        })
  const held: WorkspaceClone.Held = {
    ...options,
    directory,
    cache,
    limits: { ...limits, ...options.limits },
    author: options.author ?? author,
    agentUser,
    busy: new Set()
  }

  /** What an operation needs, and its errors as the port has them. */
  const operation =
    (name: Operation, runId?: RunId) =>
    <A, R>(effect: Effect.Effect<A, GitRelayReason, R>) =>
      effect.pipe(
        Effect.provideService(ContainerRuntime, runtime),
        Effect.provideService(GitCredentials, credentials),
        Effect.provideService(PullRequests, pullRequests),
        Effect.mapError(
          (reason) =>
            new GitRelayError({ operation: name, reason, ...(runId === undefined ? {} : { runId }) })
        ),
        Effect.withSpan(`GitRelay.${name}`, {
          attributes: runId === undefined ? {} : { [Telemetry.attribute.runId]: runId }
        })
      )

  /** Held until the scope closes; then gone, unless something of it is not pushed yet. */
  const holding = <E, R>(
    runId: RunId,
    acquire: Effect.Effect<Clone, E, R>
  ): Effect.Effect<Clone, E | NotKept, R | Scope.Scope> =>
    Effect.andThen(
      Effect.acquireRelease(occupy(held, runId), () =>
        Effect.andThen(Effect.ignore(letGo(runId)), forget(held, runId))
      ),
      acquire
    )

  const letGo = Effect.fnUntraced(function* (runId: RunId) {
    const state = yield* directory.read(runId)
    if (state === undefined || state.owner !== directory.own) return
    if (state.stage === "settled" || state.stage === "cloning") return yield* remove(directory, runId)
    yield* directory.save({ ...state, owner: "" })
  })

  const kept = Effect.gen(function* () {
    const found: Array<Kept> = []
    for (const runId of yield* directory.ids) {
      if (yield* directory.isOver(runId)) {
        yield* held.busy.has(runId) ? Effect.void : Effect.ignore(remove(directory, runId))
        continue
      }
      const state = yield* directory.read(runId)
      if (state !== undefined) {
        found.push({
          runId,
          url: state.url,
          branch: state.branch,
          stage: state.stage,
          directory: directory.directoryOf(runId),
          since: new Date(state.since),
          inUse: held.busy.has(runId) || directory.inUse(state)
        })
      }
    }
    return found.toSorted((a, b) => a.since.getTime() - b.since.getTime())
  })

  return GitRelay.of({
    clone: (request) =>
      holding(request.runId, WorkspaceClone.clone(held, request)).pipe(operation("clone", request.runId)),
    reopen: (runId, changed) =>
      holding(runId, WorkspaceClone.reopen(held, runId, changed ?? {})).pipe(operation("reopen", runId)),
    collect: (clone, how) =>
      Effect.scoped(BundleExport.collect(held, clone, how?.commitLeftovers)).pipe(
        operation("collect", clone.request.runId)
      ),
    apply: (clone, patches) =>
      Effect.scoped(BundleExport.apply(held, clone, patches)).pipe(
        Effect.timeoutOrElse({
          duration: Duration.seconds(held.limits.collectSecondsMax),
          orElse: () =>
            Effect.fail(
              new PatchRefused({
                detail: `it took more than ${held.limits.collectSecondsMax} s`,
                remedy: "Split them"
              })
            )
        }),
        operation("apply", clone.request.runId)
      ),
    check: (collected) =>
      Effect.scoped(CommitCheck.check(held, collected)).pipe(
        operation("check", collected.clone.request.runId)
      ),
    patch: (checked) => Delivery.patch(held, checked).pipe(operation("patch", checked.clone.request.runId)),
    push: (checked) => Delivery.push(held, checked).pipe(operation("push", checked.clone.request.runId)),
    openPullRequest: (pushed, text) =>
      Effect.scoped(Delivery.openPullRequest(held, pushed, text ?? {})).pipe(
        operation("openPullRequest", pushed.checked.clone.request.runId)
      ),
    discard: (runId) =>
      Effect.gen(function* () {
        const state = yield* directory.read(runId)
        if (state === undefined) return
        if (held.busy.has(runId)) return yield* directory.save({ ...state, stage: "settled" })
        if (!(yield* directory.isOver(runId))) {
          const taken = yield* directory.take(runId)
          // Said before it is done: half of it must not be taken up by anybody.
          yield* directory.save({ ...taken, stage: "settled" })
        }
        yield* remove(directory, runId)
      }).pipe(operation("discard", runId)),
    kept: kept.pipe(operation("kept"))
  })
})

export const layer = (
  options: HostGitRelayOptions
): Layer.Layer<GitRelay, never, ContainerRuntime | GitCredentials | PullRequests> =>
  Layer.effect(GitRelay, make(options))

/** A run that this process holds already has its own way to end: nobody else may end it. */
const occupy = (held: WorkspaceClone.Held, runId: RunId) =>
  Effect.suspend(() => {
    if (held.busy.has(runId))
      return Effect.fail(
        new NotKept({
          runId,
          detail: "somebody is at work",
          remedy: "Wait until this process is done with it"
        })
      )
    held.busy.add(runId)
    return Effect.void
  })

const forget = (held: WorkspaceClone.Held, runId: RunId) => Effect.sync(() => held.busy.delete(runId))

/** The state goes last: without it nothing would know what the rest is. */
const remove = Effect.fnUntraced(function* (directory: KeptRuns.KeptRuns, runId: RunId) {
  const root = directory.directoryOf(runId)
  yield* KeptRuns.removeTree(relayPaths(root).workspace)
  yield* KeptRuns.removeOwn(root)
})
