/** Tools called through the gateway of a run: what it gets, and what a caller hears. */
import { assert, describe, it } from "@effect/vitest"
import * as RunId from "@cogni/sandbox-core/RunId"
import * as SocketTools from "@cogni/sandbox-loop/SocketTools"
import * as Tool from "@cogni/sandbox-loop/Tool"
import { Effect, Schema } from "effect"
import { mkdtempSync, rmSync } from "node:fs"
import { createServer } from "node:http"
import { tmpdir } from "node:os"
import { join } from "node:path"

const tool = Tool.make({
  name: "acme__pay",
  description: "Pays",
  effect: "external_side_effect",
  input: Schema.Struct({ sum: Schema.Int }),
  output: Schema.Unknown,
  execute: () => Effect.die(new Error("it must be called through the gateway"))
})

const context = {
  runId: RunId.RunId.make("run-12345678"),
  identity: { billingAccountId: "acct", attempt: 0 },
  requestId: "r1"
}

/** A gateway that answers each call with the next answer. */
const gateway = Effect.fnUntraced(function* (...answers: ReadonlyArray<readonly [number, string]>) {
  const asked: Array<unknown> = []
  const left = [...answers]
  const directory = yield* Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-socket-"))),
    (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
  )
  const socketPath = join(directory, "s")
  yield* Effect.acquireRelease(
    Effect.callback<ReturnType<typeof createServer>>((resume) => {
      const server = createServer((request, response) => {
        const pieces: Array<Buffer> = []
        request.on("data", (piece: Buffer) => pieces.push(piece))
        request.on("end", () => {
          asked.push([request.method, request.url, JSON.parse(Buffer.concat(pieces).toString())])
          const next = left.shift()
          if (next === undefined) return void response.destroy()
          response.writeHead(next[0]).end(next[1])
        })
      }).listen(socketPath, () => resume(Effect.succeed(server)))
    }),
    (server) =>
      Effect.callback<void>((resume) => {
        server.closeAllConnections()
        server.close(() => resume(Effect.void))
      })
  )
  return { asked, call: SocketTools.through(socketPath, tool).call({ sum: 3 }, context) }
})

describe("SocketTools", () => {
  it.effect("returns the result of the gateway, and not of the tool itself", () =>
    Effect.gen(function* () {
      const { asked, call } = yield* gateway([200, '{"ok":true,"result":{"paid":3}}'])
      assert.deepStrictEqual(yield* call, { paid: 3 })
      assert.deepStrictEqual(asked, [["POST", "/tool/exec", { tool: "acme__pay", args: { sum: 3 } }]])
    })
  )

  it.effect("passes on why the gateway refuses a call", () =>
    Effect.gen(function* () {
      const denied = '{"ok":false,"error":{"code":"policy_denied","message":"the call was denied"}}'
      const { call } = yield* gateway([403, denied])
      const { code, detail } = yield* Effect.flip(call)
      assert.deepStrictEqual([code, detail], ["policy_denied", "the call was denied"])
    })
  )

  it.effect.each(["", "<html>", '{"ok":true}', '{"error":{"code":"other","message":"x"}}'])(
    "says that a call may have had its effect if the gateway answers with %j",
    (text) =>
      Effect.gen(function* () {
        const { call } = yield* gateway([200, text])
        const { code, detail } = yield* Effect.flip(call)
        assert.strictEqual(code, "execution")
        assert.include(detail, "check before you repeat it")
      })
  )

  it.effect("says so, too, if the gateway ends the connection", () =>
    Effect.gen(function* () {
      const { call } = yield* gateway()
      assert.include((yield* Effect.flip(call)).detail, "check before you repeat it")
    })
  )
})
