/** The view of a run's audit: the verdict of its verification, and its entries. Pure. */
import { AuditHead } from "@cogni/sandbox-core/RunFigures"
import { Schema } from "effect"

export const AuditVerdict = Schema.Struct({
  runId: Schema.String,
  /** No entry was changed, removed, inserted or moved. */
  ok: Schema.Boolean,
  /** Number of intact entries, and the hash of the last one. */
  head: AuditHead,
  /** The last entry is `run.closed`. */
  closed: Schema.Boolean,
  /** The run's record has a head to compare with. Without one, a missing end cannot be detected. */
  headKnown: Schema.Boolean,
  /** The first problem of an audit that is not intact. */
  problem: Schema.optional(
    Schema.Struct({
      kind: Schema.String,
      /** Counts from 1. */
      line: Schema.Int,
      /** Offset of that line, in bytes. */
      offset: Schema.Int,
      detail: Schema.String
    })
  )
}).annotate({ identifier: "AuditVerdict" })

export type AuditVerdict = typeof AuditVerdict.Type

/** An entry with the fields of its type. */
const Entry = Schema.Record(Schema.String, Schema.Json).annotate({
  description:
    "a line of the audit, as docs/reference/audit.md describes it, with the length of a kept body as `bodyChars` instead of `body`, and without what only concerns the host"
})

export const AuditPage = Schema.Struct({
  /** By number, the oldest first. */
  entries: Schema.Array(
    Schema.Struct({
      /** Number of the line, from 1. */
      number: Schema.Int,
      /** This entry and all before it are intact. */
      sound: Schema.Boolean,
      /** Absent if the line is not an entry. */
      entry: Schema.optional(Entry)
    })
  ),
  /** Value of `after` for the next page. Absent in the last one. */
  next: Schema.optional(Schema.String)
}).annotate({ identifier: "AuditEntries" })

export type AuditPage = typeof AuditPage.Type
