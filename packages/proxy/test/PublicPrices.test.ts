import { assert, describe, it } from "@effect/vitest"
import type { LedgerEntry } from "@cogni/sandbox-ledger/LedgerEntry"
import { RunId } from "@cogni/sandbox-core/RunId"
import { PublicPrices } from "@cogni/sandbox-proxy"
import { Effect } from "effect"
import * as PriceList from "../src/internal/spend/PriceList.ts"

const entry = (changes: Partial<LedgerEntry>): LedgerEntry => ({
  runId: RunId.make("run-00000001"),
  attempt: 0,
  usageUnitId: "call-1",
  revision: 0,
  at: "2026-01-31T10:00:01.000Z",
  recordedAt: "2026-01-31T10:00:01.000Z",
  billingAccountId: "account-1",
  upstream: "openai",
  model: "gpt-4o",
  inputTokens: 1_000,
  outputTokens: 100,
  currency: "USD",
  priceSource: "none",
  streamed: true,
  state: "pending",
  ...changes
})

describe("PublicPrices", () => {
  it.effect("uses the host's own price before the public one", () =>
    Effect.gen(function* () {
      const priceOf = PublicPrices.priceOf({ "gpt-4o": { input: 100, output: 200 } })
      assert.deepStrictEqual(yield* priceOf(entry({})), { costUsd: 0.12, source: "this host" })
    })
  )

  it.effect("uses the public price of the model at its upstream, and says its date", () =>
    Effect.gen(function* () {
      const found = yield* PublicPrices.priceOf(undefined)(entry({}))
      assert.closeTo(found!.costUsd, 0.0035, 1e-12)
      assert.strictEqual(
        found!.source,
        `the public list of LiteLLM ${PriceList.version}, read on ${PriceList.date}`
      )
    })
  )

  it.effect("counts cached tokens at their own price", () =>
    Effect.gen(function* () {
      const found = yield* PublicPrices.priceOf(undefined)(entry({ cacheReadTokens: 400 }))
      assert.closeTo(found!.costUsd, (600 * 2.5 + 400 * 1.25 + 100 * 10) / 1e6, 1e-12)
    })
  )

  it.effect("has no price for an unknown model, another upstream, unknown tokens, and names of objects", () =>
    Effect.gen(function* () {
      const priceOf = PublicPrices.priceOf(undefined)
      const { inputTokens: _tokens, ...uncounted } = entry({})
      const without = [
        entry({ model: "gpt-unheard-of" }),
        entry({ upstream: "vllm" }),
        entry({ upstream: "constructor" }),
        entry({ model: "__proto__" }),
        uncounted
      ]
      for (const one of without) assert.isUndefined(yield* priceOf(one))
    })
  )

  it.effect("has no price for more input tokens than the price holds for", () =>
    Effect.gen(function* () {
      const [model, limit] = PriceList.lines.gemini
        .map((line) => line.split(" "))
        .map((columns) => [columns[0]!, columns[6]!] as const)
        .find(([, tier]) => tier !== "-")!
      const priceOf = PublicPrices.priceOf(undefined)
      const under = entry({ upstream: "gemini", model, inputTokens: Number(limit) })
      assert.isDefined(yield* priceOf(under))
      assert.isUndefined(yield* priceOf({ ...under, inputTokens: Number(limit) + 1 }))
    })
  )

  it("has only complete lines", () => {
    for (const some of Object.values(PriceList.lines))
      for (const line of some)
        assert.match(line, /^[A-Za-z0-9._:/@-]+(?: \d[\d.e-]*){2}(?: (?:-|\d[\d.e-]*)){3} (?:-|\d+)$/u)
  })
})
