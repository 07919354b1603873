/**
 * Admits the runs of accounts: asks whether an account may pay, reserves what a run may spend, and keeps the
 * reservations of this process alive.
 *
 *     canPay ─► reserve: runs at once, day, month ─► … the run … ─► release ─► settled by the ledger: spent
 */
import * as CallPace from "@cogni/sandbox-core/CallPace"
import type { LlmAccount, LlmProxyError } from "@cogni/sandbox-core/LlmProxy"
import { InsufficientCredits, ProxyFailed, StoreUnavailable } from "@cogni/sandbox-core/SandboxReason"
import type { LlmAccess } from "@cogni/sandbox-core/SpecFields"
import { Clock, Duration, Effect, Schedule, type Scope } from "effect"
import type * as AccountLimits from "./AccountLimits.ts"
import * as AccountDecision from "./AccountDecision.ts"
import { AccountReservations } from "./AccountReservations.ts"
import { type Reservation } from "./AccountReservation.ts"
import { refusalOf } from "./internal/AccountRefusals.ts"
import { type LedgerRefused, LedgerRunInUse, type LedgerUnavailable } from "./LedgerError.ts"
import { keyOf, type RunKey } from "./LedgerRun.ts"
import * as Money from "./Money.ts"

/** How long a run counts as open without a sign of its process, in seconds. */
export const leaseSeconds = 300

/** Time between two signs of a process, in seconds. */
export const renewSeconds = 60

/** How long `canPay` and `limitOf` may take, in seconds. */
export const askSecondsMax = 10

/** A run that asks for credit. */
export interface PayRequest {
  readonly billingAccountId: string
  /** Maximum that the run may spend: its own cost budget, or the configured estimate. */
  readonly estimateUsd: number
  readonly userId?: string | undefined
  readonly graphId?: string | undefined
  readonly agentId?: string | undefined
  /** Names of the models at the upstream. */
  readonly models: ReadonlyArray<string>
}

/** An answer from outside is not available now. The message says why. */
export interface NoAnswer {
  readonly message: string
}

export interface AccountAdmissionOptions {
  /** Returns the limits of an account: `AccountLimits.limitOf` of a file, or what the host knows about it. */
  readonly limitOf: (billingAccountId: string) => Effect.Effect<AccountLimits.AccountLimit, NoAnswer>
  /** Reservation for a run without a cost budget, in US dollars (default 1). It becomes the budget of that run. */
  readonly estimateUsd?: number | undefined
  /** Returns whether a model, by its name at the upstream, needs no credit (default: none). */
  readonly isFree?: ((model: string) => boolean) | undefined
  /**
   * Returns whether an account can pay for a run, for a host that keeps credits itself. Asked before each run that may
   * cost something, in addition to the limits. A failure refuses the run.
   */
  readonly canPay?: ((request: PayRequest) => Effect.Effect<boolean, NoAnswer>) | undefined
  /** `ResourceLabels.formatOwner` of this process. */
  readonly owner: string
}

/** Terms of an admitted run. */
export interface AccountTerms {
  /** Cost budget of the run, if its spec names none. */
  readonly costUsdMax?: number | undefined
  readonly account?: LlmAccount | undefined
}

/** A run of this process, and its account. */
type Held = Pick<Reservation, "billingAccountId" | "run">

/** Calls per minute of an account in this process. */
interface AccountPace {
  readonly pace: CallPace.CallPace
  /** Limit of the account, of which this process has a share. */
  limit: number
  /** Open runs of this process. */
  runs: number
  /** It had no run at the last renewal. */
  isIdle: boolean
}

type Asking = Pick<LlmAccess, "budget" | "identity" | "model" | "models">

export interface AccountAdmission {
  /** Fails if the account could not start such a run now. Reserves nothing. */
  readonly check: (llm: Asking) => Effect.Effect<void, LlmProxyError>
  /** Reserves what the run may spend, until the scope closes. */
  readonly admit: (run: RunKey, llm: Asking) => Effect.Effect<AccountTerms, LlmProxyError, Scope.Scope>
}

