/** The attacker's server. It asks every client for a password, and records everything that it receives. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http"
import { createServer as createTlsServer } from "node:https"
import { readFileSync } from "node:fs"
import { join } from "node:path"
import { run } from "./Making.ts"
import { listen } from "./Origin.ts"

export interface Certificate {
  readonly key: Buffer
  readonly cert: Buffer
}

export interface Collector {
  readonly url: string
  readonly urlTls: string
  /** Everything that it received, as text. */
  readonly heard: () => string
  readonly close: () => Promise<void>
}

/** Creates a self-signed certificate. */
export const certify = async (directory: string): Promise<Certificate> => {
  const [key, cert] = [join(directory, "key.pem"), join(directory, "cert.pem")]
  const subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
  const kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
  await run(["openssl", "req", "-x509", ...kind, "-keyout", key, "-out", cert, "-days", "2", ...subject])
  return { key: readFileSync(key), cert: readFileSync(cert) }
}

const bytesMax = 1 << 20

/** Starts the server on free ports, and also at `address` on the port of the origin. */
export const start = async (
  certificate: Certificate,
  impersonated: { readonly address: string; readonly port: number }
): Promise<Collector> => {
  const heard: Array<string> = []
  let bytes = 0
  const hear = (text: string) => {
    bytes += text.length
    if (bytes <= bytesMax) heard.push(text)
  }
  const answer = (request: IncomingMessage, response: ServerResponse) => {
    const { rawHeaders } = request
    hear(`${request.method} ${request.url}\n${rawHeaders.join("\n")}\n`)
    request.on("data", (piece: Buffer) => hear(piece.toString("latin1")))
    request.on("error", () => {})
    const known = request.headers.authorization !== undefined
    const headers = known
      ? { "set-cookie": "seen=1; Max-Age=3600", connection: "close" }
      : {
          "www-authenticate": 'Basic realm="collector"',
          "set-cookie": "seen=1; Max-Age=3600",
          connection: "close"
        }
    response.writeHead(known ? 404 : 401, headers).end()
  }
  const servers: Array<Server> = []
  const open = async (server: Server, address?: string, port?: number) => {
    server.on("connect", (request, socket) => {
      hear(`CONNECT ${request.url}\n${request.rawHeaders.join("\n")}\n`)
      socket.destroy()
    })
    servers.push(server)
    return listen(server, address, port)
  }
  const port = await open(createServer(answer))
  const portTls = await open(createTlsServer(certificate, answer))
  await open(createServer(answer), impersonated.address, impersonated.port)
  return {
    url: `http://127.0.0.1:${port}`,
    urlTls: `https://127.0.0.1:${portTls}`,
    heard: () => heard.join(""),
    close: async () => {
      for (const server of servers) {
        server.closeAllConnections()
        await new Promise((resolve) => server.close(resolve))
      }
    }
  }
}
