/** Failures of a run in its shard, when it begins and when it ends. */
import { assert, describe, it } from "@effect/vitest"
import * as Tool from "@cogni/sandbox-loop/Tool"
import { Deferred, Effect, Schema } from "effect"
import { mkdirSync } from "node:fs"
import * as fs from "node:fs/promises"
import * as net from "node:net"
import * as path from "node:path"
import * as AuditLog from "../src/AuditLog.ts"
import * as Gateway from "./GatewaySocket.ts"

const models = Gateway.http("", { method: "GET", path: "/v1/models" })

describe("a run that cannot be opened", () => {
  it.live("does not end other runs of its thread", () =>
    Effect.gen(function* () {
      const victim = yield* Gateway.make({ shardsMax: 1 })
      const own = yield* Gateway.directory
      yield* Effect.promise(() => fs.mkdir(path.join(own, "audit")))
      const { endpoint } = yield* Gateway.begin(victim.proxy, { request: { directory: own } })
      assert.match((yield* Effect.flip(endpoint.ready)).message, /audit cannot be created/u)
      const traffic = yield* endpoint.traffic.pipe(Effect.timeout("5 minutes"))
      assert.deepStrictEqual(traffic.calls, [])
      assert.strictEqual((yield* victim.send(models)).status, 200)
      const { calls } = yield* victim.endpoint.finish
      assert.strictEqual(calls.length, 1)
    })
  )

  it.live("has a closed audit, with its head in the record, if its socket cannot be created", () =>
    Effect.gen(function* () {
      const gateway = yield* Gateway.make()
      const own = yield* Gateway.directory
      const { endpoint, runId } = yield* Gateway.begin(gateway.proxy, {
        request: { directory: own }
      })
      // Its thread is still starting, so the socket does not exist yet.
      mkdirSync(Gateway.socketOf(endpoint))
      const failure = yield* Effect.flip(endpoint.ready)
      assert.match(failure.message, /socket cannot be created/u)
      const { auditHead } = yield* endpoint.finish
      const log = yield* Effect.promise(() => fs.readFile(path.join(own, "audit", "audit.jsonl")))
      const verdict = AuditLog.verify(log, { runId, head: auditHead, ended: true })
      assert.strictEqual(verdict._tag, "Whole", JSON.stringify(verdict))
    })
  )
})

/** Counts how many of 12 connections are answered. The client never ends one by itself. */
const keptOpen = Effect.fnUntraced(function* (socketPath: string, request: Buffer) {
  let kept = 0
  for (let index = 0; index < 12; index++) {
    const socket = yield* Effect.acquireRelease(
      Effect.sync(() => net.connect({ path: socketPath, allowHalfOpen: true })),
      (made) => Effect.sync(() => made.destroy())
    )
    socket.on("error", () => undefined)
    socket.write(request)
    yield* Effect.callback<void>((resume) => {
      socket.once("data", () => {
        kept += 1
        resume(Effect.void)
      })
      socket.once("close", () => resume(Effect.void))
    })
  }
  return kept
})

describe("a run that ends", () => {
  it.live("returns its share of the connections, even if its clients keep them open", () =>
    Effect.gen(function* () {
      const gateway = yield* Gateway.make({
        connectionsMax: 16,
        connectionsTotalMax: 16,
        connectionsPerSecondMax: 1_000_000
      })
      const [ending, next] = [yield* Gateway.openRun(gateway.proxy), yield* Gateway.openRun(gateway.proxy)]
      const connect = Gateway.http("", { method: "GET", path: "/" })
        .toString()
        .replace("GET /", "CONNECT a:1")
      assert.strictEqual(yield* keptOpen(ending.socketPath, Buffer.from(connect)), 12)
      yield* ending.endpoint.finish
      assert.strictEqual(yield* keptOpen(next.socketPath, models), 12)
    })
  )

  it.live("has the calls of tools that are still in progress in its audit, over HTTP and MCP", () =>
    Effect.gen(function* () {
      const begun = yield* Deferred.make<void>()
      let calls = 0
      const tool = Tool.make({
        name: "test__send",
        description: "Sends something",
        effect: "external_side_effect",
        input: Schema.Struct({}),
        output: Schema.String,
        runtimeSecondsMax: 60,
        execute: () =>
          Effect.suspend(() => {
            calls += 1
            return calls === 2 ? Deferred.done(begun, Effect.void as never) : Effect.void
          }).pipe(Effect.andThen(Effect.never))
      })
      const gateway = yield* Gateway.make({ tools: [tool], request: { tools: ["test__send"] } })
      const open = Gateway.http({ tool: "test__send", args: {} }, { path: "/tool/exec" })
      const opened = yield* gateway.send(
        Gateway.http(
          {
            jsonrpc: "2.0",
            id: 0,
            method: "initialize",
            params: {
              protocolVersion: "2025-06-18",
              capabilities: {},
              clientInfo: { name: "test", version: "1" }
            }
          },
          { path: "/mcp", headers: ["Accept: application/json, text/event-stream"] }
        )
      )
      const session = opened.headers.get("mcp-session-id")
      const mcp = Gateway.http(
        { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: "test__send", arguments: {} } },
        {
          path: "/mcp",
          headers: [
            "Accept: application/json, text/event-stream",
            "MCP-Protocol-Version: 2025-06-18",
            `Mcp-Session-Id: ${session}`
          ]
        }
      )
      for (const bytes of [open, mcp]) {
        const socket = yield* Effect.acquireRelease(
          Effect.sync(() => net.connect(gateway.socketPath)),
          (opened) => Effect.sync(() => opened.destroy())
        )
        socket.on("error", () => undefined)
        socket.write(bytes)
      }
      yield* Deferred.await(begun).pipe(Effect.timeout("5 minutes"))
      const { toolCallsTotal } = yield* gateway.endpoint.finish
      const log = yield* gateway.audit
      assert.strictEqual(log.match(/"type":"tool.called"/gu)?.length, 2, log)
      assert.strictEqual(toolCallsTotal, 2)
    })
  )
})
