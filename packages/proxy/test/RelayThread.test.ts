import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Result, Scope } from "effect"
import { mkdtempSync, rmSync } from "node:fs"
import * as net from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as Await from "../../../test/harness/Await.ts"
import * as RelayThread from "../src/internal/nginx/RelayThread.ts"
import * as Upstream from "../src/Upstream.ts"

const owner = { userId: process.getuid?.() ?? 0, groupId: process.getgid?.() ?? 0 }

/** An upstream that answers each piece with the same bytes, and a relay thread in front of it. */
const world = Effect.gen(function* () {
  const server = yield* Effect.acquireRelease(
    Effect.callback<net.Server>((resume) => {
      const made = net.createServer((socket) => socket.on("error", () => undefined).pipe(socket))
      made.listen(0, "127.0.0.1", () => resume(Effect.succeed(made)))
    }),
    (made) => Effect.sync(() => made.close())
  )
  const directory = yield* Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-test-"))),
    (made) => Effect.sync(() => rmSync(made, { recursive: true, force: true }))
  )
  const { port } = server.address() as net.AddressInfo
  const address = Result.getOrThrow(Upstream.address({ type: "host", url: `http://127.0.0.1:${port}` }))
  const thread = yield* RelayThread.make({ address, owner })
  return { directory, thread }
})

const connect = (path: string) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const socket = net.connect(path)
      const seen = { text: "", isClosed: false }
      socket.on("data", (data) => (seen.text += String(data)))
      socket.on("error", () => undefined)
      socket.on("close", () => (seen.isClosed = true))
      return { seen, socket }
    }),
    ({ socket }) => Effect.sync(() => socket.destroy())
  )

describe("RelayThread", () => {
  it.live("relays for each run, counts its connections, and cuts those of a closed relay only", () =>
    Effect.gen(function* () {
      const { directory, thread } = yield* world
      const scope = yield* Scope.make()
      const one = yield* thread.acquire(join(directory, "1.sock")).pipe(Scope.provide(scope))
      const other = yield* thread.acquire(join(directory, "2.sock"))
      const [cut, kept] = yield* Effect.all([
        connect(join(directory, "1.sock")),
        connect(join(directory, "2.sock"))
      ])
      for (const { socket } of [cut, kept]) socket.write("hello")
      yield* Await.until(
        "both answers",
        Effect.sync(() => cut.seen.text + kept.seen.text === "hellohello")
      )
      assert.strictEqual((yield* one.counts).accepted, 1)

      yield* Scope.close(scope, Exit.void)
      yield* Await.until(
        "the end of the first",
        Effect.sync(() => cut.seen.isClosed)
      )
      kept.socket.write(" again")
      yield* Await.until(
        "another answer",
        Effect.sync(() => kept.seen.text === "hello again")
      )
      assert.strictEqual((yield* other.counts).accepted, 1)
    }).pipe(Effect.scoped)
  )

  it.live("fails with what to do if a relay cannot listen", () =>
    Effect.gen(function* () {
      const { directory, thread } = yield* world
      const error = yield* Effect.flip(thread.acquire(join(directory, "missing", "1.sock")))
      assert.strictEqual(error._tag, "ProxyFailed")
      assert.include(error.message, "cannot listen")
    }).pipe(Effect.scoped)
  )
})
