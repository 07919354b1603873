/**
 * Opens a connection to Temporal in time. If none is ready, connects once more to find out why: the SDK does not tell
 * the error of TCP or TLS, or only in words of its own.
 */
import { Effect } from "effect"
import { connect } from "node:net"
import { connect as tlsConnect } from "node:tls"
import { TemporalFailed } from "../TemporalServer.ts"
import type { ConnectOptions, SdkTls } from "./Connecting.ts"

/** Time until a connection is ready. */
export const connectSecondsMax = 10

/** Time for the connection that only finds out why. */
const probeSecondsMax = 3

/** Length of a reason, of which the server may have chosen a part. */
const reasonCharsMax = 300

/** A connection of the SDK. */
interface Open {
  readonly close: () => Promise<void>
}

/** Connects, or fails with what TCP or TLS said. */
export const reached = <A extends Open>(
  asked: ConnectOptions,
  open: () => Promise<A>
): Effect.Effect<A, TemporalFailed> =>
  Effect.tryPromise({
    try: () => inTime(open),
    catch: (error) => TemporalFailed.of("be reached", error)
  }).pipe(
    Effect.catch((failed) =>
      // A connection that is not ready in time fails with an error that has no code.
      failed.isRetryable || failed.reason === "Failed"
        ? Effect.flatMap(
            Effect.promise(() => whyUnreached(asked)),
            (why) => Effect.fail(unreached(asked, why))
          )
        : Effect.fail(failed)
    )
  )

const unreached = ({ address }: ConnectOptions, why: string) =>
  TemporalFailed.of("be reached", new Error(`${address}: ${why}`, { cause: { code: 14 } }))

/** Bounds an attempt to connect. One that succeeds later is closed. */
const inTime = async <A extends Open>(open: () => Promise<A>): Promise<A> => {
  let timer: NodeJS.Timeout | undefined
  let isLate = false
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      isLate = true
      reject(new Error("late"))
    }, connectSecondsMax * 1000)
  })
  const opening = open()
  opening.then(
    (opened) => (isLate ? opened.close() : undefined),
    () => undefined
  )
  try {
    return await Promise.race([opening, late])
  } finally {
    clearTimeout(timer)
  }
}

/** First bytes of a client of HTTP/2: its preface, and settings without any. */
const hello = Buffer.concat([
  Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
  Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0])
])

/** Types of a frame of HTTP/2 with settings, which a server sends first, and of an alert of TLS. */
const settingsFrame = 4
const tlsAlert = 0x15

/** Returns why no connection is ready, in the words of TCP or TLS. Not of HTTP/2 in Node, which hides late alerts. */
const whyUnreached = ({ address, tls }: ConnectOptions): Promise<string> =>
  new Promise((resolve) => {
    const colon = address.lastIndexOf(":")
    const place = {
      host: address.slice(0, colon).replaceAll(/[[\]]/gu, ""),
      port: Number(address.slice(colon + 1))
    }
    const ready = () => void socket.write(hello)
    const socket = tls === false ? connect(place, ready) : tlsConnect({ ...place, ...tlsOf(tls) }, ready)
    const end = (why: string) => {
      clearTimeout(timer)
      resolve(why)
      socket.destroy()
    }
    const timer = setTimeout(
      () =>
        end(
          socket.connecting
            ? `it accepted no connection in ${probeSecondsMax} seconds`
            : `it accepted a connection, and sent nothing in ${probeSecondsMax} seconds`
        ),
      probeSecondsMax * 1000
    )
    const closed = `it closed the connection${tls === false ? ", as a server may do that expects TLS" : ""}`
    socket
      .on("error", (error) => end(reasonOf(error)))
      .on("close", () => end(closed))
      .on("end", () => end(closed))
      .on("data", (bytes) => end(answerOf(bytes)))
  })

const tlsOf = ({ clientCertPair, serverNameOverride, serverRootCACertificate }: SdkTls) => ({
  ALPNProtocols: ["h2"],
  ...(serverRootCACertificate && { ca: serverRootCACertificate }),
  ...(clientCertPair && { cert: clientCertPair.crt, key: clientCertPair.key }),
  ...(serverNameOverride !== undefined && { servername: serverNameOverride })
})

const answerOf = (bytes: Uint8Array): string => {
  if (bytes[3] === settingsFrame)
    return `a server of HTTP/2 accepts connections there, and did not answer a call in ${connectSecondsMax} seconds`
  return bytes[0] === tlsAlert
    ? "the server expects TLS"
    : "the server does not speak HTTP/2, as Temporal does"
}

/** Returns the reason of an error: that of OpenSSL is a part of a longer message. */
const reasonOf = (error: Error): string => {
  const { code, errors, reason } = error as Error & {
    readonly code?: unknown
    readonly reason?: unknown
    readonly errors?: ReadonlyArray<Error>
  }
  const said =
    typeof reason === "string" ? reason : (errors?.map((one) => one.message).join(", ") ?? error.message)
  const line = said.replaceAll(/[\p{Cc}\p{Cf}\s]+/gu, " ").slice(0, reasonCharsMax)
  return typeof code === "string" && !line.includes(code) ? `${line} (${code})` : line
}
