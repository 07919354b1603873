/** Tests what callers can hold of a server by not reading: connections, memory and time. */
import * as Await from "../../../test/harness/Await.ts"
import type { Program } from "@cogni/sandbox-core/MemoryContainerRuntime"
import type { ServerLimits } from "@cogni/sandbox-server/ServerLimits"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { TestClock } from "effect/testing"
import { connect, type Socket } from "node:net"
import { envelope, lasting, question, serve } from "./ServerWorld.ts"

/** Larger than what the buffers of a connection take. */
const outputBytes = 4_000_000

/** An agent with a large output. */
const loud: Program = ({ stderr, stdout }) =>
  Effect.gen(function* () {
    for (let left = outputBytes; left > 0; left -= 16_000) yield* stderr("x".repeat(Math.min(left, 16_000)))
    yield* stdout(envelope("Lima"))
    return 0
  })

/** Asks for a path, and never reads the answer. */
const mute = (url: string, token: string, path: string) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const { hostname, port } = new URL(url)
      const socket = connect({ host: hostname, port: Number(port) })
      socket.on("error", () => undefined)
      socket.pause()
      socket.write(`GET ${path} HTTP/1.1\r\nHost: ${hostname}\r\nAuthorization: Bearer ${token}\r\n\r\n`)
      return socket
    }),
    (socket) => Effect.sync(() => socket.destroy())
  )

/** Reads what is left until the server closes the connection. Returns the number of bytes. */
const drained = (socket: Socket) =>
  Effect.promise(
    () =>
      new Promise<number>((resolve) => {
        let bytes = 0
        socket.on("data", (data) => (bytes += data.byteLength))
        socket.once("close", () => resolve(bytes))
        socket.resume()
      })
  )

const ended = (limits: Partial<ServerLimits>) =>
  Effect.gen(function* () {
    const server = yield* serve({ program: loud, limits })
    const caller = yield* server.caller()
    const { runId } = yield* caller.chat()
    return { server, caller, path: `/api/v1/runs/${runId}/stderr` }
  })

describe("an answer that is not read", () => {
  it.effect("is closed after a timeout, and its place is free again", () =>
    Effect.gen(function* () {
      const { caller, path, server } = yield* ended({ requestsPerAccountMax: 1, streamIdleSecondsMax: 60 })
      const socket = yield* mute(server.url, caller.token, path)
      const statusIs = (wanted: number) =>
        Await.until(
          `the status is ${wanted}`,
          Effect.map(caller.get("/api/v1/ai/agents"), ({ status }) => status === wanted)
        )
      yield* statusIs(429)
      const refused = yield* caller.get("/api/v1/ai/agents")
      assert.strictEqual(refused.body.error.reason, "TooManyOpen")
      assert.strictEqual(refused.headers.get("retry-after"), "5")
      // Another grant of the account is concerned, and another account is not.
      const colleague = yield* server.caller()
      const other = yield* server.caller({ billingAccountId: "other" })
      assert.strictEqual((yield* colleague.get("/api/v1/ai/agents")).status, 429)
      assert.strictEqual((yield* other.get("/api/v1/ai/agents")).status, 200)
      yield* TestClock.adjust("121 seconds")
      yield* statusIs(200)
      assert.isBelow(yield* drained(socket), outputBytes)
    })
  )

  it.effect("counts against a size, and others get large answers again when it is read", () =>
    Effect.gen(function* () {
      const { caller, path, server } = yield* ended({ unreadBytesPerAccountMax: outputBytes + 1000 })
      const socket = yield* mute(server.url, caller.token, path)
      yield* Await.until(
        "a large answer is refused",
        Effect.map(caller.get(path), ({ status }) => status === 503)
      )
      assert.strictEqual((yield* caller.get(path)).body.error.reason, "TooMuchUnread")
      assert.strictEqual((yield* caller.get(path, { range: "bytes=0-99" })).status, 206)
      socket.resume()
      yield* Await.until(
        "a large answer is allowed",
        Effect.map(caller.get(path), ({ body, status }) => status === 200 && body.length === outputBytes)
      )
    })
  )
})

describe("an answer in pieces", () => {
  it.effect("has its length, and its ranges", () =>
    Effect.gen(function* () {
      const { caller, path } = yield* ended({})
      const whole = yield* caller.get(path)
      assert.strictEqual(whole.headers.get("content-length"), String(outputBytes))
      assert.strictEqual(whole.body, "x".repeat(outputBytes))
      const { body, headers, status } = yield* caller.get(path, { range: `bytes=-${1_000_000}` })
      assert.deepStrictEqual([status, body.length], [206, 1_000_000])
      assert.strictEqual(headers.get("content-length"), "1000000")
    })
  )
})

describe("requests of an account", () => {
  it.effect("are limited together with the events that it follows", () =>
    Effect.gen(function* () {
      const server = yield* serve({ program: lasting, limits: { requestsPerAccountMax: 2 } })
      const caller = yield* server.caller()
      const { runId } = yield* caller.open(question)
      const reader = new AbortController()
      const events = `${server.url}/api/v1/runs/${runId}/events`
      yield* Effect.promise(() => fetch(events, { headers: caller.headers, signal: reader.signal }))
      const refused = yield* caller.get(`/api/v1/runs/${runId}`)
      assert.deepStrictEqual([refused.status, refused.body.error.reason], [429, "TooManyOpen"])
      reader.abort()
      yield* Await.until(
        "the place is free",
        Effect.map(caller.get(`/api/v1/runs/${runId}`), ({ status }) => status === 200)
      )
    })
  )
})
