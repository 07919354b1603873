/**
 * No order of crashes, repeats, lost answers and concurrent recoveries charges a call twice or loses one.
 *
 * A schedule moves two runs: they are opened, their calls start and end in their audits, their processes finish or
 * die. Meanwhile recoveries settle them from an audit that they read at any earlier moment, against a ledger that fails
 * before or after it stored something. In the end, one recovery without faults must leave exactly what the audits say.
 */
import { assert, describe, it } from "@effect/vitest"
import type { AuditedCall } from "@cogni/sandbox-core/AuditedCall"
import type { LedgerEntry } from "@cogni/sandbox-ledger"
import { Ledger, Money } from "@cogni/sandbox-ledger"
import * as MoneySums from "@cogni/sandbox-ledger/MoneySums"
import * as EntryKey from "@cogni/sandbox-ledger/EntryKey"
import * as EntryFields from "@cogni/sandbox-ledger/EntryFields"
import type * as LedgerRun from "@cogni/sandbox-ledger/LedgerRun"
import { Effect, Fiber, Schema } from "effect"
import * as LedgerRecovery from "../src/LedgerRecovery.ts"
import { runOf } from "../src/testing/LedgerSamples.ts"

/** Weighted: without calls that start, nothing can be lost. */
const kinds = [
  "start",
  "start",
  "start",
  "start",
  "end",
  "end",
  "end",
  "read",
  "settle",
  "settle",
  "recover",
  "finish",
  "die"
] as const

const faults = ["none", "none", "none", "before", "answer_lost"] as const

const Seeds = Schema.Array(Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 0xffff_ffff }))).check(
  Schema.isMinLength(12),
  Schema.isMaxLength(32)
)

interface Step {
  readonly kind: (typeof kinds)[number]
  readonly run: number
  readonly pick: number
  readonly fault: (typeof faults)[number]
  /** The step goes on while the next ones happen. */
  readonly inBackground: boolean
}

/** Mixes the bits of a number, so that small numbers, which generators prefer, make all kinds of steps. */
const mixed = (value: number): number => {
  const once = Math.imul(value ^ (value >>> 16), 0x21f0_aaad)
  const twice = Math.imul(once ^ (once >>> 15), 0x735a_2d97)
  return (twice ^ (twice >>> 15)) >>> 0
}

const stepOf = (seed: number, index: number): Step => {
  const bits = mixed(seed + Math.imul(index + 1, 0x9e37_79b9))
  return {
    kind: kinds[bits % kinds.length]!,
    run: (bits >>> 8) % 2,
    pick: (bits >>> 10) % 1000,
    fault: faults[(bits >>> 20) % faults.length]!,
    inBackground: (bits >>> 25) % 3 === 0
  }
}

/** Both runs begin with calls: otherwise most schedules are over before anything can go wrong. */
const beginning = [0, 0, 0, 1, 1].map((run): Step => ({
  kind: "start",
  run,
  pick: 0,
  fault: "none",
  inBackground: false
}))

type Audit = Array<AuditedCall>

interface Life {
  readonly run: LedgerRun.LedgerRun
  readonly audit: Audit
  /** Audits that recoveries have read so far. */
  readonly seen: Array<ReadonlyArray<AuditedCall>>
  isOpen: boolean
  /** No more calls can start. */
  isOver: boolean
  /** Its process has ended it and could not settle it yet. It tries again, as `LedgerLlmProxy` does. */
  isOwed: boolean
  isDead: boolean
  /** It was taken for dead, went on with its calls, and then died. Calls that were open then may stay estimated. */
  diedAfterRecovery: boolean
}

const at = "2026-01-31T10:00:01.000Z"
const reserved = {
  inputTokens: 100,
  outputTokens: 50,
  costUsd: 1,
  priceSource: "reservation",
  estimated: true
} as const

const startCall = ({ audit, run }: Life) =>
  audit.push({
    callId: `${run.runId}-${audit.length}`,
    at,
    model: "m",
    stream: false,
    reservedUsd: 1,
    usage: reserved
  })

