/**
 * Reports of the pools of living processes, one file for each process, from which `doctor` says which pools are of no
 * use. A report is written again now and then, so that one that is not can be ignored. The next pool removes those of
 * dead processes.
 */
import { formatOwner, parseOwner } from "@cogni/sandbox-core/ResourceLabels"
import { formatBytes } from "@cogni/sandbox-core/RunFigures"
import type { LimitedBy } from "@cogni/sandbox-core/PoolPolicy"
import * as PoolReport from "@cogni/sandbox-core/PoolReport"
import * as PoolUse from "@cogni/sandbox-core/PoolUse"
import { named } from "@cogni/sandbox-core/Remedy"
import * as OwnFiles from "@cogni/sandbox-host-files/OwnFiles"
import { Effect, Option, Schema, type Scope } from "effect"
import { lstat, readdir, readFile, rm } from "node:fs/promises"
import { join } from "node:path"
import { fail, type Finding, ok } from "../../Finding.ts"
import * as HostOwner from "../../HostOwner.ts"

const Reported = Schema.Struct({
  version: Schema.Literal(1),
  /** The host process, as `ResourceLabels.formatOwner` writes it. */
  owner: Schema.String,
  hits: Schema.Int,
  runs: Schema.Int,
  waiting: Schema.Int,
  /** Runs that no waiting sandbox can serve, by reason. */
  cold: Schema.optionalKey(Schema.Record(Schema.String, Schema.Int)),
  /** Sandboxes that wait or should, by image and what they can serve. */
  shapes: Schema.optionalKey(
    Schema.Array(
      Schema.Struct({
        image: Schema.String,
        waiting: Schema.Int,
        wanted: Schema.Int,
        memoryBytes: Schema.Int,
        limitedBy: Schema.optionalKey(Schema.String)
      })
    )
  ),
  networks: Schema.optionalKey(
    Schema.Struct({
      ready: Schema.Int,
      hits: Schema.Int,
      misses: Schema.Int,
      failure: Schema.optionalKey(Schema.String)
    })
  ),
  problem: Schema.optionalKey(Schema.String)
})

type Reported = typeof Reported.Type

const ReportedText = Schema.fromJsonString(Reported)
const decode = Schema.decodeUnknownOption(ReportedText)
const encode = Schema.encodeSync(ReportedText)

/** How often a report is written, if it changed. */
const writeSeconds = 10

/** How often a report is written even if it did not change. */
const rewriteSeconds = 60

/** Age of a report at which the process that wrote it has ended, if that cannot be checked. */
const ageSecondsMax = 5 * rewriteSeconds

const reportedOf = (report: PoolReport.PoolReport): Reported => {
  const problem = PoolReport.problemOf(report)
  const { networks } = report
  return {
    version: 1,
    owner: formatOwner(HostOwner.self()),
    hits: report.hits,
    runs: PoolReport.runsOf(report),
    waiting: report.waiting.length,
    cold: { ...report.cold },
    shapes: report.shapes.map(({ limitedBy, ...shape }) => ({
      ...shape,
      ...(limitedBy === undefined ? {} : { limitedBy })
    })),
    ...(networks === undefined
      ? {}
      : {
          networks: {
            ready: networks.ready,
            hits: networks.hits,
            misses: networks.misses,
            ...(networks.failure === undefined ? {} : { failure: networks.failure })
          }
        }),
    ...(problem === undefined ? {} : { problem })
  }
}

/** Writes the report of a pool while the scope is open. A report that cannot be written is only logged. */
export const written = (
  directory: string,
  report: Effect.Effect<PoolReport.PoolReport>
): Effect.Effect<void, never, Scope.Scope> => {
  const path = join(directory, `${crypto.randomUUID()}.json`)
  let last = { text: "", atMillis: 0 }
  const write = Effect.flatMap(report, (now) =>
    Effect.tryPromise(async () => {
      const text = encode(reportedOf(now))
      const atMillis = Date.now()
      if (text === last.text && atMillis < last.atMillis + rewriteSeconds * 1000) return
      await OwnFiles.makePrivateDirectory(directory)
      await OwnFiles.replace(path, text)
      last = { text, atMillis }
    })
  ).pipe(
    Effect.ignore({ log: "Warn", message: "the report of the pool cannot be written" }),
    // The file would otherwise appear after its removal.
    Effect.uninterruptible
  )
  return Effect.acquireRelease(Effect.void, () => Effect.promise(() => rm(path, { force: true }))).pipe(
    Effect.andThen(Effect.ignore(removeOld(directory), { log: "Warn" })),
    Effect.andThen(
      Effect.forkScoped(Effect.forever(Effect.andThen(write, Effect.sleep(`${writeSeconds} seconds`))))
    ),
    Effect.asVoid
  )
}