/** Closing the scope ends the renewals. */
export const make = Effect.fnUntraced(function* (
  options: AccountAdmissionOptions
): Effect.fn.Return<AccountAdmission, never, AccountReservations | Scope.Scope> {
  const { estimateUsd = AccountDecision.estimateUsdDefault, owner } = options
  const isFree = options.isFree ?? (() => false)
  const reservations = yield* AccountReservations
  const paces = new Map<string, AccountPace>()
  /** Runs of this process that hold a reservation. Only these are renewed. */
  const held = new Map<string, Held>()
  /** Runs that have ended, or may never have been reserved, and could not be released yet. */
  const unreleased = new Map<string, Held>()

  const lease = Effect.map(Clock.currentTimeMillis, (millis) => ({
    now: new Date(millis).toISOString(),
    leaseUntil: new Date(millis + leaseSeconds * 1000).toISOString()
  }))

  /** Finds out what the account allows, and what the run would reserve. Asks outside, before anything is reserved. */
  const termsOf = Effect.fnUntraced(function* ({ budget, identity, model, models }: Asking) {
    const { agentId, billingAccountId, graphId, userId } = identity
    const limit = yield* asked("the limits of the account", options.limitOf(billingAccountId))
    const names = [...new Set([model, ...Object.values(models)])]
    if (names.every(isFree)) return { limit, amount: undefined, costUsdMax: undefined }
    const estimate = budget?.costUsdMax ?? estimateUsd
    const isPaid =
      options.canPay === undefined ||
      (yield* asked(
        "whether the account can pay",
        options.canPay({ billingAccountId, estimateUsd: estimate, userId, graphId, agentId, models: names })
      ))
    if (!isPaid)
      return yield* new InsufficientCredits({
        billingAccountId,
        detail: `it has no credit for the ${estimate} US dollars that the run may spend`,
        remedy: "Add credit, or give the run a smaller cost budget (llm.budget.costUsdMax)"
      })
    const isLimited = AccountDecision.limitsMoney(limit) || options.canPay !== undefined
    return isLimited
      ? {
          limit,
          amount: Money.fromUsd(estimate),
          costUsdMax: budget?.costUsdMax === undefined ? estimate : undefined
        }
      : { limit, amount: undefined, costUsdMax: undefined }
  })

  const paceOf = (billingAccountId: string, limit: number | undefined, processes: number) => {
    if (limit === undefined) return undefined
    const found = paces.get(billingAccountId) ?? { pace: CallPace.make(limit), limit, runs: 0, isIdle: false }
    found.limit = limit
    found.isIdle = false
    found.pace.allow(limit / Math.max(1, processes))
    paces.set(billingAccountId, found)
    return found
  }

  const release = Effect.fnUntraced(function* (ended: Held) {
    const { run } = ended
    held.delete(keyOf(run))
    const { now } = yield* lease
    yield* reservations.release({ ...ended, owner, now }).pipe(
      Effect.andThen(Effect.sync(() => unreleased.delete(keyOf(run)))),
      Effect.catch((error) =>
        Effect.andThen(
          Effect.sync(() => unreleased.set(keyOf(run), ended)),
          Effect.logWarning(`the reservation of run ${run.runId} is released later. ${error.message}`)
        )
      )
    )
  })

  const renew = Effect.gen(function* () {
    // First, so that their places are free as early as possible.
    yield* Effect.forEach([...unreleased.values()], release, { discard: true })
    const { leaseUntil, now } = yield* lease
    const runs = [...held.values()].map(({ run }) => run)
    const processes = yield* reservations.renew({ owner, runs, now, leaseUntil })
    for (const [account, found] of paces) {
      const count = processes.get(account)
      if (count !== undefined) found.pace.allow(found.limit / Math.max(1, count))
      if (found.runs > 0) continue
      // Forgotten after a whole interval, so that the calls of this minute count for a run that starts now.
      if (found.isIdle) paces.delete(account)
      found.isIdle = true
    }
  }).pipe(
    Effect.catch((error) => Effect.logWarning(`reservations of accounts are not renewed. ${error.message}`)),
    // Without renewals, the limit of concurrent runs would no longer hold.
    Effect.catchDefect((defect) =>
      Effect.logError(`reservations of accounts are not renewed, because of a fault: ${String(defect)}`)
    )
  )
  yield* Effect.forkScoped(Effect.repeat(renew, Schedule.spaced(Duration.seconds(renewSeconds))))

  return {
    check: Effect.fnUntraced(function* (llm) {
      const { amount, limit } = yield* termsOf(llm)
      const { billingAccountId } = llm.identity
      const { now } = yield* lease
      if (isUnlimited(limit, amount)) return
      const standing = yield* Effect.mapError(reservations.standing(billingAccountId, now), unavailable)
      const refusal = AccountDecision.decide(limit, standing, amount)
      if (refusal !== undefined)
        return yield* refusalOf(refusal, { billingAccountId, now, hasBudget: hasBudget(llm) })
    }),
    admit: Effect.fnUntraced(function* (run, llm) {
      const { amount, costUsdMax, limit } = yield* termsOf(llm)
      const { billingAccountId } = llm.identity
      if (isUnlimited(limit, amount) && limit.callsPerMinuteMax === undefined) return {}
      const own: Held = { run: { runId: run.runId, attempt: run.attempt }, billingAccountId }
      // It would be released although it runs.
      if (unreleased.has(keyOf(run))) return yield* unavailable(new LedgerRunInUse(own.run))
      const { leaseUntil, now } = yield* lease
      const reserved = yield* Effect.acquireRelease(
        reservations.reserve({ ...own, owner, limit, amount, now, leaseUntil }).pipe(
          // The database may have reserved it although its answer was lost, or reserve it later.
          Effect.tapError(({ _tag }) => (_tag === "LedgerUnavailable" ? release(own) : Effect.void)),
          Effect.mapError(unavailable),
          Effect.flatMap((answer) =>
            answer._tag === "Reserved"
              ? Effect.as(
                  Effect.sync(() => held.set(keyOf(run), own)),
                  answer
                )
              : Effect.fail(refusalOf(answer.refusal, { billingAccountId, now, hasBudget: hasBudget(llm) }))
          )
        ),
        () => release(own)
      )
      const pace = yield* Effect.acquireRelease(
        Effect.sync(() => {
          const found = paceOf(billingAccountId, limit.callsPerMinuteMax, reserved.processes)
          if (found !== undefined) found.runs += 1
          return found
        }),
        (found) =>
          Effect.sync(() => {
            if (found !== undefined) found.runs -= 1
          })
      )
      const account: LlmAccount = { reservesCost: costUsdMax !== undefined, pace: pace?.pace.buffer }
      return { costUsdMax, account }
    })
  }
})

