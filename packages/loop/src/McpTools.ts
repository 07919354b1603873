/**
 * A registry as an MCP server, by the protocol's own SDK, over any transport.
 *
 * `serve` takes a transport of the SDK's shape; `serveLines` speaks over any bytes in and lines out, as a server on
 * standard input and output does. What fails in a call is a result with `isError`, whose text begins with the code.
 */
import type { Transport } from "@modelcontextprotocol/sdk/shared/transport.js"
import type { CallToolResult } from "@modelcontextprotocol/sdk/types.js"
import { Deferred, Effect, FiberSet, Schema, type Scope, Semaphore } from "effect"
import type { ByteLines } from "./ByteLines.ts"
import * as McpLineTransport from "./internal/McpLineTransport.ts"
import * as ToolAnswer from "./ToolAnswer.ts"
import type { ToolRegistry, ToolSession } from "./ToolRegistry.ts"

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
  readonly registry: ToolRegistry
  readonly session: ToolSession
  /** What a client is told of the server. */
  readonly name?: string | undefined
  readonly version?: string | undefined
  /** What a client tells its model of the server as a whole. */
  readonly instructions?: string | undefined
}

/** Bytes in, lines out. */
export type McpLines<E, E2> = ByteLines<E, E2>

/** The other side cannot be spoken to. */
export class McpFailed extends Schema.TaggedError<McpFailed>()("McpFailed", {
  detail: Schema.String,
  remedy: Schema.String
}) {
  override get message(): string {
    return `the MCP connection ${this.detail}. ${this.remedy}`
  }
}

/** Calls that are under way at one time; others wait. */
export const callsMax = 16

/**
 * Answer over a transport until the scope closes; the effect that is given settles when the other side has closed it.
 */
export const serve = Effect.fnUntraced(function* (
  transport: McpTransport,
  options: McpOptions
): Effect.fn.Return<Effect.Effect<void>, McpFailed, Scope.Scope> {
  const { instructions, name = "cogni-sandbox", version = "1" } = options
  const closed = yield* Deferred.make<void>()
  const log = yield* FiberSet.makeRuntime<never, void, never>()
  const run = yield* FiberSet.makeRuntimePromise<never, CallToolResult, never>()
  const { CallToolRequestSchema, ListToolsRequestSchema, Server } = yield* sdk
  const server = new Server(
    { name, version },
    { capabilities: { tools: {} }, ...(instructions === undefined ? {} : { instructions }) }
  )
  server.setRequestHandler(ListToolsRequestSchema, () => ({ tools: toolsOf(options.registry) }))
  const calls = yield* Semaphore.make(callsMax)
  server.setRequestHandler(CallToolRequestSchema, ({ params }, { requestId, signal }) =>
    run(calls.withPermits(1)(call(options, params.name, params.arguments ?? {}, String(requestId))), {
      signal
    })
  )
  Object.assign(server, {
    onclose: () => Deferred.doneUnsafe(closed, Effect.void),
    onerror: ({ message }: Error) =>
      void log(Effect.logWarning(`an MCP message was left out: ${message.slice(0, 200)}`))
  })
  yield* Effect.acquireRelease(
    Effect.tryPromise({
      try: () => server.connect(transport as Transport),
      catch: (cause) =>
        new McpFailed({
          detail: `could not be opened: ${String(cause)}`,
          remedy: "Give each server a fresh transport"
        })
    }),
    () => Effect.ignore(Effect.tryPromise(() => server.close()))
  )
  return Deferred.await(closed)
})

/** Answer lines, a message each, until the input ends, or until nobody takes what is written. */
export const serveLines = <E, E2>(
  lines: McpLines<E, E2>,
  options: McpOptions
): Effect.Effect<void, McpFailed | E | E2> =>
  Effect.gen(function* () {
    const { pump, transport } = yield* McpLineTransport.make(lines, tooLong)
    const closed = yield* serve(transport, options)
    yield* Effect.raceFirst(pump, closed)
  }).pipe(Effect.scoped)

/** Loaded by the first server: whoever has tools for something else pays nothing for it. */
const sdk = Effect.promise(async () => {
  const [{ Server }, { CallToolRequestSchema, ListToolsRequestSchema }] = await Promise.all([
    import("@modelcontextprotocol/sdk/server/index.js"),
    import("@modelcontextprotocol/sdk/types.js")
  ])
  return { Server, CallToolRequestSchema, ListToolsRequestSchema }
})

const toolsOf = ({ offered }: ToolRegistry) =>
  offered.map(({ description, effect, inputSchema, name }) => ({
    name,
    description,
    inputSchema: inputSchema as { readonly type: "object" } & Record<string, unknown>,
    annotations: {
      readOnlyHint: effect === "read_only",
      destructiveHint: effect !== "read_only",
      openWorldHint: effect === "external_side_effect"
    }
  }))

const tooLong = new McpFailed({
  detail: `was sent a message of more than ${McpLineTransport.lineBytesMax} bytes`,
  remedy: "Send less at once"
})

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value)

const call = (
  { registry, session }: McpOptions,
  name: string,
  input: unknown,
  requestId: string
): Effect.Effect<CallToolResult> =>
  Effect.map(ToolAnswer.answer(registry, name, input, { ...session, requestId }), (answer) => ({
    content: [{ type: "text", text: answer.text }],
    // Only an object may be structured; what else a tool gives is in the text.
    ...(answer.ok ? (isObject(answer.result) ? { structuredContent: answer.result } : {}) : { isError: true })
  }))
