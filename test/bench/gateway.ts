/**
 * `./dev bench gateway`: the cost of egress through the gateway, per call and per event, with all ways side by side.
 *
 *     --quick         a tenth of the samples, to check that it works
 *     --output DIR    directory for gateway.json and gateway.md (default test/bench/results; none with --quick)
 *
 * Client, gateway and upstream are separate processes. Exits with 1 if a bar is missed.
 */
import { Agent, request } from "node:http"
import { execFileSync, fork, type ChildProcess } from "node:child_process"
import { mkdtempSync, rmSync } from "node:fs"
import { availableParallelism, loadavg, release, tmpdir } from "node:os"
import { join } from "node:path"
import { parseArgs } from "node:util"
import type { Told } from "./GatewayProcess.ts"
import * as NginxProcess from "./NginxProcess.ts"
import * as Report from "./Report.ts"
import * as Samples from "./Samples.ts"

const { values: options } = parseArgs({
  options: { quick: { type: "boolean", default: false }, output: { type: "string" } }
})

const share = options.quick ? 0.1 : 1
const calls = 1000 * share
const loadMillis = 4000 * share
const streamEvents = Math.round(400 * share)
const streamsAtOnce = 200
const idleSockets = options.quick ? [1, 100] : [1, 100, 1000]
const models = ["m", `stream-${streamEvents}-5`, "stream-50-100"]

const images = {
  runtime: process.env["COGNI_RUNTIME_IMAGE"] ?? "cogni-sandbox/runtime:latest",
  proxy: process.env["COGNI_PROXY_IMAGE"] ?? "cogni-sandbox/proxy:latest",
  gateway: process.env["COGNI_GATEWAY_IMAGE"] ?? "cogni-sandbox/gateway:latest"
}

const say = (text: string) => process.stderr.write(`${text}\n`)

const children: Array<ChildProcess> = []
const directory = mkdtempSync(join(tmpdir(), "cogni-bench-"))

const child = (file: string): ChildProcess => {
  const started = fork(join(import.meta.dirname, file), {
    execArgv: ["--disable-warning=ExperimentalWarning", "--expose-gc"],
    stdio: ["ignore", "inherit", "inherit", "ipc"]
  })
  children.push(started)
  return started
}

const hear = <A>(from: ChildProcess): Promise<A> =>
  new Promise((resolve, reject) => {
    from.once("message", (message) => resolve(message as A))
    from.once("exit", (code) => reject(new Error(`a process ended with ${code}`)))
  })

const upstream = async () => (await hear<{ readonly url: string }>(child("UpstreamProcess.ts"))).url

/** Starts a gateway. Each call of the returned function opens more run sockets. */
const gateway = async (url: string, carrier: "directory" | "container", isBilled = false) => {
  const started = child("GatewayProcess.ts")
  const own = mkdtempSync(join(directory, "gateway-"))
  const ready = hear(started)
  started.send({ url, directory: own, carrier, image: images.gateway, models, isBilled })
  await ready
  return async (open: number): Promise<Told> => {
    const told = hear<Told>(started)
    started.send({ open })
    return await told
  }
}

const volumePath = (name: string) =>
  execFileSync("docker", ["volume", "inspect", "--format", "{{.Mountpoint}}", name], {
    encoding: "utf8"
  }).trim()

/** The bridge that every sandbox has, on the loopback interface of this host. */
const throughSocat = async (source: string) => {
  const port = 20_000 + Math.floor(Math.random() * 20_000)
  const id = execFileSync(
    "docker",
    [
      "run",
      "--detach",
      "--rm",
      "--init",
      "--network=host",
      "--user=0:0",
      `--volume=${source}:/llm-sock`,
      "--entrypoint=socat",
      images.runtime,
      `TCP4-LISTEN:${port},bind=127.0.0.1,fork,reuseaddr,backlog=128,nodelay`,
      "UNIX-CONNECT:/llm-sock/llm.sock"
    ],
    { encoding: "utf8" }
  ).trim()
  cleanUp.push(() => execFileSync("docker", ["rm", "--force", id], { stdio: "ignore" }))
  await new Promise((resolve) => setTimeout(resolve, 300))
  return { host: "127.0.0.1", port }
}

const cleanUp: Array<() => void> = [
  () => children.forEach((one) => one.disconnect?.()),
  () => rmSync(directory, { recursive: true, force: true })
]