const hasBudget = ({ budget }: Asking): boolean => budget?.costUsdMax !== undefined

/** Whether nothing has to be reserved for a run. */
const isUnlimited = (limit: AccountLimits.AccountLimit, amount: Money.Pico | undefined): boolean =>
  limit.concurrentRunsMax === undefined && amount === undefined

/** Bounds a question to the host, and refuses the run if there is no answer. */
const asked = <A>(what: string, question: Effect.Effect<A, NoAnswer>): Effect.Effect<A, ProxyFailed> => {
  const unknown = (why: string) =>
    new ProxyFailed({
      detail: `${what} is not known: ${why}`,
      remedy: "Make the host answer, then try again"
    })
  return question.pipe(
    Effect.mapError(({ message }) => unknown(message)),
    Effect.timeoutOrElse({
      duration: Duration.seconds(askSecondsMax),
      orElse: () => Effect.fail(unknown(`no answer within ${askSecondsMax} s`))
    })
  )
}

const unavailable = (error: LedgerRefused | LedgerRunInUse | LedgerUnavailable): LlmProxyError =>
  error._tag === "LedgerUnavailable"
    ? new StoreUnavailable({
        detail: `cannot reserve what the run may spend: it ${error.detail}`,
        remedy: error.remedy
      })
    : new ProxyFailed({
        detail: error.message,
        remedy: "Let the runner choose the run ID, and check the identity of the run"
      })
