/** `relay list`, `relay retry`, `relay drop`: manage commits that were not delivered. */
import { ConnectionUser } from "@cogni/sandbox-connections/ConnectionUser"
import * as RunFacts from "@cogni/sandbox-core/RunFacts"
import * as RunId from "@cogni/sandbox-core/RunId"
import { RunStore } from "@cogni/sandbox-core/RunStore"
import { DockerReaper } from "@cogni/sandbox-docker/DockerReaper"
import { GitRelay, RelayObserver } from "@cogni/sandbox-git-relay/GitRelay"
import type { BranchName } from "@cogni/sandbox-git-relay/Refs"
import * as RelayRun from "@cogni/sandbox-git-relay/RelayRun"
import { Effect, Schema } from "effect"
import * as Composition from "./Composition.ts"
import * as Connections from "./Connections.ts"
import { refusal } from "./Failure.ts"
import * as Flags from "./Flags.ts"
import * as Output from "./Output.ts"
import * as Progress from "./Progress.ts"
import * as RelayReport from "./RelayReport.ts"
import * as RepoPlan from "./RepoPlan.ts"
import * as RepoRun from "./RepoRun.ts"
import * as RunPrefix from "./RunPrefix.ts"
import { Settings } from "./Settings.ts"
import * as UserFiles from "./UserFiles.ts"

/** Lists the kept commits of all runs. */
export const list = Effect.fnUntraced(function* (input: Output.Asked) {
  const settings = yield* Settings
  const kept = yield* Effect.flatMap(GitRelay, (relay) => relay.kept).pipe(
    Effect.provide(Composition.relayAlone(settings))
  )
  if (input.output === "json") return yield* Output.json(kept.map(RelayReport.keptJson))
  if (kept.length > 0) return yield* Output.lines(RelayReport.list(kept, new Date()))
  yield* Output.note("no commits are kept")
})

type RetryInput = Flags.Typed<typeof Flags.retry> & { readonly run: string }

/** Resumes a delivery where it stopped: collect, check, push. */
export const retry = Effect.fnUntraced(function* (input: RetryInput) {
  const settings = yield* Settings
  yield* checked(input.run)
  if (input.patch !== undefined && (input.pr || input.branch !== undefined)) {
    return yield* refusal("usage", "--patch excludes --pr and --branch", "Leave one of them out")
  }
  const isNamed = input.patch !== undefined || input.branch !== undefined || input.pr
  const branch: BranchName | undefined =
    input.branch === undefined ? undefined : yield* Effect.fromResult(RepoPlan.branchOf(input.branch))
  const { delivery, runId } = yield* Effect.gen(function* () {
    const runId = yield* found(input.run)
    const patch = yield* UserFiles.reserve(
      "--patch",
      input.patch,
      Composition.cloneWorkspace(settings, runId)
    )
    const progress = yield* Progress.make({ quiet: input.quiet })
    // Containers of a dead process may still change the workspace.
    yield* Effect.flatMap(DockerReaper, (reaper) => reaper.reap)
    const relay = yield* GitRelay
    const record = yield* Effect.flatMap(RunStore, (store) => store.get(runId))
    const user = userOf(settings, runId, record)
    const delivered = yield* Effect.gen(function* () {
      const clone = yield* relay.reopen(runId, { branch, ...(input.pr ? { createPr: true } : {}) })
      if (clone.request.deliver === "patch" && !isNamed) return yield* unasked(runId)
      return yield* RelayRun.deliver(
        clone,
        {
          deliver: input.patch === undefined ? "push" : "patch",
          // The process may have died before it committed these changes, which would otherwise be lost.
          uncommittedMessage: clone.request.uncommittedMessage
        },
        record?.llm?.auditHead
      )
    }).pipe(
      Effect.scoped,
      Effect.provideService(RelayObserver, RepoRun.observe(progress)),
      Effect.provideService(ConnectionUser, user)
    )
    yield* progress.rest
    yield* RepoRun.settle(delivered, patch)
    return { delivery: delivered, runId }
  }).pipe(Effect.provide(Composition.relayAlone(settings)), Effect.scoped)
  if (input.output === "json")
    return yield* Output.json({ ok: true, runId, relay: RelayReport.toJson(delivery) })
  yield* Output.lines([RelayReport.describe(delivery, input.patch)])
})

/** The user of a delivery: the operator, with the connections of the account that the run was for. */
export const userOf = (
  settings: Parameters<typeof Connections.operator>[0],
  runId: RunId.RunId,
  record: RunFacts.Source | undefined
): ConnectionUser => {
  const account = record && RunFacts.of(record).billingAccountId
  return Connections.operator(settings, { runId, ...Flags.given({ account }) })
}

/** Deletes the kept commits of a run permanently. */
export const drop = Effect.fnUntraced(function* (input: Output.Asked & { readonly run: string }) {
  const settings = yield* Settings
  yield* checked(input.run)
  const runId = yield* Effect.gen(function* () {
    yield* Effect.flatMap(DockerReaper, (reaper) => reaper.reap)
    const relay = yield* GitRelay
    const runId = yield* found(input.run)
    const kept = yield* relay.kept
    if (!kept.some((one) => one.runId === runId)) return yield* notKept(runId)
    yield* relay.discard(runId)
    return runId
  }).pipe(Effect.provide(Composition.relayAlone(settings)))
  if (input.output === "json") return yield* Output.json({ ok: true, runId })
  yield* Output.lines([`dropped ${runId}`])
})

const notKept = (runId: RunId.RunId) =>
  refusal(
    "notFound",
    `no commits of ${runId} are kept`,
    "It was pushed or dropped, or never had a repository. See: cogni-sandbox relay list",
    { reason: "NotKept", runId }
  )

const unasked = (runId: RunId.RunId) =>
  refusal(
    "usage",
    `${runId} was started with --patch, so a retry does not push by default`,
    "Name the file with --patch FILE, or push with --branch NAME",
    { runId }
  )

/** Refuses text that no run ID begins with, before anything is opened. */
const checked = (run: string) =>
  /^[a-z0-9][a-z0-9-]{0,47}$/u.test(run)
    ? Effect.void
    : Effect.fail(
        refusal("notFound", `${run} is not a valid run ID or prefix`, "See: cogni-sandbox relay list")
      )

/** Finds a run with kept commits by its ID or a unique prefix. A whole ID without commits is left to the caller. */
const found = Effect.fnUntraced(function* (run: string) {
  const kept = yield* Effect.flatMap(GitRelay, (relay) => relay.kept)
  const match = RunPrefix.match(
    run,
    kept.map(({ runId }) => runId)
  )
  if (match._tag === "Found") return match.id
  if (Schema.is(RunId.RunId)(run)) return run
  return yield* refusal(
    "notFound",
    match._tag === "None"
      ? `no commits of ${run} are kept`
      : `several runs with kept commits begin with ${run}`,
    "See: cogni-sandbox relay list"
  )
})
