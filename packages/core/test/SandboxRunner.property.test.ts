/**
 * Runs in memory with any spec, any faults and any point of interruption.
 *
 * A schedule determines what the agent does, which port fails and how, and when the run is interrupted. `expected`
 * computes from the clock alone how such a run must end. The run must end so, with everything released once and in
 * order. A failure prints its seed and a replay token.
 */
import { assert, describe, it } from "@effect/vitest"
import type { SandboxError } from "@cogni/sandbox-core"
import {
  LlmProxy,
  MemoryContainerRuntime,
  RunStore,
  SandboxRunner,
  SandboxSpec,
  Workspace
} from "@cogni/sandbox-core"
import * as SandboxReason from "@cogni/sandbox-core/SandboxReason"
import * as Faults from "../../../test/harness/faults/Fault.ts"
import * as Interceptor from "../../../test/harness/faults/Interceptor.ts"
import * as ResourceLedger from "../../../test/harness/faults/ResourceLedger.ts"
import { Cause, Clock, Duration, Effect, Exit, Fiber, Layer, Schema } from "effect"
import { TestClock } from "effect/testing"
import { leftovers, llm, record, runId } from "./Specs.ts"

const between = (minimum: number, maximum: number) => Schema.Int.check(Schema.isBetween({ minimum, maximum }))

const detail = "planted"
const remedy = "Take it out"
const containerFailed = new SandboxReason.ContainerFailed({ operation: "planted", detail, remedy })
const unavailable = new SandboxReason.RuntimeUnavailable({ detail, remedy })
const proxyFailed = new SandboxReason.ProxyFailed({ detail, remedy })
const workspaceFailed = new SandboxReason.WorkspaceFailed({ path: "/planted", detail, remedy })

/** The error of each call, as different as their types allow. */
const errors = {
  "RunStore.open": new SandboxReason.RunIdInUse({ runId }),
  "Workspace.acquire": workspaceFailed,
  "LlmProxy.acquire": unavailable,
  "ContainerRuntime.acquire": new SandboxReason.ImageNotFound({ image: "planted" }),
  "Container.start": new SandboxReason.PostureMismatch({ mismatches: ["planted"] }),
  "LlmProxy.ready": containerFailed,
  "Container.proceed": proxyFailed,
  "Container.output": containerFailed,
  "Container.exit": unavailable,
  "Container.stop": containerFailed,
  "Workspace.countedBytes": workspaceFailed,
  "LlmProxy.failure": proxyFailed,
  "LlmProxy.traffic": proxyFailed
} satisfies { [O in Interceptor.Operation]?: Interceptor.Operations[O] }

type Call = keyof typeof errors
const calls = Object.keys(errors) as ReadonlyArray<Call>
const releases = [
  "ContainerRuntime.release",
  "LlmProxy.release",
  "Workspace.release",
  "RunStore.release"
] as const

const Moment = Schema.Literals(["before", "after"])

/** So short that several slow calls together stay under every bound, and only a call that hangs times out. */
const slowSecondsMax = 5

const Fault = Schema.Union([
  Schema.Struct({ _tag: Schema.Literal("FailNth"), operation: Schema.Literals(calls), moment: Moment }),
  Schema.Struct({ _tag: Schema.Literal("Hang"), operation: Schema.Literals(calls), moment: Moment }),
  Schema.Struct({
    _tag: Schema.Literal("Slow"),
    operation: Schema.Literals([...calls, ...releases, "RunStore.save"]),
    seconds: between(1, slowSecondsMax)
  }),
  Schema.Struct({ _tag: Schema.Literal("DieOnRelease"), operation: Schema.Literals(releases) })
])
type Fault = typeof Fault.Type

