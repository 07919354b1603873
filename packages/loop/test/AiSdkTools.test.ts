/** Runs a session's tools with the real AI SDK. */
import type { Tool } from "@cogni/sandbox-loop/Tool"
import * as AiSdkTools from "@cogni/sandbox-loop/AiSdkTools"
import * as ShellTools from "@cogni/sandbox-loop/ShellTools"
import * as ToolRegistry from "@cogni/sandbox-loop/ToolRegistry"
import { assert, describe, it } from "@effect/vitest"
import { isStepCount, simulateReadableStream, streamText } from "ai"
import { MockLanguageModelV4 } from "ai/test"
import { Deferred, Effect, Exit, Result, Scope } from "effect"
import { AiModel } from "./AiModel.ts"
import { endless, session, toolNamed } from "./ToolWorld.ts"

const registryOf = (...tools: ReadonlyArray<Tool>) =>
  Result.getOrThrow(Result.flatMap(ToolRegistry.make(tools), (all) => all.restrict("messaging")))

const endlessShell = Effect.map(endless, ({ executor, ...moments }) => ({
  ...moments,
  registry: registryOf(...ShellTools.make(executor))
}))

describe("tools for the AI SDK", () => {
  it.effect("works with streamText as with generateText", () =>
    Effect.gen(function* () {
      const tools = yield* AiSdkTools.make(registryOf(toolNamed("file__read", "called")), session)
      const usage = {
        inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
        outputTokens: { total: 1, text: 1, reasoning: 0 }
      }
      const model = new MockLanguageModelV4({
        doStream: [
          {
            stream: simulateReadableStream({
              chunks: [
                { type: "stream-start" as const, warnings: [] },
                {
                  type: "tool-call" as const,
                  toolCallId: "c1",
                  toolName: "file__read",
                  input: '{"text":"hello"}'
                },
                { type: "finish" as const, finishReason: { unified: "tool-calls" as const, raw: "x" }, usage }
              ]
            })
          },
          {
            stream: simulateReadableStream({
              chunks: [
                { type: "stream-start" as const, warnings: [] },
                { type: "finish" as const, finishReason: { unified: "stop" as const, raw: "x" }, usage }
              ]
            })
          }
        ]
      })
      const streamed = streamText({ model, tools, prompt: "x", stopWhen: isStepCount(2) })
      yield* Effect.promise(() => Promise.resolve(streamed.consumeStream()))
      const [, second] = model.doStreamCalls
      assert.include(JSON.stringify(second?.prompt), '"value":{"mark":"called","text":"hello"}')
    })
  )

  it.effect("returns invalid arguments to the model as an error", () =>
    Effect.gen(function* () {
      const model = new AiModel(
        yield* AiSdkTools.make(registryOf(toolNamed("file__read", "called")), session)
      )
      for (const [input, expected] of [
        ["[]", /^validation: /u],
        ['{"text":7}', /^validation: text: /u],
        ['{"text":"x","more":1}', /^validation: more: /u],
        ['{"__proto__":{"text":"x"}}', /./u],
        ["{", /./u]
      ] as const) {
        const { ok, text } = yield* Effect.promise(() => model.call("file__read", input))
        assert.isFalse(ok, input)
        assert.match(text, expected)
      }
    })
  )

  it.effect("offers only allowed tools", () =>
    Effect.gen(function* () {
      const registry = registryOf(
        toolNamed("file__read", "x"),
        toolNamed("mail__send", "x", "external_side_effect")
      )
      const tools = yield* AiSdkTools.make(registry, session)
      assert.deepStrictEqual(Object.keys(tools), ["file__read"])
    })
  )

  it.live("an abort ends the command", () =>
    Effect.gen(function* () {
      const { begun, ended, registry } = yield* endlessShell
      const model = new AiModel(yield* AiSdkTools.make(registry, session))
      const abort = new AbortController()
      const calling = model.call("shell__exec", '{"command":"x"}', abort.signal).catch(() => "aborted")
      yield* Deferred.await(begun)
      abort.abort()
      yield* Deferred.await(ended).pipe(
        Effect.timeoutOrElse({ duration: "5 minutes", orElse: () => Effect.die("the command still runs") })
      )
      yield* Effect.promise(() => calling)
    })
  )

  it.live("the end of the session ends its calls", () =>
    Effect.gen(function* () {
      const { begun, ended, registry } = yield* endlessShell
      const scope = yield* Scope.make()
      const tools = yield* AiSdkTools.make(registry, session).pipe(Scope.provide(scope))
      const calling = tools
        .shell__exec!.execute({ command: "x" }, { toolCallId: "c1" })
        .catch(() => "rejected")
      yield* Deferred.await(begun)
      yield* Scope.close(scope, Exit.void)
      assert.isTrue(yield* Deferred.isDone(ended))
      assert.strictEqual(yield* Effect.promise(() => calling), "rejected")
    })
  )
})
