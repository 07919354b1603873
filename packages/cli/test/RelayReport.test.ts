/** Reports of deliveries: for people, for scripts, and as exit codes. */
import { assert, describe, it } from "@effect/vitest"
import * as RelayReport from "../src/RelayReport.ts"
import { RunId } from "@cogni/sandbox-core/RunId"
import * as CommitStatement from "../../git-relay/src/CommitStatement.ts"
import type { Checked, Clone, Kept } from "@cogni/sandbox-git-relay/RelaySteps"
import * as Errors from "@cogni/sandbox-git-relay/GitRelayError"
import { branchOf, CommitId } from "@cogni/sandbox-git-relay/Refs"
import type { Delivery } from "@cogni/sandbox-git-relay/DeliveryRecord"

const runId = RunId.make("run-000000000001")
const branch = branchOf(runId)
const [base, tip] = [CommitId.make("a".repeat(40)), CommitId.make("b".repeat(40))]
const url = "https://git.example.com/team/project.git"
const clone: Clone = {
  request: { runId, url, canaries: [{ name: "aws_secret_access_key", secret: "planted-value" }] },
  baseBranch: "main",
  branch,
  baseCommit: base,
  objectFormat: "sha1",
  workspacePath: "/relays/run-000000000001/workspace",
  directory: "/relays/run-000000000001"
}
const checked: Checked = {
  clone,
  tip,
  bundle: { path: "/relays/run-000000000001/bundle", bytes: 1234, digest: "c".repeat(64) },
  commits: 1,
  paths: 2,
  policyDigest: "d".repeat(64)
}

const ofReason = (reason: Errors.GitRelayReason, operation: Errors.Operation = "push") =>
  new Errors.GitRelayError({ operation, runId, reason })

const said = { detail: "it will not do", remedy: "Do otherwise" }
const refused = ofReason(
  new Errors.PolicyRefused({
    violations: [
      {
        rule: "protected-path",
        commit: tip,
        path: ".github/workflows/x.yml",
        detail: "it is protected",
        remedy: "Drop it."
      }
    ],
    violationsTotal: 3,
    keptAt: clone.directory
  }),
  "check"
)
const raced = ofReason(
  new Errors.PushRefused({ fault: "raced", branch, ...said, keptAt: clone.directory, isRetryable: true })
)

const pushed: Delivery & { readonly _tag: "Pushed" } = {
  _tag: "Pushed",
  checked,
  tip,
  unchanged: false,
  pullRequest: undefined,
  statement: CommitStatement.make(checked)
}
const pullRequest = { url: "https://git.example.com/team/project/pull/7", number: 7, existing: false }
const facts = { origin: url, branch, baseBranch: "main", baseCommit: base }

