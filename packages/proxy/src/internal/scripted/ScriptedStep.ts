/** An upstream that misbehaves on purpose, in the ways real ones do. */
import type { ServerResponse } from "node:http"
import type { Step } from "./Script.ts"

const event = (index: number) => `data: {"choices":[{"index":0,"delta":{"content":"${index} "}}]}\n\n`

export const play = (step: Step, response: ServerResponse): void => {
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
