/**
 * Exposes tools as an MCP server with the protocol's own SDK: over any transport, over lines, or for one HTTP request.
 *
 * `serveLines` reads any stream of bytes and writes lines, as a server on standard input and output does. `answerHttp`
 * keeps no state between requests. A failed call is a result with `isError`, whose text begins with the code.
 */
import * as JsonSurvey from "@cogni/sandbox-core/JsonSurvey"
import type { Transport } from "@modelcontextprotocol/sdk/shared/transport.js"
import type { CallToolResult } from "@modelcontextprotocol/sdk/types.js"
import { Deferred, Effect, FiberSet, Schema, type Scope, Semaphore, Stream } from "effect"
import * as ByteLines from "./ByteLines.ts"
import * as Json from "./internal/Json.ts"
import type * as Tool from "./Tool.ts"
import type { ToolRegistry } from "./ToolRegistry.ts"
import * as ToolSet from "./ToolSet.ts"

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

/** Concurrent calls; others wait. */
export const callsMax = 16

/** Longest message: it has room for the largest file that can be written, as JSON. */
export const lineBytesMax = 64 * 1024 * 1024

/** Messages in one HTTP request. */
export const batchMax = 8

/**
 * Serves a transport until the scope closes. The returned effect settles when the client has closed it.
 */
export const serve = Effect.fnUntraced(function* (
  transport: McpTransport,
  options: McpOptions
): Effect.fn.Return<Effect.Effect<void>, McpFailed, Scope.Scope> {
  const { instructions, name = "cogni-sandbox", version = "1" } = options
  const closed = yield* Deferred.make<void>()
  const log = yield* FiberSet.makeRuntime<never, void, never>()
  const run = yield* FiberSet.makeRuntimePromise<never, CallToolResult, never>()
  const { CallToolRequestSchema, jsonSchemaValidator, ListToolsRequestSchema, Server } = yield* sdk
  const server = new Server(
    { name, version },
    {
      capabilities: { tools: {} },
      jsonSchemaValidator,
      ...(instructions === undefined ? {} : { instructions })
    }
  )
  server.setRequestHandler(ListToolsRequestSchema, () => ({ tools: options.registry.offered.map(described) }))
  const calls = yield* Semaphore.make(callsMax)
  server.setRequestHandler(CallToolRequestSchema, ({ params }, { requestId, signal }) =>
    run(calls.withPermits(1)(call(options, params.name, params.arguments ?? {}, String(requestId))), {
      signal
    })
  )
  Object.assign(server, {
    onclose: () => Deferred.doneUnsafe(closed, Effect.void),
    onerror: ({ message }: Error) =>
      void log(Effect.logWarning(`an MCP message was ignored: ${message.slice(0, 200)}`))
  })
  yield* Effect.acquireRelease(
    Effect.tryPromise({
      try: () => server.connect(transport as Transport),
      catch: (cause) =>
        new McpFailed({
          detail: `could not be opened: ${String(cause)}`,
          remedy: "Create a new transport for each server"
        })
    }),
    () => Effect.ignore(Effect.tryPromise(() => server.close()))
  )
  return Deferred.await(closed)
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
): Effect.fn.Return<Response, McpFailed> {
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
): Effect.Effect<Response, McpFailed> =>
  message === undefined
    ? Effect.succeed(refused(-32700, "the request is not JSON"))
    : Effect.gen(function* () {
        const { HttpTransport } = yield* sdk
        const transport = new HttpTransport({ enableJsonResponse: true })
        yield* Effect.asVoid(serve(transport as unknown as McpTransport, options))
        const request = new Request("http://localhost/mcp", { method: "POST", headers: { ...headers } })
        return yield* Effect.promise(() => transport.handleRequest(request, { parsedBody: message }))
      }).pipe(Effect.scoped)

const refused = (code: number, message: string) =>
  Response.json({ jsonrpc: "2.0", id: null, error: { code, message } }, { status: 400 })

const load = async () => {
  const [{ Server }, http, { CallToolRequestSchema, ListToolsRequestSchema }, ajv] = await Promise.all([
    import("@modelcontextprotocol/sdk/server/index.js"),
    import("@modelcontextprotocol/sdk/server/webStandardStreamableHttp.js"),
    import("@modelcontextprotocol/sdk/types.js"),
    import("@modelcontextprotocol/sdk/validation/ajv")
  ])
  return {
    Server,
    HttpTransport: http.WebStandardStreamableHTTPServerTransport,
    CallToolRequestSchema,
    ListToolsRequestSchema,
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
