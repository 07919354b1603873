/** How the lines of an audit are chained, for those that write one. `AuditLog` verifies what comes of it. */
import * as StateDirectory from "@cogni/sandbox-host-files/StateDirectory"
import type { AuditHead } from "@cogni/sandbox-core/RunResult"
import { hash } from "node:crypto"
import type { AuditEntry } from "../../AuditEntry.ts"

/** Below a run's directory, where a gateway's audit lies. */
export const relativePath = StateDirectory.auditLog

/** A longer line is none of ours: a writer makes none, and none is kept while it is read. */
export const lineBytesMax = 16 * 1024 * 1024

export const sha256 = (data: string | Uint8Array): string => hash("sha256", data, "hex")

/** Where a run's chain begins. */
export const genesis = (runId: string): AuditHead => ({
  entries: 0,
  hash: sha256(`cogni-sandbox audit 1\n${runId}\n`)
})

/** An entry as its writer has it: a field that is undefined is left out of the line. */
export type AuditDraft = Draft<AuditEntry>

type Draft<Entry> = Entry extends unknown
  ? { readonly [Key in keyof Entry]: {} extends Pick<Entry, Key> ? Entry[Key] | undefined : Entry[Key] }
  : never

/** The next line, and where the chain stands after it. */
export const append = (
  head: AuditHead,
  at: string,
  entry: AuditDraft
): { readonly line: string; readonly head: AuditHead } => {
  const seq = head.entries + 1
  const covered = JSON.stringify({ seq, at, ...entry, prev: head.hash }).slice(0, -1)
  const own = sha256(covered)
  return { line: `${covered},"hash":"${own}"}\n`, head: { entries: seq, hash: own } }
}
