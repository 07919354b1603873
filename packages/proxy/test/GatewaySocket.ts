/** Gateway with a scripted upstream, used byte for byte over a run's own socket and without Docker. */
import * as net from "node:net"
import * as fs from "node:fs/promises"
import * as os from "node:os"
import * as path from "node:path"
import type { LlmEndpoint, LlmRequest } from "@cogni/sandbox-core/LlmProxy"
import type { LlmObservation } from "@cogni/sandbox-core/LlmObservation"
import * as MemoryContainerRuntime from "@cogni/sandbox-core/MemoryContainerRuntime"
import * as RunId from "@cogni/sandbox-core/RunId"
import * as LlmProxyContract from "@cogni/sandbox-core/testing/LlmProxyContract"
import * as UsageObserver from "@cogni/sandbox-core/UsageObserver"
import { Effect, Redacted } from "effect"
import * as Pace from "../../../test/harness/Pace.ts"
import * as GatewayLlmProxy from "../src/GatewayLlmProxy.ts"
import * as ScriptedModelApi from "../src/ScriptedModelApi.ts"

/** Invented key with characters that break careless templates. */
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

/** Begins a run on an existing gateway, without waiting until it is ready. */
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

/** Opens a run on an existing gateway and waits until it is ready. */
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
    send: (bytes: string | Buffer, options?: SendOptions) => send(socketPath, bytes, options)
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
  const proxy = yield* GatewayLlmProxy.make({ url: upstream.url, key: Redacted.make(key), ...rest }).pipe(
    Effect.provide(UsageObserver.layerNone)
  )
  return { upstream, proxy, ...(yield* openRun(proxy, options)) }
})

export interface SendOptions {
  /** Complete answers to wait for (default 1), however slow the machine is. */
  readonly answers?: number | undefined
  /** How long to listen for more after that (default 60). */
  readonly idleMillis?: number | undefined
}

/** Writes, and reads until the expected answers are complete and nothing more comes, or the other side closes. */
export const send = (
  socketPath: string,
  bytes: string | Buffer,
  { answers = 1, idleMillis = 60 }: SendOptions = {}
): Effect.Effect<Answer> =>
  Effect.callback<Answer>((resume) => {
    let text = ""
    let timer: NodeJS.Timeout | undefined
    const isHead = bytes.toString().startsWith("HEAD ")
    const socket = net.connect({ path: socketPath, allowHalfOpen: true })
    const end = () => {
      clearTimeout(timer)
      socket.destroy()
      resume(Effect.succeed(parse(text)))
    }
    socket.on("data", (data) => {
      text += data.toString("latin1")
      clearTimeout(timer)
      if (completeAnswers(text, isHead) >= answers) timer = setTimeout(end, idleMillis)
    })
    socket.on("error", end)
    socket.on("end", end)
    socket.write(typeof bytes === "string" ? Buffer.from(bytes, "latin1") : bytes)
  }).pipe(Effect.timeout(Pace.hangMillis / 2), Effect.orDie)

/** How many answers a text begins with that are whole: by their length, their last chunk, or without a body. */
const completeAnswers = (text: string, isHead: boolean): number => {
  const head = /^HTTP\/1\.[01] (\d{3})[\s\S]*?\r\n\r\n/u.exec(text)
  if (head === null) return 0
  const length = /^content-length: (\d+)\r$/imu.exec(head[0])?.[1]
  const body = text.slice(head[0].length)
  const last = /(?:^|\r\n)0\r\n\r\n/u.exec(body)
  const bytes =
    isHead || head[1]!.startsWith("1")
      ? 0
      : length !== undefined
        ? Number(length)
        : last && last.index + last[0].length
  if (bytes === null || body.length < bytes) return 0
  return (head[1]!.startsWith("1") ? 0 : 1) + completeAnswers(body.slice(bytes), isHead)
}

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

/** Builds a complete request, with an ordinary client's values as defaults. */
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
