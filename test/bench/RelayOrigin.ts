/** An origin for measurements, in a separate process: `git http-backend` behind a password, streaming both ways. */
import { spawn } from "node:child_process"
import { createServer, type IncomingMessage, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"
import * as RelayRepository from "./RelayRepository.ts"

/** Settings from the process that measures. */
export interface Place {
  /** Directory of the repositories. */
  readonly directory: string
  readonly username: string
  readonly token: string
}

const variables = (
  { directory, username }: Place,
  { headers, method = "GET", url = "/" }: IncomingMessage
) => {
  const { pathname, search } = new URL(url, "http://127.0.0.1")
  const given = {
    CONTENT_LENGTH: headers["content-length"],
    HTTP_CONTENT_ENCODING: headers["content-encoding"],
    GIT_PROTOCOL: headers["git-protocol"] as string | undefined
  }
  return {
    ...RelayRepository.environment,
    GIT_PROJECT_ROOT: directory,
    GIT_HTTP_EXPORT_ALL: "1",
    PATH_INFO: decodeURIComponent(pathname),
    QUERY_STRING: search.slice(1),
    REQUEST_METHOD: method,
    CONTENT_TYPE: headers["content-type"] ?? "",
    REMOTE_USER: username,
    REMOTE_ADDR: "127.0.0.1",
    ...Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined))
  }
}

const answer = (place: Place, request: IncomingMessage, response: ServerResponse): void => {
  const child = spawn("git", ["http-backend"], {
    env: variables(place, request),
    stdio: ["pipe", "pipe", "ignore"]
  })
  child.stdin.once("error", () => request.unpipe())
  request.pipe(child.stdin)
  let head = Buffer.alloc(0)
  const beginning = (piece: Buffer) => {
    head = Buffer.concat([head, piece])
    const end = head.indexOf("\r\n\r\n")
    if (end < 0) return
    child.stdout.off("data", beginning)
    for (const line of head.toString("latin1", 0, end).split("\r\n")) {
      const [name = "", value = ""] = line.split(": ")
      if (name === "Status") response.statusCode = Number.parseInt(value, 10)
      else response.setHeader(name, value)
    }
    response.write(head.subarray(end + 4))
    child.stdout.pipe(response)
  }
  child.stdout.on("data", beginning)
  child.once("close", () => response.end())
  response.once("close", () => child.kill())
}

process.once("message", (place: Place) => {
  const authorized = `Basic ${Buffer.from(`${place.username}:${place.token}`).toString("base64")}`
  const server = createServer((request, response) => {
    if (request.headers.authorization === authorized) return answer(place, request, response)
    response.writeHead(401, { "www-authenticate": 'Basic realm="origin"' }).end()
  })
  server.listen(0, "127.0.0.1", () => {
    process.send?.({ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` })
  })
})
process.once("disconnect", () => process.exit(0))
