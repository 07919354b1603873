/**
 * `audit verify`, `audit show`: check the audit of a run against its record, and print it.
 *
 * Both only read files, and work while the run is active. They read from the run's own directory, and follow no link
 * and no path of a record.
 */
import * as StateDirectory from "@cogni/sandbox-host-files/StateDirectory"
import type { RunRecord } from "@cogni/sandbox-core/RunRecord"
import * as AuditLog from "@cogni/sandbox-proxy/AuditLog"
import * as RunAudits from "@cogni/sandbox-proxy/RunAudits"
import { Effect, FileSystem, Stream } from "effect"
import { dirname, join } from "node:path"
import * as AuditReport from "./AuditReport.ts"
import { exitCode } from "./ExitCode.ts"
import { Refusal, refusal } from "./Failure.ts"
import * as Output from "./Output.ts"
import { find, store } from "./RecordCommand.ts"
import { Settings } from "./Settings.ts"

/** Verifies the audit of a run. Exits with `findings` if it is not intact. */
export const verify = Effect.fnUntraced(function* (input: Output.Asked & { readonly run: string }) {
  const record = yield* find(input.run)
  const verdict = yield* read(record)
  if (verdict._tag === "Broken") yield* foundSomething
  yield* input.output === "json"
    ? Output.json(AuditReport.toJson(record, verdict))
    : Output.lines(AuditReport.verdict(record, verdict))
}, Effect.provide(store))

/** Prints the audit of a run, one line per entry. Exits with `findings` if it is not intact. */
export const show = Effect.fnUntraced(function* (input: { readonly run: string }) {
  const record = yield* find(input.run)
  const verdict = yield* read(record, (seen) => Output.lines(seen.map(AuditReport.line)))
  if (verdict._tag === "Whole") return
  yield* foundSomething
  yield* Output.Output.use((output) => output.stderr(`${AuditReport.warning(record, verdict)}\n`))
}, Effect.provide(store))

const foundSomething = Output.Output.use((output) => output.exitWith(exitCode.findings))

const pieceBytesMax = 256 * 1024

/** Reads the whole audit in pieces. Passes on the lines of each piece before it reads the next. */
const read = Effect.fnUntraced(function* <E = never, R = never>(
  record: RunRecord,
  each?: (seen: ReadonlyArray<AuditLog.Seen>) => Effect.Effect<void, E, R>
) {
  const place = yield* locate(record)
  if (place._tag === "Elsewhere") return AuditReport.elsewhere(record)
  if (place._tag === "Absent") {
    const absent = AuditReport.absent(record, place.accessLog)
    return absent._tag === "Broken"
      ? absent
      : yield* new Refusal({ exit: "notFound", runId: record.runId, ...absent })
  }
  let seen: Array<AuditLog.Seen> = []
  const verifier = AuditLog.makeVerifier(RunAudits.expectedOf(record), each && ((one) => void seen.push(one)))
  yield* FileSystem.FileSystem.use((fs) =>
    fs.stream(place.path, { chunkSize: pieceBytesMax }).pipe(
      Stream.mapError(unreadable(record)),
      Stream.runForEach((bytes) =>
        Effect.suspend(() => {
          verifier.push(bytes)
          const lines = seen
          seen = []
          return each === undefined || lines.length === 0 ? Effect.void : each(lines)
        })
      )
    )
  )
  return verifier.end()
})

const locate = Effect.fnUntraced(function* (record: RunRecord) {
  const { stateDirectory } = yield* Settings
  const fs = yield* FileSystem.FileSystem
  const run = join(StateDirectory.paths(stateDirectory).runs, record.runId)
  const path = join(run, AuditLog.relativePath)
  const looked = fs.lstat(path).pipe(
    Effect.catchReason("PlatformError", "NotFound", () => Effect.succeed(undefined)),
    Effect.mapError(unreadable(record))
  )
  const info = yield* looked
  if (info === undefined) {
    const accessLog = yield* Effect.orElseSucceed(fs.exists(join(dirname(path), "access.log")), () => false)
    return { _tag: "Absent", accessLog } as const
  }
  const [really, should] = yield* Effect.all([fs.realPath(path), fs.realPath(run)]).pipe(
    Effect.mapError(unreadable(record))
  )
  return info.type === "File" && really === join(should, AuditLog.relativePath)
    ? ({ _tag: "There", path: really } as const)
    : ({ _tag: "Elsewhere" } as const)
})

const unreadable =
  ({ runId }: RunRecord) =>
  ({ message }: { readonly message: string }) =>
    refusal(
      "notFound",
      `the audit of ${runId} cannot be read: ${message}`,
      "Repeat the command as the user who started the run",
      { runId }
    )
