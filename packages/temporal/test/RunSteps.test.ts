/** Every result of the steps of a durable run, without a server. */
import { RunId } from "@cogni/sandbox-core/RunId"
import { assert, describe, it } from "@effect/vitest"
import type { AttemptReport } from "../src/DurableRun.ts"
import type { RunTask } from "../src/internal/RunTask.ts"
import {
  attemptId,
  type Executed,
  perform,
  type Placed,
  type Steps,
  type Stop
} from "../src/internal/RunSteps.ts"
import * as Runs from "./Runs.ts"

const report = (over: Partial<AttemptReport> = {}): AttemptReport => ({
  runId: "run-durable",
  attempt: 0,
  host: "host-1",
  status: "succeeded",
  spend: { calls: 0, isFinal: true },
  lastEventId: 7,
  ...over
})

const ended = (over: Partial<AttemptReport> = {}): Executed => ({ _tag: "Ended", report: report(over) })

const lost: Executed = { _tag: "HostLost", message: "no worker of it answered", lastEventId: 3 }

interface Script {
  readonly validated?: Awaited<ReturnType<Steps["validate"]>>
  readonly placed?: ReadonlyArray<Awaited<ReturnType<Steps["place"]>>>
  readonly executed?: ReadonlyArray<Executed>
  readonly halted?: Executed
  /** The answer of each record. Absent: as the step before reported. */
  readonly recorded?: ReadonlyArray<AttemptReport | undefined>
  readonly kept?: string
  readonly stop?: Stop
  /** The result of each pause. Absent: the run is placed again. */
  readonly paused?: ReadonlyArray<Awaited<ReturnType<Steps["pause"]>>>
}

const host: Placed = { _tag: "Placed", host: "host-1", queue: "queue-1" }

/** Plays a script, and returns what was asked of the hosts, in order. */
const played = async (script: Script, over: Parameters<typeof Runs.run>[1] = {}) => {
  const asked: Array<string> = []
  const tasks: Array<RunTask> = []
  const progress: Array<string> = []
  let placements = 0
  let executions = 0
  let records = 0
  const steps: Steps = {
    validate: async () => script.validated ?? { _tag: "Valid", billingAccountId: "acme" },
    place: async (runId) => {
      asked.push(`place ${runId}`)
      return script.placed?.[placements++] ?? host
    },
    execute: async (_, task) => {
      asked.push(`execute ${task.runId}`)
      tasks.push(task)
      return script.executed?.[executions++] ?? ended({ runId: task.runId, attempt: task.attempt })
    },
    pause: async (count) => {
      asked.push(`pause ${count}`)
      return script.paused?.[count - 1] ?? "Again"
    },
    stop: async (_, task) => {
      asked.push(`stop ${task.runId}`)
      return script.halted ?? ended({ status: "interrupted" })
    },
    deliver: async (_, task) => {
      asked.push(`deliver ${task.runId}`)
      return script.kept
    },
    record: async (_, { attempt, runId }, isHostLost) => {
      asked.push(`record ${runId}${isHostLost ? " elsewhere" : ""}`)
      if (script.recorded !== undefined) return script.recorded[records++]
      const executed = script.executed?.[executions - 1]
      return executed?._tag === "Ended" ? { ...executed.report, lastEventId: 0 } : report({ runId, attempt })
    },
    stopped: () => script.stop,
    progress: (status) => void progress.push(status)
  }
  const outcome = await perform(Runs.run("run-durable", over), steps)
  return { asked, outcome, progress, tasks }
}

