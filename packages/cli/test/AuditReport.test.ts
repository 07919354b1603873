/** Entries of an audit as lines for people. */
import { assert, describe, it } from "@effect/vitest"
import * as AuditReport from "../src/AuditReport.ts"
import { type AuditEntry, AuditLine } from "@cogni/sandbox-proxy/AuditEntry"
import * as AuditLog from "@cogni/sandbox-proxy/AuditLog"
import { Arbitrary, Schema } from "effect"
import { record, runId } from "./RunResults.ts"

const at = "2026-01-01T00:00:00.000Z"
const digest = "0".repeat(64)

const shown = (entry: AuditEntry, sound = true) =>
  AuditReport.line({ number: 1, sound, line: { seq: 1, at, ...entry, prev: digest, hash: digest } })

const started: AuditEntry = {
  type: "call.started",
  requestId: "r",
  callId: "c-1",
  method: "POST",
  path: "/v1/messages",
  api: "messages",
  model: "m",
  stream: true,
  requestBytes: 2048,
  requestDigest: digest,
  sentBytes: 1024,
  sentDigest: digest,
  dropped: ["metadata.user_id", "a b"],
  droppedTotal: 2
}

const ended: AuditEntry = {
  type: "call.ended",
  requestId: "r",
  callId: "c-1",
  status: 200,
  outcome: "completed",
  responseBytes: 512,
  responseDigest: digest,
  durationMs: 1500,
  usage: { inputTokens: 12, outputTokens: 3, costUsd: 0.25 }
}

const { usage: _, ...endedWithout } = ended

const rows: ReadonlyArray<readonly [entry: AuditEntry, says: string]> = [
  [
    started,
    'call.started  POST  /v1/messages  model=m  2 KiB → 1 KiB  without 2: "metadata.user_id,a b"  call=c-1'
  ],
  [ended, "call.ended  200  completed  512 B  1.5 s  in=12  out=3  usd=0.25  call=c-1"],
  [
    { ...endedWithout, usageMissing: true, detail: "it broke" },
    'call.ended  200  completed  512 B  1.5 s  no usage  call=c-1  detail="it broke"'
  ],
  [
    { type: "request.answered", requestId: "r", method: "GET", path: "/v1/models", status: 200 },
    "request.answered  200  GET  /v1/models"
  ],
  [
    {
      type: "tool.called",
      requestId: "r",
      tool: "core__get_current_time",
      via: "mcp",
      argumentsBytes: 2,
      argumentsDigest: digest,
      outcome: "timeout",
      resultBytes: 0,
      resultDigest: digest,
      durationMs: 10_000
    },
    "tool.called  core__get_current_time  timeout  mcp  10.0 s"
  ],
  [
    {
      type: "tool.approval_requested",
      requestId: "r",
      approvalId: "apr-1",
      tool: "acme__pay",
      effect: "external_side_effect",
      argumentsBytes: 2048,
      argumentsDigest: digest,
      expiresAt: at
    },
    `tool.approval_requested  acme__pay  external_side_effect  2 KiB  until=${at}  approval=apr-1`
  ],
  [
    {
      type: "tool.approval_decided",
      requestId: "r",
      approvalId: "apr-1",
      tool: "acme__pay",
      argumentsDigest: digest,
      decision: "denied",
      decidedBy: { type: "operator", id: "ana\u001b[2J" }
    },
    'tool.approval_decided  acme__pay  denied  by="operator ana^[[2J"  approval=apr-1'
  ],
  [
    {
      type: "exfiltration.suspected",
      evidence: { at, canary: "aws_secret_access_key", encoding: "base64", channel: "prompt" }
    },
    "exfiltration.suspected  aws_secret_access_key  base64  prompt"
  ],
  [
    { type: "budget.exhausted", exhaustion: { budget: "calls", limit: 20, used: 20 } },
    "budget.exhausted  calls  20 of 20"
  ]
]

describe("AuditReport", () => {
  it.each(rows)("formats $0.type as one line", (entry, says) => {
    assert.strictEqual(shown(entry), `  1  ${at}  ${says}`)
    assert.strictEqual(shown(entry, false), `! 1  ${at}  ${says}`)
  })

  it.prop(
    "formats any entry as one line of visible characters, of a bounded length",
    [Arbitrary.schema(AuditLine), Arbitrary.schema(Schema.String)],
    ([line, text]) => {
      const hostile = `\u001b]0;x\u0007\r\n\u2028\u202e\u009b${text}`
      for (const one of [
        line,
        { ...line, at: hostile },
        { ...line, path: hostile, detail: hostile.repeat(100) }
      ]) {
        const said = AuditReport.line({ number: 1, sound: true, line: one as AuditLine })
        assert.notMatch(said, /[\0-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]/u)
        assert.isBelow(said.length, 4096)
      }
    }
  )

  it("formats a problem as one line", () => {
    const found: AuditLog.Verdict = {
      _tag: "Broken",
      problem: { kind: "not_of_this_run", line: 1, offset: 0, detail: "of \u001b[2Jx\ny" },
      sound: AuditLog.genesis(runId)
    }
    const said = AuditReport.warning(record(), found as Extract<AuditLog.Verdict, { _tag: "Broken" }>)
    assert.strictEqual(
      said,
      `cogni-sandbox: the audit of ${runId} is not intact: not of this run at line 1 (byte 0): of ^[[2Jx y`
    )
    assert.notMatch(JSON.stringify(AuditReport.toJson(record(), found)), /\\u001b|\\n/u)
  })
})
