/**
 * Runs that share one nginx, in front of a scripted upstream. A test speaks to the sockets of the runs from this host,
 * byte by byte, as a sandbox does from inside. Needs Docker and the images.
 */
import { type Container, ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import type { LlmEndpoint } from "@cogni/sandbox-core/LlmProxy"
import * as RunId from "@cogni/sandbox-core/RunId"
import * as LlmProxyContract from "@cogni/sandbox-core/testing/LlmProxyContract"
import * as UsageObserver from "@cogni/sandbox-core/UsageObserver"
import * as ScriptedModelApi from "@cogni/sandbox-proxy/ScriptedModelApi"
import * as SharedNginxLlmProxy from "@cogni/sandbox-proxy/SharedNginxLlmProxy"
import { Effect, Exit, Redacted, Scope } from "effect"
import { execFileSync } from "node:child_process"
import { mkdtempSync, readdirSync, rmSync } from "node:fs"
import * as net from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as Images from "./Images.ts"

/** A made-up key. */
export const key = "sk-shared-0123456789-abcdefghij"

type Options = Partial<Omit<SharedNginxLlmProxy.SharedNginxLlmProxyOptions, "image" | "key" | "upstream">> & {
  readonly script?: readonly [ScriptedModelApi.Step, ...Array<ScriptedModelApi.Step>]
}

export interface SharedRun {
  readonly runId: RunId.RunId
  readonly endpoint: LlmEndpoint
  /** Path of its socket on this host. */
  readonly socket: string
  /** Ends the run. */
  readonly close: Effect.Effect<void>
}

/** A connection to a socket, and all text that has arrived on it. */
export interface Connection {
  readonly send: (bytes: string) => void
  readonly text: () => string
  readonly isClosed: () => boolean
  /** Statuses of the answers so far. */
  readonly statuses: () => ReadonlyArray<number>
}

export const post = (
  headers: ReadonlyArray<string> = [],
  { body = "{}", target = "/v1/chat/completions" }: { readonly body?: string; readonly target?: string } = {}
): string =>
  [`POST ${target} HTTP/1.1`, "Host: x", `Content-Length: ${body.length}`, ...headers, "", body].join("\r\n")

/** Opens a connection, which closes with the scope. */
export const connect = (socketPath: string) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const socket = net.connect({ path: socketPath, allowHalfOpen: true })
      let text = ""
      let isClosed = false
      socket.on("data", (data) => {
        text += data.toString("latin1")
      })
      socket.on("error", () => undefined)
      for (const event of ["end", "close"] as const) socket.on(event, () => (isClosed = true))
      return {
        socket,
        send: (bytes: string) => void socket.write(bytes, "latin1"),
        text: () => text,
        isClosed: () => isClosed,
        statuses: () => [...text.matchAll(/HTTP\/1\.1 (\d{3}) /gu)].map(([, status]) => Number(status))
      }
    }),
    ({ socket }) => Effect.sync(() => socket.destroy())
  )

/** Runs the `docker` CLI, independent of the code under test. */
export const docker = (...args: ReadonlyArray<string>) => execFileSync("docker", args, { encoding: "utf8" })

/** Returns the ID, on this host, of a container's process with this text in its command. */
export const processIn = (container: string, text: string): number => {
  const row = docker("top", container, "-eo", "pid,args")
    .split("\n")
    .find((line) => line.includes(text))
  return Number(row?.trim().split(/\s+/u)[0])
}

/** The containers that mount a directory of a shared nginx below this one. */
export const containersIn = (directory: string): ReadonlyArray<string> =>
  readdirSync(directory).flatMap((name) =>
    docker("ps", "--quiet", "--no-trunc", "--filter", `volume=${join(directory, name, "sockets")}`)
      .split("\n")
      .filter((id) => id !== "")
  )

/** A directory for a shared nginx. */
export const directory = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-test-"))),
  (made) => Effect.sync(() => rmSync(made, { recursive: true, force: true }))
)

export const make = Effect.fnUntraced(function* ({
  script = [{ _tag: "Answer" }],
  ...options
}: Options = {}) {
  const scope = yield* Effect.scope
  const place = yield* directory
  const docker = yield* ContainerRuntime
  const containers: Array<Container> = []
  const runtime: typeof docker = {
    ...docker,
    acquire: (spec) =>
      Effect.tap(docker.acquire(spec), (container) => Effect.sync(() => containers.push(container)))
  }
  const upstream = yield* ScriptedModelApi.acquire({ raw: true, script: ScriptedModelApi.steps(script) })
  const proxy = yield* SharedNginxLlmProxy.make({
    socketsMax: 16,
    directory: place,
    ...options,
    image: Images.proxy,
    upstream: { type: "host", url: upstream.url },
    key: Redacted.make(key)
  }).pipe(Effect.provide(UsageObserver.layerNone), Effect.provideService(ContainerRuntime, runtime))

  /** Sends a line on the control connection of the newest nginx, as the host does. */
  const control = (line: string) => containers.at(-1)!.send(Buffer.from(`${line}\n`))

  /** Starts a run for an account, and waits until it is ready. */
  const open = Effect.fnUntraced(function* (account: string, runtimeSecondsMax = 120, named?: RunId.RunId) {
    const own = yield* Scope.fork(scope)
    const runId = named ?? (yield* RunId.generate)
    const request = LlmProxyContract.requestOf(runId, { runtimeSecondsMax })
    const endpoint = yield* proxy
      .acquire({ ...request, llm: { ...request.llm, identity: { billingAccountId: account, attempt: 0 } } })
      .pipe(Scope.provide(own))
    yield* endpoint.ready
    return {
      runId,
      endpoint,
      socket: endpoint.hostSocketPath ?? join(endpoint.mounts[0]!.source, "llm.sock"),
      close: Scope.close(own, Exit.void)
    } satisfies SharedRun
  })

  return { control, directory: place, open, upstream }
})
