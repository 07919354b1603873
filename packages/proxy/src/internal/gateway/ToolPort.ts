/**
 * The shard's port to the host's tools. They run in the main thread, where their effects and secrets are, so the shard
 * limits an agent's requests before it sends them there.
 */
import type { IncomingHttpHeaders } from "node:http"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Semaphore from "effect/Semaphore"
import * as Allowance from "../policy/Allowance.ts"
import * as JsonSurvey from "@cogni/sandbox-core/JsonSurvey"
import * as Questions from "../Questions.ts"
import * as GatewayAnswers from "./GatewayAnswers.ts"

/** A request for the host's tools, as it is sent to the main thread. */
export interface ToolRequest {
  readonly requestId: string
  readonly method: string
  readonly path: string
  readonly query: string
  /** Headers that a tool server reads. */
  readonly headers: Readonly<Record<string, string>>
  readonly body: Uint8Array
}

/** The client of a request. */
export interface ToolCaller {
  /** Whether it has closed its exchange without waiting for the answer. */
  readonly isGone: () => boolean
  /** Calls a function once if that happens. */
  readonly whenGone: (then: () => void) => void
}

/** Answers a request that is for the host's tools. */
export type ToolHandler = (
  request: Omit<ToolRequest, "headers"> & { readonly headers: IncomingHttpHeaders },
  caller: ToolCaller
) => Effect.Effect<GatewayAnswers.Answer>

export interface ToolPort {
  readonly handle: ToolHandler
  /** Delivers the main thread's answer to a request. */
  readonly answered: (serial: number, answer: GatewayAnswers.Answer) => void
}

/** Concurrent requests of one run in the main thread. */
export const concurrentMax = 16

/** Requests of one run that may wait for the main thread. */
export const waitingMax = 64

export const requestsPerSecondMax = 50

/** Bytes per second of one run that the main thread decodes. */
export const bytesPerSecondMax = 64 * 1024

/** Maximum size of a request: the arguments of one call, and 16 KiB for the rest. */
export const bytesMax = 256 * 1024 + 16 * 1024

const heard = ["content-type", "accept", "mcp-protocol-version", "mcp-session-id", "mcp-method", "mcp-name"]

/** Ways to the main thread. */
interface ToolSender {
  readonly send: (serial: number, request: ToolRequest) => void
  /** Tells that a client no longer waits for its answer. The request keeps its place until the answer is there. */
  readonly gone: (serial: number) => void
}

export const make = ({ gone, send }: ToolSender): ToolPort => {
  const questions = Questions.make<GatewayAnswers.Answer>()
  // Made with the first request: most runs call no tool, and a host holds thousands of idle runs.
  let gate: Gate | undefined

  return {
    handle: ({ body, headers, ...rest }, caller) => {
      if (body.byteLength > bytesMax)
        return refused(413, `the request is larger than ${bytesMax} bytes. Shorten it`)
      const problem = JsonSurvey.problemOf(body)
      if (problem !== undefined) return refused(400, `the request ${problem}`)
      gate ??= gateOf()
      const asked = Effect.suspend(() =>
        caller.isGone()
          ? callerGone
          : questions.ask((serial) => {
              send(serial, { ...rest, body, headers: headersOf(headers) })
              caller.whenGone(() => gone(serial))
            })
      )
      return gate(body.byteLength, asked)
    },
    answered: questions.answered
  }
}

/** Asks the main thread when the limits of the run allow it. */
type Gate = (
  requestBytes: number,
  asked: Effect.Effect<GatewayAnswers.Answer>
) => Effect.Effect<GatewayAnswers.Answer>

const gateOf = (): Gate => {
  const requests = Allowance.make(requestsPerSecondMax)
  const bytes = Allowance.make(bytesPerSecondMax, bytesMax)
  const places = Semaphore.makeUnsafe(waitingMax)
  const turns = Semaphore.makeUnsafe(concurrentMax)
  const pace = Semaphore.makeUnsafe(1)

  /** Admits requests one after the other, each when the rate limits allow it. */
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

  return (requestBytes, asked) =>
    turns.takeScoped(1).pipe(
      Effect.andThen(paced(requestBytes)),
      places.withPermitsIfAvailable(1),
      Effect.flatMap((placed) => (Option.isNone(placed) ? Effect.succeed(tooManyWaiting) : asked)),
      Effect.scoped
    )
}

const refused = (status: number, message: string) =>
  Effect.succeed(GatewayAnswers.toolError(status, "validation", message))

const callerGone = Effect.succeed(
  GatewayAnswers.toolError(503, "unavailable", "the client has gone before its call began")
)

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
