/**
 * Reports of the pools of living processes, one file for each process, from which `doctor` says which pools are of no
 * use. A report of a dead process is removed by the next reader.
 */
import { formatOwner, parseOwner } from "@cogni/sandbox-core/ResourceLabels"
import * as PoolReport from "@cogni/sandbox-core/PoolReport"
import * as OwnFiles from "@cogni/sandbox-host-files/OwnFiles"
import { Effect, Option, Schema, type Scope } from "effect"
import { readdir, readFile, rm } from "node:fs/promises"
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
  problem: Schema.optionalKey(Schema.String)
})

type Reported = typeof Reported.Type

const ReportedText = Schema.fromJsonString(Reported)
const decode = Schema.decodeUnknownOption(ReportedText)
const encode = Schema.encodeSync(ReportedText)

/** How often a report is written, if it changed. */
const writeSeconds = 10

const reportedOf = (report: PoolReport.PoolReport): Reported => {
  const problem = PoolReport.problemOf(report)
  return {
    version: 1,
    owner: formatOwner(HostOwner.self()),
    hits: report.hits,
    runs: PoolReport.runsOf(report),
    waiting: report.waiting.length,
    ...(problem === undefined ? {} : { problem })
  }
}

/** Writes the report of a pool while the scope is open. A report that cannot be written is only logged. */
export const written = (
  directory: string,
  report: Effect.Effect<PoolReport.PoolReport>
): Effect.Effect<void, never, Scope.Scope> => {
  const path = join(directory, `${crypto.randomUUID()}.json`)
  let last = ""
  const write = Effect.flatMap(report, (now) =>
    Effect.tryPromise(async () => {
      const text = encode(reportedOf(now))
      if (text === last) return
      await OwnFiles.makePrivateDirectory(directory)
      await OwnFiles.replace(path, text)
      last = text
    })
  ).pipe(
    Effect.ignore({ log: "Warn", message: "the report of the pool cannot be written" }),
    // The file would otherwise appear after its removal.
    Effect.uninterruptible
  )
  return Effect.acquireRelease(Effect.void, () => Effect.promise(() => rm(path, { force: true }))).pipe(
    Effect.andThen(
      Effect.forkScoped(Effect.forever(Effect.andThen(write, Effect.sleep(`${writeSeconds} seconds`))))
    ),
    Effect.asVoid
  )
}

/** Reads the reports of living processes as findings. */
export const findings = (directory: string): Effect.Effect<ReadonlyArray<Finding>> =>
  Effect.promise(async () => {
    const names = await readdir(directory).catch((): Array<string> => [])
    const found = await Promise.all(
      names.filter((name) => name.endsWith(".json")).map((name) => readLiving(join(directory, name)))
    )
    return found.flatMap((one) => (one === undefined ? [] : [findingOf(one)]))
  })

const readLiving = async (path: string): Promise<Reported | undefined> => {
  const reported = Option.getOrUndefined(decode(await readFile(path, "utf8").catch(() => "")))
  const owner = reported === undefined ? undefined : parseOwner(reported.owner)
  if (owner === undefined || HostOwner.liveness(owner) !== "dead") return reported
  await rm(path, { force: true })
  return undefined
}

const findingOf = ({ hits, owner, problem, runs, waiting }: Reported): Finding => {
  const check = `pool of process ${parseOwner(owner)?.processId ?? "?"}`
  return problem === undefined
    ? ok(check, `${hits} of ${runs} runs got a waiting sandbox; ${waiting} wait now`)
    : fail(check, problem, "Read docs/guides/pool.md: it lists which runs waiting sandboxes can serve")
}
