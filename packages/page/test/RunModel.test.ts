/** Tests that the page reads whatever the server's schemas allow. */
import { JournalEntry } from "@cogni/sandbox-core/RunJournal"
import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import * as AuditView from "../../server/src/internal/AuditView.ts"
import * as CallView from "../../server/src/internal/CallView.ts"
import * as RunsApi from "../../server/src/internal/RunsApi.ts"
import * as RunView from "../../server/src/internal/RunView.ts"
import { SignedIn } from "../../server/src/internal/SignInApi.ts"
import * as RunModel from "../src/RunModel.ts"

/** Sends a value as the server does, whose handlers build plain data, and decodes it. Throws if the page cannot. */
const read = (ours: Schema.ConstraintDecoder<unknown>, value: unknown): void =>
  void Schema.decodeUnknownSync(ours)(JSON.parse(JSON.stringify(value)))

describe("the page reads every", () => {
  it.prop("run", [RunView.RunView], ([run]) => read(RunModel.Run, run))

  it.prop("list of runs", [Schema.Struct({ next: Schema.optional(Schema.String) })], ([{ next }]) =>
    read(RunModel.RunPage, { runs: [], next })
  )

  it.prop("call", [CallView.CallPage], ([page]) => read(RunModel.CallPage, page))

  it.prop("tool call", [CallView.ToolCalls], ([list]) => read(RunModel.ToolList, list))

  it.prop("audit verdict", [AuditView.AuditVerdict], ([verdict]) => read(RunModel.AuditVerdict, verdict))

  it("delivery", () => {
    // Few texts are names of branches, so none is generated.
    const delivered = Schema.decodeUnknownSync(RunsApi.Delivered)({
      runId: "run-12345678",
      relay: {
        status: "failed",
        origin: "https://github.com/acme/app",
        branch: "sandbox/run-1",
        baseBranch: "main"
      },
      problem: { reason: "PolicyRefused", message: "a commit changes a protected path" }
    })
    read(RunModel.Delivered, delivered)
    assert.strictEqual(delivered.relay.branch, "sandbox/run-1")
  })

  it.prop("event", [JournalEntry], ([entry]) => read(RunModel.Event, entry))

  it.prop("grant", [SignedIn], ([signedIn]) => read(RunModel.SignedIn, signedIn))
})
