/**
 * Client of one MCP server with the protocol's own SDK, over any transport or streamable HTTP.
 *
 * The server is not trusted. It gets no capability, so the SDK refuses its requests for sampling, elicitation or roots.
 * Messages that nothing asked for are limited. The text of an error of the server is separate from our own words.
 */
import type { Transport } from "@modelcontextprotocol/client"
import { Clock, Deferred, Effect, Schema, type Scope } from "effect"
import * as Json from "./internal/Json.ts"
import type { McpTransport } from "./McpServer.ts"

/** A tool as a server lists it. Every part is the server's own word. */
export interface McpTool {
  readonly name: string
  readonly description: string
  readonly inputSchema: Readonly<Record<string, unknown>>
}

/** An answer of a tool. Every part is the server's own word. */
export interface McpAnswer {
  readonly isError: boolean
  readonly content: ReadonlyArray<Readonly<Record<string, unknown>>>
  readonly structured?: unknown
}

/** `closed`: the connection ended. `refused`: the server answered with an error, whose text is `said`. */
export class McpClientFailed extends Schema.TaggedError<McpClientFailed>()("McpClientFailed", {
  reason: Schema.Literals(["closed", "refused", "invalid", "no_sdk"]),
  detail: Schema.String,
  /** Text of the server. It can contain anything. */
  said: Schema.optionalKey(Schema.String)
}) {
  override get message(): string {
    return `the MCP server ${this.detail}`
  }
}

export interface McpClient {
  /** Lists all tools, and forgets that they have changed. */
  readonly tools: Effect.Effect<ReadonlyArray<McpTool>, McpClientFailed>
  readonly call: (
    name: string,
    input: Readonly<Record<string, unknown>>
  ) => Effect.Effect<McpAnswer, McpClientFailed>
  /** Whether the server has said, since the last list, that its tools changed. */
  readonly hasChanged: () => boolean
  /** Fails when the connection has ended. */
  readonly ended: Effect.Effect<never, McpClientFailed>
}

/** Limits of one connection. */
export const limits = {
  /** Tools that one server may list. */
  toolsMax: 512,
  /** Pages of that list. */
  pagesMax: 8,
  /** Messages per minute, other than one answer for each request. */
  messagesPerMinuteMax: 600,
  /** Text of an error of the server, in characters. The caller removes what is secret, and then cuts it. */
  saidCharactersMax: 64 * 1024
} as const

/** The time limit is that of the caller. */
const forever = { timeout: 2 ** 31 - 1 }

/** A transport that can say why it closed. */
export type ExplainedTransport = McpTransport & { readonly why?: (() => string | undefined) | undefined }

/**
 * Connects until the scope closes. `handshake`: `initialize`, as all revisions to 2025-11-25 have it. `auto` asks first
 * for a newer revision, which has none.
 */
export const connect = Effect.fnUntraced(function* (
  transport: ExplainedTransport,
  mode: "auto" | "handshake"
): Effect.fn.Return<McpClient, McpClientFailed, Scope.Scope> {
  const { Client, ProtocolError, SdkError, SdkHttpError } = yield* sdk
  const clock = yield* Clock.Clock
  const over = yield* Deferred.make<never, McpClientFailed>()
  const client = new Client(
    { name: "cogni-sandbox", version: "1" },
    {
      capabilities: {},
      versionNegotiation: { mode: mode === "auto" ? "auto" : "legacy" },
      inputRequired: { autoFulfill: false },
      listMaxPages: limits.pagesMax,
      // Schemas of the server are never compiled.
      jsonSchemaValidator: { getValidator: () => unchecked }
    }
  )
  let changed = false
  let tooMuch: string | undefined
  const closed = () => failed("closed", tooMuch ?? transport.why?.() ?? "has ended, or closed the connection")
  const pace = paceOf(() => clock.currentTimeMillisUnsafe())
  const counted = watched(transport, () => {
    if (!pace.received()) return true
    tooMuch ??= `sent more than ${limits.messagesPerMinuteMax} messages per minute that nothing asked for`
    void transport.close()
    return false
  })
  Object.assign(client, {
    onclose: () => void Deferred.doneUnsafe(over, Effect.fail(closed())),
    fallbackNotificationHandler: ({ method }: { readonly method: string }) => {
      changed ||= method === "notifications/tools/list_changed"
      return Promise.resolve()
    }
  })

  const failureOf = (error: unknown): McpClientFailed => {
    if (transport.why?.() !== undefined) return closed()
    if (error instanceof ProtocolError)
      return failed("refused", `answered with the error ${error.code}`, error.message)
    if (error instanceof SdkHttpError) return failed("closed", `answered with the status ${error.status}`)
    return error instanceof SdkError && invalid.has(error.code)
      ? failed("invalid", "answered with what this client does not support, such as a question for a person")
      : closed()
  }

  const ask = <A>(send: (options: { readonly signal: AbortSignal }) => Promise<A>) =>
    Effect.suspend(() => {
      pace.sent()
      return Effect.raceFirst(
        Effect.tryPromise({ try: (signal) => send({ ...forever, signal }), catch: failureOf }),
        Deferred.await(over)
      )
    })

  yield* Effect.addFinalizer(() => Effect.ignore(Effect.tryPromise(() => client.close())))
  yield* ask((options) => client.connect(counted as unknown as Transport, options))

  return {
    tools: Effect.suspend(() => {
      changed = false
      return ask((options) => client.listTools({}, { ...options, cacheMode: "refresh" })).pipe(
        Effect.flatMap(({ tools }) =>
          tools.length > limits.toolsMax
            ? Effect.fail(failed("invalid", `lists more than ${limits.toolsMax} tools`))
            : Effect.succeed(tools.map(toolOf))
        )
      )
    }),
    call: (name, input) =>
      Effect.map(
        ask((options) => client.callTool({ name, arguments: { ...input } }, options)),
        ({ content, isError = false, structuredContent }) => ({
          isError,
          content,
          structured: structuredContent
        })
      ),
    hasChanged: () => changed,
    ended: Deferred.await(over)
  }
})

