/**
 * A model API for measurements, in a separate process: answers at once, or streams events that state when they were
 * sent.
 *
 * The model's name selects the answer: `stream-EVENTS-MILLIS` streams, and any other name is answered at once.
 */
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"

const answer = JSON.stringify({
  id: "x",
  object: "chat.completion",
  choices: [{ index: 0, message: { role: "assistant", content: "hello" }, finish_reason: "stop" }],
  usage: { prompt_tokens: 10, completion_tokens: 2, total_tokens: 12 }
})

const server = createServer((request, response) => {
  const pieces: Array<Buffer> = []
  request.on("data", (piece: Buffer) => pieces.push(piece))
  request.on("end", () => {
    const asked = /"stream-(\d+)-(\d+)"/u.exec(Buffer.concat(pieces).toString("latin1"))
    if (asked === null) {
      response.writeHead(200, { "content-type": "application/json", "content-length": answer.length })
      response.end(answer)
      return
    }
    const [events, millis] = [Number(asked[1]), Number(asked[2])]
    response.writeHead(200, { "content-type": "text/event-stream" })
    let sent = 0
    const timer = setInterval(() => {
      if (sent === events) {
        clearInterval(timer)
        response.end("data: [DONE]\n\n")
        return
      }
      const at = process.hrtime.bigint()
      response.write(
        `data: {"id":"x","object":"chat.completion.chunk","at":"${at}","choices":[{"index":0,"delta":{"content":"word ${sent++} "}}]}\n\n`
      )
    }, millis)
    response.once("close", () => clearInterval(timer))
  })
})
server.keepAliveTimeout = 60_000
server.listen(0, "127.0.0.1", 4096, () => {
  process.send?.({ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` })
})
process.once("disconnect", () => process.exit(0))
