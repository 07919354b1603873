/** Formats what is left of the limits of accounts, for people and scripts. Pure. */
import type { AccountLimit } from "@cogni/sandbox-ledger/AccountLimits"
import type { AccountStanding, PeriodStanding } from "@cogni/sandbox-ledger/AccountStanding"
import * as Money from "@cogni/sandbox-ledger/Money"
import { clip, columns, oneLine } from "./TerminalText.ts"

/** An account with its limits. */
interface LimitedAccount {
  readonly account: string
  readonly limit: AccountLimit
  readonly standing: AccountStanding
}

const nameCharsMax = 60

/** Formats a limit and how much of it is used, such as `$1.5 of $10, $0.5 reserved`. */
const periodText = ({ reserved, spent }: PeriodStanding, usdMax: number | undefined): string =>
  `$${Money.format(spent)}${usdMax === undefined ? "" : ` of $${usdMax}`}` +
  (reserved === 0n ? "" : `, $${Money.format(reserved)} reserved`)

/** Formats the limits of accounts as a table. */
export const table = (accounts: ReadonlyArray<LimitedAccount>): ReadonlyArray<string> =>
  columns([
    ["ACCOUNT", "RUNS", "TODAY (UTC)", "THIS MONTH", "CALLS/MINUTE"],
    ...accounts.map(({ account, limit, standing }) => [
      clip(oneLine(account), nameCharsMax),
      `${standing.runs}${limit.concurrentRunsMax === undefined ? "" : ` of ${limit.concurrentRunsMax}`}`,
      periodText(standing.day, limit.dayUsdMax),
      periodText(standing.month, limit.monthUsdMax),
      limit.callsPerMinuteMax === undefined ? "-" : `at most ${limit.callsPerMinuteMax}`
    ])
  ])

const periodJson = ({ reserved, spent }: PeriodStanding, usdMax: number | undefined): object => ({
  limitUsd: usdMax ?? null,
  spentUsd: Money.toUsd(spent),
  reservedUsd: Money.toUsd(reserved),
  leftUsd:
    usdMax === undefined
      ? null
      : Money.toUsd(Money.Pico.make(bigMax(0n, Money.fromUsd(usdMax) - spent - reserved)))
})

const bigMax = (a: bigint, b: bigint): bigint => (a > b ? a : b)

/** The limits of an account as JSON. Amounts are numbers of dollars. */
export const json = ({ account, limit, standing }: LimitedAccount): object => ({
  account,
  runs: standing.runs,
  concurrentRunsMax: limit.concurrentRunsMax ?? null,
  callsPerMinuteMax: limit.callsPerMinuteMax ?? null,
  day: periodJson(standing.day, limit.dayUsdMax),
  month: periodJson(standing.month, limit.monthUsdMax)
})
