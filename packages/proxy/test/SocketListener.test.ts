import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { TestClock } from "effect/testing"
import { mkdirSync } from "node:fs"
import * as fs from "node:fs/promises"
import * as http from "node:http"
import * as net from "node:net"
import * as path from "node:path"
import * as CallbackFibers from "../src/internal/CallbackFibers.ts"
import * as SocketListener from "../src/internal/gateway/SocketListener.ts"
import * as Gateway from "./GatewaySocket.ts"

describe("SocketListener", () => {
  it.live("retries until it listens, if it cannot listen after a pause", () =>
    Effect.gen(function* () {
      const own = path.join(yield* Gateway.directory, "llm.sock")
      const server = http.createServer((_request, response) => void response.end("ok"))
      let failures = 0
      server.on("error", () => (failures += 1))
      const { fork } = yield* CallbackFibers.make
      const listener = yield* SocketListener.listen(server, own, fork)
      listener.pause(10)
      mkdirSync(own)
      yield* Effect.eventually(
        Effect.filterOrFail(
          Effect.sync(() => failures),
          (count) => count > 0
        )
      ).pipe(Effect.timeout("5 minutes"))
      yield* Effect.promise(() => fs.rmdir(own))
      const connected = Effect.callback<void, Error>((resume) => {
        const socket = net.connect(own, () => resume(Effect.void))
        socket.on("error", (error) => resume(Effect.fail(error)))
        return Effect.sync(() => socket.destroy())
      })
      yield* connected.pipe(Effect.eventually, Effect.timeout("5 minutes"))
      assert.isTrue(server.listening)
    })
  )

  it.effect("does not listen again after it was stopped during a pause", () =>
    Effect.gen(function* () {
      const own = path.join(yield* Gateway.directory, "llm.sock")
      const server = http.createServer()
      const { fork } = yield* CallbackFibers.make
      const listener = yield* SocketListener.listen(server, own, fork)
      listener.pause(1000)
      yield* listener.stop
      yield* TestClock.adjust("2 seconds")
      assert.isFalse(server.listening)
    })
  )
})
