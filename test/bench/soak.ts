/**
 * `./dev bench soak`: one gateway, with runs that come and go and every kind of fault, for minutes.
 *
 *     --minutes N     duration (default 10)
 *     --runs N        concurrent runs (default 50)
 *
 * Each run opens its socket, makes calls that succeed, break off, hang or are abandoned, sends malformed HTTP, and
 * closes. Sockets, file descriptors and memory are counted every 30 seconds. Exits with 1 if they grow by more than a
 * margin between the beginning and the end (a leak), or if an audit is broken.
 */
import * as LlmProxyContract from "@cogni/sandbox-core/testing/LlmProxyContract"
import * as MemoryContainerRuntime from "@cogni/sandbox-core/MemoryContainerRuntime"
import * as RunId from "@cogni/sandbox-core/RunId"
import * as UsageObserver from "@cogni/sandbox-core/UsageObserver"
import * as AuditLog from "@cogni/sandbox-proxy/AuditLog"
import * as GatewayLlmProxy from "@cogni/sandbox-proxy/GatewayLlmProxy"
import * as CurrentTime from "@cogni/sandbox-proxy/tools/CurrentTime"
import { Clock, Duration, Effect, Redacted } from "effect"
import { createServer } from "node:http"
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs"
import { type AddressInfo, connect } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { parseArgs } from "node:util"

const { values: options } = parseArgs({
  options: { minutes: { type: "string", default: "10" }, runs: { type: "string", default: "50" } }
})
const minutes = Number(options.minutes)
const runsAtOnce = Number(options.runs)

const say = (text: string) => process.stderr.write(`${text}\n`)

const counts = {
  runs: 0,
  calls: 0,
  streams: 0,
  hungUp: 0,
  malformed: 0,
  large: 0,
  tools: 0,
  upstreamFaults: 0,
  brokenAudits: 0
}

const usage = { prompt_tokens: 10, completion_tokens: 2, total_tokens: 12 }

/** Answers and streams. One of six requests is refused, broken off, cut short, sent garbage, or never answered. */
const upstream = Effect.acquireRelease(
  Effect.callback<ReturnType<typeof createServer>>((resume) => {
    const server = createServer((request, response) => {
      let bytes = 0
      let isStream = false
      request.on("data", (piece: Buffer) => {
        bytes += piece.byteLength
        isStream ||= piece.includes('"stream":true')
      })
      request.on("error", () => undefined)
      response.on("error", () => undefined)
      request.on("end", () => {
        const fate = Math.random() * 30
        if (fate < 5) counts.upstreamFaults += 1
        if (fate < 1) return response.destroy()
        if (fate < 2) {
          response.writeHead(200, { "content-length": "5000" }).write("{")
          return setTimeout(() => response.destroy(), 20)
        }
        if (fate < 3) return response.writeHead(503, { "retry-after": "1" }).end("{}")
        if (fate < 4)
          return response.writeHead(200, { "content-type": "text/event-stream" }).end("data: {garbage\n\n\0")
        if (fate < 5) return undefined
        if (!isStream)
          return response
            .writeHead(200, { "content-type": "application/json" })
            .end(JSON.stringify({ choices: [], usage, bytes }))
        response.writeHead(200, { "content-type": "text/event-stream" })
        let left = 20
        const timer = setInterval(() => {
          left -= 1
          if (left > 0) response.write('data: {"choices":[{"index":0,"delta":{"content":"word "}}]}\n\n')
          else {
            clearInterval(timer)
            response.end(`data: ${JSON.stringify({ choices: [], usage })}\n\ndata: [DONE]\n\n`)
          }
        }, 10)
        response.once("close", () => clearInterval(timer))
        return undefined
      })
    })
    server.listen(0, "127.0.0.1", () => resume(Effect.succeed(server)))
  }),
  (server) =>
    Effect.callback<void>((resume) => {
      server.close(() => resume(Effect.void))
      server.closeAllConnections()
    })
)

/** Writes bytes, then reads until the end, or hangs up after a while. Never fails. */
const speak = (socketPath: string, bytes: Buffer | string, millisMax: number) =>
  Effect.callback<void>((resume) => {
    const socket = connect(socketPath)
    const done = () => {
      clearTimeout(late)
      socket.destroy()
      resume(Effect.void)
    }
    const late = setTimeout(done, millisMax)
    socket.on("data", () => undefined)
    socket.once("end", done).once("error", done).once("close", done)
    socket.write(bytes)
  })

const request = (path: string, body: unknown, close = true) => {
  const payload = typeof body === "string" ? body : JSON.stringify(body)
  return `POST ${path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n${close ? "Connection: close\r\n" : ""}Content-Length: ${Buffer.byteLength(payload)}\r\n\r\n${payload}`
}

const chat = (over: object) =>
  request("/v1/chat/completions", { messages: [{ role: "user", content: "hello" }], ...over })

