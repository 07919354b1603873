/** A request that is not let through: what its client hears, and what the run's record has of it. */
import * as Data from "effect/Data"
import type { LlmOutcome } from "@cogni/sandbox-core/RunResult"
import * as Exchange from "./Exchange.ts"
import * as GatewayAnswers from "./GatewayAnswers.ts"
import type { GatewayRun } from "./GatewayRun.ts"
import type { UnreadReason } from "./RequestReader.ts"

export class RequestRefused extends Data.TaggedError("RequestRefused")<{
  readonly error: GatewayAnswers.GatewayError
  /** Of its body, as far as it was read. */
  readonly requestBytes: number
}> {}

/** Its body was not read. */
export const unread = ({ response }: Exchange.Exchange, reason: UnreadReason): RequestRefused => {
  // What else it sends is not read: the connection ends with the answer.
  if (reason === "Stalled" || reason === "NoRoom") response.shouldKeepAlive = false
  return new RequestRefused({ error: unreadErrors[reason], requestBytes: 0 })
}

const unreadErrors: Readonly<Record<UnreadReason, GatewayAnswers.GatewayError>> = {
  TooLarge: GatewayAnswers.known("request_too_large"),
  NoRoom: GatewayAnswers.busy,
  Stalled: GatewayAnswers.known("request_timeout"),
  Aborted: { ...GatewayAnswers.known("bad_request"), code: "client_aborted" }
}

/** Answer it, and write it down. */
export const refuse = (
  run: GatewayRun,
  exchange: Exchange.Exchange,
  { error, requestBytes }: Pick<RequestRefused, "error" | "requestBytes">
): void => {
  const { dialect, method, requestId } = exchange
  const answer = GatewayAnswers.render(error, dialect)
  Exchange.answer(exchange, answer)
  const path = shortened(exchange.path)
  const call = Exchange.listed({ ...exchange, path }, answer, outcomeOf(error.code), requestBytes)
  const { durationMs, responseBytes } = call
  run.traffic.call(call)
  run.refuse({
    requestId,
    method,
    path,
    status: answer.status,
    code: error.code,
    detail: error.param === undefined ? error.message : `${error.param}: ${error.message}`,
    call: { requestBytes, responseBytes, durationMs }
  })
}

export const outcomeOf = (code: string): LlmOutcome =>
  code === "client_aborted" ? "client_aborted" : "refused"

/** What a client wrote is kept short and printable: it must not fill a disk, nor break a terminal. */
export const shortened = (path: string): string => path.replace(/[^\x21-\x7e]/gu, "?").slice(0, 256)
