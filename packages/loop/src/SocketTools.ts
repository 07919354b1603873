/**
 * Calls host tools through the gateway of a run, on its socket: with the rules, approvals, limits and audit of the run.
 *
 * A loop on the host could call a tool itself. Through the gateway, its calls are treated as those of an agent in the
 * sandbox.
 */
import { Effect, Option, Schema } from "effect"
import * as HostFetch from "./internal/HostFetch.ts"
import { type Tool, ToolErrorCode, ToolFailed } from "./Tool.ts"

/** Longest answer, in bytes: results have limits of their own. */
const answerBytesMax = 16 * 1024 * 1024

const limits = {
  lineBytesMax: answerBytesMax,
  bodyBytesMax: answerBytesMax,
  errorBytesMax: 64 * 1024
}

const Answer = Schema.Union([
  Schema.Struct({ ok: Schema.Literal(true), result: Schema.Unknown }),
  Schema.Struct({ error: Schema.Struct({ code: ToolErrorCode, message: Schema.String }) })
])

const decodeAnswer = Schema.decodeUnknownOption(Schema.fromJsonString(Answer))

/** Returns the same tool, called through the gateway at a socket. */
export const through = (socketPath: string, tool: Tool): Tool => ({
  ...tool,
  call: (input) =>
    Effect.gen(function* () {
      const text = yield* Effect.tryPromise({
        try: async (signal) => {
          const answer = await HostFetch.make({ socketPath }, limits)("http://localhost/tool/exec", {
            method: "POST",
            headers: { "content-type": "application/json" },
            body: JSON.stringify({ tool: tool.name, args: input }),
            signal
          })
          return await answer.text()
        },
        catch: () => unanswered
      })
      const answer = Option.getOrUndefined(decodeAnswer(text))
      if (answer === undefined) return yield* unanswered
      return "error" in answer
        ? yield* new ToolFailed({ code: answer.error.code, detail: answer.error.message })
        : answer.result
    })
})

const unanswered = new ToolFailed({
  code: "execution",
  detail:
    "the gateway of this run did not answer. The call may have had its effect: check before you repeat it"
})
