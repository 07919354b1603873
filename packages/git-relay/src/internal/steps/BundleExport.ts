/**
 * Exports the agent's commits from the workspace into the relay's own repository, after the run.
 *
 * The run's branch is exported. If it has no commits, because the agent renamed it or worked elsewhere, the checked-out
 * commit is exported instead.
 */
import type { ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import * as OwnFiles from "@cogni/sandbox-host-files/OwnFiles"
import { relayPaths } from "@cogni/sandbox-host-files/StateDirectory"
import { Effect, Result } from "effect"
import { realpath } from "node:fs/promises"
import { join } from "node:path"
import type { Clone, Collected } from "../../RelaySteps.ts"
import { BundleRefused, PatchRefused, type RelayFailed } from "../../GitRelayError.ts"
import type { CommitId } from "../../Refs.ts"
import * as ContainerGit from "../git/ContainerGit.ts"
import * as HostGit from "../git/HostGit.ts"
import * as HostRepository from "../git/HostRepository.ts"
import { attempt, attemptWhole, makeOpen } from "../git/RelayFiles.ts"
import * as BundleImport from "./BundleImport.ts"
import { RelayContext } from "./RelayContext.ts"
import * as WorkspaceContainer from "./WorkspaceContainer.ts"

export const collect = Effect.fnUntraced(function* (clone: Clone, message: string | undefined) {
  const { limits, runs } = yield* RelayContext
  const { baseCommit, directory, objectFormat } = clone
  const paths = relayPaths(directory)
  const state = yield* runs.read(clone.request.runId)
  const request = yield* workspaceOf(clone)
  const problem = message === undefined ? undefined : yield* commitChanges(request, message)
  const prerequisites = yield* known(paths.repository, baseCommit)
  const take = (ref: string) =>
    Effect.scoped(
      Effect.flatMap(
        ContainerGit.start(WorkspaceContainer.bundleSpec(request, { ref, baseCommit, objectFormat })),
        (git) =>
          BundleImport.keep(git, paths.bundle, {
            gitDirectory: paths.repository,
            expected: { objectFormat, ref, prerequisites, objectsMax: limits.objectsMax },
            bytesMax: limits.bundleBytesMax,
            runtimeSecondsMax: limits.collectSecondsMax
          })
      )
    )
  const refused = (detail: string) => new BundleRefused({ detail, keptAt: directory })
  const found = yield* branchOrHead(take, state.workspaceBranch).pipe(
    Effect.catchTag("UnfitBundle", ({ detail }) => Effect.fail(refused(detail)))
  )
  if (found === undefined || found.tip === baseCommit) {
    if (problem !== undefined)
      return yield* refused(
        `nothing is committed, and the uncommitted changes could not be committed: ${problem}`
      )
    return { clone, tip: undefined, bundle: undefined } satisfies Collected
  }
  if ((yield* HostRepository.objectAt(paths.repository, `${found.tip}^{commit}`)) !== found.tip)
    return yield* refused("the tip of the bundle is missing or is not a commit")
  yield* HostRepository.setRef(paths.repository, HostRepository.refs.tip, found.tip)
  yield* runs.save({ ...state, stage: "collected" })
  return { clone, tip: found.tip, bundle: found.bundle } satisfies Collected
})

/** Applies patches to the checked-out branch of the workspace. */
export const apply = Effect.fnUntraced(function* (clone: Clone, patches: ReadonlyArray<string | Uint8Array>) {
  const { limits } = yield* RelayContext
  const path = join(clone.directory, "patches")
  const names = patches.map((_, index) => `${String(index + 1).padStart(4, "0")}.patch`)
  yield* makeOpen(path)
  yield* attemptWhole(path, async () => {
    for (const [index, patch] of patches.entries())
      await OwnFiles.create(join(path, names[index]!), patch, 0o644)
  })
  const spec = WorkspaceContainer.applySpec(yield* workspaceOf(clone), { path, names })
  const { exitCode, stderr } = yield* ContainerGit.run(spec).pipe(
    Effect.timeoutOrElse({
      duration: `${limits.collectSecondsMax} seconds`,
      orElse: () =>
        new PatchRefused({
          detail: `it took more than ${limits.collectSecondsMax} s`,
          remedy: "Split the patches"
        })
    })
  )
  if (exitCode === 0) return
  return yield* new PatchRefused({
    detail: stderr === "" ? `git am ended with ${exitCode}` : stderr,
    remedy: `Create the patches against ${clone.baseCommit.slice(0, 12)} of ${clone.baseBranch}`
  })
})

const workspaceOf = Effect.fnUntraced(function* ({ request: { runId }, workspacePath }: Clone) {
  const { image, limits, runs } = yield* RelayContext
  const { user } = yield* runs.read(runId)
  return {
    runId,
    image,
    user,
    // The engine gets the real path of the directory that the host created.
    workspacePath: yield* attempt(workspacePath, () => realpath(workspacePath)),
    runtimeSecondsMax: limits.collectSecondsMax
  } satisfies WorkspaceContainer.WorkspaceRequest
})

type Taking = Effect.Effect<BundleImport.Imported, BundleImport.UnfitBundle | RelayFailed, ContainerRuntime>

/** Returns `undefined` if neither has commits. */
const branchOrHead = Effect.fnUntraced(function* (take: (ref: string) => Taking, branch: string) {
  const own = yield* unlessMissing(take(`refs/heads/${branch}`))
  if (Result.isSuccess(own)) return own.success
  const head = yield* unlessMissing(take("HEAD"))
  if (Result.isSuccess(head)) return head.success
  if (own.failure.kind === "nothing" || head.failure.kind === "nothing") return undefined
  return yield* own.failure
})

/** Returns a missing bundle as a value, because another reference may have one. Fails with an invalid bundle. */
const unlessMissing = (taking: Taking) =>
  taking.pipe(
    Effect.map((taken) => Result.succeed(taken)),
    Effect.catchTag("UnfitBundle", (unfit) =>
      unfit.kind === "content" ? Effect.fail(unfit) : Effect.succeed(Result.fail(unfit))
    )
  )

/** Commits that the relay has: the base, and the fetched part of its history. */
const known = (gitDirectory: string, base: CommitId) =>
  Effect.map(
    HostGit.lines({ gitDirectory, argv: ["rev-list", "--max-count=10000", base] }),
    (ids) => new Set(ids)
  )

/**
 * Commits uncommitted changes. Returns why it failed, if it did: in a repository that an agent has broken, only the
 * existing commits count.
 */
const commitChanges = (request: WorkspaceContainer.WorkspaceRequest, message: string) =>
  ContainerGit.run(WorkspaceContainer.commitSpec(request, message)).pipe(
    Effect.map(({ exitCode, stderr }) => (exitCode === 0 ? undefined : stderr)),
    Effect.timeoutOrElse({
      duration: `${request.runtimeSecondsMax} seconds`,
      orElse: () => Effect.succeed("it took too long")
    })
  )