type Way = { readonly socketPath: string } | { readonly host: string; readonly port: number }

const bodyOf = (model: string) =>
  JSON.stringify({
    model,
    stream: model !== "m",
    messages: [
      { role: "system", content: "You are a helpful agent. ".repeat(40) },
      { role: "user", content: "What is in this directory?" }
    ],
    tools: [{ type: "function", function: { name: "ls", parameters: { type: "object", properties: {} } } }]
  })

const send = (way: Way, agent: Agent, model: string, onData: (piece: Buffer) => void): Promise<void> =>
  new Promise((resolve, reject) => {
    const body = bodyOf(model)
    const outgoing = request(
      {
        ...way,
        agent,
        method: "POST",
        path: "/v1/chat/completions",
        headers: { "content-type": "application/json", "content-length": Buffer.byteLength(body) }
      },
      (answer) => {
        if (answer.statusCode !== 200) reject(new Error(`status ${answer.statusCode}`))
        answer.on("data", onData)
        answer.once("end", () => resolve())
        answer.once("error", reject)
      }
    )
    outgoing.once("error", reject)
    outgoing.end(body)
  })

const ignore = () => undefined

const sequential = async (way: Way, count: number): Promise<ReadonlyArray<number>> => {
  const agent = new Agent({ keepAlive: true })
  const millis: Array<number> = []
  for (let index = 0; index < count; index++) {
    const before = performance.now()
    await send(way, agent, "m", ignore)
    millis.push(performance.now() - before)
  }
  agent.destroy()
  return millis
}

const perSecond = async (way: Way): Promise<number> => {
  const agent = new Agent({ keepAlive: true })
  const until = performance.now() + loadMillis
  let done = 0
  const worker = async () => {
    while (performance.now() < until) {
      await send(way, agent, "m", ignore)
      done += 1
    }
  }
  await Promise.all(Array.from({ length: 16 }, worker))
  agent.destroy()
  return Math.round((done / loadMillis) * 1000)
}

/** Returns the delay of each event, from the upstream's write to the client's read. */
const eventDelays = async (way: Way, model: string): Promise<ReadonlyArray<number>> => {
  const agent = new Agent({ keepAlive: true })
  const millis: Array<number> = []
  let rest = ""
  await send(way, agent, model, (piece) => {
    const now = process.hrtime.bigint()
    const events = (rest + piece.toString("latin1")).split("\n\n")
    rest = events.pop() ?? ""
    for (const event of events) {
      const at = /"at":"(\d+)"/u.exec(event)?.[1]
      if (at !== undefined) millis.push(Number(now - BigInt(at)) / 1e6)
    }
  })
  agent.destroy()
  return millis
}

const round = (value: number, digits = 2) => Math.round(value * 10 ** digits) / 10 ** digits
const at = (samples: ReadonlyArray<number>, share: number) =>
  Samples.percentile(
    samples.toSorted((a, b) => a - b),
    share
  )

/** The ways that are compared with bars. */
const own = "gateway in process"
const ownBilled = "gateway in process, with keys and a ledger"

