import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { setImmediate } from "node:timers/promises"
import { Worker } from "node:worker_threads"
import * as EngineHttp from "../src/internal/engine/EngineHttp.ts"

/**
 * An engine in another thread. Calling `hangUp` closes its connections and blocks this thread until they are closed, so
 * that the next call is written before Node can notice.
 */
const engine = Effect.acquireRelease(
  Effect.promise(async () => {
    const directory = mkdtempSync(join(tmpdir(), "cogni-engine-"))
    const path = join(directory, "engine.sock")
    const closed = new Int32Array(new SharedArrayBuffer(8))
    const worker = new Worker(
      `const { parentPort, workerData } = require("node:worker_threads")
       const sockets = new Set()
       const server = require("node:http").createServer((request, response) => {
         request.resume()
         Atomics.add(workerData.closed, 1, 1)
         response.end("{}")
       })
       server.keepAliveTimeout = 0
       server.on("connection", (socket) => {
         sockets.add(socket)
         socket.on("close", () => {
           sockets.delete(socket)
           if (sockets.size === 0) {
             Atomics.store(workerData.closed, 0, 1)
             Atomics.notify(workerData.closed, 0)
           }
         })
       })
       parentPort.on("message", () => sockets.forEach((socket) => socket.destroy()))
       server.listen(workerData.path, () => parentPort.postMessage("listening"))`,
      { eval: true, workerData: { path, closed } }
    )
    await new Promise((resolve) => worker.once("message", resolve))
    const hangUp = () => {
      Atomics.store(closed, 0, 0)
      worker.postMessage("hang up", [])
      Atomics.wait(closed, 0, 0)
    }
    return { directory, path, worker, hangUp, requests: () => Atomics.load(closed, 1) }
  }),
  ({ directory, worker }) =>
    Effect.promise(async () => {
      await worker.terminate()
      rmSync(directory, { recursive: true, force: true })
    })
)

describe("EngineHttp", () => {
  it.effect("repeats a call once if the engine closed the kept connection before it", () =>
    Effect.gen(function* () {
      const { hangUp, path, requests } = yield* engine
      const http = EngineHttp.make({ type: "unix", path })
      const call = (method: "GET" | "POST" | "DELETE") =>
        http.json({ method, path: "/x", abortSignal: new AbortController().signal, body: { a: 1 } })
      yield* Effect.promise(async () => {
        for (const method of ["GET", "POST", "DELETE"] as const) {
          await call(method)
          // The connection is kept from the next turn on.
          await setImmediate()
          await setImmediate()
          hangUp()
          assert.deepStrictEqual(await call(method), {})
        }
      })
      assert.strictEqual(requests(), 6)
      http.close()
    }).pipe(Effect.scoped)
  )
})
