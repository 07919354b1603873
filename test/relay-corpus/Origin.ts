/**
 * An origin on 127.0.0.1: `git http-backend` behind a server that requires a password, records its requests, and can
 * simulate the faults of real origins.
 */
import { Effect, type Scope } from "effect"
import { spawn } from "node:child_process"
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync } from "node:fs"
import { rm } from "node:fs/promises"
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { environment } from "./Making.ts"
import * as Seed from "./Seed.ts"

/** Fault that replaces the normal answer of the server. */
export type Fault =
  | { readonly type: "status"; readonly status: number; readonly body?: string }
  /** Redirects to the same path of another server. */
  | { readonly type: "redirect"; readonly to: string }
  /** Closes the connection after this number of bytes of a push. */
  | { readonly type: "cut"; readonly afterBytes: number }
  /** Closes the connection after git has finished, before the answer. */
  | { readonly type: "silent" }
  /** Delays the answer. */
  | { readonly type: "delay"; readonly until: Promise<unknown> }

export interface Recorded {
  readonly method: string
  readonly url: string
  readonly authorization: string | undefined
}

export interface Repository {
  readonly name: string
  /** URL without a credential. */
  readonly url: string
  /** Path of the bare repository. */
  readonly path: string
}

export type Handler = (request: IncomingMessage, response: ServerResponse) => boolean

export interface Origin {
  /** Scheme, host and port. */
  readonly url: string
  readonly port: number
  readonly username: string
  readonly token: string
  /** Bare repository from which those of kind "plain" are copied. */
  readonly template: string
  /** Directory of its repositories. It is removed with the origin. */
  readonly directory: string
  readonly requests: ReadonlyArray<Recorded>
  readonly create: (name: string, kind?: Seed.Kind) => Promise<Repository>
  /** Applies a fault to the requests that `where` matches, by default to all. `undefined` removes it. */
  readonly fail: (fault: Fault | undefined, where?: (request: IncomingMessage) => boolean) => void
  /** Sets a handler that runs before git. It returns true if it has answered. */
  readonly extra: (handler: Handler | undefined) => void
}

export const username = "x-access-token"

/** Token for every repository of every origin, and nothing else. */
export const token = "corpus-origin-token-7f3a9c51e2"

/** Limits of git at the origin, which also receives bombs. */
const limits = ["prlimit", "--as=2000000000", "--fsize=2000000000", "--core=0", "--"]
const millisMax = 30_000

/** Creates a temporary directory, in memory if possible, because the tests use thousands of small files. */
export const temporary = (prefix: string): string =>
  mkdtempSync(join(existsSync("/dev/shm") ? "/dev/shm" : tmpdir(), prefix))

const variables = (directory: string, request: IncomingMessage): Record<string, string> => {
  const { headers, method = "GET", url = "/" } = request
  const { pathname, search } = new URL(url, "http://127.0.0.1")
  return {
    ...environment,
    GIT_PROJECT_ROOT: directory,
    GIT_HTTP_EXPORT_ALL: "1",
    GIT_PROTOCOL: String(headers["git-protocol"] ?? ""),
    PATH_INFO: decodeURIComponent(pathname),
    QUERY_STRING: search.slice(1),
    REQUEST_METHOD: method,
    CONTENT_TYPE: headers["content-type"] ?? "",
    ...(headers["content-length"] === undefined ? {} : { CONTENT_LENGTH: headers["content-length"] }),
    ...(headers["content-encoding"] === undefined
      ? {}
      : { HTTP_CONTENT_ENCODING: headers["content-encoding"] }),
    REMOTE_USER: username,
    REMOTE_ADDR: "127.0.0.1"
  }
}

/** Parses a CGI response into its status, its headers and the beginning of its body. */
const parse = (bytes: Buffer) => {
  const end = bytes.indexOf("\r\n\r\n")
  if (end < 0) return undefined
  const headers: Record<string, string> = {}
  let status = 200
  for (const line of bytes.subarray(0, end).toString("latin1").split("\r\n")) {
    const [name = "", ...rest] = line.split(": ")
    if (name === "Status") status = Number.parseInt(rest.join(": "), 10)
    else headers[name] = rest.join(": ")
  }
  return { status, headers, body: bytes.subarray(end + 4) }
}

/** Answers a request with git. `children` are the processes to kill at the end of the origin. */
const serve = (
  directory: string,
  request: IncomingMessage,
  response: ServerResponse,
  children: Set<number>,
  fault: Fault | undefined
): void => {
  const child = spawn(limits[0]!, [...limits.slice(1), "git", "http-backend"], {
    env: variables(directory, request),
    detached: true,
    stdio: ["pipe", "pipe", "ignore"]
  })
  const processId = child.pid!
  children.add(processId)
  const kill = () => {
    if (!children.delete(processId)) return
    try {
      process.kill(-processId, "SIGKILL")
    } catch {
      // The group has already ended.
    }
  }
  const timer = setTimeout(kill, millisMax)
  let head: Buffer | undefined = Buffer.alloc(0)
  child.stdin.on("error", () => {})
  request.pipe(child.stdin)
  child.stdout.on("data", (piece: Buffer) => {
    if (fault?.type === "silent" && request.method === "POST") return
    if (head === undefined) {
      if (!response.write(piece)) {
        child.stdout.pause()
        response.once("drain", () => child.stdout.resume())
      }
      return
    }
    head = Buffer.concat([head, piece])
    const parsed = parse(head)
    if (parsed === undefined) return
    head = undefined
    response.writeHead(parsed.status, parsed.headers)
    response.write(parsed.body)
  })
  child.once("close", () => {
    clearTimeout(timer)
    kill()
    if (fault?.type === "silent" && request.method === "POST") request.destroy()
    else if (head === undefined) response.end()
    else response.writeHead(500).end("git failed\n")
  })
  response.once("close", kill)
}

