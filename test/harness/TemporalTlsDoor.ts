/**
 * A TLS door in front of a Temporal server, like that of Temporal Cloud: asks for a client certificate, and refuses a
 * request without the API key that is valid now. HTTP/2 on both sides.
 */
import { Effect, type Scope } from "effect"
import { execFileSync } from "node:child_process"
import { mkdtempSync, readFileSync, rmSync } from "node:fs"
import { connect, createSecureServer, type ServerHttp2Stream } from "node:http2"
import { tmpdir } from "node:os"
import { join } from "node:path"

export interface TemporalTlsDoor {
  /** Its certificate is for `temporal.test`, and not for this address. */
  readonly address: string
  readonly files: Record<"ca" | "cert" | "key" | "otherKey" | "directory", string>
  /** Keys that requests had, in order, without repetitions. */
  readonly keys: ReadonlyArray<string>
  /** Number of connections that passed the door. */
  readonly sessions: () => number
  /** Sets the API key that is valid. `undefined`: any request passes. */
  readonly accept: (apiKey: string | undefined) => void
}

export const serverName = "temporal.test"

const openssl = (directory: string, ...argv: ReadonlyArray<string>) =>
  void execFileSync("openssl", argv, { cwd: directory, stdio: "pipe" })

/** Writes an authority, and certificates of a server and of a client that it has signed. */
const certify = (directory: string) => {
  const kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
  openssl(
    directory,
    ..."req -x509 -keyout ca.key -out ca.pem -days 2 -subj /CN=authority".split(" "),
    ...kind,
    "-addext",
    "basicConstraints=critical,CA:TRUE"
  )
  const signed = (name: string, subject: string, extension: string) => {
    const request = `req -x509 -CA ca.pem -CAkey ca.key -keyout ${name}.key -out ${name}.pem -days 2`.split(
      " "
    )
    openssl(
      directory,
      ...request,
      "-subj",
      subject,
      ...kind,
      "-addext",
      extension,
      "-addext",
      "basicConstraints=critical,CA:FALSE"
    )
  }
  signed("server", `/CN=${serverName}`, `subjectAltName=DNS:${serverName}`)
  signed("client", "/CN=client", "extendedKeyUsage=clientAuth")
}

const unauthenticated = { ":status": 200, "content-type": "application/grpc", "grpc-status": "16" }

/** Opens a door in front of the server at an address. */
export const acquire = Effect.fnUntraced(function* (
  behind: string
): Effect.fn.Return<TemporalTlsDoor, never, Scope.Scope> {
  const directory = yield* Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-door-"))),
    (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
  )
  certify(directory)
  const file = (name: string) => join(directory, name)
  const keys: Array<string> = []
  let valid: string | undefined
  let sessions = 0
  const inside = connect(`http://${behind}`)
  inside.on("error", () => undefined)
  const server = createSecureServer({
    key: readFileSync(file("server.key")),
    cert: readFileSync(file("server.pem")),
    ca: readFileSync(file("ca.pem")),
    requestCert: true,
    rejectUnauthorized: true
  })
  const open = new Set<{ destroy: () => void }>()
  server.on("session", (session) => {
    sessions += 1
    open.add(session)
    session.on("error", () => undefined).on("close", () => open.delete(session))
  })
  server.on("stream", (stream: ServerHttp2Stream, headers) => {
    const asked = String(headers["authorization"] ?? "")
    if (!keys.includes(asked)) keys.push(asked)
    stream.on("error", () => undefined)
    if (valid !== undefined && asked !== `Bearer ${valid}`) {
      stream.respond(unauthenticated, { endStream: true })
      return
    }
    const onward = inside.request({ ...headers, ":authority": behind, ":scheme": "http" })
    onward.on("error", () => stream.destroy())
    onward.on("response", ({ ":status": status, ...rest }, flags) => {
      if (stream.destroyed) return onward.destroy()
      const isWhole = (flags & 1) !== 0
      stream.respond({ ":status": status ?? 502, ...rest }, { endStream: isWhole, waitForTrailers: !isWhole })
      let trailers = {}
      onward.on("trailers", (found) => {
        trailers = found
      })
      stream.on("wantTrailers", () => stream.sendTrailers(trailers))
      if (!isWhole) onward.pipe(stream)
    })
    stream.on("close", () => onward.close())
    stream.pipe(onward)
  })
  const port = yield* Effect.acquireRelease(
    Effect.callback<number>((resume) => {
      server.listen(0, "127.0.0.1", () => {
        const address = server.address()
        resume(Effect.succeed(typeof address === "object" ? (address?.port ?? 0) : 0))
      })
    }),
    () =>
      Effect.callback<void>((resume) => {
        for (const session of open) session.destroy()
        inside.destroy()
        server.close(() => resume(Effect.void))
      })
  )
  return {
    address: `127.0.0.1:${port}`,
    files: {
      directory,
      ca: file("ca.pem"),
      cert: file("client.pem"),
      key: file("client.key"),
      otherKey: file("server.key")
    },
    keys,
    sessions: () => sessions,
    accept: (apiKey) => {
      valid = apiKey
    }
  }
})
