/** An HTTP server of a test on this host, which receives and sends JSON. */
import { Effect, type Scope } from "effect"
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from "node:http"

/** One received request. */
export interface ApiRequest {
  readonly method: string
  readonly path: string
  readonly query: Readonly<Record<string, string>>
  readonly headers: IncomingHttpHeaders
  readonly authorization: string | undefined
  /** The parsed body; `undefined` for an empty one. */
  readonly body: unknown
}

/** Serves until the scope closes. Returns the URL, without a trailing slash. */
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

/** Reads a whole request, and parses its body as JSON. Rejects if the body is not JSON. */
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

/** Sends a JSON response; `text` is sent unchanged instead. */
export const respond = (
  response: ServerResponse,
  status: number,
  body: unknown,
  options: { readonly text?: string | undefined; readonly headers?: Record<string, string> | undefined } = {}
): void =>
  void response
    .writeHead(status, { "content-type": "application/json", ...options.headers })
    .end(options.text ?? JSON.stringify(body))