/** Reads the reports of living processes as findings. Changes nothing. */
export const findings = (directory: string): Effect.Effect<ReadonlyArray<Finding>> =>
  Effect.map(
    Effect.promise(() => readAll(directory)),
    (all) =>
      all.flatMap(({ isOver, reported }) => (isOver || reported === undefined ? [] : [findingOf(reported)]))
  )

/** Removes the reports of processes that have ended. */
const removeOld = (directory: string) =>
  Effect.tryPromise(async () => {
    const all = await readAll(directory)
    await Promise.all(all.map(({ isOver, path }) => (isOver ? rm(path, { force: true }) : undefined)))
  })

const readAll = async (directory: string) => {
  const names = await readdir(directory).catch((): Array<string> => [])
  return Promise.all(
    names.filter((name) => name.endsWith(".json")).map((name) => readOne(join(directory, name)))
  )
}

/** Reads one report. The process of an unreadable one, or of one from another boot, is known by the report's age only. */
const readOne = async (path: string) => {
  const reported = Option.getOrUndefined(decode(await readFile(path, "utf8").catch(() => "")))
  const owner = reported === undefined ? undefined : parseOwner(reported.owner)
  const liveness = owner === undefined ? "unknown" : HostOwner.liveness(owner)
  const found = await lstat(path).catch(() => undefined)
  const isOld = found !== undefined && Date.now() - found.mtimeMs > ageSecondsMax * 1000
  return { path, reported, isOver: liveness === "dead" || (liveness === "unknown" && isOld) }
}

/** Most shapes that a finding names. */
const shapesMax = 8

/** Names of the limits of waiting sandboxes, as the doctor prints them. */
const limits: Readonly<Partial<Record<string, string>>> = {
  memoryBytesMax: named("PoolLimits.memoryBytesMax"),
  memoryAvailableBytesMin: "the available memory of the host",
  sandboxesMax: named("PoolLimits.sandboxesMax")
} satisfies Record<LimitedBy, string>

/** Describes how many sandboxes wait, how many should, and what one takes. */
const shapesText = (shapes: NonNullable<Reported["shapes"]>): string => {
  const texts = shapes
    .slice(0, shapesMax)
    .map(
      ({ image, limitedBy, memoryBytes, waiting, wanted }) =>
        `${image} ${waiting} of ${wanted} wanted (${formatBytes(memoryBytes)} each` +
        `${limitedBy === undefined ? "" : `, limited by ${limits[limitedBy] ?? limitedBy}`})`
    )
  const more = shapes.length - texts.length
  return [...texts, ...(more === 0 ? [] : [`${more} more`])].join(", ")
}

const findingOf = ({
  cold = {},
  hits,
  networks,
  owner,
  problem,
  runs,
  shapes = [],
  waiting
}: Reported): Finding => {
  const check = `pool of process ${parseOwner(owner)?.processId ?? "?"}`
  const waits = `${waiting} ${waiting === 1 ? "waits" : "wait"} now`
  const now = shapes.length === 0 ? waits : `${waits}: ${shapesText(shapes)}`
  if (problem !== undefined)
    return fail(
      check,
      `${problem}. ${now}`,
      "Read docs/guides/pool.md: it lists which runs waiting sandboxes can serve"
    )
  const reasons = Object.entries(cold).map(
    ([reason, count]) => `; ${count} started cold: ${PoolUse.reasonOf(reason)}`
  )
  const joined =
    networks === undefined
      ? ""
      : `; ${networks.hits} of ${networks.hits + networks.misses} cold starts got a ready network` +
        (networks.failure === undefined ? "" : `; no more can be made ready: ${networks.failure}`)
  return ok(check, `${hits} of ${runs} runs got a waiting sandbox; ${now}${reasons.join("")}${joined}`)
}
