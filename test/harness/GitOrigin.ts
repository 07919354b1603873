/**
 * An origin on this host: repositories behind git's own `http-backend`, with a password, and with faults on demand.
 */
import { Effect, type Scope } from "effect"
import { execFile, spawn } from "node:child_process"
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import type { IncomingMessage, ServerResponse } from "node:http"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { promisify } from "node:util"
import { serve } from "./LocalServer.ts"
import * as Pace from "./Pace.ts"

/** One received request. */
export interface Received {
  readonly method: string
  readonly path: string
  readonly authorization: string | undefined
  readonly host: string | undefined
}

/** Fault of a request. */
export type Trouble =
  | { readonly _tag: "Status"; readonly status: number; readonly headers?: Record<string, string> }
  /** The connection is cut after this many bytes of the request body. */
  | { readonly _tag: "CutRequest"; readonly afterBytes: number }
  /** git executes the request, but the response is lost. */
  | { readonly _tag: "CutAnswer" }
  /** The request waits first. */
  | { readonly _tag: "Hold"; readonly until: Promise<void> }

export interface GitOrigin {
  /** Without a trailing slash. */
  readonly url: string
  /** Directory of the repositories, each at `<owner>/<name>.git`. */
  readonly directory: string
  readonly received: ReadonlyArray<Received>
  /** Selects the fault of each request; `undefined` for none. */
  trouble: (request: Received) => Trouble | undefined
  /** Called first. Returns true if it answers the request itself. */
  extra: (request: IncomingMessage, response: ServerResponse) => boolean
  /** Makes a bare repository with these files on `main`. */
  readonly make: (
    repository: string,
    files?: Readonly<Record<string, string>>,
    options?: { readonly objectFormat?: "sha1" | "sha256" }
  ) => Effect.Effect<{ readonly url: string; readonly path: string }>
}

const user = "x-access-token"

/** Environment for git in tests, without the settings of the user. */
export const gitEnvironment = {
  PATH: "/usr/local/bin:/usr/bin:/bin",
  HOME: "/nonexistent",
  GIT_CONFIG_NOSYSTEM: "1",
  GIT_CONFIG_GLOBAL: "/dev/null",
  GIT_AUTHOR_NAME: "Origin",
  GIT_AUTHOR_EMAIL: "origin@example.com",
  GIT_AUTHOR_DATE: "2026-01-01T00:00:00Z",
  GIT_COMMITTER_NAME: "Origin",
  GIT_COMMITTER_EMAIL: "origin@example.com",
  GIT_COMMITTER_DATE: "2026-01-01T00:00:00Z",
  LC_ALL: "C"
}

/** Runs git and returns its stdout. Time and output are bounded. */
export const git = (directory: string, ...argv: ReadonlyArray<string>): Effect.Effect<string> =>
  gitWith({}, directory, ...argv)

/** Runs git like {@link git}, with more environment variables. */
export const gitWith = (
  env: Readonly<Record<string, string>>,
  directory: string,
  ...argv: ReadonlyArray<string>
): Effect.Effect<string> =>
  Effect.promise(() =>
    promisify(execFile)("git", ["-C", directory, "-c", "safe.directory=*", ...argv], {
      env: { ...gitEnvironment, ...env },
      timeout: Pace.hangMillis,
      maxBuffer: 64 * 1024 ** 2
    })
  ).pipe(Effect.map(({ stdout }) => stdout.trim()))

/** Returns the commit at the tip of a branch; `undefined` if the branch does not exist. */
export const branchAt = (path: string, branch: string): Effect.Effect<string | undefined> =>
  Effect.map(git(path, "for-each-ref", "--format=%(objectname)", `refs/heads/${branch}`), (found) =>
    found === "" ? undefined : found
  )

/** Lists all references and their objects, one per line. */
export const refsOf = (path: string): Effect.Effect<string> =>
  git(path, "for-each-ref", "--format=%(refname) %(objectname)")

/** Makes a bare repository with a first commit, without a server. */
export const seed = Effect.fnUntraced(function* (
  path: string,
  files: Readonly<Record<string, string>> | undefined,
  options: { readonly objectFormat?: "sha1" | "sha256" } = {}
) {
  mkdirSync(path, { recursive: true })
  const format = `--object-format=${options.objectFormat ?? "sha1"}`
  yield* git(path, "init", "-q", "--bare", "--template=", "--initial-branch=main", format, ".")
  yield* git(path, "config", "http.receivepack", "true")
  if (files === undefined) return
  const work = mkdtempSync(join(tmpdir(), "cogni-seed-"))
  yield* Effect.gen(function* () {
    yield* git(work, "init", "-q", "--template=", "--initial-branch=main", format, ".")
    for (const [name, content] of Object.entries(files)) {
      mkdirSync(dirname(join(work, name)), { recursive: true })
      writeFileSync(join(work, name), content)
    }
    yield* git(work, "add", "--all", "--force")
    yield* git(work, "commit", "-q", "-m", "first", "--allow-empty")
    yield* git(work, "push", "-q", path, "main")
  }).pipe(Effect.ensuring(Effect.sync(() => rmSync(work, { recursive: true, force: true }))))
})

