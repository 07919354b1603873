/** A session as an MCP server, tested with the protocol's own client and with invalid bytes. */
import { Client } from "@modelcontextprotocol/sdk/client/index.js"
import { InMemoryTransport } from "@modelcontextprotocol/sdk/inMemory.js"
import * as Latest from "@modelcontextprotocol/client"
import type { Tool } from "@cogni/sandbox-loop/Tool"
import * as McpServer from "@cogni/sandbox-loop/McpServer"
import * as McpLimits from "../src/internal/McpLimits.ts"
import * as ShellTools from "@cogni/sandbox-loop/ShellTools"
import * as ToolRegistry from "@cogni/sandbox-loop/ToolRegistry"
import { assert, describe, it } from "@effect/vitest"
import { Cause, Deferred, Effect, Exit, Fiber, FiberSet, Logger, Queue, Result, Scope, Stream } from "effect"
import { endless, executorOf, session, toolNamed } from "./ToolWorld.ts"

const registryOf = (...tools: ReadonlyArray<Tool>) =>
  Result.getOrThrow(Result.flatMap(ToolRegistry.make(tools), (all) => all.restrict("full")))

const registry = registryOf(
  toolNamed("file__read", "reads"),
  toolNamed("file__write", "writes", "state_change"),
  toolNamed("mail__send", "mails", "external_side_effect")
)

const connected = Effect.fnUntraced(function* (options: Partial<McpServer.McpOptions> = {}) {
  const [ours, theirs] = InMemoryTransport.createLinkedPair()
  const closed = yield* McpServer.serve(ours, { registry, session, ...options })
  const client = new Client({ name: "test", version: "1" })
  yield* Effect.promise(() => client.connect(theirs))
  return { client, closed }
})

/** Connects to a server over lines. `answer` returns the answers in order. */
const overLines = Effect.fnUntraced(function* (options: Partial<McpServer.McpOptions> = {}) {
  const input = yield* Queue.unbounded<Uint8Array, Cause.Done>()
  const answers = yield* Queue.unbounded<string>()
  const logged: Array<unknown> = []
  const serving = yield* Effect.forkChild(
    McpServer.serveLines(
      { input: Stream.fromQueue(input), write: (line) => Effect.asVoid(Queue.offer(answers, line)) },
      { registry, session, ...options }
    ).pipe(
      Effect.provide(
        Logger.layer([Logger.make<unknown, void>(({ message }) => void logged.push(...[message].flat()))])
      )
    ),
    { startImmediately: true }
  )
  const send = (text: string) => Queue.offer(input, new TextEncoder().encode(text))
  return {
    send,
    sendBytes: (bytes: Uint8Array) => Queue.offer(input, bytes),
    answer: Effect.map(
      Queue.take(answers),
      (line): { readonly id: unknown; readonly result?: unknown; readonly error?: unknown } => {
        assert.isTrue(line.endsWith("\n"))
        assert.strictEqual(line.indexOf("\n"), line.length - 1, "an answer must be one line")
        return JSON.parse(line)
      }
    ),
    end: Queue.end(input),
    logged,
    serving
  }
})

const request = (id: number, method: string, params: unknown = {}) =>
  `${JSON.stringify({ jsonrpc: "2.0", id, method, params })}\n`

const hello = request(0, "initialize", {
  protocolVersion: "2025-06-18",
  capabilities: {},
  clientInfo: { name: "test", version: "1" }
})

