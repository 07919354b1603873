/**
 * How far calls at once can exceed a budget: by no more than one of them reserved for its input and its first token,
 * whatever the upstream reports within the reservations.
 */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Schema } from "effect"
import * as Budget from "../src/internal/policy/Budget.ts"
import * as CallCost from "../src/internal/policy/CallCost.ts"
import * as Gateway from "./GatewaySocket.ts"
import { make, until } from "./HeldUpstream.ts"

const callsAtOnce = 16

const price = { input: 100, output: 1000 }

const event = (body: object | string): string =>
  `data: ${typeof body === "string" ? body : JSON.stringify(body)}\n\n`

describe("16 calls at once", () => {
  it.live("exceed a cost budget by at most what one of them reserved", () =>
    Effect.gen(function* () {
      const outputTokensMax = 200
      const costUsdMax = 8
      const gateway = yield* make({
        prices: { "contract-model": price },
        requestsPerSecondMax: 100_000,
        llm: { budget: { costUsdMax, concurrentCallsMax: callsAtOnce, onExhausted: "refuse" } }
      })
      const request = Gateway.http(
        Gateway.chat({
          stream: true,
          max_tokens: outputTokensMax,
          messages: [{ role: "user", content: "x".repeat(500) }]
        })
      )
      const atOnce: Array<number> = []
      let left = 0
      for (let isOver = false, ended = 0; !isOver;) {
        const before = gateway.asked.length
        const agents = Array.from({ length: callsAtOnce }, () => gateway.connect(request))
        const refusals = () =>
          agents.map(({ told }) => told.text).filter((text) => text.startsWith("HTTP/1.1 429"))
        yield* until(
          Effect.sync(() => gateway.asked.length - before + refusals().length),
          (count) => count === callsAtOnce
        )
        isOver = refusals().some((text) => text.includes("x-should-retry: false"))
        const reserved = new Map(
          (yield* gateway.entries).map(({ callId, inputTokensMax }) => [callId, Number(inputTokensMax)])
        )
        const open = gateway.asked.slice(before)
        atOnce.push(open.length)
        for (const [index, { body, callId, response }] of open.entries()) {
          response.writeHead(200, { "content-type": "text/event-stream" })
          response.write(event({ choices: [{ index: 0, delta: { content: "word" } }] }))
          // Every fourth agent leaves before it knows what the answer costs.
          if (index % 4 === 3) {
            agents[index]!.socket.destroy()
            left += 1
          }
          const usage = {
            prompt_tokens: reserved.get(callId),
            completion_tokens: body["max_completion_tokens"] ?? body["max_tokens"]
          }
          response.end(event({ choices: [], usage }) + event("[DONE]"))
        }
        ended += callsAtOnce
        yield* until(gateway.endpoint.traffic, ({ callsTotal }) => callsTotal === ended)
        for (const { socket } of agents) socket.destroy()
      }
      assert.strictEqual(atOnce[0], callsAtOnce)
      assert.isAbove(left, 0)
      const { traffic } = yield* gateway.finished
      const inputTokens = Math.max(
        ...(yield* gateway.entries).map(({ inputTokensMax = 0 }) => Number(inputTokensMax))
      )
      const { callsWithoutUsage, costUsd } = traffic.usage!
      assert.strictEqual(callsWithoutUsage, 0)
      assert.strictEqual(traffic.exhausted?.budget, "cost_usd")
      assert.isAtLeast(costUsd!, costUsdMax)
      assert.isAtMost(costUsd!, costUsdMax + (inputTokens * price.input + price.output) / 1e6 + 1e-9)
    })
  )

  const Step = Schema.Struct({ which: Schema.Int, tokens: Schema.Int, ends: Schema.Int })
  const Limits = Schema.Struct({
    input: Schema.optionalKey(Schema.Int),
    output: Schema.optionalKey(Schema.Int),
    cost: Schema.optionalKey(Schema.Int),
    steps: Schema.Array(Step)
  })
  const upTo = (value: number, max: number) => 1 + (Math.abs(value) % max)
  const prices = { m: { input: 1_000_000, output: 2_000_000 } }

  it.prop(
    "never exceed any budget by more than one of them reserved, and what the upstream reported beyond that",
    [Limits],
    ([{ cost, input, output, steps }]) => {
      const budget = {
        concurrentCallsMax: callsAtOnce,
        ...(input === undefined ? {} : { inputTokensMax: upTo(input, 2000) }),
        ...(output === undefined ? {} : { outputTokensMax: upTo(output, 2000) }),
        ...(cost === undefined ? {} : { costUsdMax: upTo(cost, 6000) })
      }
      const of = Budget.make(
        { ...budget, onExhausted: "refuse" },
        { prices, defaults: { concurrentCallsMax: 1, requestsPerSecondMax: 1 } }
      )
      const open: Array<Budget.Ticket> = []
      /** The largest reservation of a call, and what the upstream reported beyond reservations. */
      const largest = { inputTokens: 0, costUsd: 0 }
      const beyond = { inputTokens: 0, outputTokens: 0, costUsd: 0 }
      const begin = (tokens: number) => {
        const { absent, max } = of.answerCaps(["m"])
        const inputTokensMax = upTo(tokens, 120)
        const begun = of.begin({
          model: "m",
          requestBytes: 1,
          inputTokensMax,
          outputTokensMax: Math.min(upTo(tokens, 80), max ?? absent ?? 80)
        })
        if ("exhaustion" in begun) return
        open.push(begun)
        largest.inputTokens = Math.max(largest.inputTokens, inputTokensMax)
        // A call alone may begin with less left than its input and the first token of its answer cost.
        largest.costUsd = Math.max(
          largest.costUsd,
          CallCost.costMaxOf(prices, begun, { inputTokens: inputTokensMax, outputTokens: 1 })!
        )
      }
      const end = ({ ends, tokens, which }: typeof Step.Type) => {
        const [ticket] = open.splice(Math.abs(which) % open.length, 1)
        if (ticket === undefined) return
        const { inputTokens, outputTokens } = ticket.reserved
        const isIgnored = Math.abs(ends) % 5 === 4
        const more = isIgnored ? upTo(tokens, 50) : 0
        const usage = {
          inputTokens: Math.max(1, inputTokens - (Math.abs(ends) % 3)) + more,
          outputTokens: outputTokens + more
        }
        if (isIgnored) {
          const above = {
            inputTokens: Math.max(0, usage.inputTokens - inputTokens),
            outputTokens: more
          }
          beyond.inputTokens += above.inputTokens
          beyond.outputTokens += more
          beyond.costUsd += CallCost.costMaxOf(prices, ticket, above)!
        }
        // Read to its end, cut off without figures, or refused by the upstream.
        const how = Math.abs(ends) % 5
        of.end(ticket, {
          responseBytes: 0,
          mayHaveRun: how !== 1,
          ...(how < 2 ? {} : { usage })
        })
      }
      const check = () => {
        const total = of.total()
        const reserved = (name: keyof Budget.Ticket["reserved"]) =>
          open.reduce((sum, ticket) => sum + ticket.reserved[name], 0)
        assert.isAtMost(open.length, callsAtOnce)
        assert.isAtMost(
          total.outputTokens + reserved("outputTokens"),
          (budget.outputTokensMax ?? Infinity) + beyond.outputTokens
        )
        assert.isAtMost(
          total.inputTokens + reserved("inputTokens"),
          (budget.inputTokensMax ?? Infinity) + largest.inputTokens + beyond.inputTokens
        )
        assert.isAtMost(
          (total.costUsd ?? 0) + reserved("costUsd"),
          (budget.costUsdMax ?? Infinity) + largest.costUsd + beyond.costUsd + 1e-6
        )
      }
      for (const step of steps) {
        // As many as there is room for, then some of them end, in any order.
        for (let index = 0; index < callsAtOnce; index++) {
          begin(step.tokens + index)
          check()
        }
        for (let index = 0; index < upTo(step.which, callsAtOnce); index++) {
          if (open.length > 0) end({ ...step, which: step.which + 7 * index, ends: step.ends + index })
          check()
        }
      }
    },
    { arbitrary: { runs: 1000, seed: "calls-at-once" } }
  )
})
