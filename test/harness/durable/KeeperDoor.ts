/**
 * A door between a worker and the keeper of its host. Each request can be stopped before the keeper has it, and after
 * the keeper has answered it, and each event of a run before the worker has it.
 */
import type { Effect, Scope } from "effect"
import { type IncomingMessage, request as forward, type ServerResponse } from "node:http"
import { serve } from "../LocalServer.ts"
import type { Watch } from "./Moment.ts"

const whole = async (stream: AsyncIterable<Buffer>): Promise<Buffer> => {
  const pieces: Array<Buffer> = []
  for await (const piece of stream) pieces.push(piece)
  return Buffer.concat(pieces)
}

/** The method and the path of a request, with `ID` in the place of the run. */
const callOf = ({ method, url = "" }: IncomingMessage): string =>
  `${method} ${url.replace(/^\/api\/v1/u, "").replace(/^\/runs\/[^/?]+/u, "/runs/ID")}`

/** Passes events on, one at a time. */
const eventsTo = async (response: ServerResponse, answer: IncomingMessage, watch: Watch): Promise<void> => {
  let rest = ""
  answer.setEncoding("utf8")
  for await (const piece of answer) {
    rest += piece
    for (let end = rest.indexOf("\n\n"); end !== -1; end = rest.indexOf("\n\n")) {
      const event = rest.slice(0, end + 2)
      rest = rest.slice(end + 2)
      if (!event.startsWith(":"))
        await watch({ server: "keeper", call: "event", when: "answered", text: event })
      response.write(event)
    }
  }
  response.end(rest)
}

/** Opens a door until the scope closes. Returns its URL. */
export const acquire = (keeper: string, watch: Watch): Effect.Effect<string, never, Scope.Scope> =>
  serve((incoming, response) => {
    const call = callOf(incoming)
    const passed = async () => {
      const body = await whole(incoming)
      const isLate = await watch({ server: "keeper", call, when: "asked", text: body.toString("utf8") })
      if (response.destroyed && isLate !== true) return
      const answer = await new Promise<IncomingMessage>((resolve, reject) => {
        const outgoing = forward(`${keeper}${incoming.url}`, {
          method: incoming.method,
          headers: incoming.headers
        })
        outgoing.once("response", resolve).once("error", reject)
        if (isLate !== true) response.once("close", () => outgoing.destroy())
        outgoing.end(body)
      })
      const isStream = answer.headers["content-type"]?.startsWith("text/event-stream") === true
      const content = isStream ? undefined : await whole(answer)
      await watch({ server: "keeper", call, when: "answered", text: content?.toString("utf8") ?? "" })
      if (response.destroyed) return
      response.writeHead(answer.statusCode ?? 502, answer.headers)
      if (content === undefined) await eventsTo(response, answer, watch)
      else response.end(content)
    }
    response.on("error", () => undefined)
    passed().catch(() => response.destroy())
  })
