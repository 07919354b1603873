/**
 * Statement about the pushed commits of a run: which run made them, from which base, which policy checked them, and the
 * head of the run's audit. It is stored in the record of the run.
 *
 * It has the shape of an in-toto statement, so it can be signed without changes (in a DSSE envelope) once there is a
 * key to sign with.
 *
 * @see {@link https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md}
 */
import { AuditHead } from "@cogni/sandbox-core/RunFigures"
import { RunId } from "@cogni/sandbox-core/RunId"
import { Schema } from "effect"
import type { Checked } from "./RelaySteps.ts"
import { BranchName, CommitId } from "./Refs.ts"

/** Identifies the shape of `predicate`. */
export const predicateType = "https://cogni.dev/sandbox/commits/v1"

export const CommitStatement = Schema.Struct({
  _type: Schema.Literal("https://in-toto.io/Statement/v1"),
  subject: Schema.Array(
    Schema.Struct({ name: Schema.String, digest: Schema.Struct({ gitCommit: CommitId }) })
  ),
  predicateType: Schema.Literal(predicateType),
  predicate: Schema.Struct({
    runId: RunId,
    origin: Schema.String,
    branch: BranchName,
    baseBranch: Schema.String,
    baseCommit: CommitId,
    bundle: Schema.Struct({ sha256: Schema.String, bytes: Schema.Int }),
    policy: Schema.Struct({
      sha256: Schema.String,
      result: Schema.Literal("passed"),
      commits: Schema.Int,
      paths: Schema.Int
    }),
    /** Head of the audit of the run's model calls when the run ended. Absent for a run without an audit. */
    auditHead: Schema.optionalKey(AuditHead)
  })
})

export type CommitStatement = typeof CommitStatement.Type

export const make = (checked: Checked, auditHead?: AuditHead): CommitStatement => {
  const { bundle, clone, commits, paths, policyDigest, tip } = checked
  return {
    _type: "https://in-toto.io/Statement/v1",
    subject: [{ name: `${clone.request.url}#${clone.branch}`, digest: { gitCommit: tip } }],
    predicateType,
    predicate: {
      runId: clone.request.runId,
      origin: clone.request.url,
      branch: clone.branch,
      baseBranch: clone.baseBranch,
      baseCommit: clone.baseCommit,
      bundle: { sha256: bundle.digest, bytes: bundle.bytes },
      policy: { sha256: policyDigest, result: "passed", commits, paths },
      ...(auditHead === undefined ? {} : { auditHead })
    }
  }
}
