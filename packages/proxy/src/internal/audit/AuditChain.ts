/** Chains the lines of an audit while it is written. `AuditLog` verifies the chain. */
import * as StateDirectory from "@cogni/sandbox-host-files/StateDirectory"
import type { AuditHead } from "@cogni/sandbox-core/RunFigures"
import { hash } from "node:crypto"
import type { AuditEntry } from "../../AuditEntry.ts"

/** Path of a gateway's audit, relative to the directory of its run. */
export const relativePath = StateDirectory.auditLog

/** Maximum size of a line. Writers create no longer line, and readers do not buffer one. */
export const lineBytesMax = 16 * 1024 * 1024

export const sha256 = (data: string | Uint8Array): string => hash("sha256", data, "hex")

/** Returns the head of a run's empty chain. */
export const genesis = (runId: string): AuditHead => ({
  entries: 0,
  hash: sha256(`cogni-sandbox audit 1\n${runId}\n`)
})

/** An entry before it is written. Undefined fields are omitted from the line. */
export type AuditDraft = Draft<AuditEntry>

type Draft<Entry> = Entry extends unknown
  ? { readonly [Key in keyof Entry]: {} extends Pick<Entry, Key> ? Entry[Key] | undefined : Entry[Key] }
  : never

/** Returns the next line and the new head of the chain. */
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