/** Transport of streamable HTTP. Every request goes through `fetch`, which decides where it may go and adds headers. */
export const httpTransport = (url: URL, fetch: FetchOf): Effect.Effect<McpTransport, McpClientFailed> =>
  Effect.map(
    sdk,
    ({ StreamableHTTPClientTransport }) =>
      new StreamableHTTPClientTransport(url, {
        fetch,
        // A stream that breaks off is an error of its call.
        reconnectionOptions: {
          initialReconnectionDelay: 1000,
          maxReconnectionDelay: 1000,
          reconnectionDelayGrowFactor: 1,
          maxRetries: 0
        }
      }) as unknown as McpTransport
  )

/** `fetch`, by structure. */
export type FetchOf = (url: string | URL, init?: RequestInit) => Promise<Response>

const failed = (reason: McpClientFailed["reason"], detail: string, said?: string) =>
  new McpClientFailed({
    reason,
    detail,
    ...(said === undefined ? {} : { said: said.slice(0, limits.saidCharactersMax) })
  })

const toolOf = ({
  description = "",
  inputSchema,
  name
}: {
  readonly name: string
  readonly description?: string | undefined
  readonly inputSchema: unknown
}): McpTool => ({ name, description, inputSchema: Json.isObject(inputSchema) ? inputSchema : {} })

/** Errors of the SDK about an answer that it does not take. */
const invalid: ReadonlySet<string> = new Set([
  "INVALID_RESULT",
  "UNSUPPORTED_RESULT_TYPE",
  "INPUT_REQUIRED_ROUNDS_EXCEEDED",
  "LIST_PAGINATION_EXCEEDED",
  "ERA_NEGOTIATION_FAILED",
  "CLIENT_HTTP_UNEXPECTED_CONTENT"
])

/** The same transport, whose messages are passed on only if `isAccepted`. */
const watched = (transport: McpTransport, isAccepted: () => boolean): McpTransport => {
  type Handler = (...given: ReadonlyArray<unknown>) => void
  let handler: Handler | undefined
  Object.assign(transport, {
    onmessage: (...given: ReadonlyArray<unknown>) => {
      if (isAccepted()) handler?.(...given)
    }
  })
  return new Proxy(transport, {
    get: (target, key) => {
      if (key === "onmessage") return handler
      const value: unknown = Reflect.get(target, key, target)
      return typeof value === "function" && !key.toString().startsWith("on") ? value.bind(target) : value
    },
    set: (target, key, value) => {
      if (key !== "onmessage") return Reflect.set(target, key, value, target)
      handler = value as Handler
      return true
    }
  })
}

const unchecked = () => ({ valid: true as const, data: undefined as never, errorMessage: undefined })

/** Counts messages that are not the one answer to a request. */
const paceOf = (now: () => number) => {
  let since = now()
  let extra = 0
  return {
    sent: () => {
      extra -= 1
    },
    /** Returns whether this message is too much. */
    received: (): boolean => {
      if (now() - since >= 60_000) {
        since = now()
        extra = Math.min(extra, 0)
      }
      extra += 1
      return extra > limits.messagesPerMinuteMax
    }
  }
}

const load = () => import("@modelcontextprotocol/client")

let loaded: ReturnType<typeof load> | undefined

const sdk = Effect.tryPromise({
  try: () => (loaded ??= load()),
  catch: () => {
    loaded = undefined
    return failed("no_sdk", "needs the package @modelcontextprotocol/client on this host. Install it")
  }
})
