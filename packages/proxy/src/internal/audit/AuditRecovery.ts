/**
 * Completes the audit of a run whose shard was lost, from the audit itself. Open calls are charged as reserved, and the
 * last entry states what happened.
 */
import { attempt } from "@cogni/sandbox-host-files/Attempt"
import { createReadStream } from "node:fs"
import * as path from "node:path"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import type { AuditHead } from "@cogni/sandbox-core/RunFigures"
import type { AuditLine } from "../../AuditEntry.ts"
import { makeRows } from "../ByteRows.ts"
import type { ProcessorMeter } from "../gateway/ProcessorMeter.ts"
import type { RunLost, RunTraffic, ShardConfig } from "../shards/ShardMessage.ts"
import * as AuditChain from "./AuditChain.ts"
import * as AuditFile from "./AuditFile.ts"
import * as AuditReplay from "./AuditReplay.ts"

const notCompleted = (cause: string) =>
  new AuditFile.AuditFailed({
    detail: `the run's audit could not be completed: ${cause}`,
    remedy: "Keep the run's directory: its audit has every call until the thread was lost"
  })

export const recover = Effect.fnUntraced(function* (
  config: ShardConfig,
  lost: RunLost,
  { exempt }: Pick<ProcessorMeter, "exempt">
): Effect.fn.Return<RunTraffic, AuditFile.AuditFailed, Scope.Scope> {
  const read = yield* attempt(() => replayed(config, lost, exempt), notCompleted)
  let problem: string | undefined
  const audit = yield* AuditFile.open({
    parent: lost.auditParent,
    runId: lost.runId,
    bytesMax: config.auditBytesMax,
    resume: { head: read.head, bytes: read.bytes },
    onFailure: ({ detail }) => {
      problem = detail
    }
  }).pipe(Effect.mapError(({ detail }) => notCompleted(detail)))
  const { replay } = read
  if (replay.closed() === undefined) {
    for (const call of replay.endOpen(Date.now(), threadLost)) audit.note({ type: "call.ended", ...call })
    const { calls: _, ...totals } = replay.traffic()
    yield* audit.close({ usage: replay.usage(), ...totals, failure: lost.reason })
  }
  yield* audit.settled
  if (problem !== undefined) return yield* notCompleted(problem)
  return {
    ...replay.traffic(),
    usage: replay.usage(),
    ...replay.spent(),
    auditHead: audit.head()
  }
}, Effect.scoped)

const threadLost = "the gateway's thread that served this call was lost before the call ended"

const replayed = async (
  { prices }: ShardConfig,
  { auditParent, runId }: RunLost,
  exempt: ProcessorMeter["exempt"]
) => {
  const replay = AuditReplay.make(prices)
  const file = path.join(auditParent, AuditChain.relativePath)
  return { replay, ...(await readLines(file, runId, replay.take, exempt)) }
}

/** Reads the complete lines, and throws if one does not follow from the previous one. */
const readLines = async (
  file: string,
  runId: string,
  take: (line: AuditLine) => void,
  exempt: ProcessorMeter["exempt"]
) => {
  let head: AuditHead = AuditChain.genesis(runId)
  let bytes = 0
  const decoder = new TextDecoder()
  const tooLong = () => new TypeError("a line is too long")
  const rows = makeRows(AuditChain.lineBytesMax, ({ bytes: row, offset }) => {
    if (row === undefined) throw tooLong()
    const line = JSON.parse(decoder.decode(row)) as AuditLine
    if (line.prev !== head.hash)
      throw new TypeError(`line ${head.entries + 1} does not follow from the previous line`)
    head = { entries: line.seq, hash: line.hash }
    bytes = offset + row.byteLength + 1
    take(line)
  })
  // The runs that this thread serves are not charged for the processor time of this recovery.
  for await (const piece of createReadStream(file)) exempt(() => rows.push(piece as Buffer))
  if (rows.rest().bytes > AuditChain.lineBytesMax) throw tooLong()
  return { head, bytes }
}
