/**
 * Limits the uses of credentials per minute, in this process: of one run, and of one account.
 *
 * An agent could otherwise use up the rate that a server grants to all accounts together, or fill the audit.
 */
import * as CallPace from "@cogni/sandbox-core/CallPace"
import { Clock, Effect } from "effect"
import { TooManyUses } from "./UseReasons.ts"

export interface UsesPerMinute {
  readonly ofRun: number
  readonly ofAccount: number
}

/** Default limits. A run of the git relay has about ten uses. */
export const usesPerMinute: UsesPerMinute = { ofRun: 60, ofAccount: 600 }

/** Maximum runs and accounts that are counted. Beyond, counting begins anew. */
const countedMax = 20_000

interface User {
  readonly billingAccountId: string
  readonly runId?: string | undefined
}

/** Returns a function that counts a use, and fails if its run or its account has had too many in this minute. */
export const make = (limits: UsesPerMinute): ((user: User) => Effect.Effect<void, TooManyUses>) => {
  const paces = new Map<string, CallPace.CallPace>()
  const waitOf = (key: string, limit: number, now: number): number => {
    if (paces.size >= countedMax) paces.clear()
    const pace = paces.get(key) ?? CallPace.make(limit)
    paces.set(key, pace)
    return pace.take(now)
  }
  return ({ billingAccountId, runId }) =>
    Effect.flatMap(Clock.currentTimeMillis, (now) => {
      const account = JSON.stringify([billingAccountId])
      const ofRun =
        runId === undefined ? 0 : waitOf(JSON.stringify([billingAccountId, runId]), limits.ofRun, now)
      // A use that its run may not have does not count for the account.
      const wait = ofRun > 0 ? ofRun : waitOf(account, limits.ofAccount, now)
      return wait === 0
        ? Effect.void
        : Effect.fail(
            new TooManyUses({
              whose: ofRun > 0 ? "run" : "account",
              usesPerMinuteMax: ofRun > 0 ? limits.ofRun : limits.ofAccount,
              waitSeconds: Math.ceil(wait / 1000)
            })
          )
    })
}
