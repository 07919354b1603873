/**
 * Plays schedules of starts, ends, crashes, outages and late costs of the runs of one account, in two processes, and
 * checks after each step that the limits hold.
 *
 * The truth is counted beside it: how much each run really spent, and when. The account must never have spent more than
 * its limit, except what became known after its run was settled.
 */
import { assert } from "@effect/vitest"
import { type AccountReservations, type Ledger, type LedgerEntry, Money } from "@cogni/sandbox-ledger"
import * as MoneySums from "@cogni/sandbox-ledger/MoneySums"
import type * as LedgerRun from "@cogni/sandbox-ledger/LedgerRun"
import { LedgerUnavailable } from "@cogni/sandbox-ledger/LedgerError"
import { Effect, Schema } from "effect"
import { entryOf, runOf } from "../src/testing/LedgerSamples.ts"

export const Seeds = Schema.Array(
  Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 0xffff_ffff }))
).check(Schema.isMinLength(32), Schema.isMaxLength(48))

/** A few schedules, for databases that are slow to play many. */
export const examples = (count: number): ReadonlyArray<ReadonlyArray<number>> =>
  Array.from({ length: count }, (_, schedule) =>
    Array.from({ length: 48 }, (__, step) => schedule * 1000 + step)
  )

const kinds = [
  "start",
  "start",
  "start",
  "spend",
  "spend",
  "spend",
  "spend",
  "end",
  "end",
  "crash",
  "recover",
  "late",
  "pass",
  "pass",
  "midnight"
] as const

const faults = ["none", "none", "none", "none", "before", "answer_lost"] as const

export const limit = { dayUsdMax: 10, monthUsdMax: 25, concurrentRunsMax: 3 }

/** Mixes the bits of a number, so that small numbers, which generators prefer, make all kinds of steps. */
const mixed = (value: number): number => {
  const once = Math.imul(value ^ (value >>> 16), 0x21f0_aaad)
  const twice = Math.imul(once ^ (once >>> 15), 0x735a_2d97)
  return (twice ^ (twice >>> 15)) >>> 0
}

const stepOf = (seed: number, index: number) => {
  const bits = mixed(seed + Math.imul(index + 1, 0x9e37_79b9))
  return {
    kind: kinds[bits % kinds.length]!,
    process: (bits >>> 8) % 2,
    pick: (bits >>> 10) % 1000,
    fault: faults[(bits >>> 20) % faults.length]!
  }
}

interface Call {
  readonly unit: string
  readonly at: number
  usd: number
  /** Cost that was known when its run was settled. */
  readonly usdAtEnd: number
  /** The least that it was known to cost. Later figures may exceed a limit. */
  usdLeast: number
  revision: number
}

interface Life {
  readonly run: LedgerRun.LedgerRun
  readonly process: number
  readonly reserved: number
  readonly calls: Array<Call>
  isOpen: boolean
  hasEnded: boolean
  isSettled: boolean
}

const leaseMillis = 300_000
const iso = (millis: number) => new Date(millis).toISOString()
const dollars = (usd: number) => Money.fromUsd(Number(usd.toFixed(6)))

