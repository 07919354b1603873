/** Why no connection to Temporal is ready. `test/integration/TemporalTls.test.ts` tests it with the SDK. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { execFileSync } from "node:child_process"
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { createServer as createHttpServer } from "node:http"
import { createSecureServer } from "node:http2"
import { createServer, type Server } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import type { ConnectOptions } from "../src/internal/Connecting.ts"
import { reached } from "../src/internal/Reaching.ts"

/** Listens until the end of the scope, and returns the address. */
const listening = (server: Server) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.callback<Server>((resume) => {
        server.listen(0, "127.0.0.1", () => resume(Effect.succeed(server)))
      }),
      () => Effect.sync(() => server.close())
    ),
    () => {
      const address = server.address()
      return `127.0.0.1:${typeof address === "object" ? address?.port : ""}`
    }
  )

/** A certificate for `temporal.test`, which its own key has signed. With -1 day, it has expired. */
const certificate = (days: number) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-reaching-"))),
      (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
    ),
    (cwd) => {
      const openssl = (argv: string) => execFileSync("openssl", argv.split(" "), { cwd, stdio: "pipe" })
      writeFileSync(join(cwd, "names"), "subjectAltName=DNS:temporal.test")
      openssl("req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout k -out r -subj /CN=t")
      openssl(`x509 -req -in r -signkey k -days ${days} -extfile names -out c`)
      return { key: readFileSync(join(cwd, "k")), cert: readFileSync(join(cwd, "c")) }
    }
  )

/** Returns what a connection that the SDK cannot open fails with. */
const whyOf = (asked: ConnectOptions) =>
  Effect.map(
    Effect.flip(reached(asked, () => Promise.reject(new Error("the SDK gives no reason")))),
    ({ message, reason }) => {
      assert.strictEqual(reason, "Unreachable")
      assert.include(message, asked.address)
      assert.include(message, "Check the address")
      return message
    }
  )

describe("a connection to Temporal that is not ready", () => {
  it.live("says that nothing listens, or that the name is unknown", () =>
    Effect.gen(function* () {
      const address = yield* Effect.scoped(listening(createServer()))
      assert.include(yield* whyOf({ address, tls: false }), "ECONNREFUSED")
      assert.match(yield* whyOf({ address: "temporal.invalid:7233", tls: false }), /ENOTFOUND|EAI_AGAIN/u)
    })
  )

  it.live("says that the server expects TLS, or sends nothing", () =>
    Effect.gen(function* () {
      const closing = yield* listening(createServer((socket) => void socket.once("data", () => socket.end())))
      assert.include(yield* whyOf({ address: closing, tls: false }), "closed the connection")
      const encrypted = yield* listening(createSecureServer(yield* certificate(1)))
      assert.include(yield* whyOf({ address: encrypted, tls: false }), "expects TLS")
      const web = yield* listening(createHttpServer())
      assert.include(yield* whyOf({ address: web, tls: false }), "does not speak HTTP/2")
      const open = createServer(
        (socket) =>
          void socket
            .on("error", () => {})
            .resume()
            .unref()
      )
      assert.include(
        yield* whyOf({ address: yield* listening(open), tls: false }),
        "sent nothing in 3 seconds"
      )
    })
  )

  it.live("says that the certificate is not trusted, has expired, or has another name", () =>
    Effect.gen(function* () {
      const today = yield* certificate(1)
      const server = createSecureServer(today)
      const address = yield* listening(server)
      assert.include(yield* whyOf({ address, tls: {} }), "DEPTH_ZERO_SELF_SIGNED_CERT")
      const trusting = { serverRootCACertificate: today.cert }
      const other = yield* whyOf({ address, tls: { ...trusting, serverNameOverride: "other.test" } })
      assert.include(other, "temporal.test")
      assert.include(other, "ERR_TLS_CERT_ALTNAME_INVALID")
      const named = yield* whyOf({ address, tls: { ...trusting, serverNameOverride: "temporal.test" } })
      assert.include(named, "did not answer a call in 10 seconds")
      const past = yield* certificate(-1)
      const late = yield* listening(createSecureServer(past))
      const expired = { serverRootCACertificate: past.cert, serverNameOverride: "temporal.test" }
      assert.include(yield* whyOf({ address: late, tls: expired }), "CERT_HAS_EXPIRED")
    })
  )
})
