/** A refused request: the answer to its client, and its entry in the run's record. */
import * as Data from "effect/Data"
import type { LlmOutcome } from "@cogni/sandbox-core/RunFigures"
import * as Exchange from "./Exchange.ts"
import * as GatewayAnswers from "./GatewayAnswers.ts"
import type { GatewayRun } from "./GatewayRun.ts"
import type { UnreadReason } from "./RequestReader.ts"

export class RequestRefused extends Data.TaggedError("RequestRefused")<{
  readonly error: GatewayAnswers.GatewayError
  /** Bytes of its body that were read. */
  readonly requestBytes: number
}> {}

/** Refusal of a request whose body was not read. */
export const unread = ({ response }: Exchange.Exchange, reason: UnreadReason): RequestRefused => {
  // The rest of the body is not read, so the connection ends with the answer.
  if (reason === "Stalled" || reason === "NoRoom") response.shouldKeepAlive = false
  return new RequestRefused({ error: unreadErrors[reason], requestBytes: 0 })
}

const unreadErrors: Readonly<Record<UnreadReason, GatewayAnswers.GatewayError>> = {
  TooLarge: GatewayAnswers.known("request_too_large"),
  NoRoom: GatewayAnswers.busy,
  Stalled: GatewayAnswers.known("request_timeout"),
  Aborted: { ...GatewayAnswers.known("bad_request"), code: "client_aborted" }
}

/** Answers a refused request and records it. */
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
    detail: error.detail ?? (error.param === undefined ? error.message : `${error.param}: ${error.message}`),
    call: { requestBytes, responseBytes, durationMs }
  })
}

export const outcomeOf = (code: string): LlmOutcome =>
  code === "client_aborted" ? "client_aborted" : "refused"

/** Makes a client's path short and printable, so that it cannot fill a disk or break a terminal. */
export const shortened = (path: string): string => path.replace(/[^\x21-\x7e]/gu, "?").slice(0, 256)