const endCall = (life: Life, pick: number) => {
  const open = life.audit.flatMap(({ outcome }, index) => (outcome === undefined ? [index] : []))
  const index = open[pick % Math.max(1, open.length)]
  if (index === undefined) return
  const call = life.audit[index]!
  const usage = { inputTokens: pick, outputTokens: 1, costUsd: 0.1 + pick * 1e-9 }
  life.audit[index] = { ...call, outcome: "completed", usage: pick % 7 === 0 ? reserved : usage }
}

/** A ledger whose every operation lets other fibers go on before and after it. */
const interleaved = (ledger: Ledger.Ledger["Service"]): Ledger.Ledger["Service"] => {
  const pausing =
    <Arguments extends ReadonlyArray<any>, A, E>(work: (...given: Arguments) => Effect.Effect<A, E>) =>
    (...given: Arguments): Effect.Effect<A, E> =>
      Effect.yieldNow.pipe(
        Effect.andThen(work(...given)),
        Effect.tap(() => Effect.yieldNow)
      )
  return Ledger.Ledger.of({
    open: pausing(ledger.open),
    append: pausing(ledger.append),
    settle: pausing(ledger.settle),
    openRuns: pausing(ledger.openRuns),
    keysDue: pausing(ledger.keysDue),
    keyChecked: pausing(ledger.keyChecked),
    attempts: pausing(ledger.attempts),
    list: pausing(ledger.list),
    sums: pausing(ledger.sums)
  })
}

const play = Effect.fnUntraced(function* (steps: ReadonlyArray<Step>) {
  const coming: Array<Ledger.MemoryFault> = []
  const memory = yield* Ledger.makeMemory({ fault: () => coming.shift() })
  const ledger = interleaved(memory)
  const lives = ["a", "b"].map((name): Life => ({
    run: runOf(`run-0000000${name}`),
    audit: [],
    seen: [],
    isOpen: false,
    isOver: false,
    isOwed: false,
    isDead: false,
    diedAfterRecovery: false
  }))
  const provided = Effect.provideService(Ledger.Ledger, ledger)
  const settling = (life: Life, calls: ReadonlyArray<AuditedCall>) =>
    provided(LedgerRecovery.settle(life.run, () => Effect.succeed({ calls: [...calls], isWhole: true })))
  const recovering = provided(
    LedgerRecovery.recover({
      host: "here",
      isOver: (run) => lives.some((life) => life.run.runId === run.runId && life.isOver),
      callsOf: ({ runId }) => {
        const { audit } = lives.find(({ run }) => run.runId === runId)!
        return Effect.succeed({ calls: [...audit], isWhole: true })
      }
    })
  )

  const work = (life: Life, { kind, pick }: Step): Effect.Effect<unknown> =>
    Effect.suspend(() => {
      switch (kind) {
        case "start":
          if (life.isDead || life.isOver) return Effect.void
          if (life.isOpen) return Effect.sync(() => startCall(life))
          // A run that the ledger did not open has no calls.
          return Effect.match(ledger.open(life.run), {
            onFailure: () => undefined,
            onSuccess: () => {
              life.isOpen = true
            }
          })
        case "end":
          return Effect.sync(() => {
            if (!life.isDead) endCall(life, pick)
          })
        case "read":
          // Only the audit of a run that is over is read, although its last calls may go on.
          return Effect.sync(() => {
            life.isOver = true
            life.seen.push([...life.audit])
          })
        case "settle":
          life.isOver = true
          return Effect.ignore(settling(life, life.seen[pick % life.seen.length] ?? life.audit))
        case "recover":
          return Effect.ignore(recovering)
        case "finish":
          life.isOver = true
          life.isDead = true
          return life.isOpen
            ? Effect.onError(settling(life, life.audit), () => Effect.sync(() => (life.isOwed = true))).pipe(
                Effect.ignore
              )
            : Effect.void
        case "die":
          return Effect.sync(() => {
            if (!life.isDead) life.diedAfterRecovery = life.isOver
            life.isOver = true
            life.isDead = true
          })
      }
    })

  const background: Array<Fiber.Fiber<unknown>> = []
  for (const step of steps) {
    if (step.fault !== "none") coming.push(step.fault)
    const fiber = yield* Effect.forkChild(work(lives[step.run]!, step), { startImmediately: true })
    if (step.inBackground) background.push(fiber)
    else yield* Fiber.join(fiber)
  }
  yield* Fiber.joinAll(background)

  coming.length = 0
  for (const life of lives) {
    life.isOver = true
    // A process that is alive finishes at last. One that died is recovered.
    if (life.isOwed || (!life.isDead && life.isOpen)) yield* settling(life, life.audit)
  }
  yield* recovering
  return { lives, ledger: memory }
})

