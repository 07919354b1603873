/** A gateway with a scripted upstream, spoken to over a run's own socket, byte for byte and without Docker. */
import * as net from "node:net"
import * as fs from "node:fs/promises"
import * as os from "node:os"
import * as path from "node:path"
import type { LlmEndpoint, LlmObservation, LlmRequest } from "@cogni/sandbox-core/LlmProxy"
import * as MemoryContainerRuntime from "@cogni/sandbox-core/MemoryContainerRuntime"
import * as RunId from "@cogni/sandbox-core/RunId"
import * as LlmProxyContract from "@cogni/sandbox-core/testing/LlmProxyContract"
import { Effect, Redacted } from "effect"
import * as GatewayLlmProxy from "../src/GatewayLlmProxy.ts"
import * as ScriptedModelApi from "../src/ScriptedModelApi.ts"

/** Made up; shaped to break a careless template. */
export const key = "sk-\"quoted'-$uri-{}-0123456789"

export interface Options extends Partial<GatewayLlmProxy.GatewayLlmProxyOptions> {
  readonly script?: readonly [ScriptedModelApi.Step, ...Array<ScriptedModelApi.Step>]
  readonly request?: Partial<LlmRequest>
  readonly llm?: Partial<LlmRequest["llm"]>
}

export interface Answer {
  readonly text: string
  /** Undefined when the connection was closed without an answer. */
  readonly status: number | undefined
  readonly headers: ReadonlyMap<string, string>
  readonly body: string
}

export const directory = Effect.acquireRelease(
  Effect.promise(() => fs.mkdtemp(path.join(os.tmpdir(), "cogni-gateway-"))),
  (made) => Effect.promise(() => fs.rm(made, { recursive: true, force: true }))
)

/** A run on a gateway that is there already, which may not come to listen. */
export const begin = Effect.fnUntraced(function* (
  proxy: Effect.Success<ReturnType<typeof GatewayLlmProxy.make>>,
  options: Options = {}
) {
  const runId = options.request?.runId ?? (yield* RunId.generate)
  const base = LlmProxyContract.requestOf(runId)
  const endpoint = yield* proxy.acquire({
    ...base,
    ...options.request,
    llm: { ...base.llm, ...options.request?.llm, ...options.llm }
  })
  return { runId, endpoint }
})

/** A run on a gateway that is there already. */
export const openRun = Effect.fnUntraced(function* (
  proxy: Effect.Success<ReturnType<typeof GatewayLlmProxy.make>>,
  options: Options = {}
) {
  const runId = options.request?.runId ?? (yield* RunId.generate)
  const observed: Array<LlmObservation> = []
  const own = yield* directory
  const base = LlmProxyContract.requestOf(runId)
  const endpoint = yield* proxy.acquire({
    ...base,
    directory: own,
    observe: (observation) => Effect.sync(() => void observed.push(observation)),
    ...options.request,
    llm: { ...base.llm, ...options.request?.llm, ...options.llm }
  })
  yield* endpoint.ready
  const socketPath = socketOf(endpoint)
  return {
    runId,
    endpoint,
    directory: own,
    socketPath,
    observed,
    audit: Effect.promise(() => fs.readFile(path.join(own, "audit", "audit.jsonl"), "utf8")),
    send: (bytes: string | Buffer, idleMillis?: number) => send(socketPath, bytes, idleMillis)
  }
})

export const socketOf = (endpoint: LlmEndpoint): string => path.join(endpoint.mounts[0]!.source, "llm.sock")

export const make = (options: Options = {}) => Effect.provide(build(options), MemoryContainerRuntime.layer())

const build = Effect.fnUntraced(function* (options: Options) {
  const upstream = yield* ScriptedModelApi.acquire({
    raw: true,
    script: ScriptedModelApi.steps(options.script ?? [{ _tag: "Answer" }])
  })
  const { llm: _llm, request: _request, script: _script, ...rest } = options
  const proxy = yield* GatewayLlmProxy.make({ url: upstream.url, key: Redacted.make(key), ...rest })
  return { upstream, proxy, ...(yield* openRun(proxy, options)) }
})

/** Write, and read until the other side closes or has been silent this long after an answer. */
export const send = (socketPath: string, bytes: string | Buffer, idleMillis = 60): Effect.Effect<Answer> =>
  Effect.callback((resume) => {
    const chunks: Array<Buffer> = []
    const socket = net.connect({ path: socketPath, allowHalfOpen: true })
    const end = () => {
      clearTimeout(timer)
      socket.destroy()
      resume(Effect.succeed(parse(Buffer.concat(chunks).toString("latin1"))))
    }
    let timer = setTimeout(end, 10_000)
    socket.on("data", (data) => {
      chunks.push(data)
      clearTimeout(timer)
      timer = setTimeout(end, idleMillis)
    })
    socket.on("error", end)
    socket.on("end", end)
    socket.write(typeof bytes === "string" ? Buffer.from(bytes, "latin1") : bytes)
  })

export const parse = (text: string): Answer => {
  const [head = "", ...rest] = text.split("\r\n\r\n")
  const [, ...lines] = head.split("\r\n")
  return {
    text,
    status: Number(/^HTTP\/1\.[01] (\d{3})/u.exec(text)?.[1] ?? NaN) || undefined,
    headers: new Map(
      lines.map((line) => {
        const colon = line.indexOf(":")
        return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()]
      })
    ),
    body: rest.join("\r\n\r\n")
  }
}

/** A whole request; what is not said is as an ordinary client says it. */
export const http = (
  body: unknown,
  options: { readonly path?: string; readonly method?: string; readonly headers?: ReadonlyArray<string> } = {}
): Buffer => {
  const { headers = [], method = "POST", path: target = "/v1/chat/completions" } = options
  const payload = Buffer.from(typeof body === "string" ? body : JSON.stringify(body), "utf8")
  const head = [
    `${method} ${target} HTTP/1.1`,
    "Host: localhost",
    ...(method === "GET" ? [] : ["Content-Type: application/json", `Content-Length: ${payload.byteLength}`]),
    ...headers,
    "",
    ""
  ].join("\r\n")
  return method === "GET"
    ? Buffer.from(head, "latin1")
    : Buffer.concat([Buffer.from(head, "latin1"), payload])
}

export const chat = (over: object = {}) => ({
  model: "contract-model",
  messages: [{ role: "user", content: "hello" }],
  ...over
})
