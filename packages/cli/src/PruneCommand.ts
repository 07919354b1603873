/**
 * `prune`: removes orphaned resources, of runs whose host process has died.
 *
 * Never touches a living owner's sandbox without `--force`, and deletes other files only on request.
 */
import * as ResourceLabels from "@cogni/sandbox-core/ResourceLabels"
import * as DockerApi from "@cogni/sandbox-docker/DockerApi"
import * as StateDirectory from "@cogni/sandbox-host-files/StateDirectory"
import * as RelayUpkeep from "@cogni/sandbox-git-relay/RelayUpkeep"
import { DockerReaper } from "@cogni/sandbox-docker/DockerReaper"
import * as HostOwner from "@cogni/sandbox-docker/HostOwner"
import * as WaitingRemains from "@cogni/sandbox-docker/WaitingRemains"
import { SqlRunStore } from "@cogni/sandbox-sql/SqlRunStore"
import { Effect, FileSystem, Result } from "effect"
import { basename } from "node:path"
import * as ChatRemains from "./ChatRemains.ts"
import * as Composition from "./Composition.ts"
import { exitCode } from "./ExitCode.ts"
import { refusal } from "./Failure.ts"
import type * as Flags from "./Flags.ts"
import * as Output from "./Output.ts"
import type * as PruneFlags from "./PruneFlags.ts"
import * as LivingResources from "./LivingResources.ts"
import { plural } from "./Quantity.ts"
import * as Records from "./Records.ts"
import * as RunLedger from "./RunLedger.ts"
import { Settings } from "./Settings.ts"
import { oneLine } from "./TerminalText.ts"

type PruneInput = Flags.Typed<typeof PruneFlags.prune>

export const prune = Effect.fnUntraced(function* (input: PruneInput) {
  const settings = yield* Settings
  if (input.force && !input.all) {
    return yield* refusal("usage", "--force has no effect alone", "Write --all --force, or leave it out")
  }
  const report = yield* Effect.gen(function* () {
    const reaper = yield* DockerReaper
    if (input.all && !input.force) yield* refuseLiving
    if (input.dryRun) return yield* reaper.preview({ all: input.all })
    return yield* input.all ? reaper.removeAll : reaper.reap
  }).pipe(Effect.provide(Composition.reaper(settings)))

  const { abandoned, forgotten, problem } = yield* records(settings, input)
  const deleted = yield* remains(settings, { ...input, records: input.records && problem === undefined })
  const output = yield* Output.Output
  const ok = report.failed.length === 0 && problem === undefined
  if (!ok) yield* output.exitWith(exitCode.findings)
  if (problem !== undefined)
    yield* output.stderr(`cogni-sandbox: records could not be updated: ${oneLine(problem)}\n`)
  if (input.output === "json") {
    return yield* Output.json({
      ok,
      ...(input.dryRun ? { dryRun: true } : {}),
      ...report,
      abandoned,
      forgotten,
      deleted,
      ...(problem === undefined ? {} : { problem })
    })
  }
  const [removed, cleared, deletedAs] = input.dryRun
    ? ["would remove", "would clear", "would delete"]
    : ["removed", "cleared", "deleted"]
  yield* Output.lines([
    ...report.removed.map((name) => `${removed} ${name}`),
    ...abandoned.map((runId) => `${cleared} ${runId}, whose host process has died`),
    ...(forgotten.length === 0 ? [] : [`${deletedAs} the records of ${plural(forgotten.length, "run")}`]),
    ...deleted.map((path) => `${deletedAs} ${oneLine(path)}`),
    ...(report.removed.length + abandoned.length + forgotten.length + deleted.length === 0
      ? ["nothing to remove"]
      : []),
    ...(report.living === 0 ? [] : [`kept resources of living processes: ${report.living}`])
  ])
  for (const { name, reason } of report.failed)
    yield* output.stderr(`cogni-sandbox: ${name} could not be removed: ${reason}\n`)
})

/**
 * Updates and deletes records. An unreachable database does not prevent the removal of containers, and no record is
 * deleted in one place only. An audit is deleted only when the ledger has its calls.
 */
const records = Effect.fnUntraced(function* (settings: Settings["Service"], input: PruneInput) {
  const files = Records.files(settings)
  const { dryRun } = input
  const abandoned = yield* dryRun ? files.orphans : files.reap
  const told = yield* Effect.gen(function* () {
    const runs = yield* SqlRunStore
    if (input.records && !dryRun) {
      const audits = yield* ChatRemains.audits(settings)
      yield* RunLedger.settled(settings, [...(yield* files.ended), ...audits.map((path) => basename(path))])
    }
    if (!dryRun) yield* runs.refresh(abandoned)
    const forgotten = input.records ? yield* runs.forget({ everyHost: input.all, dryRun }) : []
    if (forgotten.length > 0 && !dryRun) yield* Records.forgetEvents(settings, forgotten)
    return forgotten
  }).pipe(Effect.provide(Records.store(settings)), Effect.scoped, Effect.result)
  if (Result.isFailure(told)) return { abandoned, forgotten: [], problem: told.failure.message }
  const own = input.records ? yield* dryRun ? files.ended : files.forget : []
  return { abandoned, forgotten: [...new Set([...told.success, ...own])], problem: undefined }
})

/**
 * Deletes directories of dead processes that waited for runs or were a proxy's, and as far as requested, others that
 * are not of one run. Returns their paths.
 */
const remains = Effect.fnUntraced(function* (settings: Settings["Service"], input: PruneInput) {
  const { dryRun } = input
  const { mirrors, packages, proxies, waiting } = StateDirectory.paths(settings.stateDirectory)
  const found = [
    ...(yield* WaitingRemains.orphans(waiting)),
    ...(yield* WaitingRemains.orphans(proxies, "proxies")),
    ...(input.records ? yield* ChatRemains.audits(settings) : []),
    ...(input.sessions ? yield* ChatRemains.sessions(settings) : []),
    ...(input.cache && (yield* isThere(packages)) ? [packages] : [])
  ]
  return [
    ...(yield* dryRun ? Effect.succeed(found) : ChatRemains.remove(found)),
    ...(input.cache ? yield* RelayUpkeep.emptyCache({ directory: mirrors, owners: HostOwner, dryRun }) : [])
  ]
})

/** A gateway that is using the cache fetches its files again. */
const isThere = (path: string) =>
  FileSystem.FileSystem.use((fs) => fs.exists(path)).pipe(Effect.orElseSucceed(() => false))

const refuseLiving = Effect.gen(function* () {
  const api = yield* DockerApi.DockerApi
  const found = yield* api.labelled(ResourceLabels.label.run)
  const living = found.filter(({ labels }) => {
    const owner = ResourceLabels.parseOwner(labels[ResourceLabels.label.owner] ?? "")
    return owner !== undefined && HostOwner.liveness(owner) === "alive"
  })
  if (living.length > 0) return yield* LivingResources.refusalOf(living)
})