describe("a durable run", () => {
  it("validates, places, executes and records, and reports the last event that was followed", async () => {
    const { asked, outcome, progress } = await played({ executed: [ended()] })
    assert.deepStrictEqual(asked, ["place run-durable", "execute run-durable", "record run-durable"])
    assert.deepStrictEqual(outcome, { runId: "run-durable", status: "succeeded", attempts: [report()] })
    assert.deepStrictEqual(progress, ["placing", "running", "succeeded"])
  })

  it("delivers the commits of a run on a repository, and only of one that succeeded", async () => {
    const request = Runs.onRepository
    const delivered = await played({}, { request })
    assert.include(delivered.asked, "deliver run-durable")
    const failed = await played({ executed: [ended({ status: "failed", reason: "OomKilled" })] }, { request })
    assert.notInclude(failed.asked, "deliver run-durable")
    assert.deepInclude(failed.outcome, { status: "failed", reason: "OomKilled" })
    const kept = await played({ kept: "failed" }, { request })
    assert.deepInclude(kept.outcome, { status: "failed", reason: "NotDelivered" })
  })

  it("delivers the commits of an agent that succeeded again, if its origin did not take them", async () => {
    const request = Runs.onRepository
    const refused = ended({ status: "failed", reason: "PushRefused", delivery: "failed" })
    const recorded = [report({ status: "failed", reason: "PushRefused", delivery: "pushed" })]
    const late = await played({ executed: [refused], recorded }, { request })
    assert.include(late.asked, "deliver run-durable")
    assert.strictEqual(late.outcome.status, "succeeded")
    assert.deepStrictEqual(late.outcome.attempts, [report({ delivery: "pushed" })])
    const never = await played({ executed: [refused], kept: "it is away" }, { request })
    assert.deepInclude(never.outcome, { status: "failed", reason: "NotDelivered" })
    // Those of an agent that failed are kept for the operator to look at.
    const failed = await played(
      { executed: [ended({ status: "failed", reason: "AgentFailed", delivery: "failed" })] },
      { request }
    )
    assert.notInclude(failed.asked, "deliver run-durable")
    assert.deepInclude(failed.outcome, { status: "failed", reason: "AgentFailed" })
  })

  it("delivers and records nothing if its record was complete at its end", async () => {
    const complete: Executed = { _tag: "Ended", report: report({ delivery: "pushed" }), isComplete: true }
    const { asked, outcome } = await played({ executed: [complete] }, { request: Runs.onRepository })
    assert.deepStrictEqual(asked, ["place run-durable", "execute run-durable"])
    assert.deepInclude(outcome, { status: "succeeded", attempts: [report({ delivery: "pushed" })] })
    const failed: Executed = {
      _tag: "Ended",
      report: report({ status: "failed", reason: "OomKilled" }),
      isComplete: true
    }
    assert.deepInclude((await played({ executed: [failed] })).outcome, {
      status: "failed",
      reason: "OomKilled"
    })
  })

  it("is refused before it is placed if its grant is", async () => {
    const validated = { _tag: "Refused", reason: "GrantExpired", message: "it expired" } as const
    const { asked, outcome } = await played({ validated })
    assert.deepStrictEqual(asked, [])
    assert.deepInclude(outcome, { status: "refused", reason: "GrantExpired" })
  })

  it("is placed again after a pause, as the same attempt, if its host was full after all", async () => {
    const { asked, outcome } = await played({ executed: [{ _tag: "HostFull" }, ended()] })
    assert.deepStrictEqual(asked.slice(0, 5), [
      "place run-durable",
      "execute run-durable",
      "pause 1",
      "place run-durable",
      "execute run-durable"
    ])
    assert.lengthOf(outcome.attempts, 1)
  })

  it("tells each host which one it was placed on", async () => {
    const { tasks } = await played({ placed: [{ ...host, hostId: "id-1" }] })
    assert.deepStrictEqual(
      tasks.map(({ hostId }) => hostId),
      ["id-1"]
    )
    const { tasks: earlier } = await played({})
    assert.notProperty(earlier[0], "hostId")
  })

  it("is refused when the time of its placement is over, and not for the number of placements", async () => {
    const executed = Array.from({ length: 3000 }, (): Executed => ({ _tag: "HostFull" }))
    const paused = Array.from({ length: 2000 }, (_, at) => (at === 1999 ? "Late" : "Again"))
    const { asked, outcome } = await played({ executed, paused })
    assert.deepInclude(outcome, { status: "refused", reason: "NoRoom" })
    assert.strictEqual(asked.at(-1), "pause 2000")
  })

  it("is stopped while it waits for its next placement", async () => {
    const { asked, outcome } = await played({
      executed: [{ _tag: "HostFull" }],
      paused: [{ _tag: "Stopped" }],
      stop: "Cancelled"
    })
    assert.strictEqual(asked.at(-1), "pause 1")
    assert.deepInclude(outcome, { status: "stopped", reason: "Cancelled" })
  })

  it("stops its sandbox if the step was given up while it may be running", async () => {
    const { asked, outcome } = await played({
      executed: [{ _tag: "Stopped" }],
      recorded: [report({ status: "interrupted" })],
      stop: "Cancelled"
    })
    assert.deepStrictEqual(asked.slice(1, 3), ["execute run-durable", "stop run-durable"])
    assert.deepInclude(outcome, { status: "stopped", reason: "Cancelled" })
  })

  it("stops its sandbox if its worker died before it could pass the stop on", async () => {
    const { asked, outcome } = await played({
      executed: [lost],
      recorded: [report({ status: "interrupted", spend: { calls: 1, isFinal: true } })],
      stop: "Cancelled"
    })
    assert.deepStrictEqual(asked.slice(1), ["execute run-durable", "stop run-durable", "record run-durable"])
    assert.deepInclude(outcome, { status: "stopped", reason: "Cancelled" })
    assert.strictEqual(outcome.attempts[0]?.spend.calls, 1)
  })

  it("names the time limit as the reason, if that stopped it", async () => {
    const { outcome } = await played({
      executed: [ended({ status: "interrupted" })],
      stop: "WallClockExceeded"
    })
    assert.deepInclude(outcome, { status: "stopped", reason: "WallClockExceeded" })
    assert.lengthOf(outcome.attempts, 1)
  })

  it("succeeds if it ended before the stop reached it", async () => {
    const { outcome } = await played({ executed: [ended()], stop: "Cancelled" })
    assert.strictEqual(outcome.status, "succeeded")
  })
})

