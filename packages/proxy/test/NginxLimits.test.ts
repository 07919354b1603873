/** The limits of an nginx, for one run or for many: both refuse a number that would limit nothing, or everything. */
import { assert, describe, it } from "@effect/vitest"
import * as MemoryContainerRuntime from "@cogni/sandbox-core/MemoryContainerRuntime"
import * as UsageObserver from "@cogni/sandbox-core/UsageObserver"
import { Effect, Redacted } from "effect"
import { readFileSync } from "node:fs"
import * as NginxLimits from "../src/internal/nginx/NginxLimits.ts"
import * as NginxLlmProxy from "../src/NginxLlmProxy.ts"
import * as SharedNginxLlmProxy from "../src/SharedNginxLlmProxy.ts"

type Numbers = Readonly<Record<string, number>>

const settings = {
  image: "proxy",
  upstream: { type: "host", url: "http://127.0.0.1:4000" },
  key: Redacted.make("sk-limits-0123456789")
} as const

const proxies = {
  NginxLlmProxy: {
    make: (numbers: Numbers) => NginxLlmProxy.make({ ...settings, ...numbers }),
    ranges: NginxLimits.ofOne,
    callsMax: 500
  },
  SharedNginxLlmProxy: {
    make: (numbers: Numbers) => SharedNginxLlmProxy.make({ ...settings, ...numbers }),
    ranges: NginxLimits.ofMany,
    callsMax: 1750
  }
} as const

const units = {
  auditBytesMax: "bytes",
  concurrentRequestsMax: "requests",
  readySecondsMax: "seconds",
  requestBytesMax: "bytes",
  requestsPerSecondMax: "requests per second",
  socketsMax: "sockets"
} as const

for (const [proxy, { callsMax, make, ranges }] of Object.entries(proxies))
  describe(`the limits of ${proxy}`, () => {
    const attempt = (numbers: Numbers) =>
      make(numbers).pipe(
        Effect.scoped,
        Effect.provide([
          UsageObserver.layerNone,
          MemoryContainerRuntime.layer({ program: () => Effect.succeed(0) })
        ])
      )
    const names = Object.keys(ranges) as Array<keyof typeof units>

    it.effect.each(names)("refuses %s if it is not a limit, with its value, its unit and a remedy", (name) =>
      Effect.gen(function* () {
        const fraction = name === "readySecondsMax" ? [] : [0.5]
        for (const value of [Number.NaN, Number.POSITIVE_INFINITY, 0, -1, ...fraction]) {
          const error = yield* Effect.flip(attempt({ [name]: value }))
          assert.strictEqual(error._tag, "Misconfigured", String(value))
          assert.include(error.message, `${proxy} has ${name} ${value}, which is not `)
          assert.include(error.message, ` of ${units[name]} `)
          assert.include(error.message, `Set a ${name} in that range, or leave it out`)
        }
        yield* attempt({ [name]: 1 })
      })
    )

    it.effect("refuses more calls at once, requests or bytes of a log than nginx can hold", () =>
      Effect.gen(function* () {
        for (const [name, most] of [
          ["concurrentRequestsMax", callsMax],
          ["requestsPerSecondMax", 1_000_000],
          ["auditBytesMax", 224 * 1024 * 1024]
        ] as const) {
          yield* attempt({ [name]: most })
          assert.include((yield* Effect.flip(attempt({ [name]: most + 1 }))).message, `1 to ${most}`)
        }
      })
    )

    it("are all numbers among its options", () => {
      const source = readFileSync(new URL(`../src/${proxy}.ts`, import.meta.url), "utf8")
      const declared = source.matchAll(/^  readonly (\w+)\?: number \| undefined$/gmu)
      assert.sameMembers(
        [...declared].map(([, name]) => name),
        names
      )
    })
  })

describe("SharedNginxLlmProxy", () => {
  it.effect("refuses more sockets than leave half of nginx's connections to runs", () =>
    Effect.gen(function* () {
      const attempt = (socketsMax: number) =>
        proxies.SharedNginxLlmProxy.make({ socketsMax }).pipe(
          Effect.scoped,
          Effect.provide([
            UsageObserver.layerNone,
            MemoryContainerRuntime.layer({ program: () => Effect.succeed(0) })
          ])
        )
      assert.include((yield* Effect.flip(attempt(3501))).message, "1 to 3500")
      yield* attempt(3500)
    })
  )
})
