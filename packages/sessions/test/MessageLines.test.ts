import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Layer, Stream } from "effect"
import { TestClock } from "effect/testing"
import * as MessageLines from "../src/router/MessageLines.ts"
import { MessageError, RouterStopping } from "../src/router/MessageError.ts"
import { MessageRouter } from "../src/router/MessageRouter.ts"
import type { Message } from "../src/router/Orchestrator.ts"
import * as RouterWorld from "./RouterWorld.ts"

const encoder = new TextEncoder()

/** A router that echoes messages, delays `slow`, and refuses `no`. */
const routerOf = (slow: Effect.Effect<void> = Effect.void) => {
  const heard: Array<unknown> = []
  const layer = Layer.succeed(MessageRouter, {
    handle: (message: Message) =>
      Effect.suspend(() => {
        heard.push(message)
        if (message?.text === "no")
          return Effect.fail(new MessageError({ agent: "a", reason: new RouterStopping() }))
        return Effect.as(message?.text === "slow" ? slow : Effect.void, {
          text: `re: ${message?.text}`,
          agent: "a",
          key: "k",
          rule: { _tag: "Default" as const },
          executor: "sandbox" as const,
          fallback: false,
          messageId: message?.messageId
        })
      }),
    sessions: Effect.succeed([])
  })
  return { heard, layer }
}

const serve = (pieces: ReadonlyArray<string>, router = routerOf(), demo?: boolean) => {
  const told: Array<Record<string, unknown>> = []
  return MessageLines.serve({
    demo,
    input: Stream.fromIterable(pieces.map((piece) => encoder.encode(piece))),
    write: (line) =>
      Effect.sync(() => {
        assert.match(line, /^[^\n]*\n$/u)
        told.push(JSON.parse(line))
      })
  }).pipe(Effect.as(told), Effect.provide(router.layer))
}

const line = (text: string, messageId = text) =>
  `${JSON.stringify({ channel: "c", senderId: "s", text, messageId })}\n`

const tooLong = {
  reason: "MessageInvalid",
  message: `the message is refused: the line is longer than ${MessageLines.lineBytesMax} bytes`,
  isRetryable: false
}

