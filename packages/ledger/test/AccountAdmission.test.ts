/** Admission of runs: whom it asks, what it reserves, what it says, and what it does while the database is gone. */
import { assert, describe, it } from "@effect/vitest"
import * as CallPace from "@cogni/sandbox-core/CallPace"
import * as LlmProxy from "@cogni/sandbox-core/LlmProxy"
import type * as LlmObservation from "@cogni/sandbox-core/LlmObservation"
import * as RunId from "@cogni/sandbox-core/RunId"
import type { LlmAccess } from "@cogni/sandbox-core/SpecFields"
import { AccountLimits, AccountReservations, Ledger, LedgerLlmProxy, Money } from "@cogni/sandbox-ledger"
import * as AccountAdmission from "@cogni/sandbox-ledger/AccountAdmission"
import { LedgerUnavailable } from "@cogni/sandbox-ledger/LedgerError"
import { Effect, Exit, Fiber, Scope } from "effect"
import { TestClock } from "effect/testing"
import * as Await from "../../../test/harness/Await.ts"
import * as LedgerSamples from "../src/testing/LedgerSamples.ts"

const idOf = (index: number) => RunId.RunId.make(`run-${String(index).padStart(8, "0")}`)

const access = (changes: Partial<LlmAccess> = {}): LlmAccess => ({
  model: "m",
  models: {},
  identity: { billingAccountId: "acct", attempt: 0, userId: "u" },
  unknownFields: "drop",
  caller: "sandbox",
  ...changes
})

const gone = new LedgerUnavailable({ detail: "is gone", remedy: "Start it" })

/** A proxy whose accounts have these limits, over reservations that can fail. */
const start = Effect.fnUntraced(function* (
  limits: AccountLimits.AccountLimits,
  options: Partial<AccountAdmission.AccountAdmissionOptions> & {
    readonly proxy?: Partial<LedgerLlmProxy.LedgerLlmProxyOptions>
    readonly capabilities?: Partial<LlmObservation.LlmProxyCapabilities>
  } = {}
) {
  const failing = new Set<string>()
  /** Reservations whose answer is lost before they are stored. */
  const late: Array<Effect.Effect<unknown, unknown>> = []
  let recoveries = 0
  const ledger = yield* Ledger.makeMemory({
    fault: (operation) => {
      if (operation === "openRuns") recoveries += 1
      return undefined
    }
  })
  const memory = yield* Effect.provideService(AccountReservations.makeMemory, Ledger.Ledger, ledger)
  const faulty = <A, E>(name: string, work: Effect.Effect<A, E>) =>
    Effect.suspend((): Effect.Effect<A, E | LedgerUnavailable> =>
      failing.has(name) ? Effect.fail(gone) : work
    )
  const reservations = AccountReservations.AccountReservations.of({
    ...memory,
    reserve: (asked) =>
      failing.has("answer")
        ? Effect.andThen(
            Effect.sync(() => late.push(memory.reserve(asked))),
            Effect.fail(gone)
          )
        : faulty("reserve", memory.reserve(asked)),
    release: (ended) => faulty("release", memory.release(ended)),
    renew: (lease) => faulty("renew", memory.renew(lease))
  })
  const { capabilities, proxy: proxyOptions, ...given } = options
  const admission = yield* AccountAdmission.make({
    owner: "boot/1/1",
    limitOf: (account) => Effect.succeed(AccountLimits.limitOf(limits, account)),
    estimateUsd: limits.estimateUsd,
    isFree: (model) => AccountLimits.isFreeModel(limits, model),
    ...given
  }).pipe(Effect.provideService(AccountReservations.AccountReservations, reservations))
  const asked: Array<LlmProxy.LlmRequest> = []
  const inner = yield* LlmProxy.makeMemory({ calls: [{ inputTokens: 3, outputTokens: 1, costUsd: 0.5 }] })
  const proxy = yield* LedgerLlmProxy.make(
    LlmProxy.LlmProxy.of({
      capabilities: { ...inner.capabilities, ...capabilities },
      acquire: (request) =>
        Effect.andThen(
          Effect.sync(() => asked.push(request)),
          inner.acquire(request)
        )
    }),
    {
      host: "here",
      owner: "boot/1/1",
      isOrphaned: () => false,
      callsOf: () => Effect.succeed(undefined),
      ...proxyOptions
    },
    admission
  ).pipe(Effect.provideService(Ledger.Ledger, ledger))
  // The first regular recovery, which would settle what a test enters after this.
  yield* Await.until(
    "the first recovery has read the open runs",
    Effect.sync(() => recoveries > 0)
  )
  const acquire = (index: number, llm = access()) =>
    proxy.acquire({
      runId: idOf(index),
      llm,
      runtimeSecondsMax: 60,
      tools: [],
      canaries: { policy: "off", planted: [] },
      observe: () => Effect.void
    })
  const admit = (index: number, llm = access()) =>
    proxy.admissions!.admit({ runId: idOf(index), llm, runtimeSecondsMax: 60 })
  const check = (llm = access()) => proxy.admissions!.check({ llm, runtimeSecondsMax: 60 })
  const standing = Effect.map(memory.standing("acct", "1970-01-01T00:00:00.000Z"), ({ day, runs }) => [
    runs,
    Money.toUsd(day.spent),
    Money.toUsd(day.reserved)
  ])
  return { acquire, admit, asked, check, failing, late, ledger, reservations: memory, standing }
})

