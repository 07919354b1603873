/** Plays scripted failures of an upstream, as they occur in real ones. */
import type { ServerResponse } from "node:http"
import type { Step } from "./Script.ts"

const event = (index: number) => `data: {"choices":[{"index":0,"delta":{"content":"${index} "}}]}\n\n`

const send = (
  response: ServerResponse,
  status: number,
  type: string,
  content: string,
  { body = content, headers }: Pick<Extract<Step, { _tag: "Answer" }>, "body" | "headers"> = {}
): void => void response.writeHead(status, { "content-type": type, ...headers }).end(body)

export const play = (step: Step, response: ServerResponse): void => {
  switch (step._tag) {
    case "Answer":
      return send(response, 200, "application/json", '{"ok":true}', step)
    case "Refuse":
      return void response.destroy()
    case "Hang":
      return
    case "ResetMidStream":
      response.writeHead(200, { "content-type": "text/event-stream" })
      for (let index = 0; index < step.events; index++) response.write(event(index))
      setTimeout(() => response.socket?.resetAndDestroy(), 20)
      return
    case "Html":
      return send(response, step.status, "text/html", "<html><body><h1>Bad gateway</h1></body></html>")
    case "Error": {
      const error = { message: "scripted", type: "server_error", code: null }
      return send(response, step.status, "application/json", JSON.stringify({ error }), step)
    }
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