/** Installs a hook of the origin: a script for /bin/sh. */
export const hook = (path: string, name: string, script: string): Effect.Effect<void> =>
  Effect.sync(() => {
    mkdirSync(join(path, "hooks"), { recursive: true })
    writeFileSync(join(path, "hooks", name), `#!/bin/sh\n${script}\n`, { mode: 0o755 })
  })

/** Runs `http-backend` as a CGI program: its headers become the response's, and its body is streamed. */
const backend = (
  directory: string,
  request: IncomingMessage,
  response: ServerResponse,
  trouble: Trouble | undefined
) => {
  const url = new URL(request.url ?? "/", "http://localhost")
  const child = spawn("/usr/lib/git-core/git-http-backend", [], {
    env: {
      ...gitEnvironment,
      GIT_PROJECT_ROOT: directory,
      GIT_HTTP_EXPORT_ALL: "1",
      PATH_INFO: decodeURIComponent(url.pathname),
      QUERY_STRING: url.search.slice(1),
      REQUEST_METHOD: request.method ?? "GET",
      CONTENT_TYPE: request.headers["content-type"] ?? "",
      REMOTE_USER: user,
      ...(request.headers["content-encoding"] === undefined
        ? {}
        : { HTTP_CONTENT_ENCODING: request.headers["content-encoding"] }),
      ...(typeof request.headers["git-protocol"] === "string"
        ? { GIT_PROTOCOL: request.headers["git-protocol"] }
        : {}),
      ...(request.headers["content-length"] === undefined
        ? {}
        : { CONTENT_LENGTH: request.headers["content-length"] })
    },
    stdio: ["pipe", "pipe", "ignore"]
  })
  for (const stream of [child.stdin, child.stdout]) stream.on("error", () => undefined)
  let bytes = 0
  if (trouble?._tag === "CutRequest") {
    request.on("data", (piece: Buffer) => {
      bytes += piece.byteLength
      if (bytes <= trouble.afterBytes) child.stdin.write(piece)
      else {
        child.kill("SIGKILL")
        request.socket.destroy()
      }
    })
    request.on("end", () => child.stdin.end())
  } else request.pipe(child.stdin)
  if (trouble?._tag === "CutAnswer") {
    child.stdout.resume()
    child.once("close", () => request.socket.destroy())
    return
  }
  answer(child.stdout, response)
  response.once("close", () => child.kill("SIGKILL"))
}

const answer = (stdout: NodeJS.ReadableStream, response: ServerResponse) => {
  let head = Buffer.alloc(0)
  const onHead = (piece: Buffer) => {
    head = Buffer.concat([head, piece])
    const end = head.indexOf("\r\n\r\n")
    if (end === -1) return
    stdout.off("data", onHead)
    for (const line of head.toString("latin1", 0, end).split("\r\n")) {
      const at = line.indexOf(":")
      const [name, value] = [line.slice(0, at), line.slice(at + 1).trim()]
      if (name.toLowerCase() === "status") response.statusCode = Number.parseInt(value, 10)
      else response.setHeader(name, value)
    }
    response.write(head.subarray(end + 4))
    stdout.pipe(response)
  }
  stdout.on("data", onHead)
  stdout.on("end", () => response.end())
}

/** Starts an origin that ends with the scope. Without `password`, it requires no authentication. */
export const acquire = (
  options: { readonly password?: string } = {}
): Effect.Effect<GitOrigin, never, Scope.Scope> =>
  Effect.gen(function* () {
    const directory = yield* Effect.acquireRelease(
      Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-origin-"))),
      (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
    )
    const received: Array<Received> = []
    const wanted =
      options.password === undefined
        ? undefined
        : `Basic ${Buffer.from(`${user}:${options.password}`).toString("base64")}`
    const url = yield* serve((request, response) => {
      const one: Received = {
        method: request.method ?? "",
        path: request.url ?? "",
        authorization: request.headers.authorization,
        host: request.headers.host
      }
      received.push(one)
      if (origin.extra(request, response)) return
      const trouble = origin.trouble(one)
      if (trouble?._tag === "Status") {
        response.writeHead(trouble.status, trouble.headers).end()
        return
      }
      if (wanted !== undefined && one.authorization !== wanted) {
        response.writeHead(401, { "www-authenticate": 'Basic realm="origin"' }).end()
        return
      }
      if (trouble?._tag === "Hold")
        void trouble.until.then(() => backend(directory, request, response, undefined))
      else backend(directory, request, response, trouble)
    })
    const origin: GitOrigin = {
      url,
      directory,
      received,
      trouble: () => undefined,
      extra: () => false,
      make: (repository, files, how) => {
        const path = join(directory, `${repository}.git`)
        return Effect.as(seed(path, files, how), { url: `${url}/${repository}.git`, path })
      }
    }
    return origin
  })