describe("one line for people", () => {
  const patch = "/tmp/work.patch"
  const lines: ReadonlyArray<readonly [string, Delivery, string, string?]> = [
    ["skipped", { _tag: "Skipped", clone }, "nothing was committed, so nothing was pushed"],
    [
      "skipped, for a patch",
      { _tag: "Skipped", clone },
      "nothing was committed: /tmp/work.patch is empty",
      patch
    ],
    ["pushed", pushed, "pushed sandbox/run-000000000001 (1 commit, 2 paths)"],
    [
      "pushed, with two commits",
      { ...pushed, checked: { ...checked, commits: 2, paths: 1 } },
      "pushed sandbox/run-000000000001 (2 commits, 1 path)"
    ],
    [
      "unchanged",
      { ...pushed, unchanged: true },
      "sandbox/run-000000000001 already exists with the same content"
    ],
    [
      "a new pull request",
      { ...pushed, pullRequest },
      "pushed sandbox/run-000000000001 (1 commit, 2 paths); pull request opened: https://git.example.com/team/project/pull/7"
    ],
    [
      "an existing pull request",
      { ...pushed, unchanged: true, pullRequest: { ...pullRequest, existing: true } },
      "sandbox/run-000000000001 already exists with the same content; pull request was already open: https://git.example.com/team/project/pull/7"
    ],
    [
      "patched",
      { _tag: "Patched", checked, patch: Buffer.from("x") },
      "wrote 1 commit to /tmp/work.patch",
      patch
    ],
    [
      "kept",
      { _tag: "Kept", clone, tip },
      "the run failed, so its commits are kept and not pushed. To deliver them: cogni-sandbox relay retry run-000000000001"
    ],
    [
      "kept, for a patch",
      { _tag: "Kept", clone, tip },
      "the run failed, so its commits are kept and not written. " +
        "To deliver them: cogni-sandbox relay retry run-000000000001 --patch '/tmp/it'\\''s a.patch'",
      "/tmp/it's a.patch"
    ],
    [
      "failed",
      { _tag: "Failed", clone, error: refused },
      "run-000000000001: check: the policy refuses the commits: protected-path, .github/workflows/x.yml in bbbbbbbbbbbb: " +
        "it is protected. Drop it. And 2 more. They are kept at /relays/run-000000000001. " +
        "Then: cogni-sandbox relay retry run-000000000001, or relay drop"
    ],
    [
      "failed, for a patch",
      { _tag: "Failed", clone, error: ofReason(new Errors.BundleRefused({ detail: "no", keptAt: "/k" })) },
      "run-000000000001: push: the agent's commits cannot be imported: no. They are kept at /k. " +
        "Then: cogni-sandbox relay retry run-000000000001 --patch /tmp/work.patch, or relay drop",
      patch
    ]
  ]
  for (const [title, delivery, line, file] of lines)
    it(`${title}`, () => assert.strictEqual(RelayReport.describe(delivery, file), line))

  it("text from an origin cannot break the line, nor control a terminal", () => {
    const error = ofReason(
      new Errors.PushRefused({
        fault: "rejected",
        branch,
        keptAt: "/k",
        isRetryable: false,
        detail: "no\n\u001b[2Jcogni-sandbox: all is well\r\u202e",
        remedy: "Look at what the origin says"
      })
    )
    const line = RelayReport.problem(error, runId, undefined)
    assert.notMatch(line, /[\u0000-\u001f\u007f-\u009f\u202e]/u)
    assert.isTrue(line.startsWith(`${runId}: `))
  })
})

describe("for scripts", () => {
  it("a delivery is its record, without other facts of the host or the run", () => {
    const rows: ReadonlyArray<readonly [Delivery, object]> = [
      [
        { _tag: "Skipped", clone },
        { status: "skipped", ...facts }
      ],
      [
        { ...pushed, pullRequest },
        {
          status: "pushed",
          ...facts,
          tip,
          pullRequestUrl: pullRequest.url,
          statement: CommitStatement.make(checked)
        }
      ],
      [
        { ...pushed, unchanged: true },
        { status: "unchanged", ...facts, tip, statement: CommitStatement.make(checked) }
      ],
      [
        { _tag: "Patched", checked, patch: Buffer.from("the patch") },
        { status: "patched", ...facts, tip }
      ],
      [
        { _tag: "Kept", clone, tip },
        { status: "kept", ...facts, tip, keptAt: clone.directory }
      ],
      [
        { _tag: "Failed", clone, error: raced },
        { status: "failed", ...facts, message: raced.message, keptAt: clone.directory }
      ]
    ]
    for (const [delivery, record] of rows) {
      const json = RelayReport.toJson(delivery)
      assert.deepStrictEqual(JSON.parse(JSON.stringify(json)), record)
      assert.notInclude(JSON.stringify(json), "planted-value")
    }
  })

  it("a failed delivery makes the run unsuccessful, with the reason", () => {
    const report = { ok: true, runId, exitCode: 0 }
    const failed: Delivery = { _tag: "Failed", clone, error: raced }
    assert.deepStrictEqual(RelayReport.withDelivery(report, failed), {
      ...report,
      ok: false,
      error: {
        code: "undelivered",
        reason: "PushRefused",
        message: raced.message,
        isRetryable: true
      },
      relay: RelayReport.toJson(failed)
    })
    // The run's own error came first, so it stays.
    const error = { code: "timeout", reason: "TimedOut", message: "late", isRetryable: false }
    assert.deepInclude(RelayReport.withDelivery({ ok: false, error }, failed), { ok: false, error })
  })

  it("any other delivery leaves the report unchanged", () => {
    const report = { ok: true, answer: "Lima" }
    for (const delivery of [pushed, { _tag: "Kept", clone, tip }, { _tag: "Skipped", clone }] as const)
      assert.deepStrictEqual(RelayReport.withDelivery(report, delivery), {
        ...report,
        relay: RelayReport.toJson(delivery)
      })
  })
})

