/**
 * `GitRelay` that uses git on this host, and containers that have no rights of the host.
 *
 *     origin ─► mirror ─► relay.git ──copied packs──► workspace/repo ─► (the agent)
 *                            ▲                                               │
 *     origin ◄── one id ── policy ◄── index-pack --strict ◄── bundle ◄── container, read-only
 *
 * No git of the host runs in a directory that an agent could write: after the run, the agent's repository is opened
 * only in a container, which outputs a stream of bytes. All communication with the origin goes through `relay.git`,
 * which was created before the agent started.
 */
import { ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import type { RunId } from "@cogni/sandbox-core/RunId"
import * as Telemetry from "@cogni/sandbox-core/Telemetry"
import { Context, Effect, Layer } from "effect"
import { PullRequests } from "./forge/PullRequests.ts"
import { GitCredentials } from "./GitCredentials.ts"
import { GitRelay } from "./GitRelay.ts"
import { GitRelayError, type GitRelayReason, type Operation } from "./GitRelayError.ts"
import * as MirrorCache from "./internal/origin/MirrorCache.ts"
import * as BundleExport from "./internal/steps/BundleExport.ts"
import * as CommitCheck from "./internal/steps/CommitCheck.ts"
import * as Delivery from "./internal/steps/Delivery.ts"
import * as KeptRuns from "./internal/steps/KeptRuns.ts"
import { limits, RelayContext, type RelayLimits, type RelaySettings } from "./internal/steps/RelayContext.ts"
import * as WorkspaceClone from "./internal/steps/WorkspaceClone.ts"

export interface HostGitRelayOptions extends RelaySettings {
  /** Directory for runs that are not delivered. Created if missing, and accessible to this user only. */
  readonly directory: string
  /** Identifies host processes: `HostOwner` of `@cogni/sandbox-docker`, or an equivalent. */
  readonly owners: KeptRuns.Owners
  /** Cache of fetched objects between runs. If omitted, nothing is cached. */
  readonly cache?: { readonly directory: string; readonly bytesMax?: number | undefined } | undefined
  readonly limits?: Partial<RelayLimits> | undefined
}

const make = Effect.fnUntraced(function* (options: HostGitRelayOptions) {
  const runs = KeptRuns.make(options)
  const cache = options.cache && (yield* MirrorCache.make({ ...options.cache, owners: options.owners }))
  const services = Context.make(ContainerRuntime, yield* ContainerRuntime).pipe(
    Context.add(GitCredentials, yield* GitCredentials),
    Context.add(PullRequests, yield* PullRequests),
    Context.add(RelayContext, { ...options, runs, cache, limits: { ...limits, ...options.limits } })
  )

  /** Provides an operation with its services, and maps its errors to the error of the port. */
  const operation =
    (name: Operation, runId?: RunId) =>
    <A, R>(effect: Effect.Effect<A, GitRelayReason, R>) =>
      effect.pipe(
        Effect.provideContext(services),
        Effect.mapError((reason) => new GitRelayError({ operation: name, reason, runId })),
        Effect.withSpan(`GitRelay.${name}`, {
          attributes: runId === undefined ? {} : { [Telemetry.attribute.runId]: runId }
        })
      )

  return GitRelay.of({
    clone: (request) =>
      Effect.andThen(runs.occupy(request.runId), WorkspaceClone.clone(request)).pipe(
        operation("clone", request.runId)
      ),
    reopen: (runId, changed = {}) =>
      Effect.andThen(runs.occupy(runId), WorkspaceClone.reopen(runId, changed)).pipe(
        operation("reopen", runId)
      ),
    collect: (clone, how) =>
      BundleExport.collect(clone, how?.uncommittedMessage).pipe(operation("collect", clone.request.runId)),
    apply: (clone, patches) =>
      BundleExport.apply(clone, patches).pipe(operation("apply", clone.request.runId)),
    check: (collected) =>
      CommitCheck.check(collected).pipe(operation("check", collected.clone.request.runId)),
    patch: (checked) => Delivery.patch(checked).pipe(operation("patch", checked.clone.request.runId)),
    push: (checked) => Delivery.push(checked).pipe(operation("push", checked.clone.request.runId)),
    findPullRequest: (pushed) =>
      Delivery.findPullRequest(pushed).pipe(operation("openPullRequest", pushed.checked.clone.request.runId)),
    openPullRequest: (pushed, text = {}) =>
      Delivery.openPullRequest(pushed, text).pipe(
        operation("openPullRequest", pushed.checked.clone.request.runId)
      ),
    discard: (runId) => runs.discard(runId).pipe(operation("discard", runId)),
    kept: runs.list.pipe(operation("kept"))
  })
})

export const layer = (
  options: HostGitRelayOptions
): Layer.Layer<GitRelay, never, ContainerRuntime | GitCredentials | PullRequests> =>
  Layer.effect(GitRelay, make(options))
