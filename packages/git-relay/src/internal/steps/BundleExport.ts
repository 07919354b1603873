/**
 * After the run: out of the workspace, into the relay's own repository.
 *
 * The run's branch counts. An agent that renamed it, or works beside it, has what is checked out in the end taken over
 * in its place.
 */
import { relayPaths } from "@cogni/sandbox-host-files/StateDirectory"
import * as OwnFiles from "@cogni/sandbox-host-files/OwnFiles"
import type { ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import { Effect, Result, Stream } from "effect"
import { mkdir, realpath, rm } from "node:fs/promises"
import { join } from "node:path"
import * as WorkspaceContainer from "./WorkspaceContainer.ts"
import type { Clone, Collected } from "../../GitRelay.ts"
import { BundleRefused, PatchRefused, RelayFailed } from "../../GitRelayError.ts"
import type { CommitId } from "../../Refs.ts"
import type { Held } from "./WorkspaceClone.ts"
import * as BundleImport from "./BundleImport.ts"
import * as HostGit from "../git/HostGit.ts"
import * as KeptRuns from "./KeptRuns.ts"
import * as HostRepository from "../git/HostRepository.ts"
import { localSecondsMax } from "../git/HostRepository.ts"

export const collect = Effect.fnUntraced(function* (
  held: Held,
  clone: Clone,
  leftovers: string | undefined
): Effect.fn.Return<Collected, BundleRefused | RelayFailed, ContainerRuntime> {
  const paths = relayPaths(clone.directory)
  const state = yield* stateOf(held, clone)
  const request = yield* requestOf(held, clone, state)
  const problem = leftovers === undefined ? undefined : yield* commitLeftovers(request, leftovers)
  const prerequisites = yield* known(paths.repository, clone.baseCommit)
  const take = (ref: string) =>
    Effect.scoped(
      Effect.flatMap(
        BundleImport.exported(WorkspaceContainer.bundleSpec(request, { ref, ...clone })),
        (exported) =>
          BundleImport.imported(exported, {
            gitDirectory: paths.repository,
            bundlePath: paths.bundle,
            expected: { objectFormat: clone.objectFormat, ref, prerequisites },
            limits: {
              bundleBytesMax: held.limits.bundleBytesMax,
              objectsMax: held.limits.objectsMax,
              runtimeSecondsMax: held.limits.collectSecondsMax
            }
          })
      )
    )
  const found = yield* branchOrHead(take, state.workspaceBranch).pipe(
    Effect.catchTag("Unfit", ({ detail }) =>
      Effect.fail(new BundleRefused({ detail, keptAt: clone.directory }))
    )
  )
  if (found === undefined || found.tip === clone.baseCommit) {
    if (problem !== undefined)
      return yield* new BundleRefused({
        detail: `nothing is committed, and what is not could not be: ${problem}`,
        keptAt: clone.directory
      })
    return { clone, tip: undefined, bundle: undefined }
  }
  yield* mustBeCommit(clone, found.tip)
  yield* HostRepository.setRef(paths.repository, HostRepository.refs.tip, found.tip)
  yield* held.directory.save({ ...state, stage: "collected" })
  return { clone, tip: found.tip, bundle: found.bundle }
})

/** Onto what is checked out in the workspace. */
export const apply = Effect.fnUntraced(function* (
  held: Held,
  clone: Clone,
  patches: ReadonlyArray<string | Uint8Array>
) {
  const path = join(clone.directory, "patches")
  const names = patches.map((_, index) => `${String(index + 1).padStart(4, "0")}.patch`)
  yield* KeptRuns.attempt(path, async () => {
    await rm(path, { recursive: true, force: true })
    await mkdir(path, { mode: 0o755 })
    for (const [index, patch] of patches.entries())
      await OwnFiles.create(join(path, names[index]!), patch, 0o644)
  })
  const request = yield* requestOf(held, clone, yield* stateOf(held, clone))
  const { ended, stdout } = yield* BundleImport.exported(
    WorkspaceContainer.applySpec(request, { path, names })
  )
  yield* Stream.runDrain(stdout)
  const { exitCode, stderr } = yield* ended
  if (exitCode === 0) return
  return yield* new PatchRefused({
    detail: stderr === "" ? `git am ended with ${exitCode}` : stderr,
    remedy: `Make them against ${clone.baseCommit.slice(0, 12)} of ${clone.baseBranch}`
  })
})

export const stateOf = Effect.fnUntraced(function* ({ directory }: Held, { request: { runId } }: Clone) {
  const state = yield* directory.read(runId)
  if (state?.user !== undefined) return state
  return yield* new RelayFailed({
    detail: `what is kept of ${runId} is gone`,
    remedy: "Its scope is closed, or somebody has removed it; run it again",
    isRetryable: false
  })
})

const requestOf = (held: Held, { request: { runId }, workspacePath }: Clone, state: KeptRuns.State) =>
  Effect.map(
    // The engine is given what the host made, where it really is.
    KeptRuns.attempt(workspacePath, () => realpath(workspacePath)),
    (path): WorkspaceContainer.ExportRequest => ({
      runId,
      image: held.image,
      user: state.user!,
      workspacePath: path,
      runtimeSecondsMax: held.limits.collectSecondsMax
    })
  )

type Take = (
  ref: string
) => Effect.Effect<BundleImport.Imported, BundleImport.Unfit | RelayFailed, ContainerRuntime>

/** `undefined`: there is nothing on either. */
const branchOrHead = Effect.fnUntraced(function* (take: Take, branch: string) {
  const own = yield* Effect.result(take(`refs/heads/${branch}`))
  if (Result.isSuccess(own)) return own.success
  const { failure } = own
  if (failure._tag !== "Unfit" || failure.kind === "content") return yield* Effect.fail(failure)
  const head = yield* Effect.result(take("HEAD"))
  if (Result.isSuccess(head)) return head.success
  if (head.failure._tag !== "Unfit" || head.failure.kind === "content")
    return yield* Effect.fail(head.failure)
  if (failure.kind === "nothing" || head.failure.kind === "nothing") return undefined
  return yield* Effect.fail(failure)
})

/** What is known to be there: the base and what of its history was fetched. */
const known = Effect.fnUntraced(function* (gitDirectory: string, base: CommitId) {
  const stdout = yield* HostGit.runOk({
    gitDirectory,
    argv: ["rev-list", "--max-count=10000", base],
    runtimeSecondsMax: localSecondsMax
  })
  return new Set(
    stdout
      .toString("latin1")
      .split("\n")
      .filter((line) => line !== "")
  )
})

const mustBeCommit = Effect.fnUntraced(function* (clone: Clone, tip: CommitId) {
  const { exitCode, stdout } = yield* HostGit.run({
    gitDirectory: relayPaths(clone.directory).repository,
    argv: ["cat-file", "-t", tip],
    runtimeSecondsMax: localSecondsMax
  })
  if (exitCode === 0 && stdout.toString("latin1").trim() === "commit") return
  return yield* new BundleRefused({
    detail: "what it brings is no commit, or is not in it",
    keptAt: clone.directory
  })
})

/** Why it could not be, where it could not: in a repository that an agent has broken, what is committed is all there is. */
const commitLeftovers = (request: WorkspaceContainer.ExportRequest, message: string) =>
  Effect.scoped(
    Effect.gen(function* () {
      const { ended, stdout } = yield* BundleImport.exported(
        WorkspaceContainer.leftoversSpec(request, message)
      )
      yield* Stream.runDrain(stdout)
      const { exitCode, stderr } = yield* ended
      return exitCode === 0 ? undefined : stderr
    })
  ).pipe(
    Effect.timeoutOrElse({
      duration: `${request.runtimeSecondsMax} seconds`,
      orElse: () => Effect.succeed("it took too long")
    })
  )
