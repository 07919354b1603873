/**
 * A model API whose model is a script: chat completions, responses and messages, streamed or not, with usage.
 *
 * A turn is a request that offers tools: those are the agent's task, and go to the script. What offers none (a title, a
 * count of tokens, a probe of the quota) is answered with a word, and does not move the script on.
 */
import { Effect } from "effect"
import { createServer, type IncomingHttpHeaders, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"
import * as ChatCompletions from "./scripted/ChatCompletions.ts"
import * as Messages from "./scripted/Messages.ts"
import * as Responses from "./scripted/Responses.ts"
import { type Body, type Dialect, type Figures, type Script, sendJson, type Turn } from "./scripted/Script.ts"

/** One request, as it arrived. */
export interface Received {
  readonly path: string
  readonly headers: IncomingHttpHeaders
  readonly body: Body
  /** Absent for what was no turn. */
  readonly turn: Turn | undefined
  /** What it was said to cost; absent where no model ran. */
  readonly figures: Figures | undefined
}

export interface ScriptedModel {
  readonly url: string
  readonly received: ReadonlyArray<Received>
  /** What the script itself threw: a mistake of the test's. */
  readonly problems: ReadonlyArray<string>
}

const dialects: ReadonlyArray<Dialect> = [ChatCompletions.dialect, Messages.dialect, Responses.dialect]

/** Different for each call, so that a sum tells which calls are in it. */
const figuresOf = (number: number): Figures => ({
  inputTokens: 1000 + 2 ** number,
  outputTokens: 100 + 2 ** number
})

/** What all three dialects read as an error. */
const refuse = (response: ServerResponse, message: string): void =>
  void response
    .writeHead(400, { "content-type": "application/json" })
    .end(
      JSON.stringify({ type: "error", error: { type: "invalid_request_error", code: "refused", message } })
    )

class Conversation {
  readonly received: Array<Received> = []
  readonly problems: Array<string> = []
  private turns = 0
  private readonly script: Script

  constructor(script: Script) {
    this.script = script
  }

  answer(path: string, headers: IncomingHttpHeaders, body: Body, response: ServerResponse): void {
    const dialect = dialects.find((one) => one.path === path)
    if (dialect === undefined) {
      this.received.push({ path, headers, body, turn: undefined, figures: undefined })
      return path === "/v1/messages/count_tokens"
        ? sendJson(response, { input_tokens: 11 })
        : void response.writeHead(404).end()
    }
    const asked = dialect.asked(body)
    const number = this.received.length
    const figures = figuresOf(number)
    const turn = asked.tools.length === 0 ? undefined : { ...asked, index: this.turns++ }
    const reply = turn === undefined ? { say: "Done." } : this.script(turn)
    const isRefused = "refuse" in reply
    this.received.push({ path, headers, body, turn, figures: isRefused ? undefined : figures })
    return isRefused ? refuse(response, reply.refuse) : dialect.answer(response, body, reply, figures, number)
  }
}

/** On a free port of the loopback interface, for as long as the scope. */
export const acquire = (script: Script) =>
  Effect.gen(function* () {
    const conversation = new Conversation(script)
    const server = yield* Effect.acquireRelease(
      Effect.callback<ReturnType<typeof createServer>>((resume) => {
        const made = createServer((request, response) => {
          const pieces: Array<Buffer> = []
          request.on("data", (piece: Buffer) => pieces.push(piece))
          request.on("end", () => {
            const path = (request.url ?? "").split("?")[0]!
            try {
              const body = JSON.parse(Buffer.concat(pieces).toString("utf8") || "{}") as Body
              conversation.answer(path, request.headers, body, response)
            } catch (cause) {
              conversation.problems.push(`${path}: ${String(cause)}`)
              response.writeHead(500).end()
            }
          })
        }).listen(0, "127.0.0.1", () => resume(Effect.succeed(made)))
      }),
      (made) =>
        Effect.callback<void>((resume) => {
          made.close(() => resume(Effect.void))
          made.closeAllConnections()
        })
    )
    const { port } = server.address() as AddressInfo
    const { problems, received } = conversation
    return { url: `http://127.0.0.1:${port}`, received, problems } satisfies ScriptedModel
  })