const Schedule = Schema.Struct({
  spec: SandboxSpec.SandboxSpec,
  withModel: Schema.Boolean,
  runtimeSecondsMax: between(1, 30),
  stopGraceSecondsMax: between(0, 10),
  agent: Schema.Struct({
    seconds: between(0, 40),
    exitCode: between(0, 255),
    /** The kernel's action: 0 and 1 kill for memory, 1 and 2 refuse a process. */
    kernel: between(0, 12),
    listens: Schema.Boolean,
    /** The limit is 100. */
    outputBytes: between(0, 125),
    /** Writes a canary before anything else, if one is planted. */
    leaks: Schema.Boolean
  }),
  /** The proxy reports that a budget is spent, once it is ready. */
  exhausted: Schema.Boolean,
  faults: Schema.Array(Fault).check(Schema.isMaxLength(3)),
  interruption: Schema.Union([
    Schema.Undefined,
    Schema.Struct({ turns: between(0, 120), seconds: between(0, 40) })
  ])
})
type Schedule = typeof Schedule.Type

const toFault = (fault: Fault): Faults.Fault => {
  switch (fault._tag) {
    case "FailNth":
      return { ...fault, nth: 1, error: errors[fault.operation] } as Faults.Fault
    case "Hang":
      return { ...fault, nth: 1 }
    case "Slow":
      return { _tag: "Slow", operation: fault.operation, millis: fault.seconds * 1000 }
    case "DieOnRelease":
      return fault
  }
}

const kernelOf = ({ agent }: Schedule) => ({
  oomKilled: agent.kernel <= 1,
  processesRefused: agent.kernel === 1 || agent.kernel === 2
})

/** Bytes that a leak adds to the output. */
const canaryBytes = 20

const leaks = ({ agent, spec }: Schedule) => agent.leaks && spec.canaries !== "off"

/** If a store claimed an ID and its answer was lost, the reaper is responsible, not the run. */
const isFair = (fault: Fault) =>
  !(fault.operation === "RunStore.open" && "moment" in fault && fault.moment === "after")

type End = "exited" | SandboxError.Reason["_tag"]

/** When a step ends, and how the run can end if this step ends it. Infinity means never. */
interface Step {
  readonly at: number
  readonly ends?: ReadonlyArray<End>
}

/** Combines concurrent steps: the first to fail, or else the last to end. Ties may go either way. */
const together = (steps: ReadonlyArray<Step>): Step => {
  const failing = steps.filter((step) => step.ends !== undefined)
  if (failing.length === 0) return { at: Math.max(...steps.map((step) => step.at)) }
  const at = Math.min(...failing.map((step) => step.at))
  return { at, ends: failing.filter((step) => step.at === at).flatMap((step) => step.ends ?? []) }
}