const authorized = `Basic ${Buffer.from(`${username}:${token}`).toString("base64")}`

const refuse = (response: ServerResponse, status: number, body = "") => {
  const asked = status === 401 ? { "www-authenticate": 'Basic realm="origin"' } : {}
  // Does not read on, so that the client reads the answer.
  response.writeHead(status, { ...asked, "content-type": "text/plain", connection: "close" }).end(body)
}

const isPush = ({ method, url = "" }: IncomingMessage) =>
  method === "POST" && url.endsWith("/git-receive-pack")

const cut = (request: IncomingMessage, afterBytes: number) => {
  let seen = 0
  request.on("data", (piece: Buffer) => {
    seen += piece.length
    if (seen >= afterBytes) request.socket.destroy()
  })
}

interface Mutable {
  fault: Fault | undefined
  where: (request: IncomingMessage) => boolean
  extra: Handler | undefined
}

const answer =
  (directory: string, state: Mutable, requests: Array<Recorded>, children: Set<number>) =>
  async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const { authorization } = request.headers
    requests.push({ method: request.method ?? "", url: request.url ?? "", authorization })
    if (state.extra?.(request, response) === true) return
    const fault = state.fault !== undefined && state.where(request) ? state.fault : undefined
    if (fault?.type === "status") return refuse(response, fault.status, fault.body)
    if (fault?.type === "redirect") {
      response.writeHead(302, { location: `${fault.to}${request.url}` }).end()
      return
    }
    if (authorization !== authorized) return refuse(response, 401, "who are you?\n")
    if (fault?.type === "delay") await fault.until
    if (fault?.type === "cut" && isPush(request)) return cut(request, fault.afterBytes)
    serve(directory, request, response, children, fault)
  }

/** Listens on a port of an address, by default a free one, and returns the port. */
export const listen = (server: Server, address = "127.0.0.1", port = 0): Promise<number> =>
  new Promise((resolve, reject) => {
    server.once("error", reject)
    server.listen(port, address, () => resolve((server.address() as AddressInfo).port))
  })

const open = async () => {
  const root = temporary("cogni-origin-")
  const directory = join(root, "repositories")
  const templates = join(root, "templates")
  mkdirSync(directory)
  mkdirSync(templates)
  const made = new Map(
    await Promise.all(Seed.kinds.map(async (kind) => [kind, await Seed.make(templates, kind)] as const))
  )
  const state: Mutable = { fault: undefined, where: () => true, extra: undefined }
  const requests: Array<Recorded> = []
  const children = new Set<number>()
  const handle = answer(directory, state, requests, children)
  const server = createServer((request, response) => void handle(request, response))
  const port = await listen(server)
  const origin: Origin = {
    url: `http://127.0.0.1:${port}`,
    port,
    username,
    token,
    directory,
    template: made.get("plain")!,
    requests,
    create: async (name, kind = "plain") => {
      const path = join(directory, `${name}.git`)
      Seed.copy(made.get(kind)!, path)
      return { name, path, url: `http://127.0.0.1:${port}/${name}.git` }
    },
    fail: (fault, where = () => true) => {
      state.fault = fault
      state.where = where
    },
    extra: (handler) => {
      state.extra = handler
    }
  }
  const close = async () => {
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
    for (const child of children) {
      try {
        process.kill(-child, "SIGKILL")
      } catch {
        // The process has already ended.
      }
    }
    await rm(root, { recursive: true, force: true })
  }
  return { origin, close }
}

/** Starts an origin that ends with the scope. */
export const acquire: Effect.Effect<Origin, never, Scope.Scope> = Effect.map(
  Effect.acquireRelease(Effect.promise(open), ({ close }) => Effect.promise(close)),
  ({ origin }) => origin
)

/** Adds the loose refs below a directory to `found`. */
const looseRefs = (path: string, below: string, found: Map<string, string>): void => {
  for (const entry of readdirSync(join(path, below), { withFileTypes: true })) {
    const name = `${below}/${entry.name}`
    if (entry.isDirectory()) looseRefs(path, name, found)
    else if (!name.endsWith(".lock")) found.set(name, readFileSync(join(path, name), "latin1").trimEnd())
  }
}

/** Reads every ref of a repository with its target. Reads the files, which is faster than git. */
export const refsOf = (path: string): ReadonlyMap<string, string> => {
  const found = new Map<string, string>()
  const packed = join(path, "packed-refs")
  for (const line of existsSync(packed) ? readFileSync(packed, "latin1").split("\n") : []) {
    const [id = "", name] = line.split(" ")
    if (name !== undefined && /^[0-9a-f]+$/u.test(id)) found.set(name, id)
  }
  looseRefs(path, "refs", found)
  return found
}
