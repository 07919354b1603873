/**
 * Exposes tools as an MCP server with the protocol's own SDK: over any transport, over lines, or for one HTTP request.
 * Clients may use the revisions with a handshake (to 2025-11-25) or without one (2026-07-28).
 *
 * `serveLines` reads any stream of bytes and writes lines, as a server on standard input and output does. `answerHttp`
 * keeps no state between requests. A failed call is a result with `isError`, whose text begins with the code.
 */
import * as JsonSurvey from "@cogni/sandbox-core/JsonSurvey"
import type { CallToolResult, Transport } from "@modelcontextprotocol/server"
import { Deferred, Effect, FiberSet, Schema, type Scope, Semaphore, Stream } from "effect"
import * as ByteLines from "./ByteLines.ts"
import * as Json from "./internal/Json.ts"
import type * as Tool from "./Tool.ts"
import type { ToolRegistry } from "./ToolRegistry.ts"
import * as ToolSet from "./ToolSet.ts"
import { callsMax, lineBytesMax, batchMax } from "./internal/McpLimits.ts"

/** The SDK's `Transport`, by structure. */
export interface McpTransport {
  start: () => Promise<void>
  send: (message: never) => Promise<void>
  close: () => Promise<void>
  onclose?: (() => void) | undefined
  onerror?: ((error: Error) => void) | undefined
  onmessage?: ((message: never) => void) | undefined
}

export interface McpOptions {
  readonly registry: Pick<ToolRegistry, "call" | "offered">
  readonly session: Tool.ToolSession
  /** Name that clients see (default `cogni-sandbox`). */
  readonly name?: string | undefined
  readonly version?: string | undefined
  /** Instructions about the whole server, for the client's model. */
  readonly instructions?: string | undefined
}

/** The connection to the client failed. */
export class McpFailed extends Schema.TaggedError<McpFailed>()("McpFailed", {
  detail: Schema.String,
  remedy: Schema.String
}) {
  override get message(): string {
    return `the MCP connection ${this.detail}. ${this.remedy}`
  }
}

/**
 * Serves a transport until the scope closes. The returned effect settles when the client has closed it.
 */
export const serve = Effect.fnUntraced(function* (
  transport: McpTransport,
  options: McpOptions
): Effect.fn.Return<Effect.Effect<void>, never, Scope.Scope> {
  const closed = yield* Deferred.make<void>()
  const { create, onerror } = yield* instances(options)
  const { serveStdio } = yield* sdk
  yield* Effect.acquireRelease(
    Effect.sync(() => {
      const serving = serveStdio(create, { transport: transport as unknown as Transport, onerror, ...quiet })
      const { onclose } = transport
      Object.assign(transport, {
        onclose: () => {
          onclose?.()
          Deferred.doneUnsafe(closed, Effect.void)
        }
      })
      return serving
    }),
    (serving) => Effect.ignore(Effect.tryPromise(() => serving.close()))
  )
  return Deferred.await(closed)
})

/** Nothing changes while a server lives, so there is nothing to subscribe to. */
const quiet = { maxSubscriptions: 0 }

/** Makes servers whose calls end with the scope. */
const instances = Effect.fnUntraced(function* (options: McpOptions) {
  const { instructions, name = "cogni-sandbox", version = "1" } = options
  const log = yield* FiberSet.makeRuntime<never, void, never>()
  const run = yield* FiberSet.makeRuntimePromise<never, CallToolResult, never>()
  const { jsonSchemaValidator, Server } = yield* sdk
  const calls = yield* Semaphore.make(callsMax)
  const onerror = ({ message }: Error) =>
    void log(Effect.logWarning(`an MCP message was ignored: ${message.slice(0, 200)}`))
  const create = () => {
    const server = new Server(
      { name, version },
      {
        capabilities: { tools: {} },
        jsonSchemaValidator,
        ...(instructions === undefined ? {} : { instructions })
      }
    )
    server.setRequestHandler("tools/list", () => ({ tools: options.registry.offered.map(described) }))
    server.setRequestHandler("tools/call", ({ params }, { mcpReq: { id, signal } }) =>
      run(calls.withPermits(1)(call(options, params.name, params.arguments ?? {}, String(id))), { signal })
    )
    return Object.assign(server, { onerror })
  }
  return { create, onerror }
})

/** Serves lines, each of which is a message, until the input ends or the output fails. */
export const serveLines = <E, E2>(
  { input, write }: ByteLines.ByteLines<E, E2>,
  options: McpOptions
): Effect.Effect<void, McpFailed | E | E2> =>
  Effect.gen(function* () {
    const run = yield* FiberSet.makeRuntimePromise<never, void, never>()
    const lock = yield* Semaphore.make(1)
    const broken = yield* Deferred.make<never, E2>()
    const transport: McpTransport = {
      start: () => Promise.resolve(),
      send: (message) =>
        run(
          lock.withPermits(1)(
            write(`${JSON.stringify(message)}\n`).pipe(
              Effect.catchCause((cause) => Effect.asVoid(Deferred.failCause(broken, cause)))
            )
          )
        ),
      close: () => Promise.resolve(transport.onclose?.())
    }
    const closed = yield* serve(transport, options)
    const read = Stream.runForEach(ByteLines.read(input, lineBytesMax), (line) =>
      line === undefined ? Effect.fail(tooLong) : take(transport, line)
    )
    yield* Effect.raceAllFirst([read, Deferred.await(broken), closed])
  }).pipe(Effect.scoped)