describe("a lost host", () => {
  const budget = { callsMax: 10, costUsdMax: 1, onExhausted: "refuse" } as const
  const abandoned = report({
    status: "abandoned",
    spend: { calls: 4, costUsd: 0.25, isFinal: true }
  })

  it("ends the run as lost, with what its record says of the cost", async () => {
    const { asked, outcome } = await played({ executed: [lost], recorded: [abandoned] })
    assert.include(asked, "record run-durable elsewhere")
    assert.deepInclude(outcome, { status: "lost", reason: "HostLost" })
    assert.deepStrictEqual(outcome.attempts[0]?.spend, abandoned.spend)
    assert.include(outcome.message, "$0.25")
  })

  it("gives another attempt what is left of the budget, if the whole cost of the lost one is known", async () => {
    const { outcome, tasks } = await played(
      { executed: [lost, ended({ runId: "run-durable-a1", attempt: 1 })], recorded: [abandoned, report()] },
      { attemptsMax: 2, request: { ...Runs.request, budget } }
    )
    assert.strictEqual(outcome.status, "succeeded")
    assert.deepStrictEqual(
      tasks.map(({ attempt, runId }) => [runId, attempt]),
      [
        [RunId.make("run-durable"), 0],
        [RunId.make("run-durable-a1"), 1]
      ]
    )
    assert.deepStrictEqual(tasks[1]?.request.budget, { callsMax: 6, costUsdMax: 0.75, onExhausted: "refuse" })
  })

  it("did not lose a run that ended there and was delivered, as its record says", async () => {
    const request = Runs.onRepository
    const pushed = report({ delivery: "pushed" })
    const succeeded = await played({ executed: [lost], recorded: [pushed] }, { request, attemptsMax: 2 })
    assert.deepStrictEqual(succeeded.outcome, {
      runId: "run-durable",
      status: "succeeded",
      attempts: [{ ...pushed, lastEventId: 3 }]
    })
    const failed = await played(
      { executed: [lost], recorded: [report({ status: "failed", reason: "OomKilled" })] },
      { attemptsMax: 2 }
    )
    assert.deepInclude(failed.outcome, { status: "failed", reason: "OomKilled" })
    // Its commits may still be there.
    const kept = await played({ executed: [lost], recorded: [report()] }, { request, attemptsMax: 2 })
    assert.strictEqual(kept.outcome.status, "lost")
    assert.lengthOf(kept.tasks, 1)
  })

  it("also is one whose keeper ended before it told how the task ended", async () => {
    const { asked, outcome } = await played({ executed: [ended({ status: "closed" })] }, { attemptsMax: 2 })
    assert.deepInclude(outcome, { status: "lost", reason: "HostLost" })
    assert.lengthOf(asked, 3)
  })

  it("also is one whose keeper came back with an abandoned run", async () => {
    const executed = [ended({ status: "abandoned" })]
    const { outcome } = await played({ executed, recorded: [abandoned] })
    assert.deepInclude(outcome, { status: "lost", reason: "HostLost" })
  })

  for (const [why, recorded] of [
    ["it may still run", report({ status: "running", spend: { calls: 1, costUsd: 0.1, isFinal: true } })],
    [
      "its cost may be more",
      report({ status: "abandoned", spend: { calls: 1, costUsd: 0.1, isFinal: false } })
    ],
    ["its record cannot be read", undefined],
    ["its commits may be delivered", report({ status: "closed" })],
    [
      "nothing of its budget is left",
      report({ status: "abandoned", spend: { calls: 10, costUsd: 0, isFinal: true } })
    ],
    ["a call has no cost", report({ status: "abandoned", spend: { calls: 1, isFinal: true } })]
  ] as const) {
    it(`gets no other attempt if ${why}`, async () => {
      const { outcome, tasks } = await played(
        { executed: [lost], recorded: [recorded] },
        { attemptsMax: 3, request: { ...Runs.request, budget } }
      )
      assert.lengthOf(tasks, 1)
      assert.strictEqual(outcome.status, "lost")
    })
  }

  it("gets no more attempts than allowed", async () => {
    const { outcome, tasks } = await played(
      { executed: [lost, lost, lost], recorded: [abandoned, abandoned, abandoned] },
      { attemptsMax: 2 }
    )
    assert.lengthOf(tasks, 2)
    assert.lengthOf(outcome.attempts, 2)
  })
})

describe("the ID of an attempt", () => {
  it("is that of the run for the first, and has a suffix for others", () => {
    assert.strictEqual(attemptId("run-durable", 0), "run-durable")
    assert.strictEqual(attemptId("run-durable", 2), "run-durable-a2")
  })
})