export const play = Effect.fnUntraced(function* (
  ledger: Ledger.Ledger["Service"],
  reservations: AccountReservations.AccountReservations["Service"],
  seeds: ReadonlyArray<number>
) {
  let now = Date.parse("2026-01-30T20:00:00.000Z")
  let count = 0
  const lives: Array<Life> = []
  /** A process that died is replaced by one with another name. */
  const owners = ["boot/10/1", "boot/20/1"]
  let refusals = 0

  const isDead = ({ process, run }: Life) => owners[process] !== run.owner
  const entryOfCall = (life: Life, { at, revision, unit, usd }: Call): LedgerEntry.LedgerEntry =>
    entryOf(life.run.runId, unit, { at: iso(at), costUsd: Money.toUsd(dollars(usd)), revision })

  /** An operation that fails before it takes effect, or whose answer is lost. */
  const faulty = <A, E>(fault: (typeof faults)[number], work: Effect.Effect<A, E>) => {
    const gone = Effect.fail(new LedgerUnavailable({ detail: "is gone", remedy: "Try again" }))
    return fault === "none" ? work : fault === "before" ? gone : Effect.andThen(work, gone)
  }

  const release = ({ attempt, billingAccountId, owner, runId }: LedgerRun.LedgerRun) =>
    reservations.release({ run: { runId, attempt }, billingAccountId, owner, now: iso(now) })

  const settle = (life: Life, fault: (typeof faults)[number]) =>
    faulty(
      fault,
      ledger.settle({
        run: life.run,
        entries: life.calls.map((call) => entryOfCall(life, { ...call, revision: 0, usd: call.usdAtEnd })),
        closedAt: iso(now)
      })
    ).pipe(Effect.andThen(Effect.sync(() => (life.isSettled = true))), Effect.ignore)

  const start = Effect.fnUntraced(function* (process: number, pick: number, fault: (typeof faults)[number]) {
    const run = runOf(`run-${String((count += 1)).padStart(8, "0")}`, {
      owner: owners[process]!,
      openedAt: iso(now),
      expiresAt: iso(now + 3_600_000)
    })
    const reserved = 1 + (pick % 6)
    const answer = yield* Effect.option(
      faulty(
        fault,
        reservations.reserve({
          run,
          billingAccountId: run.billingAccountId,
          owner: run.owner,
          limit,
          amount: dollars(reserved),
          now: iso(now),
          leaseUntil: iso(now + leaseMillis)
        })
      )
    )
    // As in `AccountAdmission`: a run without an answer is released, and does not start.
    if (answer._tag === "None") return yield* release(run)
    if (answer.value._tag === "Refused") return void (refusals += 1)
    const life: Life = { run, process, reserved, calls: [], isOpen: false, hasEnded: false, isSettled: false }
    lives.push(life)
    // A tenth dies before the ledger has opened it.
    if (pick % 10 === 0) return
    yield* ledger.open(run)
    life.isOpen = true
  })

  const step = Effect.fnUntraced(function* ({ fault, kind, pick, process }: ReturnType<typeof stepOf>) {
    const running = lives.filter((life) => life.isOpen && !life.hasEnded && !isDead(life))
    const picked = running[pick % Math.max(1, running.length)]
    switch (kind) {
      case "start":
        return yield* start(process, pick, fault)
      case "spend": {
        if (picked === undefined) return
        const spent = picked.calls.reduce((sum, { usd }) => sum + usd, 0)
        const usd = ((picked.reserved - spent) * (1 + (pick % 4))) / 4
        picked.calls.push({
          unit: `call-${picked.calls.length}`,
          at: now,
          usd,
          usdAtEnd: usd,
          usdLeast: usd,
          revision: 0
        })
        return
      }
      case "end":
        if (picked === undefined) return
        yield* settle(picked, fault)
        picked.hasEnded = true
        return yield* release(picked.run)
      case "crash":
        owners[process] = `boot/${process + 1}0/${(count += 1) + 1}`
        return
      case "recover": {
        const lost = lives.filter((life) => life.isOpen && !life.isSettled && (life.hasEnded || isDead(life)))
        for (const life of lost) yield* settle(life, fault)
        return
      }
      case "late": {
        const settled = lives.filter((life) => life.isSettled && life.calls.length > 0)
        const life = settled[pick % Math.max(1, settled.length)]
        const call = life?.calls[pick % life.calls.length]
        if (life === undefined || call === undefined) return
        call.revision += 1
        call.usd = call.usd * (0.5 + (pick % 10) / 5)
        call.usdLeast = Math.min(call.usdLeast, call.usd)
        return yield* Effect.asVoid(ledger.append([entryOfCall(life, call)]))
      }
      case "pass":
        now += 60_000
        break
      case "midnight":
        now = Date.parse(`${iso(now + 86_400_000).slice(0, 10)}T00:00:00.000Z`)
        break
    }
    // The processes were alive all the time, so their leases never lapsed.
    for (const owner of owners) {
      const runs = lives.flatMap((life) => (life.run.owner === owner && !life.hasEnded ? [life.run] : []))
      yield* reservations.renew({ owner, runs, now: iso(now), leaseUntil: iso(now + leaseMillis) })
    }
  })

  /** Checks the limits against the truth, and the standing of the account against both. */
  const holds = Effect.fnUntraced(function* () {
    const calls = lives.flatMap((life) => life.calls.map((call) => ({ life, call })))
    const standing = yield* reservations.standing("account-1", iso(now))
    for (const [period, digits, usdMax] of [
      ["day", 10, limit.dayUsdMax],
      ["month", 7, limit.monthUsdMax]
    ] as const) {
      const current = calls.filter(({ call }) => iso(call.at).slice(0, digits) === iso(now).slice(0, digits))
      const known = current.reduce((sum, { call }) => sum + call.usdLeast, 0)
      assert.isAtMost(known, usdMax + 1e-6, `the ${period} is exceeded`)
      const { reserved, spent } = standing[period]
      const settled = current.filter(({ life }) => life.isSettled)
      const exact = settled.reduce((sum, { call }) => MoneySums.add(sum, dollars(call.usd)), MoneySums.zero)
      // A settlement whose answer was lost counts already.
      const pending = current.filter(({ life }) => !life.isSettled)
      const most = pending.reduce((sum, { call }) => MoneySums.add(sum, dollars(call.usd)), exact)
      assert.isTrue(spent >= exact && spent <= most, `${period}: ${spent} is not from ${exact} to ${most}`)
      const unsettled = lives.filter((life) => !life.isSettled)
      const all = unsettled.reduce(
        (sum, { reserved: usd }) => MoneySums.add(sum, dollars(usd)),
        MoneySums.zero
      )
      assert.isTrue(reserved <= all, "no more is reserved than by runs that are not settled")
    }
    const live = lives.filter((life) => life.isOpen && !life.hasEnded && !isDead(life))
    assert.isAtMost(live.length, limit.concurrentRunsMax)
    assert.isAtLeast(standing.runs, live.length)
  })

  for (const one of seeds.map(stepOf)) {
    yield* step(one)
    yield* holds()
  }

  // The hosts die. Reservations that are not settled end with their leases and their month.
  owners.fill("boot/99/1")
  now += leaseMillis + 1
  assert.strictEqual((yield* reservations.standing("account-1", iso(now))).runs, 0)
  const later = yield* reservations.standing("account-1", "2027-01-01T00:00:00.000Z")
  assert.deepStrictEqual([later.day.reserved, later.month.reserved], [0n, 0n])
  // A recovery settles the rest: each call once, and nothing is reserved any more.
  for (const life of lives.filter(({ isOpen }) => isOpen)) yield* settle(life, "none")
  yield* holds()
  const { day, month } = yield* reservations.standing("account-1", iso(now))
  assert.deepStrictEqual([day.reserved, month.reserved], [0n, 0n])
  return { lives, refusals }
})