describe("exit codes", () => {
  const origin = (isRetryable: boolean) =>
    new Errors.OriginUnavailable({ fault: "unreachable", ...said, isRetryable })
  const relay = new Errors.RelayFailed({ ...said, isRetryable: false })
  const keptAt = clone.directory
  const rows: ReadonlyArray<readonly [string, Errors.GitRelayError]> = [
    ["refused", refused],
    ["refused", ofReason(new Errors.BundleRefused({ detail: "no", keptAt }), "collect")],
    ["refused", ofReason(new Errors.PatchRefused(said), "apply")],
    ["notFound", ofReason(new Errors.NotKept({ runId, ...said }), "reopen")],
    ["configuration", ofReason(new Errors.CredentialsUnavailable({ ...said, isRetryable: true }), "clone")],
    ["refused", ofReason(new Errors.CredentialsDenied(said), "clone")],
    ["unavailable", ofReason(origin(true), "clone")],
    ["input", ofReason(origin(false), "clone")],
    ["fault", ofReason(relay, "clone")],
    ["fault", ofReason(new Errors.RelayUnavailable({}), "clone")],
    ["undelivered", ofReason(relay, "collect")],
    ["undelivered", ofReason(new Errors.RelayUnavailable({}), "push")],
    ["undelivered", raced],
    [
      "undelivered",
      ofReason(new Errors.PullRequestFailed({ ...said, isRetryable: false }), "openPullRequest")
    ]
  ]
  it.each(rows)("%s: %s", (name, error) => assert.strictEqual(RelayReport.exitOf(error), name))

  it("every reason has a row", () => {
    const tags = Errors.GitRelayReason.members.map(({ identifier }) => identifier)
    assert.sameMembers([...new Set(rows.map(([, { reason }]) => reason._tag))], tags)
  })
})

describe("kept commits", () => {
  const since = new Date("2026-01-01T00:00:00.000Z")
  const { directory } = clone
  const one: Kept = { runId, url, branch, stage: "collected", directory, since, inUse: false }
  const other: Kept = { ...one, stage: "checked", url: "/srv/\u001b[31mgit", inUse: true }

  it("are listed one run per line, aligned, with control characters made visible", () => {
    assert.deepStrictEqual(RelayReport.list([one, other], new Date("2026-01-01T00:01:05.000Z")), [
      "RUN               STAGE             SINCE        BRANCH                    ORIGIN",
      "run-000000000001  collected         1 m 5 s ago  sandbox/run-000000000001  https://git.example.com/team/project.git",
      "run-000000000001  checked (in use)  1 m 5 s ago  sandbox/run-000000000001  /srv/^[[31mgit"
    ])
  })

  it("are plain JSON for scripts", () => {
    assert.deepStrictEqual(RelayReport.keptJson(one), {
      runId: "run-000000000001",
      origin: "https://git.example.com/team/project.git",
      branch: "sandbox/run-000000000001",
      stage: "collected",
      since: "2026-01-01T00:00:00.000Z",
      inUse: false,
      keptAt: "/relays/run-000000000001"
    })
  })
})