const expected = (schedule: Schedule): ReadonlyArray<End> => {
  const { agent, runtimeSecondsMax, spec, stopGraceSecondsMax, withModel } = schedule
  const { oomKilled, processesRefused } = kernelOf(schedule)
  const faults = schedule.faults.filter(isFair)
  // Packages need the proxy too.
  const withProxy = withModel || spec.packages.length > 0
  const exhausted = withModel && schedule.exhausted
  const stopsForBudget = exhausted && specOf(schedule).llm?.budget?.onExhausted === "stop"
  const stopsForLeak = leaks(schedule) && schedule.spec.canaries === "stop"

  const ask = (
    operation: Call,
    from: number,
    options: { readonly seconds?: number; readonly again?: boolean } = {}
  ): Step => {
    let at = from
    for (const moment of ["before", "after"] as const) {
      for (const fault of faults) {
        if (fault.operation !== operation) continue
        if (fault._tag === "Slow" && moment === "before") at += fault.seconds
        if (options.again === true || !("moment" in fault) || fault.moment !== moment) continue
        if (fault._tag === "Hang") return { at: Number.POSITIVE_INFINITY }
        return { at, ends: [errors[operation]._tag] }
      }
      if (moment === "before") at += options.seconds ?? 0
    }
    return { at }
  }
  const bounded = (step: Step, from: number, seconds: number, end: End): Step =>
    step.at > from + seconds ? { at: from + seconds, ends: [end] } : step
  const phase = (operation: Call, from: number, tooSlow: End) =>
    bounded(ask(operation, from), from, 120, tooSlow)
  const ifProxy = (step: Step): ReadonlyArray<Step> => (withProxy ? [step] : [])

  const watch = (start: number): Step => {
    const selfExit = start + agent.seconds
    const kernel: ReadonlyArray<End> = oomKilled ? ["OomKilled"] : processesRefused ? ["PidsExhausted"] : []
    const floods = agent.outputBytes + (leaks(schedule) ? canaryBytes : 0) > 100
    const reader = ask("Container.output", start)
    const read = Math.max(reader.at, selfExit)
    const exit = ask("Container.exit", read)
    const time: Step = { at: start + runtimeSecondsMax }

    /** The host stops it, at `from`, because of `limit`. Only a limit of the kernel takes precedence. */
    const stopped = (from: number, limit: End): ReadonlyArray<End> => {
      const unknown: ReadonlyArray<End> = [limit]
      const deadline = from + stopGraceSecondsMax + 10
      const asked = ask("Container.stop", from)
      if (asked.ends !== undefined || asked.at === Number.POSITIVE_INFINITY || reader.ends !== undefined)
        return unknown
      const stoppedAt = (at: number): ReadonlyArray<readonly [at: number, ends: ReadonlyArray<End>]> => {
        if (selfExit < at || agent.listens) return [[at, kernel]]
        const kill = at + stopGraceSecondsMax
        return [
          ...(selfExit <= kill ? [[selfExit, kernel] as const] : []),
          ...(kill <= selfExit ? [[kill, []] as const] : [])
        ]
      }
      return stoppedAt(asked.at).flatMap(([at, facts]): ReadonlyArray<End> => {
        const told = (again: boolean): ReadonlyArray<End> => {
          const answer = ask("Container.exit", Math.max(at, reader.at), { again })
          const known = answer.ends === undefined && facts.length > 0 ? facts : unknown
          return answer.at > deadline ? unknown : answer.at === deadline ? [...unknown, ...known] : known
        }
        // The exit was already requested if the output had ended before.
        return read < from ? told(true) : read > from ? told(false) : [...told(true), ...told(false)]
      })
    }

    const flood: Step = { at: floods && reader.ends === undefined ? reader.at : Number.POSITIVE_INFINITY }
    const spent: Step = { at: stopsForBudget ? start : Number.POSITIVE_INFINITY }
    const leak: Step = {
      at: stopsForLeak && reader.ends === undefined ? reader.at : Number.POSITIVE_INFINITY
    }
    const disk = ask("Workspace.countedBytes", start)
    const failure = ask("LlmProxy.failure", start, { seconds: Number.POSITIVE_INFINITY })
    const readerFails: Step = reader.ends === undefined ? { at: Number.POSITIVE_INFINITY } : reader
    const exits: Step = reader.ends === undefined ? exit : { at: Number.POSITIVE_INFINITY }
    const never = (step: Step): Step => (step.ends === undefined ? { at: Number.POSITIVE_INFINITY } : step)
    const hostLimits = [
      [time, "TimedOut"],
      [flood, "OutputLimitExceeded"],
      [spent, "BudgetExceeded"],
      [leak, "ExfiltrationSuspected"]
    ] as const
    const faulty = [readerFails, never(disk), ...(withProxy ? [never(failure)] : [])]
    const candidates = [exits, ...hostLimits.map(([step]) => step), ...faulty]
    const at = Math.min(...candidates.map((step) => step.at))
    const ends = new Set<End>()
    if (exits.at === at) {
      for (const end of exits.ends ??
        (kernel.length > 0 ? kernel : floods ? ["OutputLimitExceeded" as const] : ["exited" as const])) {
        ends.add(end)
      }
    }
    for (const [step, limit] of hostLimits)
      if (step.at === at) for (const end of stopped(at, limit)) ends.add(end)
    for (const step of faulty) if (step.at === at) for (const end of step.ends ?? []) ends.add(end)
    if (exits.at !== at || exits.ends !== undefined) return { at, ends: [...ends] }
    // A run that ended by itself is measured once more.
    const measured = ask("Workspace.countedBytes", at, { again: true }).at
    const bound = start + runtimeSecondsMax + stopGraceSecondsMax + 30
    if (measured >= bound) ends.add("RuntimeUnavailable")
    if (measured > bound) return { at: bound, ends: [...ends].filter((end) => end !== "exited") }
    const [only] = ends
    return ends.size === 1 && only === "exited" ? { at: measured } : { at: measured, ends: [...ends] }
  }

  const stages: ReadonlyArray<(from: number) => Step> = [
    (from) => phase("RunStore.open", from, "HostFailed"),
    (from) =>
      together([
        phase("Workspace.acquire", from, "HostFailed"),
        ...ifProxy(phase("LlmProxy.acquire", from, "ProxyFailed"))
      ]),
    (from) => phase("ContainerRuntime.acquire", from, "RuntimeUnavailable"),
    (from) =>
      together([
        phase("Container.start", from, "RuntimeUnavailable"),
        ...ifProxy(phase("LlmProxy.ready", from, "ProxyFailed"))
      ]),
    (from) => phase("Container.proceed", from, "RuntimeUnavailable"),
    watch,
    (from) => together([{ at: from }, ...ifProxy(phase("LlmProxy.traffic", from, "ProxyFailed"))])
  ]
  let at = 0
  const possible = new Set<End>()
  for (const stage of stages) {
    const step = stage(at)
    for (const end of step.ends ?? []) if (end !== "exited") possible.add(end)
    if (step.ends !== undefined && !step.ends.includes("exited")) return [...possible]
    at = step.at
  }
  if (stopsForBudget) possible.add("BudgetExceeded")
  if (stopsForLeak) possible.add("ExfiltrationSuspected")
  if (exhausted && agent.exitCode !== 0 && !stopsForLeak) possible.add("BudgetExceeded")
  const judged = stopsForBudget || stopsForLeak || (exhausted && agent.exitCode !== 0)
  return [...possible, ...(judged ? [] : ["exited" as const])]
}