const main = async () => {
  const load = round(loadavg()[0]!, 1)
  const url = await upstream()
  const inProcess = await gateway(url, "directory")
  const inContainer = await gateway(url, "container")
  const billed = await gateway(url, "directory", true)
  const nginx = await NginxProcess.start({ url, image: images.proxy, directory })
  cleanUp.unshift(() => void nginx.stop())
  const source = (await inProcess(1)).sources[0]!
  const carried = volumePath((await inContainer(1)).sources[0]!)
  const ways = new Map<string, Way>([
    ["direct", { host: "127.0.0.1", port: Number(new URL(url).port) }],
    ["nginx", { socketPath: join(volumePath(nginx.source), "llm.sock") }],
    [own, { socketPath: join(source, "llm.sock") }],
    [ownBilled, { socketPath: join((await billed(1)).sources[0]!, "llm.sock") }],
    ["gateway in container", { socketPath: join(carried, "llm.sock") }],
    ["gateway in process, through socat", await throughSocat(source)],
    ["gateway in container, through socat", await throughSocat(carried)]
  ])

  const millis = new Map<string, Array<number>>([...ways.keys()].map((name) => [name, []]))
  for (const [, way] of ways) await sequential(way, 100)
  say(`${calls} calls each, in turns`)
  for (let turn = 0; turn < 10; turn++) {
    for (const [name, way] of Samples.rotate([...ways], turn))
      millis.get(name)!.push(...(await sequential(way, Math.ceil(calls / 10))))
  }
  say("events")
  const delays = new Map<string, ReadonlyArray<number>>()
  for (const [name, way] of ways) delays.set(name, await eventDelays(way, models[1]!))
  say("calls in a second, 16 at once")
  const rates = new Map<string, number>()
  for (const [name, way] of ways) rates.set(name, await perSecond(way))

  say(`${streamsAtOnce} streams at once`)
  const crowd = new Map<string, ReadonlyArray<number>>()
  for (const name of ["direct", own]) {
    const all = await Promise.all(
      Array.from({ length: streamsAtOnce }, () => eventDelays(ways.get(name)!, "stream-50-100"))
    )
    crowd.set(name, all.flat())
  }

  say(`idle sockets: ${idleSockets.join(", ")}`)
  const fresh = await gateway(url, "directory")
  const memory: Array<readonly [sockets: number, bytes: number]> = []
  let opened = 0
  const empty = (await fresh(0)).memoryBytes
  for (const sockets of idleSockets) {
    const { memoryBytes } = await fresh(sockets - opened)
    opened = sockets
    memory.push([sockets, memoryBytes])
  }

  const added = (name: string, of: ReadonlyMap<string, ReadonlyArray<number>>, share: number) =>
    round(at(of.get(name)!, share) - at(of.get("direct")!, share))
  const bars: ReadonlyArray<Report.Bar> = [
    { name: "added to a call, p50, ms", value: added(own, millis, 0.5), atMost: 1 },
    {
      name: "more for a call with a key for each run and a ledger, p50, ms",
      value: round(at(millis.get(ownBilled)!, 0.5) - at(millis.get(own)!, 0.5)),
      atMost: 0.5
    },
    { name: "added to a streamed event, p50, ms", value: added(own, delays, 0.5), atMost: 0.3 },
    {
      name: `events of ${streamsAtOnce} streams at once that came, %`,
      value: round((crowd.get(own)!.length / (50 * streamsAtOnce)) * 100),
      atLeast: 100
    },
    {
      name: `delay of an event then, p99, ms over direct`,
      value: added(own, crowd, 0.99),
      atMost: 50
    },
    {
      name: `memory of ${idleSockets.at(-1)} idle run sockets, MB`,
      value: round((memory.at(-1)![1] - empty) / 1e6, 1),
      atMost: 150
    },
    { name: "the whole process with them, MB", value: round(memory.at(-1)![1] / 1e6, 1) }
  ]
  const report = {
    takenAt: new Date().toISOString(),
    machine: {
      cores: availableParallelism(),
      kernel: release(),
      node: process.version,
      "load before": load,
      samples: calls
    },
    rows: [...ways.keys()].map((name) => ({
      name,
      p50: round(at(millis.get(name)!, 0.5)),
      p99: round(at(millis.get(name)!, 0.99)),
      addedP50: added(name, millis, 0.5),
      addedP99: added(name, millis, 0.99),
      eventAddedP50: added(name, delays, 0.5),
      eventAddedP99: added(name, delays, 0.99),
      callsPerSecond: rates.get(name)!
    })),
    memory: memory.map(([sockets, bytes]) => ({
      sockets,
      megabytes: round(bytes / 1e6, 1),
      kilobytesEach: round((bytes - empty) / 1e3 / sockets, 1)
    })),
    bars
  }
  const text = [
    "A call with a body of 1.3 kB that is answered at once, over a persistent connection. Client, gateway and upstream are separate processes.",
    Report.table(
      ["ms", "p50", "p99", "added p50", "added p99", "added per event p50", "p99", "calls/s, 16 at once"],
      report.rows.map((row) => Object.values(row))
    ),
    Report.table(
      ["idle run sockets", "process, MB", "kB each"],
      report.memory.map((row) => Object.values(row))
    ),
    Report.barTable(bars),
    Report.taken(report)
  ].join("\n\n")
  Report.publish({
    name: "gateway",
    title: "The gateway, measured",
    text,
    data: report,
    bars,
    directory: options.output ?? (options.quick ? undefined : join(import.meta.dirname, "results"))
  })
}

try {
  await main()
} finally {
  for (const clean of cleanUp) clean()
}