const acts: ReadonlyArray<(socketPath: string) => Effect.Effect<void>> = [
  (socketPath) => {
    counts.calls += 1
    return speak(socketPath, chat({}), 2000)
  },
  (socketPath) => {
    counts.streams += 1
    return speak(socketPath, chat({ stream: true }), 3000)
  },
  (socketPath) => {
    counts.hungUp += 1
    return speak(socketPath, chat({ stream: true }), 50 * Math.random())
  },
  (socketPath) => {
    counts.malformed += 1
    const malformed = [
      Buffer.from(crypto.getRandomValues(new Uint8Array(200))),
      "POST / HTTP/1.1\r\nA\0\r\n\r\n",
      "CONNECT evil:443 HTTP/1.1\r\nHost: evil\r\n\r\n".repeat(20),
      "GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    ]
    // Half of the connections leave before the answer.
    return speak(
      socketPath,
      malformed[Math.floor(Math.random() * malformed.length)]!,
      Math.random() < 0.5 ? 0 : 500
    )
  },
  (socketPath) => {
    counts.tools += 1
    return speak(socketPath, request("/tool/exec", { tool: "core__get_current_time", args: {} }), 2000)
  },
  (socketPath) => {
    if (Math.random() > 0.1) return Effect.void
    counts.large += 1
    return speak(socketPath, chat({ messages: [{ role: "user", content: "x".repeat(500_000) }] }), 5000)
  }
]

const life = Effect.fnUntraced(function* (proxy: Effect.Success<ReturnType<typeof GatewayLlmProxy.make>>) {
  const directory = yield* Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-soak-"))),
    (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
  )
  const runId = yield* RunId.generate
  const endpoint = yield* proxy.acquire(
    LlmProxyContract.requestOf(runId, { directory, tools: ["core__get_current_time"] })
  )
  yield* endpoint.ready
  const socketPath = join(endpoint.mounts[0]!.source, "llm.sock")
  const count = 3 + Math.floor(Math.random() * 6)
  yield* Effect.forEach(
    Array.from({ length: count }, () => acts[Math.floor(Math.random() * acts.length)]!),
    (act) => act(socketPath),
    { concurrency: 3 }
  )
  const traffic = yield* endpoint.finish
  const verdict = AuditLog.verify(readFileSync(traffic.auditPath!), {
    runId,
    head: traffic.auditHead,
    ended: true
  })
  if (verdict._tag !== "Whole") {
    counts.brokenAudits += 1
    say(JSON.stringify(verdict))
  }
  counts.runs += 1
}, Effect.scoped)

const figures = () => {
  globalThis.gc?.()
  const { heapUsed, rss } = process.memoryUsage()
  return {
    fileDescriptors: readdirSync("/proc/self/fd").length,
    sockets: process.getActiveResourcesInfo().filter((name) => /TCP|Pipe/u.test(name)).length,
    heapMegabytes: Math.round(heapUsed / 1e5) / 10,
    rssMegabytes: Math.round(rss / 1e5) / 10
  }
}

const line = (at: string, found: ReturnType<typeof figures>) =>
  `${at.padEnd(8)} ${String(counts.runs).padStart(7)} runs  ${String(found.fileDescriptors).padStart(5)} fds  ${String(found.sockets).padStart(5)} sockets  ${found.heapMegabytes} MB heap  ${found.rssMegabytes} MB rss`

const main = Effect.gen(function* () {
  const { port } = (yield* upstream).address() as AddressInfo
  const proxy = yield* GatewayLlmProxy.make({
    url: `http://127.0.0.1:${port}`,
    key: Redacted.make("sk-soak"),
    carrier: "directory",
    tools: [CurrentTime.tool]
  }).pipe(Effect.provide([MemoryContainerRuntime.layer(), UsageObserver.layerNone]))
  const loop = (until: number) =>
    Effect.forEach(
      Array.from({ length: runsAtOnce }),
      () =>
        life(proxy).pipe(
          Effect.repeat({ while: () => Effect.map(Clock.currentTimeMillis, (now) => now < until) })
        ),
      { concurrency: "unbounded", discard: true }
    )
  // After the warm-up, pools and caches have their full size.
  yield* loop((yield* Clock.currentTimeMillis) + 20_000)
  yield* Effect.sleep("6 seconds")
  const before = figures()
  say(line("warm", before))
  const watch = Effect.sync(() => say(line("", figures()))).pipe(
    Effect.delay(Duration.seconds(30)),
    Effect.forever,
    Effect.forkScoped
  )
  yield* watch
  yield* loop((yield* Clock.currentTimeMillis) + minutes * 60_000)
  yield* Effect.sleep("6 seconds")
  const after = figures()
  process.stdout.write(`${line("before", before)}\n${line("after", after)}\n${JSON.stringify(counts)}\n`)
  const leaks =
    after.fileDescriptors > before.fileDescriptors + 5 ||
    after.sockets > before.sockets + 5 ||
    after.heapMegabytes > before.heapMegabytes + 15
  if (leaks || counts.brokenAudits > 0) process.exitCode = 1
}).pipe(Effect.scoped)

await Effect.runPromise(main)
