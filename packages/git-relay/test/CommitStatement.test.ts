/** Statements about commits, in a form that others verify: no change of them may go unnoticed. */
import { assert, describe, it } from "@effect/vitest"
import { AuditHead } from "@cogni/sandbox-core/RunFigures"
import { RunId } from "@cogni/sandbox-core/RunId"
import * as CommitStatement from "../src/CommitStatement.ts"
import type { Checked } from "@cogni/sandbox-git-relay/RelaySteps"
import { branchOf, CommitId } from "@cogni/sandbox-git-relay/Refs"
import { Schema } from "effect"

const runId = RunId.make("run-000000000001")
const [base, tip] = [CommitId.make("a".repeat(40)), CommitId.make("b".repeat(40))]
const checked: Checked = {
  clone: {
    request: {
      runId,
      url: "https://git.example.com/team/project.git",
      baseBranch: "main",
      canaries: [{ name: "aws_secret_access_key", secret: "planted-value" }]
    },
    baseBranch: "main",
    branch: branchOf(runId),
    baseCommit: base,
    objectFormat: "sha1",
    workspacePath: "/relays/run-000000000001/workspace",
    directory: "/relays/run-000000000001"
  },
  tip,
  bundle: { path: "/relays/run-000000000001/bundle", bytes: 1234, digest: "c".repeat(64) },
  commits: 3,
  paths: 5,
  policyDigest: "d".repeat(64)
}
const auditHead = { entries: 7, hash: "e".repeat(64) }

/** Everything that differs from run to run. */
const Said = Schema.Struct({
  runId: RunId,
  url: Schema.String,
  baseBranch: Schema.String,
  baseCommit: CommitId,
  tip: CommitId,
  digest: Schema.String,
  bytes: Schema.Int,
  commits: Schema.Int,
  paths: Schema.Int,
  auditHead: Schema.optionalKey(AuditHead)
})

const codec = Schema.toCodecJson(CommitStatement.CommitStatement)

describe("CommitStatement", () => {
  it("has exactly this form", () => {
    assert.deepStrictEqual(Schema.encodeSync(codec)(CommitStatement.make(checked, auditHead)) as unknown, {
      _type: "https://in-toto.io/Statement/v1",
      subject: [
        {
          name: "https://git.example.com/team/project.git#sandbox/run-000000000001",
          digest: { gitCommit: "b".repeat(40) }
        }
      ],
      predicateType: "https://cogni.dev/sandbox/commits/v1",
      predicate: {
        runId: "run-000000000001",
        origin: "https://git.example.com/team/project.git",
        branch: "sandbox/run-000000000001",
        baseBranch: "main",
        baseCommit: "a".repeat(40),
        bundle: { sha256: "c".repeat(64), bytes: 1234 },
        policy: { sha256: "d".repeat(64), result: "passed", commits: 3, paths: 5 },
        auditHead: { entries: 7, hash: "e".repeat(64) }
      }
    })
  })

  it("omits the audit head of a run without an audit", () => {
    assert.notProperty(CommitStatement.make(checked).predicate, "auditHead")
  })

  it("contains neither a canary nor a path of the host", () => {
    const text = JSON.stringify(CommitStatement.make(checked, auditHead))
    assert.notInclude(text, "planted-value")
    assert.notInclude(text, "/relays/")
  })

  it.prop("survives a JSON round trip with any values", [Said], ([{ auditHead: head, ...said }]) => {
    const { baseBranch, baseCommit, bytes, commits, digest, paths, tip: at, url } = said
    const request = { runId: said.runId, url }
    const clone = { ...checked.clone, request, baseBranch, baseCommit, branch: branchOf(said.runId) }
    const bundle = { ...checked.bundle, bytes, digest }
    const made = CommitStatement.make({ ...checked, clone, bundle, commits, paths, tip: at }, head)
    const wire = JSON.stringify(Schema.encodeSync(codec)(made))
    const back = Schema.decodeUnknownSync(codec)(JSON.parse(wire))
    assert.strictEqual(JSON.stringify(Schema.encodeSync(codec)(back)), wire)
    assert.strictEqual(made.predicate.auditHead, head)
  })

  it.each([
    ["another type", { _type: "https://in-toto.io/Statement/v0.1" }],
    ["another predicate", { predicateType: "https://cogni.dev/sandbox/commits/v2" }],
    ["a short commit", { subject: [{ name: "x", digest: { gitCommit: "b".repeat(39) } }] }],
    ["a policy that refused", { predicate: { policy: { result: "refused" } } }]
  ])("rejects a statement with %s", (_, changed) => {
    const good = Schema.encodeSync(codec)(CommitStatement.make(checked)) as object
    assert.throws(() => Schema.decodeUnknownSync(codec)({ ...good, ...changed }))
  })
})