describe("an MCP server", () => {
  it.live("lists the allowed tools with annotations of their effects", () =>
    Effect.gen(function* () {
      const { client } = yield* connected({ name: "mine", version: "7", instructions: "Be kind" })
      const { tools } = yield* Effect.promise(() => client.listTools())
      assert.containSubset(tools, [
        {
          name: "file__read",
          annotations: { readOnlyHint: true, destructiveHint: false, openWorldHint: false }
        },
        {
          name: "file__write",
          annotations: { readOnlyHint: false, destructiveHint: true, openWorldHint: false }
        },
        {
          name: "mail__send",
          annotations: { readOnlyHint: false, destructiveHint: true, openWorldHint: true }
        }
      ])
      assert.containSubset(client.getServerVersion(), { name: "mine", version: "7" })
      assert.strictEqual(client.getInstructions(), "Be kind")
    })
  )

  it.live("answers as text and structured content, and failures as readable errors", () =>
    Effect.gen(function* () {
      const { client } = yield* connected()
      const call = (name: string, given: Record<string, unknown>) =>
        Effect.promise(() => client.callTool({ name, arguments: given }))
      assert.deepStrictEqual(yield* call("file__read", { text: "x" }), {
        content: [{ type: "text", text: '{"mark":"reads","text":"x"}' }],
        structuredContent: { mark: "reads", text: "x" }
      })
      for (const [name, given, expected] of [
        ["file__read", { text: 7 }, /^validation: text: /u],
        ["file__read", { more: 7 }, /^validation: more: /u],
        ["shell__exec", {}, /^policy_denied: /u],
        ["__proto__", {}, /^policy_denied: /u]
      ] as const) {
        const result = yield* call(name, given)
        assert.isTrue(result.isError)
        assert.notProperty(result, "structuredContent")
        const [{ text }] = result.content as [{ text: string }]
        assert.match(text, expected)
      }
      assert.containSubset(yield* Effect.promise(() => client.callTool({ name: "file__read" })), {
        structuredContent: { mark: "reads" }
      })
    })
  )

  it.live("notices a closed client, and closes the client with its scope", () =>
    Effect.gen(function* () {
      const one = yield* connected()
      yield* Effect.promise(() => one.client.close())
      yield* one.closed
      const scope = yield* Scope.make()
      const other = yield* connected().pipe(Scope.provide(scope))
      const gone = yield* Deferred.make<void>()
      Object.assign(other.client, { onclose: () => Deferred.doneUnsafe(gone, Effect.void) })
      yield* Scope.close(scope, Exit.void)
      yield* Deferred.await(gone)
    })
  )

  it.live("a cancelled call ends its command", () =>
    Effect.gen(function* () {
      const { begun, ended, executor } = yield* endless
      const { client } = yield* connected({ registry: registryOf(...ShellTools.make(executor)) })
      const abort = new AbortController()
      const calling = client
        .callTool({ name: "shell__exec", arguments: { command: "x" } }, undefined, { signal: abort.signal })
        .catch(() => "cancelled")
      yield* Deferred.await(begun)
      abort.abort()
      yield* Deferred.await(ended)
      assert.strictEqual(yield* Effect.promise(() => calling), "cancelled")
    })
  )

  it.live(`runs ${McpLimits.callsMax} calls concurrently, and queues the rest`, () =>
    Effect.gen(function* () {
      const begun = { count: 0 }
      const full = yield* Deferred.make<void>()
      const executor = executorOf({
        spawn: () =>
          Effect.sync(() => {
            if (++begun.count === McpLimits.callsMax) Deferred.doneUnsafe(full, Effect.void)
            return { output: Stream.never, exit: Effect.never, signal: () => Effect.void }
          })
      })
      const { client } = yield* connected({ registry: registryOf(...ShellTools.make(executor)) })
      const call = () =>
        client.callTool({ name: "shell__exec", arguments: { command: "x" } }).catch(() => undefined)
      const all = Array.from({ length: McpLimits.callsMax + 20 }, call)
      yield* Deferred.await(full)
      yield* Effect.promise(() => client.ping())
      assert.strictEqual(begun.count, McpLimits.callsMax)
      yield* Effect.promise(() => client.close())
      yield* Effect.promise(() => Promise.all(all))
    })
  )
})