/**
 * Returns the whole answer to one POST of streamable HTTP. Each message has its own server without a session, so a
 * client cannot accumulate state.
 */
export const answerHttp = Effect.fnUntraced(function* (
  options: McpOptions,
  headers: Readonly<Record<string, string>>,
  body: Uint8Array
): Effect.fn.Return<Response> {
  const problem = JsonSurvey.problemOf(body)
  if (problem !== undefined) return refused(-32600, `the request ${problem}`)
  const given = Json.parse(new TextDecoder().decode(body))
  if (!Array.isArray(given)) return yield* answerMessage(options, headers, given)
  if (given.length > batchMax) return refused(-32600, `more than ${batchMax} messages in one request`)
  const answers = yield* Effect.forEach(given, (message) => answerMessage(options, headers, message))
  const told = yield* Effect.promise(() =>
    Promise.all(answers.filter(({ status }) => status !== 202).map((answer) => answer.json()))
  )
  return told.length === 0 ? new Response(null, { status: 202 }) : Response.json(told)
})

const answerMessage = (
  options: McpOptions,
  headers: Readonly<Record<string, string>>,
  message: unknown
): Effect.Effect<Response> =>
  message === undefined
    ? Effect.succeed(refused(-32700, "the request is not JSON"))
    : Effect.gen(function* () {
        const { create, onerror } = yield* instances(options)
        const { createMcpHandler, HttpTransport, isLegacyRequest } = yield* sdk
        const request = new Request("http://localhost/mcp", { method: "POST", headers: { ...headers } })
        const answer = async () => {
          if (!(await isLegacyRequest(request, message))) {
            const handler = createMcpHandler(create, {
              legacy: "reject",
              onerror,
              ...quiet
            })
            return handler.fetch(request, { parsedBody: message })
          }
          // The handler's own way for these revisions answers as a stream of events.
          const transport = new HttpTransport({ enableJsonResponse: true })
          await create().connect(transport)
          return transport.handleRequest(request, { parsedBody: message })
        }
        return yield* Effect.promise(answer)
      }).pipe(Effect.scoped)

const refused = (code: number, message: string) =>
  Response.json({ jsonrpc: "2.0", id: null, error: { code, message } }, { status: 400 })

const load = async () => {
  const [http, { serveStdio }, ajv] = await Promise.all([
    import("@modelcontextprotocol/server"),
    import("@modelcontextprotocol/server/stdio"),
    import("@modelcontextprotocol/server/validators/ajv")
  ])
  return {
    createMcpHandler: http.createMcpHandler,
    isLegacyRequest: http.isLegacyRequest,
    Server: http.Server,
    HttpTransport: http.WebStandardStreamableHTTPServerTransport,
    serveStdio,
    // Otherwise each server creates its own validator, which takes longer than answering a message.
    jsonSchemaValidator: new ajv.AjvJsonSchemaValidator()
  }
}

let loaded: ReturnType<typeof load> | undefined

/** Loads the SDK with the first server, so that programs without a server do not pay for it. */
const sdk = Effect.promise(() => (loaded ??= load()))

const described = ({ description, effect, inputSchema, name }: Tool.Tool) => ({
  name,
  description,
  inputSchema: inputSchema as { readonly type: "object" } & Record<string, unknown>,
  annotations: {
    readOnlyHint: effect === "read_only",
    destructiveHint: effect !== "read_only",
    openWorldHint: effect === "external_side_effect"
  }
})

const tooLong = new McpFailed({
  detail: `received a message of more than ${lineBytesMax} bytes`,
  remedy: "Send smaller messages"
})

/** Logs and ignores an invalid message, as the protocol's own transport does. */
const take = (transport: McpTransport, line: string) => {
  const problem = JsonSurvey.problemOf(new TextEncoder().encode(line))
  if (problem !== undefined) return Effect.logWarning(`an MCP message was ignored, because it ${problem}`)
  const message = Json.parse(line)
  return Json.isObject(message) && message["jsonrpc"] === "2.0"
    ? // The receiver recurses into the message, and deep nesting overflows its stack.
      Effect.try(() => transport.onmessage?.(message as never)).pipe(
        Effect.catch(({ cause }) =>
          Effect.logWarning(`an MCP message that cannot be read was ignored: ${String(cause).slice(0, 200)}`)
        )
      )
    : Effect.logWarning("a line that is not an MCP message was ignored")
}

const call = (
  { registry, session }: McpOptions,
  name: string,
  input: unknown,
  requestId: string
): Effect.Effect<CallToolResult> =>
  Effect.map(
    ToolSet.answer(registry.call(name, input, { ...session, requestId })),
    ({ isError, result, text }) => ({
      content: [{ type: "text", text }],
      // Only an object may be structured content; other results are in the text.
      ...(isError ? { isError } : Json.isObject(result) ? { structuredContent: result } : {})
    })
  )