const own = { onExhausted: "refuse", costUsdMax: 3 } as const

const isOrphaned = ({ owner }: { readonly owner: string }) => owner === "boot/2/2"

/** A run of another process of this host, which dies while its run is open. */
const die = Effect.fnUntraced(function* (
  { ledger, reservations }: Pick<Effect.Success<ReturnType<typeof start>>, "ledger" | "reservations">,
  index: number,
  billingAccountId = "acct"
) {
  const run = LedgerSamples.runOf(idOf(index), { billingAccountId, owner: "boot/2/2" })
  yield* reservations.reserve({
    run,
    billingAccountId,
    owner: run.owner,
    limit: {},
    amount: Money.fromUsd(5),
    now: "1970-01-01T00:00:00.000Z",
    leaseUntil: "1970-01-01T00:05:00.000Z"
  })
  yield* ledger.open(run)
})

describe("AccountAdmission", () => {
  it.effect("reserves the run's own cost budget, or the estimate, which then is the budget", () =>
    Effect.gen(function* () {
      const { acquire, admit, asked, standing } = yield* start({ estimateUsd: 2, default: { dayUsdMax: 10 } })
      yield* admit(1)
      assert.deepStrictEqual(yield* standing, [1, 0, 2])
      yield* acquire(1)
      yield* admit(2, access({ budget: own }))
      assert.deepStrictEqual(yield* standing, [2, 0, 5])
      yield* acquire(2, access({ budget: own }))
      assert.deepStrictEqual(
        asked.map(({ account, llm }) => [llm?.budget, account?.reservesCost]),
        [
          [{ onExhausted: "refuse", costUsdMax: 2 }, true],
          [own, false]
        ]
      )
    })
  )

  it.effect("returns what a run did not use once the ledger has settled it", () =>
    Effect.gen(function* () {
      const { acquire, admit, standing } = yield* start({ default: { dayUsdMax: 10 } })
      const scope = yield* Scope.make()
      yield* Effect.gen(function* () {
        yield* admit(1)
        yield* (yield* acquire(1)).finish
        assert.deepStrictEqual(yield* standing, [0, 0.5, 0], "settled, and not yet released")
      }).pipe(Effect.provideService(Scope.Scope, scope))
      yield* Scope.close(scope, Exit.void)
      assert.deepStrictEqual(yield* standing, [0, 0.5, 0])
    })
  )

  it.effect("says what is spent, reserved and left, and when to try again", () =>
    Effect.gen(function* () {
      const { acquire, admit, check } = yield* start({ default: { dayUsdMax: 1.5, concurrentRunsMax: 2 } })
      yield* admit(1)
      yield* TestClock.adjust("23 hours")
      const error = yield* Effect.flip(admit(2))
      assert.strictEqual(error._tag, "InsufficientCredits")
      assert.strictEqual(
        error.message,
        "account acct cannot pay for this run: its limit is 1.5 US dollars a day, of which 0 are spent and 1 are " +
          "reserved by other runs, and this run may spend 1. Give the run a smaller cost budget " +
          "(llm.budget.costUsdMax), wait until other runs end, or raise the limit"
      )
      assert.deepInclude(error, { retrySeconds: 10 })
      assert.deepStrictEqual(yield* Effect.flip(check()), error, "the same without reserving")
      yield* admit(2, access({ budget: { ...own, costUsdMax: 0.5 } }))
      const busy = yield* Effect.flip(admit(3, access({ budget: { ...own, costUsdMax: 0.001 } })))
      assert.deepInclude(busy, {
        _tag: "AccountBusy",
        code: "rate_limit",
        isRetryable: true,
        retrySeconds: 10
      })
      assert.include(busy.message, "it has 2 open runs, and its limit is 2")
      yield* (yield* acquire(1)).finish
      const spent = yield* Effect.flip(admit(3, access({ budget: { ...own, costUsdMax: 1.25 } })))
      assert.deepInclude(spent, { retrySeconds: 3600 })
      assert.include(spent.message, "wait until the day ends, at 1970-01-02T00:00:00.000Z")
    })
  )

  it.effect(
    "says that a run may spend more than the whole limit, and what to change, and no time to wait",
    () =>
      Effect.gen(function* () {
        const limits = { estimateUsd: 2, default: { dayUsdMax: 20, monthUsdMax: 1.5 } }
        const { admit, check } = yield* start(limits)
        const budget = yield* Effect.flip(admit(1, access({ budget: own })))
        assert.strictEqual(
          budget.message,
          "account acct cannot pay for this run: this run's cost budget is 3 US dollars, more than the account's " +
            "whole limit of 1.5 a month. Waiting does not help: lower the run's cost budget " +
            "(llm.budget.costUsdMax) to at most 1.5, or raise the account's limit (monthUsdMax)"
        )
        assert.notProperty(budget, "retrySeconds")
        const estimate = yield* Effect.flip(check())
        assert.include(
          estimate.message,
          "the estimate for a run without a cost budget is 2 US dollars, more than"
        )
        assert.include(
          estimate.message,
          "give the run a cost budget (llm.budget.costUsdMax) of at most 1.5, or"
        )
        const none = yield* start({ default: { dayUsdMax: 0 } })
        const unpaid = yield* Effect.flip(none.admit(1))
        assert.include(
          unpaid.message,
          "its limit is 0 US dollars a day, so it can use only free models. Use a free"
        )
        assert.notProperty(unpaid, "retrySeconds")
      })
  )

  it.effect("admits a run at the latest when it gets its socket", () =>
    Effect.gen(function* () {
      const { acquire, asked, standing } = yield* start({ default: { concurrentRunsMax: 1, dayUsdMax: 5 } })
      yield* acquire(1)
      assert.deepStrictEqual(yield* standing, [1, 0, 1])
      assert.strictEqual((yield* Effect.flip(acquire(2)))._tag, "AccountBusy")
      assert.strictEqual(asked.length, 1)
    })
  )

  it.effect("asks no one about free models, if every model of the run is free", () =>
    Effect.gen(function* () {
      const questions: Array<AccountAdmission.PayRequest> = []
      const { acquire, admit, asked, standing } = yield* start(
        { freeModels: ["*:free"], default: { dayUsdMax: 0 } },
        { canPay: (question) => Effect.sync(() => questions.push(question) > 0) }
      )
      yield* admit(1, access({ model: "a:free", models: { b: "b:free" } }))
      yield* acquire(1, access({ model: "a:free" }))
      assert.deepStrictEqual(questions, [])
      assert.isUndefined(asked[0]?.llm?.budget)
      assert.deepStrictEqual(yield* standing, [0, 0, 0], "nothing has to be reserved")
      const mixed = yield* Effect.flip(admit(2, access({ model: "a:free", models: { b: "paid" } })))
      assert.strictEqual(mixed._tag, "InsufficientCredits")
      assert.deepStrictEqual(questions[0]?.models, ["a:free", "paid"])
    })
  )

  it.effect("asks canPay with the estimate before it reserves, and refuses without an answer", () =>
    Effect.gen(function* () {
      const questions: Array<AccountAdmission.PayRequest> = []
      let answer: Effect.Effect<boolean, AccountAdmission.NoAnswer> = Effect.succeed(false)
      const { admit, asked, acquire, standing } = yield* start(
        {},
        {
          canPay: (question) => {
            questions.push(question)
            return answer
          }
        }
      )
      const unpaid = yield* Effect.flip(admit(1, access({ budget: own })))
      assert.strictEqual(unpaid._tag, "InsufficientCredits")
      assert.include(unpaid.message, "no credit for the 3 US dollars")
      assert.containSubset(questions, [
        { billingAccountId: "acct", estimateUsd: 3, userId: "u", models: ["m"] }
      ])
      answer = Effect.fail({ message: "the bank is closed" })
      assert.include((yield* Effect.flip(admit(1))).message, "the bank is closed")
      answer = Effect.never
      const waiting = yield* Effect.forkChild(Effect.flip(Effect.scoped(admit(1))))
      yield* TestClock.adjust(`${AccountAdmission.askSecondsMax} seconds`)
      assert.include((yield* Fiber.join(waiting)).message, "no answer within 10 s")
      assert.deepStrictEqual(yield* standing, [0, 0, 0])
      answer = Effect.succeed(true)
      yield* acquire(1)
      assert.strictEqual(asked[0]?.llm?.budget?.costUsdMax, 1, "bounded by what was asked for")
    })
  )

  it.effect("refuses runs while reservations are unavailable, and frees a place as soon as it can", () =>
    Effect.gen(function* () {
      const { admit, failing, standing } = yield* start({ default: { concurrentRunsMax: 1 } })
      failing.add("reserve")
      const error = yield* Effect.flip(admit(1))
      assert.strictEqual(error._tag, "StoreUnavailable")
      assert.include(error.message, "Start it")
      failing.clear()
      yield* Effect.scoped(
        Effect.andThen(
          admit(2),
          Effect.sync(() => failing.add("release"))
        )
      )
      assert.deepStrictEqual(yield* standing, [1, 0, 0])
      yield* TestClock.adjust(`${AccountAdmission.renewSeconds} seconds`)
      failing.clear()
      yield* TestClock.adjust(`${AccountAdmission.renewSeconds} seconds`)
      assert.deepStrictEqual(yield* standing, [0, 0, 0])
    })
  )

  it.effect("keeps no place for a reservation that is stored after its release", () =>
    Effect.gen(function* () {
      const { admit, failing, late } = yield* start({ default: { concurrentRunsMax: 1 } })
      failing.add("answer")
      assert.strictEqual((yield* Effect.flip(admit(1)))._tag, "StoreUnavailable")
      failing.clear()
      yield* Effect.exit(late[0]!)
      yield* admit(2)
    })
  )

  it.effect("renews no reservation that it does not hold", () =>
    Effect.gen(function* () {
      const { acquire, reservations } = yield* start({ default: { concurrentRunsMax: 2 } })
      yield* acquire(1)
      yield* reservations.reserve({
        run: { runId: idOf(7), attempt: 0 },
        billingAccountId: "acct",
        owner: "boot/1/1",
        limit: {},
        amount: undefined,
        now: "1970-01-01T00:00:00.000Z",
        leaseUntil: "1970-01-01T00:05:00.000Z"
      })
      yield* TestClock.adjust("6 minutes")
      const { runs } = yield* reservations.standing("acct", "1970-01-01T00:06:00.000Z")
      assert.strictEqual(runs, 1)
    })
  )

  it.effect("admits no run again whose reservation is still to be released", () =>
    Effect.gen(function* () {
      const { admit, failing, standing } = yield* start({ default: { concurrentRunsMax: 1 } })
      failing.add("release")
      yield* Effect.scoped(admit(1))
      failing.clear()
      const again = yield* Effect.flip(admit(1))
      assert.include(again.message, "the next attempt")
      yield* TestClock.adjust(`${AccountAdmission.renewSeconds} seconds`)
      assert.deepStrictEqual(yield* standing, [0, 0, 0])
    })
  )

  it.effect("keeps the lease of a run for as long as its process lives", () =>
    Effect.gen(function* () {
      const { acquire, reservations } = yield* start({ default: { concurrentRunsMax: 1 } })
      yield* acquire(1)
      yield* TestClock.adjust("3 hours")
      const { runs } = yield* reservations.standing("acct", "1970-01-01T03:00:00.000Z")
      assert.strictEqual(runs, 1)
    })
  )

  it.effect("settles the runs of dead processes of this host before it refuses one, at most every 10 s", () =>
    Effect.gen(function* () {
      const world = yield* start(
        { default: { concurrentRunsMax: 1, dayUsdMax: 5 } },
        { proxy: { isOrphaned } }
      )
      yield* die(world, 7)
      yield* Effect.scoped(world.admit(1))
      yield* die(world, 8)
      assert.strictEqual((yield* Effect.flip(Effect.scoped(world.admit(2))))._tag, "AccountBusy")
      yield* TestClock.adjust("10 seconds")
      yield* Effect.scoped(world.admit(2))
    })
  )

  it.effect("begins one recovery at a time for refused runs, and waits at most 10 s for it", () =>
    Effect.gen(function* () {
      const reading = { now: 0, most: 0, total: 0 }
      const slow = Effect.acquireUseRelease(
        Effect.sync(() => {
          reading.now += 1
          reading.total += 1
          reading.most = Math.max(reading.most, reading.now)
        }),
        () => Effect.as(Effect.sleep("25 seconds"), undefined),
        () => Effect.sync(() => (reading.now -= 1))
      )
      const world = yield* start(
        { default: { concurrentRunsMax: 1, dayUsdMax: 5 } },
        { proxy: { isOrphaned, callsOf: () => slow } }
      )
      yield* die(world, 7)
      const first = yield* Effect.forkChild(Effect.flip(Effect.scoped(world.admit(1))))
      yield* TestClock.adjust("11 seconds")
      assert.strictEqual(first.pollUnsafe()?._tag, "Success")
      const second = yield* Effect.forkChild(Effect.flip(Effect.scoped(world.admit(2))))
      yield* TestClock.adjust("1 second")
      assert.strictEqual(second.pollUnsafe()?._tag, "Success", "10 s from the end of the first")
      assert.deepStrictEqual(reading, { now: 0, most: 1, total: 1 })
      const last = yield* Effect.forkChild(Effect.flip(Effect.scoped(world.admit(3))))
      yield* TestClock.adjust("8 seconds")
      const next = yield* Effect.forkChild(Effect.flip(Effect.scoped(world.admit(4))))
      yield* TestClock.adjust("15 seconds")
      assert.deepStrictEqual(
        [last, next].map((fiber) => fiber.pollUnsafe()?._tag),
        ["Success", "Success"]
      )
      assert.strictEqual(reading.most, 1)
    })
  )

  it.effect("asks again after the recovery that another refused run began", () =>
    Effect.gen(function* () {
      const world = yield* start(
        { default: { concurrentRunsMax: 1, dayUsdMax: 5 } },
        { proxy: { isOrphaned, callsOf: () => Effect.as(Effect.sleep("5 seconds"), undefined) } }
      )
      yield* die(world, 7)
      const both = yield* Effect.forEach([1, 2], (index) => Effect.forkChild(Effect.exit(world.admit(index))))
      yield* TestClock.adjust("5 seconds")
      const admitted = (yield* Effect.forEach(both, Fiber.join)).filter(Exit.isSuccess)
      assert.strictEqual(admitted.length, 1)
    })
  )

  it.effect("settles for a refused run at most 100 runs, and only those of its account", () =>
    Effect.gen(function* () {
      const read: Array<string> = []
      const callsOf = ({ runId }: { readonly runId: string }) =>
        Effect.as(
          Effect.sync(() => read.push(runId)),
          undefined
        )
      const world = yield* start({ default: { concurrentRunsMax: 1 } }, { proxy: { isOrphaned, callsOf } })
      yield* Effect.forEach(Array.from({ length: 130 }).keys(), (index) => die(world, 100 + index))
      yield* die(world, 7, "other")
      assert.strictEqual((yield* Effect.flip(Effect.scoped(world.admit(1))))._tag, "AccountBusy")
      assert.strictEqual(new Set(read).size, 100)
      assert.notInclude(read, idOf(7))
      yield* TestClock.adjust("10 seconds")
      yield* Effect.scoped(world.admit(2))
      assert.strictEqual(new Set(read).size, 130)
    })
  )

  it.effect("begins no recovery for a run that no other run holds up", () =>
    Effect.gen(function* () {
      const read: Array<string> = []
      const callsOf = ({ runId }: { readonly runId: string }) =>
        Effect.as(
          Effect.sync(() => read.push(runId)),
          undefined
        )
      const world = yield* start({ default: { dayUsdMax: 1 } }, { proxy: { isOrphaned, callsOf } })
      yield* die(world, 7)
      yield* Effect.flip(Effect.scoped(world.admit(1, access({ budget: own }))))
      assert.deepStrictEqual(read, [])
    })
  )

  it.effect("shares the calls per minute among the runs of an account, and among processes", () =>
    Effect.gen(function* () {
      const limit = { callsPerMinuteMax: 10 }
      const { acquire, asked, reservations } = yield* start({ default: limit })
      yield* acquire(1)
      yield* acquire(2)
      yield* acquire(3, access({ identity: { billingAccountId: "other", attempt: 0 } }))
      const paces = asked.map(({ account }) => CallPace.over(account!.pace!))
      assert.strictEqual(asked[0]?.account?.pace, asked[1]?.account?.pace)
      assert.notStrictEqual(asked[0]?.account?.pace, asked[2]?.account?.pace)
      assert.deepStrictEqual(
        paces.map((pace) => pace.limit()),
        [10, 10, 10]
      )
      yield* reservations.reserve({
        run: { runId: idOf(9), attempt: 0 },
        billingAccountId: "acct",
        owner: "boot/2/2",
        limit,
        amount: undefined,
        now: "1970-01-01T00:00:00.000Z",
        leaseUntil: "1970-01-01T00:05:00.000Z"
      })
      yield* TestClock.adjust(`${AccountAdmission.renewSeconds} seconds`)
      assert.deepStrictEqual(
        paces.map((pace) => pace.limit()),
        [5, 5, 10]
      )
    })
  )

  it.effect("refuses every run of a proxy that reads no answers, before anything is made", () =>
    Effect.gen(function* () {
      const { acquire, admit, check } = yield* start(
        { default: { dayUsdMax: 10 } },
        { capabilities: { inspectsBodies: false, name: "nginx" } }
      )
      for (const asked of [check(), admit(1), Effect.asVoid(acquire(1))]) {
        const error = yield* Effect.flip(asked)
        assert.strictEqual(error._tag, "Misconfigured")
        assert.include(error.message, "nginx does not read")
      }
    })
  )
})