describe("an MCP server over lines", () => {
  it.live("reads messages that arrive in pieces of any size", () =>
    Effect.gen(function* () {
      const { answer, end, sendBytes, serving } = yield* overLines()
      const bytes = new TextEncoder().encode(
        `${hello}${request(1, "tools/call", { name: "file__read", arguments: { text: "ünï ☃ 🦀" } })}`
      )
      for (const byte of bytes) yield* sendBytes(Uint8Array.of(byte))
      assert.containSubset(yield* answer, { id: 0, result: { serverInfo: { name: "cogni-sandbox" } } })
      assert.containSubset(yield* answer, { id: 1, result: { structuredContent: { text: "ünï ☃ 🦀" } } })
      yield* end
      yield* Fiber.join(serving)
    })
  )

  it.live("ignores invalid messages, and answers the next one", () =>
    Effect.gen(function* () {
      const { answer, end, logged, send, sendBytes, serving } = yield* overLines()
      yield* send(hello)
      assert.containSubset(yield* answer, { id: 0 })
      for (const odd of [
        "\n",
        "   \n",
        "nonsense\n",
        "[]\n",
        "7\n",
        "null\n",
        '"x"\n',
        "{}\n",
        '{"jsonrpc":"1.0"}\n',
        '{"jsonrpc":"2.0"}\n',
        `${"{".repeat(1e6)}\n`,
        `{"jsonrpc":"2.0","x":${"[".repeat(1e5)}${"]".repeat(1e5)}}\n`
      ]) {
        yield* send(odd)
      }
      yield* sendBytes(Uint8Array.of(0xff, 0xfe, 0x00, 0x0a))
      yield* send(`${request(1, "ping").trimEnd()}\r\n`)
      assert.containSubset(yield* answer, { id: 1, result: {} })
      yield* end
      yield* Fiber.join(serving)
      const told = logged.map(String)
      assert.strictEqual(
        told.filter((text) => text === "a line that is not an MCP message was ignored").length,
        8
      )
      const tooComplex = "an MCP message was ignored, because it is nested more than 64 levels deep"
      assert.strictEqual(told.filter((text) => text === tooComplex).length, 2)
      assert.strictEqual(told.filter((text) => text.startsWith("an MCP message was ignored: ")).length, 1)
    })
  )

  it.live("fails when a line exceeds the limit", () =>
    Effect.gen(function* () {
      const { sendBytes, serving } = yield* overLines()
      const piece = new Uint8Array(1024 * 1024).fill(120)
      for (let index = 0; index < 65; index++) yield* sendBytes(piece)
      const exit = yield* Fiber.await(serving)
      if (Exit.isSuccess(exit)) return assert.fail("it did not fail")
      assert.match(Cause.pretty(exit.cause), /more than 67108864 bytes/u)
    })
  )

  it.live("ends when answers cannot be written", () =>
    Effect.gen(function* () {
      const exit = yield* McpServer.serveLines(
        {
          input: Stream.concat(Stream.make(new TextEncoder().encode(hello)), Stream.never),
          write: () => Effect.fail("gone" as const)
        },
        { registry, session }
      ).pipe(Effect.exit)
      assert.deepStrictEqual(exit, Exit.fail("gone"))
    })
  )

  it.live("the end of the input ends running calls", () =>
    Effect.gen(function* () {
      const { begun, ended, executor } = yield* endless
      const { end, send, serving } = yield* overLines({ registry: registryOf(...ShellTools.make(executor)) })
      yield* send(`${hello}${request(1, "tools/call", { name: "shell__exec", arguments: { command: "x" } })}`)
      yield* Deferred.await(begun)
      yield* end
      yield* Fiber.join(serving)
      assert.isTrue(yield* Deferred.isDone(ended))
    })
  )
})

describe("a client without a handshake", () => {
  const make = () =>
    new Latest.Client({ name: "test", version: "1" }, { versionNegotiation: { mode: { pin: "2026-07-28" } } })

  const isServed = Effect.fnUntraced(function* (client: Latest.Client, transport: Latest.Transport) {
    yield* Effect.acquireRelease(
      Effect.promise(() => client.connect(transport)),
      () => Effect.promise(() => client.close())
    )
    const { tools } = yield* Effect.promise(() => client.listTools())
    assert.deepStrictEqual(
      tools.map(({ name }) => name),
      ["file__read", "file__write", "mail__send"]
    )
    assert.containSubset(
      yield* Effect.promise(() => client.callTool({ name: "file__read", arguments: { text: "x" } })),
      { structuredContent: { mark: "reads", text: "x" } }
    )
    assert.containSubset(yield* Effect.promise(() => client.callTool({ name: "shell__exec" })), {
      isError: true
    })
  })

  it.live("is served over a transport", () =>
    Effect.gen(function* () {
      const [ours, theirs] = Latest.InMemoryTransport.createLinkedPair()
      yield* Effect.asVoid(McpServer.serve(ours, { registry, session }))
      yield* isServed(make(), theirs)
    })
  )

  it.live("is served over HTTP, and has nothing to subscribe to", () =>
    Effect.gen(function* () {
      const run = yield* FiberSet.makeRuntimePromise<never, Response, never>()
      const answered: Array<{ readonly status: number; readonly type: string | null }> = []
      const answer = async (_url: string | URL | Request, init: RequestInit = {}) => {
        const response = await run(
          McpServer.answerHttp(
            { registry, session },
            Object.fromEntries(new Headers(init.headers)),
            new TextEncoder().encode(String(init.body))
          )
        )
        answered.push({ status: response.status, type: response.headers.get("content-type") })
        return response
      }
      const client = make()
      yield* isServed(
        client,
        new Latest.StreamableHTTPClientTransport(new URL("http://localhost/mcp"), { fetch: answer })
      )
      assert.isAbove(answered.length, 3)
      assert.isTrue(answered.every(({ status, type }) => status === 200 && type === "application/json"))
      const listening = yield* Effect.result(
        Effect.tryPromise(() => client.listen({ toolsListChanged: true }))
      )
      assert.isTrue(Result.isFailure(listening), "a stream would stay open without ever having an event")
    })
  )
})