/** A workspace in memory, and the canary that it planted. */
const planting = () => {
  let found = ""
  const layer = Layer.effect(
    Workspace.Workspace,
    Effect.map(Workspace.makeMemory(), (inner) => ({
      acquire: (request) => {
        found = /AKIA[A-Z2-7]{16}/u.exec(JSON.stringify(request.planted))?.[0] ?? ""
        return inner.acquire(request)
      }
    }))
  )
  return { layer, canary: () => found }
}

const programOf =
  (schedule: Schedule, canary: () => string): MemoryContainerRuntime.Program =>
  ({ stdout, terminated }) =>
    Effect.gen(function* () {
      const { exitCode, listens, outputBytes, seconds } = schedule.agent
      if (leaks(schedule)) yield* stdout(canary())
      if (outputBytes > 0) yield* stdout("x".repeat(outputBytes))
      if (seconds > 0) {
        const working = Effect.sleep(Duration.seconds(seconds))
        yield* listens ? Effect.raceFirst(working, terminated) : working
      }
      return { exitCode, ...kernelOf(schedule), peak: {} }
    })

const exhaustion = { budget: "calls", limit: 1, used: 1 } as const

const layerOf = (schedule: Schedule) => {
  const workspace = planting()
  const base = Layer.mergeAll(
    MemoryContainerRuntime.layer({ program: programOf(schedule, workspace.canary) }),
    LlmProxy.layerMemory({
      observations: schedule.exhausted ? [{ _tag: "BudgetExhausted", exhaustion }] : []
    }),
    workspace.layer,
    RunStore.layerMemory
  )
  const faults = Faults.interceptor(schedule.faults.filter(isFair).map(toFault))
  return SandboxRunner.layer.pipe(
    Layer.provideMerge(Interceptor.layer(ResourceLedger.observe(base), faults)),
    Layer.provideMerge(ResourceLedger.layer)
  )
}

const specOf = ({
  runtimeSecondsMax,
  spec,
  stopGraceSecondsMax,
  withModel
}: Schedule): SandboxSpec.SandboxSpecInput => {
  const { llm: generated, ...rest } = spec
  return {
    ...rest,
    runId,
    // A proxy without these tools refuses the spec, which another test covers.
    tools: [],
    limits: { ...spec.limits, runtimeSecondsMax, stopGraceSecondsMax, outputBytesMax: 100 },
    ...(withModel ? { llm: generated ?? llm } : {})
  }
}

