/** An HTTP server of a test on this host, and what it was asked, as JSON. */
import { Effect, type Scope } from "effect"
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from "node:http"

/** One request, as it came. */
export interface ApiRequest {
  readonly method: string
  readonly path: string
  readonly query: Readonly<Record<string, string>>
  readonly headers: IncomingHttpHeaders
  readonly authorization: string | undefined
  /** Parsed; `undefined` where there is none. */
  readonly body: unknown
}

/** Serves until the scope closes. Its address, without a slash at its end. */
export const serve = (
  handle: (request: IncomingMessage, response: ServerResponse) => void
): Effect.Effect<string, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.callback<readonly [url: string, close: Effect.Effect<void>]>((resume) => {
      const server = createServer(handle).listen(0, "127.0.0.1", () => {
        const address = server.address()
        const close = Effect.callback<void>((closed) => {
          server.closeAllConnections()
          server.close(() => closed(Effect.void))
        })
        resume(Effect.succeed([`http://127.0.0.1:${typeof address === "object" ? address?.port : 0}`, close]))
      })
    }),
    ([, close]) => close
  ).pipe(Effect.map(([url]) => url))

/** Reads a request of JSON whole; rejects where its body is none. */
export const received = async (incoming: IncomingMessage): Promise<ApiRequest> => {
  const pieces: Array<Buffer> = []
  for await (const piece of incoming) pieces.push(piece as Buffer)
  const text = Buffer.concat(pieces).toString("utf8")
  const url = new URL(incoming.url ?? "/", "http://localhost")
  return {
    method: incoming.method ?? "",
    path: url.pathname,
    query: Object.fromEntries(url.searchParams),
    headers: incoming.headers,
    authorization: incoming.headers.authorization,
    body: text === "" ? undefined : JSON.parse(text)
  }
}

/** Answers in JSON; `text` is sent as it is. */
export const respond = (
  response: ServerResponse,
  status: number,
  body: unknown,
  options: { readonly text?: string | undefined; readonly headers?: Record<string, string> | undefined } = {}
): void =>
  void response
    .writeHead(status, { "content-type": "application/json", ...options.headers })
    .end(options.text ?? JSON.stringify(body))
