/** A client and a server of ACP, connected by streams of bytes in memory. */
import * as acp from "@agentclientprotocol/sdk"
import type { AcpRefusal } from "@cogni/sandbox-acp/AcpRefusal"
import * as AcpServer from "@cogni/sandbox-acp/AcpServer"
import type { AcpOptions, AcpSession, AcpTurn, AcpTurnEnd } from "@cogni/sandbox-acp/AcpSession"
import { assert } from "@effect/vitest"
import { type Cause, Effect, Exit, Fiber, FiberSet, Queue, type Scope, Stream } from "effect"

/** Runs a prompt of a test. */
export type Run = (turn: AcpTurn) => Effect.Effect<AcpTurnEnd, AcpRefusal>

export const info = { name: "test-agent", title: "Test agent", version: "1.2.3" }

export const end = (text: string): AcpTurnEnd => ({ stopReason: "end_turn", text })

export const optionsOf = (run: Run, more: Partial<AcpOptions<never>> & Partial<AcpSession<never>> = {}) => {
  const { directory, isShared, ...options } = more
  return {
    info,
    open: () => Effect.succeed({ prompt: run, directory, isShared }),
    ...options
  } satisfies AcpOptions<never>
}

/** Starts a server on bytes. `lines` has what it writes. */
export const serving = Effect.fnUntraced(function* (
  options: AcpOptions<never>,
  write?: (line: string) => Effect.Effect<void>
): Effect.fn.Return<
  {
    readonly send: (text: string | Uint8Array) => Effect.Effect<unknown>
    readonly end: Effect.Effect<unknown>
    readonly lines: Queue.Queue<string>
    readonly ended: Effect.Effect<Exit.Exit<void, AcpServer.AcpFailed>>
  },
  never,
  Scope.Scope
> {
  const input = yield* Queue.unbounded<Uint8Array, Cause.Done>()
  const lines = yield* Queue.unbounded<string>()
  const fiber = yield* Effect.forkScoped(
    AcpServer.serve(
      {
        input: Stream.fromQueue(input),
        write: write ?? ((line) => Effect.asVoid(Queue.offer(lines, line)))
      },
      options
    ),
    { startImmediately: true }
  )
  const utf8 = new TextEncoder()
  return {
    send: (text) => Queue.offer(input, typeof text === "string" ? utf8.encode(text) : text),
    end: Queue.end(input),
    lines,
    ended: Fiber.await(fiber)
  }
})

export const message = (fields: object): string => `${JSON.stringify({ jsonrpc: "2.0", ...fields })}\n`

export const text = (content: string) => ({ type: "text", text: content }) as const

interface Answer {
  readonly id: unknown
  readonly result?: { readonly sessionId?: string; readonly stopReason?: string }
  readonly error?: { readonly code: number; readonly message: string }
}

/** Connects without a client, for bytes that none would send. `written` is called before each line is taken. */
export const raw = Effect.fnUntraced(function* (
  options: AcpOptions<never>,
  written: (line: string) => Effect.Effect<void> = () => Effect.void
) {
  const taken = yield* Queue.unbounded<string>()
  const server = yield* serving(options, (line) =>
    Effect.andThen(written(line), Effect.asVoid(Queue.offer(taken, line)))
  )
  /** Waits for the answer with an ID, and skips everything before it. */
  const answer = (id: unknown): Effect.Effect<Answer> =>
    Effect.flatMap(Queue.take(taken), (line) => {
      assert.strictEqual(line.indexOf("\n"), line.length - 1, "an answer must be one line")
      const read = JSON.parse(line) as Answer & { readonly method?: string }
      return read.method === undefined && read.id === id ? Effect.succeed(read) : answer(id)
    })
  const open = Effect.gen(function* () {
    yield* server.send(message({ id: "init", method: "initialize", params: { protocolVersion: 1 } }))
    yield* answer("init")
    yield* server.send(message({ id: "new", method: "session/new", params: { cwd: "/", mcpServers: [] } }))
    return (yield* answer("new")).result?.sessionId ?? assert.fail("no session was opened")
  })
  return { ...server, answer, open }
})

/** Connects the SDK's own client. `updates` are those of all sessions, in the order of their arrival. */
export const connected = Effect.fnUntraced(function* (
  options: AcpOptions<never>,
  notices = false,
  permit?: (request: acp.RequestPermissionRequest) => acp.RequestPermissionResponse
) {
  const server = yield* serving(options)
  const updates: Array<acp.SessionUpdate> = []
  const utf8 = new TextEncoder()
  const readable = yield* Stream.toReadableStreamEffect(
    Stream.map(Stream.fromQueue(server.lines), (line) => utf8.encode(line))
  )
  const run = yield* FiberSet.makeRuntimePromise<never, void, never>()
  const writable = new WritableStream<Uint8Array>({
    write: (bytes) => run(Effect.asVoid(server.send(bytes)))
  })
  const client = acp.client({ name: "test" }).onNotification("session/update", ({ params }) => {
    updates.push(params.update)
  })
  const asked =
    permit === undefined
      ? client
      : client.onRequest("session/request_permission", ({ params }) => permit(params))
  const connection = asked.connect(acp.ndJsonStream(writable, readable))
  yield* Effect.addFinalizer(() => Effect.sync(() => connection.close()))
  const { agent } = connection
  const initialized = yield* Effect.promise(() =>
    agent.request("initialize", {
      protocolVersion: 1,
      clientCapabilities: notices ? { session: { notices: {} } } : {}
    })
  )
  const request = <M extends acp.AgentRequestMethod>(method: M, params: acp.AgentRequestParamsByMethod[M]) =>
    Effect.promise(() => agent.request(method, params))
  const prompt = (sessionId: string, text: string) =>
    request("session/prompt", { sessionId, prompt: [{ type: "text", text }] })
  return {
    ...server,
    agent,
    initialized,
    request,
    prompt,
    updates,
    /** Opens a session, and returns its ID. */
    session: Effect.map(
      request("session/new", { cwd: "/project", mcpServers: [] }),
      ({ sessionId }) => sessionId
    ),
    cancel: (sessionId: string) => Effect.promise(() => agent.notify("session/cancel", { sessionId })),
    /** Text of all agents so far. */
    said: () =>
      updates
        .map((update) =>
          update.sessionUpdate === "agent_message_chunk" && update.content.type === "text"
            ? update.content.text
            : ""
        )
        .join("")
  }
})

/** Asserts that a request is refused, and returns its error. */
export const refused = <A>(effect: Effect.Effect<A>) =>
  Effect.map(Effect.exit(effect), (exit) => {
    if (Exit.isSuccess(exit)) return assert.fail("the request was answered")
    const [reason] = exit.cause.reasons
    const error = reason?._tag === "Die" ? reason.defect : undefined
    assert.instanceOf(error, acp.RequestError)
    return error as acp.RequestError & { readonly data?: Readonly<Record<string, unknown>> }
  })