/** Counts how runs ended, to detect a generator that misses an end. */
const seen = new Map<string, number>()
const count = (what: string) => seen.set(what, (seen.get(what) ?? 0) + 1)

const live = Effect.fnUntraced(function* (schedule: Schedule) {
  const { interruption } = schedule
  const runner = yield* SandboxRunner.SandboxRunner
  const fiber = yield* Effect.forkChild(runner.run(specOf(schedule)))
  let mustBeInterrupted = false
  if (interruption !== undefined) {
    for (let turn = 0; turn < interruption.turns; turn++) yield* Effect.yieldNow
    yield* TestClock.adjust(Duration.seconds(interruption.seconds))
    const saved = yield* record()
    // A run that has ended and is still writing its record can no longer be interrupted.
    const closing = new Set(["RunStore.save", "LlmProxy.traffic"])
    const ending = schedule.faults.some((fault) => closing.has(fault.operation))
    mustBeInterrupted =
      fiber.pollUnsafe() === undefined &&
      !ending &&
      (saved === undefined || saved.outcome.status === "running")
    yield* Effect.forkChild(Fiber.interrupt(fiber))
  }
  yield* TestClock.adjust("15 minutes")
  const exit = fiber.pollUnsafe()
  if (exit === undefined)
    return assert.fail(`still running after 15 minutes, at ${yield* Clock.currentTimeMillis} ms`)

  const interrupted = Exit.isFailure(exit) && Cause.hasInterrupts(exit.cause)
  const failure = Exit.isFailure(exit) ? exit.cause.reasons.find(Cause.isFailReason)?.error : undefined
  const end = interrupted
    ? "interrupted"
    : Exit.isSuccess(exit)
      ? "exited"
      : (failure?.reason._tag ?? "defect")
  count(end)
  if (mustBeInterrupted) assert.strictEqual(end, "interrupted")
  if (interruption === undefined) assert.notStrictEqual(end, "interrupted")
  if (end !== "interrupted") assert.include([...expected(schedule)], end)

  const kept = yield* record()
  const last = kept?.outcome
  if (last === undefined) {
    // Nothing was started: the store itself failed, or the interruption came first.
    assert.isTrue(interrupted || schedule.faults.some((fault) => fault.operation === "RunStore.open"))
  } else {
    assert.isDefined(kept?.endedAt)
    const written = last.status === "failed" ? last.reason : last.status
    // An interruption during the release finds the final record already written.
    const alsoRight: ReadonlyArray<string> = interrupted && !mustBeInterrupted ? expected(schedule) : []
    assert.include([end, ...alsoRight], written)
  }

  const ledger = yield* ResourceLedger.ResourceLedger
  assert.deepStrictEqual(yield* ledger.violations, [])
  assert.deepStrictEqual(yield* leftovers(), [])
})

describe("SandboxRunner with faults and interruption", () => {
  it.effect.prop(
    "releases everything once and in order, writes a final record, and returns the right error",
    [Schedule],
    ([schedule]) => live(schedule).pipe(Effect.provide(layerOf(schedule), { local: true })),
    { arbitrary: { runs: 1500, seed: "schedules-1" } }
  )

  it("covers every end with its schedules", () => {
    for (const end of [
      "exited",
      "interrupted",
      "TimedOut",
      "OomKilled",
      "PidsExhausted",
      "OutputLimitExceeded",
      "BudgetExceeded",
      "ExfiltrationSuspected",
      "RunIdInUse",
      "WorkspaceFailed",
      "HostFailed",
      "ImageNotFound",
      "PostureMismatch",
      "ProxyFailed",
      "ContainerFailed",
      "RuntimeUnavailable"
    ]) {
      assert.isAtLeast(seen.get(end) ?? 0, 3, `${end}: ${JSON.stringify([...seen])}`)
    }
  })
})
