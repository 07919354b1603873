/** A run whose thread was lost is charged the amount of its ledger, plus its open calls. */
import { assert, describe, it } from "@effect/vitest"
import type { LlmUsage } from "@cogni/sandbox-core/RunFigures"
import * as RunId from "@cogni/sandbox-core/RunId"
import { Effect, Exit, Scope } from "effect"
import type { AuditEntry } from "../src/AuditEntry.ts"
import * as Budget from "../src/internal/policy/Budget.ts"
import * as AuditFile from "../src/internal/audit/AuditFile.ts"
import * as AuditRecovery from "../src/internal/audit/AuditRecovery.ts"
import * as ProcessorMeter from "../src/internal/gateway/ProcessorMeter.ts"
import type { ShardConfig } from "../src/internal/shards/ShardMessage.ts"
import * as Gateway from "./GatewaySocket.ts"

const runId = RunId.RunId.make("run-4f7k2m9q0x1z")
const prices = { m: { input: 10, output: 20, cacheRead: 1 } }

/** Usage that an upstream may have reported for a call, and whether a model may have run. */
const ends: ReadonlyArray<readonly [told: LlmUsage | undefined, mayHaveRun: boolean]> = [
  [undefined, true],
  [undefined, false],
  [{ inputTokens: 10 }, true],
  [{ inputTokens: 10, cacheReadTokens: 5 }, true],
  [{ outputTokens: 7 }, true],
  [{ inputTokens: 10, costUsd: 3 }, true],
  [{ costUsd: 2 }, true],
  [{ costUsd: 0.5 }, false],
  [{ inputTokens: 10, outputTokens: 7, cacheReadTokens: 3 }, true]
]

const started = (callId: string): AuditEntry => ({
  type: "call.started",
  requestId: "0".repeat(32),
  callId,
  method: "POST",
  path: "/v1/chat/completions",
  api: "chat_completions",
  model: "m",
  stream: false,
  requestBytes: 3000,
  requestDigest: "0".repeat(64),
  sentBytes: 3000,
  sentDigest: "0".repeat(64),
  dropped: [],
  droppedTotal: 0,
  inputTokensMax: 60_000,
  cachesForHour: true,
  outputTokensMax: 500
})

const ended = (callId: string, usage: LlmUsage | undefined): AuditEntry => ({
  type: "call.ended",
  requestId: "0".repeat(32),
  callId,
  status: 200,
  outcome: "completed",
  responseBytes: 100,
  responseDigest: "0".repeat(64),
  durationMs: 1,
  ...(usage === undefined ? {} : { usage })
})

describe("AuditRecovery", () => {
  for (const [what, given] of [
    ["with prices", prices],
    ["without prices", undefined]
  ] as const)
    it.live(`charges the amount of the ledger, and the reservations of open calls, ${what}`, () =>
      Effect.gen(function* () {
        const parent = yield* Gateway.directory
        const scope = yield* Scope.make()
        const audit = yield* AuditFile.open({
          parent,
          runId,
          bytesMax: 1_000_000,
          onFailure: ({ detail }) => assert.fail(detail)
        }).pipe(Scope.provide(scope))
        const ledger = Budget.make(undefined, {
          ...(given === undefined ? {} : { prices: given }),
          defaults: { concurrentCallsMax: 100, requestsPerSecondMax: 100 }
        })
        const begin = (callId: string) => {
          audit.note(started(callId))
          return ledger.begin({
            model: "m",
            requestBytes: 3000,
            inputTokensMax: 60_000,
            cachesForHour: true,
            outputTokensMax: 500
          }) as Budget.Ticket
        }
        for (const [index, [told, mayHaveRun]] of ends.entries()) {
          const ticket = begin(`call-${index}`)
          const usage = ledger.end(ticket, {
            ...(told === undefined ? {} : { usage: told }),
            responseBytes: 100,
            mayHaveRun
          })
          audit.note(ended(`call-${index}`, usage))
        }
        begin("call-open")
        ledger.endAll()
        yield* Scope.close(scope, Exit.void)

        const { usage } = yield* AuditRecovery.recover(
          { auditBytesMax: 1_000_000, prices: given } as ShardConfig,
          { runId, auditParent: parent, reason: "planted" },
          ProcessorMeter.make()
        )
        assert.deepStrictEqual(usage, ledger.total())
      })
    )
})
