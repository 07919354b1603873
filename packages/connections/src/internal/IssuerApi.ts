/**
 * Requests to issuers of credentials. An error names the issuer's status, and nothing that the issuer said: its text
 * may repeat a secret.
 */
import { named } from "@cogni/sandbox-core/Remedy"
import { Effect, Schema } from "effect"
import * as BoundedHttp from "../BoundedHttp.ts"
import { SourceRefused, SourceUnavailable } from "../ConnectionReason.ts"

/** Time limit for one request and its answer, in seconds. */
export const requestSecondsMax = 20

/** Maximum size of an answer. A token has at most a few thousand characters. */
export const answerBytesMax = 128 * 1024

/** Sends a request, and decodes the answer. */
export const ask = <S extends Schema.ConstraintDecoder<unknown>>(
  connection: string,
  request: Request,
  answer: S
): Effect.Effect<S["Type"], SourceUnavailable | SourceRefused> => {
  const decode = Schema.decodeUnknownEffect(Schema.fromJsonString(answer))
  return BoundedHttp.exchange(request, { secondsMax: requestSecondsMax, answerBytesMax }).pipe(
    Effect.mapError(({ problem }) =>
      isPassing(problem)
        ? new SourceUnavailable({ connection, ...words[problem] })
        : new SourceRefused({ connection, ...words[problem] })
    ),
    Effect.flatMap(({ status, text }) =>
      status >= 200 && status < 300
        ? Effect.mapError(decode(text), () => new SourceRefused({ connection, ...notItsApi }))
        : Effect.fail(refusalOf(connection, status))
    )
  )
}

const isPassing = (problem: BoundedHttp.HttpUnanswered["problem"]): boolean =>
  problem === "slow" || problem === "unreachable"

const checkAddress = "Check its address"

const words = {
  failed: { detail: "the request to its issuer failed", remedy: checkAddress },
  slow: { detail: `its issuer did not answer within ${requestSecondsMax} s`, remedy: "Try again" },
  too_long: {
    detail: `its issuer's answer is longer than ${answerBytesMax} bytes`,
    remedy: checkAddress
  },
  unreachable: {
    detail: "its issuer cannot be reached",
    remedy: `${checkAddress} and the network, then try again`
  },
  untrusted: {
    detail: "its issuer cannot be trusted (TLS)",
    remedy: "Give the certificate of its authority (NODE_EXTRA_CA_CERTS)"
  }
} satisfies Record<BoundedHttp.HttpUnanswered["problem"], { detail: string; remedy: string }>

const notItsApi = { detail: "its issuer's answer is not what its API says", remedy: checkAddress }

const refusalOf = (connection: string, status: number): SourceRefused | SourceUnavailable => {
  const detail = `its issuer answered ${status}`
  if (status === 429 || status >= 500)
    return new SourceUnavailable({ connection, detail, remedy: "Try again" })
  return new SourceRefused({
    connection,
    detail,
    remedy:
      status === 400 || status === 401 || status === 403
        ? `Its credential was refused. Remove the connection and add it again (${named("ConnectionStore.add")})`
        : checkAddress
  })
}