/** The entries that a run must have: each call once. */
const expectedOf =
  (found: ReadonlyMap<string, LedgerEntry.LedgerEntry>) =>
  ({ audit, diedAfterRecovery, run }: Life) =>
    audit.map(({ callId, usage }) => {
      const key = `${run.runId}/0/${callId}`
      const cost = MoneySums.rounded(usage?.costUsd ?? 0)
      const isEstimated = diedAfterRecovery && found.get(key)?.reason === EntryFields.reasons.callOpen
      return [key, isEstimated ? reserved.costUsd : cost]
    })

describe("LedgerRecovery", () => {
  it.effect.prop(
    "charges every call exactly once, with its last known cost, in any order of faults",
    { seeds: Seeds },
    ({ seeds }) =>
      Effect.gen(function* () {
        const { ledger, lives } = yield* play([...beginning, ...seeds.map(stepOf)])
        const { entries } = yield* ledger.list({})
        assert.sameDeepMembers(
          entries.map((entry) => [EntryKey.key(entry), entry.costUsd]),
          lives.flatMap(expectedOf(new Map(entries.map((entry) => [EntryKey.key(entry), entry]))))
        )
        assert.deepStrictEqual(yield* ledger.openRuns("here"), [])
        const { sums } = yield* ledger.sums({ by: "total" })
        const expected = entries.reduce(
          (sum, { costUsd = 0 }) => MoneySums.add(sum, Money.fromUsd(costUsd)),
          MoneySums.zero
        )
        assert.strictEqual(sums[0]?.cost ?? 0n, expected)
        assert.strictEqual(sums[0]?.calls ?? 0, entries.length)
      }),
    { arbitrary: { runs: 10_000, seed: "schedules-1" } }
  )

  it.effect(
    "stores the calls of a run in batches that a ledger accepts, and closes the run after the last",
    () =>
      Effect.gen(function* () {
        const calls = Array.from({ length: 25_000 }, (_, index): AuditedCall => ({
          callId: `call-${index}`,
          at,
          model: "m",
          stream: false
        }))
        const stored = new Set<string>()
        const lengths: Array<number> = []
        const storedAtClose: Array<number> = []
        const store = (entries: ReadonlyArray<LedgerEntry.LedgerEntry>) => {
          lengths.push(entries.length)
          for (const { usageUnitId } of entries) stored.add(usageUnitId)
          return { added: entries.length, existing: [] }
        }
        const ledger = Ledger.Ledger.of({
          ...(yield* Ledger.makeMemory()),
          append: (entries) => Effect.sync(() => store(entries)),
          settle: ({ entries }) =>
            Effect.sync(() => {
              storedAtClose.push(stored.size)
              return store(entries)
            })
        })
        const run = runOf("run-00000001", { directory: "/runs/1" })
        const settled = yield* LedgerRecovery.settle(run, () =>
          Effect.succeed({ calls, isWhole: true })
        ).pipe(Effect.provideService(Ledger.Ledger, ledger))
        assert.strictEqual(settled, calls.length)
        assert.isAtMost(Math.max(...lengths), 10_000)
        assert.isTrue(storedAtClose.every((size) => size === calls.length))
      })
  )
})
