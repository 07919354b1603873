/**
 * The tools of a run as an MCP server: streamable HTTP, by Effect's own, over the run's socket.
 *
 * Built with the first request: most agents speak no MCP. What that server has no limit on is limited here: it keeps
 * every session that was ever opened, with all that it was opened with, and runs as many calls as one request names.
 */
import { Context, Effect, Layer, Option, Schema } from "effect"
import { McpProtocol, McpSchema, McpServer } from "effect/ai"
import { HttpRouter } from "effect/http"
import type { Tool, ToolFailed } from "./Tool.ts"

export interface McpEndpoint {
  readonly handle: (headers: ReadonlyArray<[string, string]>, body: Uint8Array) => Promise<Response>
  readonly dispose: () => Promise<void>
}

export interface McpEndpointOptions {
  /** The tools of one run: those it may call, and how one is called. */
  readonly gateway: {
    readonly allowed: ReadonlyArray<Tool>
    readonly call: (call: {
      readonly requestId: string
      readonly via: "mcp"
      readonly tool: string
      readonly input: unknown
    }) => Effect.Effect<unknown, ToolFailed>
  }
  /** Of the host: what tools log and trace goes where its own does. */
  readonly context: Context.Context<never>
  readonly newRequestId: () => string
}

export const path = "/mcp"

/** Messages of one request: more would be a way around the rate of requests. */
const batchMax = 16

/** What the sessions of one server may weigh before there is another; a client whose session is gone begins anew. */
const sessionsBytesMax = 1024 * 1024

/** Of a session, besides what it was opened with. */
const sessionBytes = 4096

export const make = (options: McpEndpointOptions): McpEndpoint => {
  const { gateway } = options
  let current: Server | undefined
  let older: Server | undefined

  /** The server that knows no such tool says so by itself; that one was asked for is written down as over HTTP. */
  const denied = ({ params }: typeof ToolCall.Type) =>
    gateway.allowed.some(({ name }) => name === params.name)
      ? Effect.void
      : Effect.ignore(
          gateway.call({
            requestId: options.newRequestId(),
            via: "mcp",
            tool: params.name,
            input: params.arguments ?? {}
          })
        )

  return {
    handle: async (headers, body) => {
      const messages = messagesOf(body)
      if (messages.length > batchMax) return tooMany()
      const calls = messages.flatMap((message) => Option.toArray(decodeCall(message)))
      await Effect.runPromiseWith(options.context)(Effect.forEach(calls, denied, { discard: true }))
      current ??= build(options)
      const session = headers.find(([name]) => name === sessionHeader)?.[1]
      const server = session !== undefined && older?.sessions.has(session) === true ? older : current
      const response = await server.handler(
        new Request(`http://localhost${path}`, {
          method: "POST",
          body: Buffer.from(body),
          headers: headers.map(([name, value]): [string, string] => [name, value])
        })
      )
      const opened = response.headers.get(sessionHeader)
      if (opened === null) return response
      server.sessions.add(opened)
      server.heldBytes += body.byteLength + sessionBytes
      if (server === current && server.heldBytes > sessionsBytesMax) {
        const last = older
        older = current
        current = undefined
        await last?.dispose()
      }
      return response
    },
    dispose: async () => {
      await Promise.all([current?.dispose(), older?.dispose()])
    }
  }
}

interface Server {
  readonly handler: (request: Request) => Promise<Response>
  readonly dispose: () => Promise<void>
  readonly sessions: Set<string>
  heldBytes: number
}

const sessionHeader = "mcp-session-id"

const ToolCall = Schema.Struct({
  method: Schema.Literal("tools/call"),
  params: Schema.Struct({ name: Schema.String, arguments: Schema.optionalKey(Schema.Unknown) })
})

const decodeCall = Schema.decodeUnknownOption(ToolCall)

const tooMany = () =>
  Response.json(
    { jsonrpc: "2.0", id: null, error: { code: -32600, message: `more than ${batchMax} messages at once` } },
    { status: 400 }
  )

/** What is no JSON is answered by the server. */
const messagesOf = (body: Uint8Array): ReadonlyArray<unknown> => {
  try {
    const parsed: unknown = JSON.parse(Buffer.from(body).toString("utf8"))
    return Array.isArray(parsed) ? parsed : [parsed]
  } catch {
    return []
  }
}

const isObject = (value: unknown): boolean =>
  typeof value === "object" && value !== null && !Array.isArray(value)

const registrations = ({ context, gateway, newRequestId }: McpEndpointOptions) =>
  Layer.effectDiscard(
    Effect.gen(function* () {
      const server = yield* McpServer.McpServer
      yield* Effect.forEach(gateway.allowed, (tool) =>
        server.addTool({
          tool: new McpSchema.Tool({
            name: tool.name,
            description: tool.description,
            inputSchema: tool.inputSchema as never,
            annotations: {
              readOnlyHint: tool.effect === "read_only",
              destructiveHint: tool.effect !== "read_only",
              openWorldHint: tool.effect === "external_side_effect"
            }
          }),
          annotations: Context.empty(),
          handle: (input: unknown) =>
            gateway.call({ requestId: newRequestId(), via: "mcp", tool: tool.name, input: input ?? {} }).pipe(
              Effect.match({
                onSuccess: (result) =>
                  new McpSchema.CallToolResult({
                    content: [{ type: "text", text: JSON.stringify(result ?? null) }],
                    // Only an object may be structured; what else a tool gives is in the text.
                    ...(isObject(result) ? { structuredContent: result } : {})
                  }),
                onFailure: ({ code, detail }) =>
                  new McpSchema.CallToolResult({
                    content: [{ type: "text", text: `${code}: ${detail}` }],
                    isError: true
                  })
              }),
              Effect.provideContext(context)
            )
        })
      )
    })
  )

const build = (options: McpEndpointOptions): Server => ({
  ...HttpRouter.toWebHandler(
    McpServer.layerHttp({
      name: "cogni-sandbox",
      version: "1",
      path,
      // The first is what a client is offered that asks for one which nobody knows.
      protocols: [
        McpProtocol.v2025_11_25,
        McpProtocol.v2025_06_18,
        McpProtocol.v2025_03_26,
        McpProtocol.v2024_11_05,
        McpProtocol.v2026_07_28
      ],
      allowSubscriptions: false,
      registrations: registrations(options)
    }),
    { disableLogger: true }
  ),
  sessions: new Set(),
  heldBytes: 0
})
