/**
 * A sandbox behind an nginx, its own or one for many, in front of a scripted upstream: for tests of the requests that
 * pass through.
 *
 * Requests are sent byte for byte from inside the sandbox, to its socket. Needs Docker and the images.
 */
import { Context, Effect, Layer, Redacted, Stream } from "effect"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { type Container, ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import { type LlmEndpoint } from "@cogni/sandbox-core/LlmProxy"
import { socketPath } from "@cogni/sandbox-core/SandboxPlace"
import * as RunId from "@cogni/sandbox-core/RunId"
import * as LlmProxyContract from "@cogni/sandbox-core/testing/LlmProxyContract"
import { type LlmIdentity, supervisor } from "@cogni/sandbox-core/SpecFields"
import * as UsageObserver from "@cogni/sandbox-core/UsageObserver"
import * as DockerContainerRuntime from "@cogni/sandbox-docker/DockerContainerRuntime"
import * as NginxLlmProxy from "@cogni/sandbox-proxy/NginxLlmProxy"
import * as ScriptedModelApi from "@cogni/sandbox-proxy/ScriptedModelApi"
import * as SharedNginxLlmProxy from "@cogni/sandbox-proxy/SharedNginxLlmProxy"
import * as Engine from "./Engine.ts"
import * as Images from "./Images.ts"
import * as Pace from "./Pace.ts"

export const identity: typeof LlmIdentity.Type = {
  billingAccountId: "acct-42",
  attempt: 1,
  userId: 'us"er $uri {1};',
  graphId: "graph",
  sessionId: "sitzung-ü"
}

/** A made-up key with characters that break a careless template. */
export const key = "sk-\"quoted'-$uri-${host}-\\-{};#-0123456789"

export interface Options {
  readonly script?: readonly [ScriptedModelApi.Step, ...Array<ScriptedModelApi.Step>]
  readonly identity?: typeof LlmIdentity.Type
  readonly key?: string
  readonly basePath?: string
  /** URL of an upstream to use instead of the scripted one. */
  readonly url?: string
  /** An nginx for this run, or one for many runs (default the first). */
  readonly proxy?: "nginx" | "nginx-shared"
  /** Removes a defense from the configuration. */
  readonly tamper?: (config: string) => string
}

export interface SendOptions {
  /** Complete answers to wait for (default 1). */
  readonly answers?: number
  /** Silence after the last of them, in which more may come (default 50). */
  readonly idleMillis?: number
  /** Closes the connection after that silence, even without a complete answer. */
  readonly cut?: boolean
}

export interface Answer {
  readonly text: string
  /** `undefined` if the connection was closed without a response. */
  readonly status: number | undefined
}

/** Requests that are sent at the same time. Nearly all of their time is the silence after an answer. */
const atOnce = 8

/**
 * For each request: connects, writes, reads until the other side closes or has answered and is silent. At the end, it
 * prints a line for each. An answer that has only begun is not over, however long a busy machine pauses within it.
 */
const script = String.raw`
const [, idle, cut, expected, ...all] = process.argv
const bodyEnd = (head, rest, isHead) => {
  if (isHead || / (?:1\d\d|204|304) /.test(head.slice(8, 14))) return 0
  const length = /^content-length: *(\d+)/im.exec(head)
  if (length !== null) return Number(length[1])
  const last = /^transfer-encoding: *chunked/im.test(head) ? /(?:^|\r\n)0\r\n\r\n/.exec(rest) : null
  return last === null ? Infinity : last.index + last[0].length
}
const answersIn = (text, isHead) => {
  const head = /^HTTP\/1\.[01] [^]*?\r\n\r\n/.exec(text)?.[0]
  if (head === undefined) return 0
  const rest = text.slice(head.length)
  const end = bodyEnd(head, rest, isHead)
  return rest.length < end ? 0 : (/^HTTP\/1\.[01] 1/.test(head) ? 0 : 1) + answersIn(rest.slice(end), isHead)
}
const send = (encoded) => new Promise((resolve) => {
  const chunks = []
  const bytes = Buffer.from(encoded, "base64")
  const isHead = bytes.toString("latin1").startsWith("HEAD ")
  const isAnswered = () => answersIn(Buffer.concat(chunks).toString("latin1"), isHead) >= Number(expected)
  const socket = require("node:net").connect({ path: "${socketPath}", allowHalfOpen: true })
  const pause = () => setTimeout(() => end(), cut === "cut" || isAnswered() ? Number(idle) : 120000)
  const end = () => { clearTimeout(timer); socket.destroy(); resolve(Buffer.concat(chunks).toString("base64")) }
  let timer = pause()
  socket.on("data", (data) => { chunks.push(data); clearTimeout(timer); timer = pause() })
  socket.on("error", end)
  socket.on("end", end)
  socket.write(bytes)
})
;(async () => {
  const said = []
  let next = 0
  const lane = async () => { while (next < all.length) { const at = next++; said[at] = await send(all[at]) } }
  await Promise.all(Array.from({ length: ${atOnce} }, lane))
  console.log(said.join("\n"))
})()
`

export class NginxRun extends Context.Service<
  NginxRun,
  {
    readonly runId: RunId.RunId
    readonly endpoint: LlmEndpoint
    readonly directory: string
    readonly sandbox: Container
    readonly upstream: ScriptedModelApi.ScriptedModelApi
    /** Sends bytes in Latin-1: one character is one byte. */
    readonly send: (bytes: string, options?: SendOptions) => Effect.Effect<Answer>
    /** Sends requests, some at a time, each on its own connection. The answers are in the order of the requests. */
    readonly sendAll: (
      all: ReadonlyArray<string>,
      options?: SendOptions
    ) => Effect.Effect<ReadonlyArray<Answer>>
    readonly exec: (...argv: [string, ...Array<string>]) => Effect.Effect<string>
  }
>()("test/NginxRun") {}

export const make = Effect.fnUntraced(function* (options: Options = {}) {
  const docker = yield* ContainerRuntime
  const runtime: typeof docker = {
    ...docker,
    acquire: (spec) =>
      docker.acquire(
        spec.stdin === undefined
          ? spec
          : { ...spec, stdin: (options.tamper ?? ((config) => config))(spec.stdin) }
      )
  }
  const runId = yield* RunId.generate
  const directory = yield* Effect.acquireRelease(
    Effect.promise(() => mkdtemp(join(tmpdir(), "cogni-test-"))),
    (path) => Effect.promise(() => rm(path, { recursive: true, force: true }))
  )
  const upstream = yield* ScriptedModelApi.acquire({
    raw: true,
    script: ScriptedModelApi.steps(options.script ?? [{ _tag: "Answer" }])
  })
  const settings = {
    image: Images.proxy,
    upstream: { type: "host", url: options.url ?? `${upstream.url}${options.basePath ?? ""}` },
    key: Redacted.make(options.key ?? key)
  } as const
  const proxy = yield* (
    options.proxy === "nginx-shared"
      ? SharedNginxLlmProxy.make({ ...settings, socketsMax: 16 })
      : NginxLlmProxy.make(settings)
  ).pipe(Effect.provide(UsageObserver.layerNone), Effect.provideService(ContainerRuntime, runtime))
  const endpoint = yield* proxy.acquire(
    LlmProxyContract.requestOf(runId, {
      llm: {
        model: "m",
        models: {},
        identity: options.identity ?? identity,
        unknownFields: "drop",
        caller: "sandbox"
      },
      runtimeSecondsMax: Pace.runSecondsMax,
      directory
    })
  )
  const sandbox = yield* runtime.acquire({
    runId,
    role: "agent",
    image: Images.runtime,
    argv: [supervisor],
    supervised: true,
    env: { COGNI_SOCKET: socketPath },
    user: { userId: 1000, groupId: 1000 },
    mounts: endpoint.mounts,
    network: { mode: "none" },
    limits: {
      memoryBytesMax: 512 * 1024 * 1024,
      processesMax: 128,
      cpusMax: 2,
      temporaryBytesMax: 64 * 1024 * 1024,
      filesOpenMax: 1024,
      workspaceBytesMax: 64 * 1024 * 1024,
      runtimeSecondsMax: Pace.runSecondsMax
    }
  })
  yield* Effect.all([sandbox.start, endpoint.ready], { concurrency: "unbounded" })
  yield* sandbox.proceed

  const run = (...argv: [string, ...Array<string>]) =>
    Effect.gen(function* () {
      const command = yield* sandbox.exec({ argv, env: {} })
      const chunks = yield* Stream.runCollect(command.output)
      yield* command.exit
      return Buffer.concat(chunks.map(({ bytes }) => bytes)).toString("latin1")
    }).pipe(Effect.scoped, Effect.orDie)

  const sendAll = (
    all: ReadonlyArray<string>,
    { answers = 1, cut = false, idleMillis = 50 }: SendOptions = {}
  ) =>
    Effect.map(
      run(
        "node",
        "-e",
        script,
        String(idleMillis),
        cut ? "cut" : "",
        String(answers),
        ...all.map((bytes) => Buffer.from(bytes, "latin1").toString("base64"))
      ),
      (lines) =>
        lines
          .split("\n")
          .slice(0, all.length)
          .map((line): Answer => {
            const text = Buffer.from(line, "base64").toString("latin1")
            return { text, status: Number(/^HTTP\/1\.[01] (\d{3})/u.exec(text)?.[1] ?? NaN) || undefined }
          })
    )

  return NginxRun.of({
    runId,
    endpoint,
    directory,
    sandbox,
    upstream,
    exec: run,
    sendAll,
    send: (bytes, sendOptions) => Effect.map(sendAll([bytes], sendOptions), ([answer]) => answer!)
  })
})

export const layer = (options?: Options) =>
  Layer.effect(NginxRun, make(options)).pipe(Layer.provideMerge(DockerContainerRuntime.layer(Engine.options)))
