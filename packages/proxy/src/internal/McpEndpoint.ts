/**
 * The tools of a run as an MCP server: streamable HTTP, by Effect's own, over the run's socket.
 *
 * Built with the first request: most agents speak no MCP.
 */
import { Context, Effect, Layer } from "effect"
import { McpProtocol, McpSchema, McpServer } from "effect/ai"
import { HttpRouter } from "effect/http"
import type { ToolGateway } from "../ToolGateway.ts"

export interface McpEndpoint {
  readonly handle: (request: Request) => Promise<Response>
  readonly dispose: () => Promise<void>
}

export const path = "/mcp"

const registrations = (gateway: ToolGateway, newRequestId: () => string) =>
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
              openWorldHint: tool.effect === "external_side_effect"
            }
          }),
          annotations: Context.empty(),
          handle: (input: unknown) =>
            gateway.call({ requestId: newRequestId(), via: "mcp", tool: tool.name, input: input ?? {} }).pipe(
              Effect.match({
                onSuccess: (result) =>
                  new McpSchema.CallToolResult({
                    content: [{ type: "text", text: JSON.stringify(result) }],
                    structuredContent: result
                  }),
                onFailure: ({ code, detail }) =>
                  new McpSchema.CallToolResult({
                    content: [{ type: "text", text: `${code}: ${detail}` }],
                    isError: true
                  })
              })
            )
        })
      )
    })
  )

export const make = (gateway: ToolGateway, newRequestId: () => string): McpEndpoint => {
  let built: ReturnType<typeof build> | undefined
  const build = () =>
    HttpRouter.toWebHandler(
      McpServer.layerHttp({
        name: "cogni-sandbox",
        version: "1",
        path,
        protocols: [
          McpProtocol.v2024_11_05,
          McpProtocol.v2025_03_26,
          McpProtocol.v2025_06_18,
          McpProtocol.v2025_11_25,
          McpProtocol.v2026_07_28
        ],
        allowSubscriptions: false,
        registrations: registrations(gateway, newRequestId)
      }),
      { disableLogger: true }
    )
  return {
    handle: (request) => (built ??= build()).handler(request),
    dispose: () => built?.dispose() ?? Promise.resolve()
  }
}
