/**
 * The shard's end of the host's tools: they run in the main thread, where their effects and secrets are, so what an
 * agent asks of them is bounded before it is sent there.
 */
import type { IncomingHttpHeaders } from "node:http"
import type * as GatewayAnswers from "./GatewayAnswers.ts"
import * as Allowance from "../policy/Allowance.ts"
import * as JsonText from "../policy/JsonText.ts"

/** A request for the host's tools, as it is sent to the main thread. */
export interface ToolRequest {
  readonly requestId: string
  readonly method: string
  readonly path: string
  readonly query: string
  /** Those that a tool server hears. */
  readonly headers: Readonly<Record<string, string>>
  readonly body: Uint8Array
}

/** Answers a request that is for the host's tools. */
export type ToolHandler = (
  request: Omit<ToolRequest, "headers"> & { readonly headers: IncomingHttpHeaders }
) => Promise<GatewayAnswers.Answer>

export interface ToolPort {
  readonly handle: ToolHandler
  /** What the main thread says to a request. */
  readonly answered: (serial: number, answer: GatewayAnswers.Answer) => void
  readonly close: () => void
}

/** Requests of one run in the main thread at one time. */
export const concurrentMax = 16

/** Requests of one run that wait for that. */
export const waitingMax = 64

export const requestsPerSecondMax = 50

/** Read by the main thread, which decodes it. */
export const bytesPerSecondMax = 64 * 1024

/** At once: as much as one call may have for arguments, and what is around them. */
export const bytesMax = 256 * 1024 + 16 * 1024

/** Deeper than any arguments; what recurses over them must not run out of stack. */
const depthMax = 64

const heard = ["content-type", "accept", "mcp-protocol-version", "mcp-session-id", "mcp-method", "mcp-name"]

interface Waiting {
  readonly request: ToolRequest
  readonly resolve: (answer: GatewayAnswers.Answer) => void
}

export const make = (send: (serial: number, request: ToolRequest) => void): ToolPort => {
  const requests = Allowance.make(requestsPerSecondMax)
  const bytes = Allowance.make(bytesPerSecondMax, bytesMax)
  const waiting: Array<Waiting> = []
  const open = new Map<number, (answer: GatewayAnswers.Answer) => void>()
  let serial = 0
  let timer: NodeJS.Timeout | undefined

  const next = () => {
    clearTimeout(timer)
    timer = undefined
    while (waiting.length > 0 && open.size < concurrentMax) {
      const now = performance.now()
      const pauseMillis = Math.max(requests.waitMillis(now), bytes.waitMillis(now))
      if (pauseMillis > 0) {
        timer = setTimeout(next, Math.ceil(pauseMillis))
        return
      }
      const { request, resolve } = waiting.shift()!
      requests.charge(now, 1)
      bytes.charge(now, request.body.byteLength)
      serial += 1
      open.set(serial, resolve)
      send(serial, request)
    }
  }

  return {
    handle: async ({ body, headers, ...rest }) => {
      if (body.byteLength > bytesMax)
        return refused(413, "validation", `the request is over ${bytesMax} bytes. Ask for less`)
      if (JsonText.survey(body).depth > depthMax)
        return refused(400, "validation", `the request is nested more than ${depthMax} levels deep`)
      if (waiting.length >= waitingMax)
        return refused(
          503,
          "unavailable",
          "too many tool calls of this sandbox are waiting. Try again in a moment"
        )
      return await new Promise((resolve) => {
        waiting.push({ request: { ...rest, body, headers: headersOf(headers) }, resolve })
        next()
      })
    },
    answered: (of, answer) => {
      open.get(of)?.(answer)
      open.delete(of)
      next()
    },
    close: () => {
      clearTimeout(timer)
      for (const { resolve } of waiting.splice(0)) resolve(closed)
      for (const resolve of open.values()) resolve(closed)
      open.clear()
    }
  }
}

const refused = (status: number, code: string, message: string): GatewayAnswers.Answer => ({
  status,
  headers: { "content-type": "application/json" },
  body: JSON.stringify({ ok: false, error: { code, message } })
})

const closed = refused(503, "unavailable", "the sandbox is over")

const headersOf = (headers: IncomingHttpHeaders): Readonly<Record<string, string>> =>
  Object.fromEntries(
    heard.flatMap((name) => {
      const value = headers[name]
      return typeof value === "string" ? [[name, value]] : []
    })
  )
