/** Admission of runs: whom it asks, what it reserves, what it says, and what it does while the database is gone. */
import { assert, describe, it } from "@effect/vitest"
import * as CallPace from "@cogni/sandbox-core/CallPace"
import * as LlmProxy from "@cogni/sandbox-core/LlmProxy"
import * as RunId from "@cogni/sandbox-core/RunId"
import type { LlmAccess } from "@cogni/sandbox-core/SandboxSpec"
import {
  AccountAdmission,
  AccountLimits,
  AccountReservations,
  Ledger,
  LedgerLlmProxy,
  Money
} from "@cogni/sandbox-ledger"
import { LedgerUnavailable } from "@cogni/sandbox-ledger/LedgerError"
import { Effect, Exit, Fiber, Scope } from "effect"
import { TestClock } from "effect/testing"
import * as LedgerContract from "../src/testing/LedgerContract.ts"

const idOf = (index: number) => RunId.RunId.make(`run-0000000${index}`)

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
    readonly capabilities?: Partial<LlmProxy.LlmProxyCapabilities>
  } = {}
) {
  const failing = new Set<string>()
  const ledger = yield* Ledger.makeMemory()
  const memory = yield* Effect.provideService(AccountReservations.makeMemory, Ledger.Ledger, ledger)
  const faulty = <A, E>(name: string, work: Effect.Effect<A, E>) =>
    Effect.suspend((): Effect.Effect<A, E | LedgerUnavailable> =>
      failing.has(name) ? Effect.fail(gone) : work
    )
  const reservations = AccountReservations.AccountReservations.of({
    ...memory,
    reserve: (asked) => faulty("reserve", memory.reserve(asked)),
    release: (run) => faulty("release", memory.release(run)),
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
  return { acquire, admit, asked, check, failing, ledger, reservations: memory, standing }
})

const own = { onExhausted: "refuse", costUsdMax: 3 } as const

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
      const { admit, check } = yield* start({ default: { dayUsdMax: 1.5, concurrentRunsMax: 2 } })
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
      const never = yield* Effect.flip(admit(2, access({ budget: own })))
      assert.deepInclude(never, { retrySeconds: 3600 })
      assert.include(never.message, "until the day ends, at 1970-01-02T00:00:00.000Z")
      yield* admit(2, access({ budget: { ...own, costUsdMax: 0.5 } }))
      const busy = yield* Effect.flip(admit(3, access({ budget: { ...own, costUsdMax: 0.001 } })))
      assert.deepInclude(busy, {
        _tag: "AccountBusy",
        code: "rate_limit",
        isRetryable: true,
        retrySeconds: 10
      })
      assert.include(busy.message, "it has 2 open runs, and its limit is 2")
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
      const { admit, ledger, reservations } = yield* start(
        { default: { concurrentRunsMax: 1, dayUsdMax: 5 } },
        { proxy: { isOrphaned: ({ owner }) => owner === "boot/2/2" } }
      )
      const die = Effect.fnUntraced(function* (index: number) {
        const run = LedgerContract.runOf(idOf(index), { billingAccountId: "acct", owner: "boot/2/2" })
        yield* reservations.reserve({
          run,
          billingAccountId: "acct",
          owner: run.owner,
          limit: {},
          amount: Money.fromUsd(5),
          now: "1970-01-01T00:00:00.000Z",
          leaseUntil: "1970-01-01T00:05:00.000Z"
        })
        yield* ledger.open(run)
      })
      yield* die(7)
      yield* Effect.scoped(admit(1))
      yield* die(8)
      assert.strictEqual((yield* Effect.flip(Effect.scoped(admit(2))))._tag, "AccountBusy")
      yield* TestClock.adjust("10 seconds")
      yield* Effect.scoped(admit(2))
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
