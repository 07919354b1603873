/**
 * A model API that misbehaves on purpose, in the ways real ones do.
 *
 * Each request is answered by the next step of the script, the last step for ever after. What it received is
 * remembered, credentials as they came: it is for tests with made-up keys.
 */
import { Effect, type Scope } from "effect"
import type { ServerResponse } from "node:http"
import * as RecordingServer from "../internal/RecordingServer.ts"

/** How one request is answered. */
export type Step =
  /** 200, with this body. */
  | { readonly _tag: "Answer"; readonly body?: string; readonly headers?: Readonly<Record<string, string>> }
  /** The connection is closed before a byte. */
  | { readonly _tag: "Refuse" }
  /** Nothing, ever. */
  | { readonly _tag: "Hang" }
  /** Some events, then the connection breaks. */
  | { readonly _tag: "ResetMidStream"; readonly events: number }
  /** A page for people, as load balancers send it. */
  | { readonly _tag: "Html"; readonly status: number }
  /** An error of the API itself. */
  | {
      readonly _tag: "Error"
      readonly status: number
      readonly headers?: Readonly<Record<string, string>>
      readonly body?: string
    }
  /** Events with a pause between them. */
  | { readonly _tag: "SlowStream"; readonly events: number; readonly pauseMillis: number }

export interface ScriptedUpstream {
  /** `http://127.0.0.1:<port>`. */
  readonly url: string
  readonly received: Effect.Effect<ReadonlyArray<RecordingServer.Received>>
}

export const acquire = (
  script: readonly [Step, ...Array<Step>]
): Effect.Effect<ScriptedUpstream, never, Scope.Scope> => {
  let count = 0
  return Effect.map(
    RecordingServer.acquire({ raw: true }, (_request, _body, response) =>
      play(script[Math.min(count++, script.length - 1)]!, response)
    ),
    ({ received, url }) => ({ received, url: url! })
  )
}

const event = (index: number) => `data: {"choices":[{"index":0,"delta":{"content":"${index} "}}]}\n\n`

const play = (step: Step, response: ServerResponse): void => {
  switch (step._tag) {
    case "Answer":
      response
        .writeHead(200, { "content-type": "application/json", ...step.headers })
        .end(step.body ?? '{"ok":true}')
      return
    case "Refuse":
      response.destroy()
      return
    case "Hang":
      return
    case "ResetMidStream":
      response.writeHead(200, { "content-type": "text/event-stream" })
      for (let index = 0; index < step.events; index++) response.write(event(index))
      setTimeout(() => response.socket?.resetAndDestroy(), 20)
      return
    case "Html":
      response
        .writeHead(step.status, { "content-type": "text/html" })
        .end("<html><body><h1>Bad gateway</h1></body></html>")
      return
    case "Error":
      response
        .writeHead(step.status, { "content-type": "application/json", ...step.headers })
        .end(step.body ?? '{"error":{"message":"scripted","type":"server_error","code":null}}')
      return
    case "SlowStream": {
      response.writeHead(200, { "content-type": "text/event-stream" })
      let index = 0
      const timer = setInterval(() => {
        if (index === step.events) {
          clearInterval(timer)
          response.end("data: [DONE]\n\n")
        } else response.write(event(index++))
      }, step.pauseMillis)
      response.once("close", () => clearInterval(timer))
    }
  }
}