describe("MessageLines", () => {
  it.effect("reads each message from a line in any pieces, and writes each reply as a line", () =>
    Effect.gen(function* () {
      const whole = `${line("é one")}\n  \n${line("two")}`
      const told = yield* serve(Array.from(whole).flatMap((character) => [character]))
      assert.deepStrictEqual(
        told.map(({ messageId, ok, text }) => ({ messageId, ok, text })),
        [
          { messageId: "é one", ok: true, text: "re: é one" },
          { messageId: "two", ok: true, text: "re: two" }
        ]
      )
    })
  )

  it.effect("reads a last message without a line break", () =>
    Effect.gen(function* () {
      const [first = "", ...rest] = Array.from(`${line("one")}${line("two").trimEnd()}`)
      for (const pieces of [[first, ...rest], [first + rest.join("")]]) {
        const told = yield* serve(pieces)
        assert.deepStrictEqual(
          told.map(({ messageId }) => messageId),
          ["one", "two"]
        )
      }
    })
  )

  it.effect("reports a failure with its reason, whether it is retryable, and the message ID", () =>
    Effect.gen(function* () {
      const [told] = yield* serve([line("no", "m-7")])
      assert.deepStrictEqual(told, {
        messageId: "m-7",
        ok: false,
        agent: "a",
        error: {
          reason: "RouterStopping",
          message: "a: this process is shutting down. Ask again when it is back",
          isRetryable: true
        }
      })
    })
  )

  it.effect("answers a line that is not JSON with an example", () =>
    Effect.gen(function* () {
      const router = routerOf()
      const [told] = yield* serve(["hello\n"], router)
      assert.deepStrictEqual(router.heard, [])
      assert.include(JSON.stringify(told), "MessageInvalid")
      assert.include(JSON.stringify(told), "senderId")
    })
  )

  it.effect("accepts integer IDs, and returns the ID unchanged", () =>
    Effect.gen(function* () {
      const router = routerOf()
      const [told] = yield* serve([`{"channel":"c","senderId":12345,"text":"t","messageId":7}\n`], router)
      assert.deepStrictEqual(router.heard, [{ channel: "c", senderId: "12345", text: "t", messageId: "7" }])
      assert.strictEqual(told?.messageId, 7)
    })
  )

  it.effect("passes invalid messages to the router unchanged", () =>
    Effect.gen(function* () {
      const router = routerOf()
      const told = yield* serve(["[1]\n", '"x"\n', `{"messageId":7.5,"text":"t"}\n`], router)
      assert.deepStrictEqual(router.heard, [[1], "x", { messageId: 7.5, text: "t" }])
      assert.strictEqual(told.length, 3)
    })
  )

  it.effect("does not delay other messages for a slow one", () =>
    Effect.gen(function* () {
      const ready = yield* Deferred.make<void>()
      const fiber = yield* Effect.forkChild(
        serve([line("slow"), line("two")], routerOf(Deferred.await(ready)))
      )
      yield* TestClock.adjust("1 second")
      assert.isUndefined(fiber.pollUnsafe(), "serve did not wait for the last reply")
      yield* Deferred.succeed(ready, undefined)
      assert.deepStrictEqual(
        (yield* Fiber.join(fiber)).map(({ messageId }) => messageId),
        ["two", "slow"]
      )
    })
  )

  it.effect("answers another sender while all other sessions are at their limit", () =>
    Effect.gen(function* () {
      const { handle, sessions } = yield* RouterWorld.make(
        "{ agent_configs: { a: {} }, routing: { default_agent: a }, sandbox: { sessions_max: 20 } }",
        { script: ({ text }) => (text === "slow" ? Effect.never : Effect.succeed(text)) }
      )
      const senders = Array.from({ length: 19 }, (_, index) => `s${index}`)
      const slow = senders.flatMap((senderId) =>
        Array.from({ length: 32 }, () => `${JSON.stringify({ channel: "c", senderId, text: "slow" })}\n`)
      )
      const told: Array<string> = []
      yield* Effect.forkChild(
        MessageLines.serve({
          input: Stream.fromIterable([...slow, line("hello")].map((text) => encoder.encode(text))),
          write: (reply) => Effect.sync(() => told.push(JSON.parse(reply).text))
        }).pipe(Effect.provideService(MessageRouter, { handle, sessions }))
      )
      yield* Effect.repeat(Effect.yieldNow, { times: 5000 })
      assert.deepStrictEqual(told, ["hello"])
    })
  )

  it.effect("marks every answer of a demo, and no other", () =>
    Effect.gen(function* () {
      const lines = [line("one"), "{}\n"]
      assert.deepStrictEqual(
        (yield* serve(lines, routerOf(), true)).map(({ demo }) => demo),
        [true, true]
      )
      for (const told of yield* serve(lines)) assert.notProperty(told, "demo")
    })
  )

  it.effect("refuses an oversized line at once, and answers the others", () =>
    Effect.gen(function* () {
      const router = routerOf()
      const piece = "x".repeat(MessageLines.lineBytesMax / 2)
      const endless = Array.from({ length: 20 }, () => piece)
      const told = yield* serve(
        [line("one"), ...endless, `\n${line("two")}${piece}${piece}${piece}\n`],
        router
      )
      assert.deepStrictEqual(
        told.map(({ error, messageId, ok, text }) => [messageId ?? error, ok, text]),
        [
          ["one", true, "re: one"],
          [tooLong, false, undefined],
          ["two", true, "re: two"],
          [tooLong, false, undefined]
        ]
      )
      assert.strictEqual(router.heard.length, 2)
    })
  )

  it.effect("accepts a line of exactly the maximum length, in any pieces", () =>
    Effect.gen(function* () {
      const router = routerOf()
      const whole = " ".repeat(MessageLines.lineBytesMax - 1) + "1"
      const told = yield* serve([whole.slice(0, 9), `${whole.slice(9)}\n${whole}\n ${whole}\n`], router)
      assert.deepStrictEqual(
        told.map(({ ok }) => ok),
        [true, true, false]
      )
      assert.deepStrictEqual(router.heard, [1, 1])
    })
  )
})
