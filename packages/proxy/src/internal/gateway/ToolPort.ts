/**
 * The shard's end of the host's tools: they run in the main thread, where their effects and secrets are, so what an
 * agent asks of them is bounded before it is sent there.
 */
import type { IncomingHttpHeaders } from "node:http"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Semaphore from "effect/Semaphore"
import * as Allowance from "../policy/Allowance.ts"
import * as JsonText from "../policy/JsonText.ts"
import * as Questions from "../Questions.ts"
import * as GatewayAnswers from "./GatewayAnswers.ts"

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
) => Effect.Effect<GatewayAnswers.Answer>

export interface ToolPort {
  readonly handle: ToolHandler
  /** What the main thread says to a request. */
  readonly answered: (serial: number, answer: GatewayAnswers.Answer) => void
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

export const make = (send: (serial: number, request: ToolRequest) => void): ToolPort => {
  const requests = Allowance.make(requestsPerSecondMax)
  const bytes = Allowance.make(bytesPerSecondMax, bytesMax)
  const places = Semaphore.makeUnsafe(waitingMax)
  const turns = Semaphore.makeUnsafe(concurrentMax)
  const pace = Semaphore.makeUnsafe(1)
  const questions = Questions.make<GatewayAnswers.Answer>()

  /** One after the other, and none before there is an allowance for it. */
  const paced = (requestBytes: number) =>
    Effect.suspend(() => {
      const now = performance.now()
      const pauseMillis = Math.max(requests.waitMillis(now), bytes.waitMillis(now))
      return pauseMillis === 0 ? Effect.void : Effect.sleep(Math.ceil(pauseMillis))
    }).pipe(
      Effect.andThen(
        Effect.sync(() => {
          const now = performance.now()
          requests.charge(now, 1)
          bytes.charge(now, requestBytes)
        })
      ),
      pace.withPermit
    )

  return {
    handle: ({ body, headers, ...rest }) => {
      if (body.byteLength > bytesMax)
        return refused(413, `the request is over ${bytesMax} bytes. Ask for less`)
      if (JsonText.survey(body).depth > depthMax)
        return refused(400, `the request is nested more than ${depthMax} levels deep`)
      return turns.takeScoped(1).pipe(
        Effect.andThen(paced(body.byteLength)),
        places.withPermitsIfAvailable(1),
        Effect.flatMap((placed) =>
          Option.isNone(placed)
            ? Effect.succeed(tooManyWaiting)
            : questions.ask((serial) => send(serial, { ...rest, body, headers: headersOf(headers) }))
        ),
        Effect.scoped
      )
    },
    answered: questions.answered
  }
}

const refused = (status: number, message: string) =>
  Effect.succeed(GatewayAnswers.toolError(status, "validation", message))

const tooManyWaiting = GatewayAnswers.toolError(
  503,
  "unavailable",
  "too many tool calls of this sandbox are waiting. Try again in a moment"
)

const headersOf = (headers: IncomingHttpHeaders): Readonly<Record<string, string>> =>
  Object.fromEntries(
    heard.flatMap((name) => {
      const value = headers[name]
      return typeof value === "string" ? [[name, value]] : []
    })
  )
