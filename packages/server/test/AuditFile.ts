/** An audit in a file that grows, and its readings, with the number of bytes of each. */
import { RunId } from "@cogni/sandbox-core/RunId"
import * as AuditLog from "@cogni/sandbox-proxy/AuditLog"
import * as RunAudits from "@cogni/sandbox-proxy/RunAudits"
import { Effect } from "effect"
import { appendFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"

const at = "2026-01-01T00:00:00.000Z"

export type Draft = Parameters<typeof AuditLog.append>[2]

export const make = Effect.fnUntraced(function* (id: string) {
  const runId = RunId.make(id)
  const directory = yield* Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-audit-"))),
    (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
  )
  const fileOf = (run: string) => join(directory, run, AuditLog.relativePath)
  const path = fileOf(runId)
  mkdirSync(dirname(path), { recursive: true })
  writeFileSync(path, "")
  let head = AuditLog.genesis(runId)
  const bytes: Array<number> = []
  const audits = yield* Effect.provide(
    RunAudits.RunAudits,
    RunAudits.layer({ directoryOf: (run) => join(directory, run) })
  )
  let isTorn = false
  let isRefused = false
  const readOn = (
    run: string,
    { push, ...reading }: RunAudits.FurtherReading,
    from?: RunAudits.Mark
  ): Effect.Effect<
    RunAudits.Mark | "absent" | "elsewhere",
    "too many readings" | RunAudits.AuditUnreadable
  > =>
    Effect.suspend((): ReturnType<typeof readOn> => {
      if (isRefused) return Effect.fail("too many readings" as const)
      bytes.push(0)
      const counted = (piece: Uint8Array) => {
        bytes[bytes.length - 1] = bytes.at(-1)! + piece.byteLength
        push(piece)
        if (isTorn) throw new Error("torn")
      }
      return audits.readOn(run, { ...reading, push: counted }, from)
    })
  return {
    runId,
    fileOf,
    path,
    /** Bytes of each reading. */
    bytes,
    readOn,
    refuse: (refused: boolean) => void (isRefused = refused),
    tear: (torn: boolean) => void (isTorn = torn),
    /** Appends entries, made from their numbers, and returns their size. */
    append: (count: number, draftOf: (entry: number) => Draft) => {
      const until = head.entries + count
      let text = ""
      while (head.entries < until) {
        const next = AuditLog.append(head, at, draftOf(head.entries + 1))
        head = next.head
        text += next.line
      }
      appendFileSync(path, text)
      return Buffer.byteLength(text)
    },
    /** The verdict of the run after its end, with the head that its record has. */
    final: Effect.gen(function* () {
      const verifier = AuditLog.makeVerifier({ runId, head, ended: true })
      yield* audits.read(runId, { push: verifier.push })
      return verifier.end()
    })
  }
})
