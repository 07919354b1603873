/**
 * A door between a worker and a Temporal server: HTTP/2 in the clear, as the SDK speaks it. Each call can be stopped
 * before the server has it, and after the server has answered it.
 *
 * A client that dies ends its calls at the server, as without a door.
 */
import { Effect, type Scope } from "effect"
import {
  type ClientHttp2Session,
  connect,
  constants,
  createServer,
  type IncomingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream
} from "node:http2"
import { gunzipSync } from "node:zlib"
import { freePort } from "../FreePort.ts"
import type { Watch } from "./Moment.ts"

export interface TemporalDoor {
  /** Host and port. */
  readonly address: string
  /** Ends all connections, and refuses new ones. */
  readonly close: Effect.Effect<void>
  readonly open: Effect.Effect<void>
}

const prefixBytes = 5

/** The text in a message of gRPC, which may be compressed. */
const textOf = (message: Buffer): string => {
  const body = message.subarray(prefixBytes)
  return (message[0] === 1 ? gunzipSync(body) : body).toString("latin1")
}

interface Answer {
  readonly headers: IncomingHttpHeaders
  readonly body: Buffer
  readonly trailers: IncomingHttpHeaders | undefined
}

const withoutPseudo = (headers: IncomingHttpHeaders) =>
  Object.fromEntries(Object.entries(headers).filter(([name]) => !name.startsWith(":")))

/** Reads a stream to its end. */
const whole = async (stream: AsyncIterable<Buffer>): Promise<Buffer> => {
  const pieces: Array<Buffer> = []
  for await (const piece of stream) pieces.push(piece)
  return Buffer.concat(pieces)
}

/** Asks the server. Rejects if the connection ends first. */
const asked = async (
  session: ClientHttp2Session,
  headers: IncomingHttpHeaders,
  body: Buffer,
  client: ServerHttp2Stream
): Promise<Answer> => {
  const stream = session.request({
    ...withoutPseudo(headers),
    ":method": "POST",
    ":path": headers[":path"]
  })
  client.once("close", () => stream.close(constants.NGHTTP2_CANCEL))
  let trailers: IncomingHttpHeaders | undefined
  const answered = new Promise<IncomingHttpHeaders>((resolve, reject) => {
    stream.once("response", resolve).once("error", reject)
    stream.once("close", () => reject(new Error("the server ended the call")))
  })
  stream.once("trailers", (found: IncomingHttpHeaders) => {
    trailers = found
  })
  stream.end(body)
  const found = await answered
  return { headers: found, body: await whole(stream), trailers }
}

const respond = (client: ServerHttp2Stream, { body, headers, trailers }: Answer): void => {
  const own = { ...withoutPseudo(headers), ":status": headers[":status"] }
  if (trailers === undefined) {
    client.respond(own, { endStream: body.length === 0 })
    if (body.length > 0) client.end(body)
    return
  }
  client.respond(own, { waitForTrailers: true })
  client.once("wantTrailers", () => client.sendTrailers(withoutPseudo(trailers)))
  client.end(body)
}

/** Opens a door until the scope closes. */
export const acquire = (
  server: string,
  watch: Watch = () => undefined
): Effect.Effect<TemporalDoor, never, Scope.Scope> =>
  Effect.gen(function* () {
    const port = yield* freePort
    const clients = new Set<ServerHttp2Session>()
    let upstream: ClientHttp2Session | undefined
    const session = () => {
      if (upstream === undefined || upstream.closed || upstream.destroyed) {
        upstream = connect(`http://${server}`)
        upstream.on("error", () => undefined)
      }
      return upstream
    }
    const serve = async (client: ServerHttp2Stream, headers: IncomingHttpHeaders) => {
      const call = String(headers[":path"]).split("/").at(-1) ?? ""
      const body = await whole(client)
      const isLate = await watch({ server: "temporal", call, when: "asked", text: textOf(body) })
      if (client.destroyed && isLate !== true) return
      const answer = await asked(session(), headers, body, client)
      await watch({ server: "temporal", call, when: "answered", text: textOf(answer.body) + textOf(body) })
      if (!client.destroyed) respond(client, answer)
    }
    const door = createServer()
    door.on("session", (client) => {
      clients.add(client)
      client.on("error", () => undefined).once("close", () => clients.delete(client))
    })
    door.on("stream", (client, headers) => {
      client.on("error", () => undefined)
      serve(client, headers).catch(() => {
        // As for a client whose connection to the server is lost.
        client.session?.destroy()
      })
    })
    const open = Effect.callback<void>((resume) => {
      door.once("error", (error) => resume(Effect.die(error)))
      door.listen(port, "127.0.0.1", () => resume(Effect.void))
    })
    const close = Effect.callback<void>((resume) => {
      upstream?.destroy()
      upstream = undefined
      if (!door.listening) return resume(Effect.void)
      door.close(() => resume(Effect.void))
      for (const client of clients) client.destroy()
    })
    yield* Effect.acquireRelease(open, () => close)
    return { address: `127.0.0.1:${port}`, close, open }
  })
