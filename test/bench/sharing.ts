/**
 * `./dev bench sharing`: many runs on one proxy. The gateway and a shared nginx, next to an nginx for each run.
 *
 *     --quick         a tenth of the runs and samples, to check that it works
 *     --output DIR    directory for sharing.json and sharing.md (default test/bench/results; none with --quick)
 *
 * Each sandbox is a container without a network, with the bridge that every sandbox has. Calls are sent to the sockets
 * of the runs. Client, host process, nginx and upstream are separate processes. Exits with 1 if a bar is missed.
 *
 * At last, sealed runs live at the same time, and the memory and the idle processor time of each part are read.
 */
import { Agent, request } from "node:http"
import { execFile, execFileSync, fork, type ChildProcess } from "node:child_process"
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs"
import { availableParallelism, loadavg, release, tmpdir } from "node:os"
import { join } from "node:path"
import { parseArgs, promisify } from "node:util"
import { randomUUID } from "node:crypto"
import * as Density from "./Density.ts"
import type * as DensityProcess from "./DensityProcess.ts"
import * as NginxProcess from "./NginxProcess.ts"
import * as Report from "./Report.ts"
import * as Samples from "./Samples.ts"
import type { Told } from "./SharingProcess.ts"

const { values: options } = parseArgs({
  options: { quick: { type: "boolean", default: false }, output: { type: "string" } }
})

const sandboxes = options.quick ? 20 : 200
const idleRuns = options.quick ? 100 : 1000
const samples = options.quick ? 200 : 2000
const rounds = 10

const images = {
  runtime: process.env["COGNI_RUNTIME_IMAGE"] ?? "cogni-sandbox/runtime:latest",
  proxy: process.env["COGNI_PROXY_IMAGE"] ?? "cogni-sandbox/proxy:latest",
  gateway: process.env["COGNI_GATEWAY_IMAGE"] ?? "cogni-sandbox/gateway:latest"
}

const say = (text: string) => process.stderr.write(`${text}\n`)
const directory = mkdtempSync(join(tmpdir(), "cogni-bench-"))
const children: Array<ChildProcess> = []
const containers: Array<string> = []

/** Label of the containers of this benchmark that have nothing of ours. */
const ownLabel = `dev.cogni.bench.sharing=${randomUUID()}`

/** Nginx of one run, which no child process ends. */
let ownNginx: Promise<NginxProcess.Started> | undefined

/** Starts of containers that are under way. */
const starting = new Set<Promise<unknown>>()
const interruption = new AbortController()

/** Starts a container of the engine. An interrupted benchmark starts no more. */
const startContainer = async (...args: ReadonlyArray<string>): Promise<void> => {
  interruption.signal.throwIfAborted()
  const started = promisify(execFile)("docker", ["run", "--detach", `--label=${ownLabel}`, ...args])
  starting.add(started)
  try {
    containers.push((await started).stdout.trim())
  } finally {
    starting.delete(started)
  }
}

const child = (file: string): ChildProcess => {
  const started = fork(join(import.meta.dirname, file), {
    execArgv: ["--disable-warning=ExperimentalWarning", "--expose-gc"],
    stdio: ["ignore", "inherit", "inherit", "ipc"],
    // Ctrl-C reaches this process only, which lets the children remove their runs.
    detached: true
  })
  children.push(started)
  return started
}

/** Longest time that a process may take to remove its runs. */
const endMillisMax = 60_000

/** Ends a process, and returns when it has removed its runs. */
const end = async (one: ChildProcess): Promise<void> => {
  if (one.exitCode !== null || one.signalCode !== null) return
  const ended = new Promise((resolve) => one.once("exit", resolve))
  const timer = setTimeout(() => one.kill("SIGKILL"), endMillisMax)
  if (one.connected) one.disconnect()
  await ended
  clearTimeout(timer)
}

const hear = <A>(from: ChildProcess): Promise<A> =>
  new Promise((resolve, reject) => {
    from.once("message", (message) => resolve(message as A))
    from.once("exit", (code) => reject(new Error(`a process ended with ${code}`)))
  })

interface Host {
  readonly directory: string
  readonly open: (runs: number) => Promise<Told>
}

const host = async (kind: "gateway" | "nginx-shared", url: string): Promise<Host> => {
  const started = child("SharingProcess.ts")
  const own = mkdtempSync(join(directory, `${kind}-`))
  const ready = hear(started)
  started.send({ kind, url, directory: own, image: kind === "gateway" ? images.gateway : images.proxy })
  await ready
  return {
    directory: own,
    open: async (open) => {
      const told = hear<Told>(started)
      started.send({ open })
      return await told
    }
  }
}

/** Starts containers of the engine that only sleep, with nothing of ours. */
const startBare = async (): Promise<ReadonlyArray<string>> => {
  while (containers.length < Density.bareContainers) {
    await startContainer("--network=none", "--entrypoint=sleep", images.runtime, "3600")
  }
  return [...containers]
}

/** Memory and idle processor time of live sealed runs. */
const density = async (kind: "gateway" | "nginx-shared", url: string) => {
  say(`${sandboxes} live sandboxes, ${kind}`)
  const started = child("DensityProcess.ts")
  const own = mkdtempSync(join(directory, `density-`))
  const ready = hear(started)
  const image = kind === "gateway" ? images.gateway : images.proxy
  started.send({ kind, url, directory: own, image, runtime: images.runtime } satisfies DensityProcess.Start)
  await ready
  const bare = await startBare()
  const rows = await Density.measure({
    bare,
    hostPid: started.pid!,
    runs: sandboxes,
    open: async (open) => {
      const told = hear<DensityProcess.Told>(started)
      started.send({ open } satisfies DensityProcess.Ask)
      return (await told).owner
    }
  })
  await end(started)
  docker("rm", "--force", ...bare)
  containers.length = 0
  return rows.map((row) => ({ proxy: kind, ...row }))
}

const docker = (...args: ReadonlyArray<string>) => execFileSync("docker", args, { encoding: "utf8" })

/** Memory of a container's processes. Pages that several share count once. */
const containerBytes = (id: string): number =>
  docker("top", id, "-eo", "pid")
    .split("\n")
    .slice(1)
    .filter((line) => line.trim() !== "")
    .map((pid) => /^Pss: +(\d+) kB/mu.exec(readFileSync(`/proc/${pid.trim()}/smaps_rollup`, "utf8"))?.[1])
    .reduce((sum, kilobytes) => sum + Number(kilobytes ?? 0) * 1024, 0)

/** The container that mounts the sockets of a shared nginx. */
const sharedContainer = ({ directory: own }: Host): string => {
  const name = readdirSync(own).find((entry) => entry.startsWith("nginx-"))!
  return docker("ps", "--quiet", "--filter", `volume=${join(own, name, "sockets")}`).trim()
}

/** Starts a sandbox with the sockets of two runs. */
const startSandbox = async (sources: ReadonlyArray<string>): Promise<void> => {
  await startContainer(
    "--init",
    "--network=none",
    "--read-only",
    "--cap-drop=ALL",
    "--user=1000:1000",
    "--memory=256m",
    ...sources.map((source, index) => `--volume=${source}:/llm-sock${index === 0 ? "" : index}:ro`),
    "--entrypoint=socat",
    images.runtime,
    "TCP4-LISTEN:8080,bind=127.0.0.1,fork,reuseaddr,backlog=128,nodelay",
    "UNIX-CONNECT:/llm-sock/llm.sock"
  )
}

const body = JSON.stringify({
  model: "m",
  messages: [
    { role: "system", content: "You are a helpful agent. ".repeat(40) },
    { role: "user", content: "What is in this directory?" }
  ]
})

const call = (socketPath: string, agent: Agent): Promise<number> =>
  new Promise((resolve, reject) => {
    const before = performance.now()
    const headers = { "content-type": "application/json", "content-length": Buffer.byteLength(body) }
    request({ socketPath, agent, method: "POST", path: "/v1/chat/completions", headers }, (answer) => {
      if (answer.statusCode !== 200) reject(new Error(`status ${answer.statusCode}`))
      answer.on("data", () => undefined)
      answer.once("end", () => resolve(performance.now() - before))
    })
      .once("error", reject)
      .end(body)
  })

/** Milliseconds of calls that take turns over these sockets, each on its own open connection. */
const calls = async (sources: ReadonlyArray<string>, count: number): Promise<ReadonlyArray<number>> => {
  const agents = sources.map(() => new Agent({ keepAlive: true }))
  const millis: Array<number> = []
  for (const [index, source] of sources.entries()) await call(join(source, "llm.sock"), agents[index]!)
  for (let sample = 0; sample < count; sample++) {
    const index = sample % sources.length
    millis.push(await call(join(sources[index]!, "llm.sock"), agents[index]!))
  }
  for (const agent of agents) agent.destroy()
  return millis
}

const round = (value: number, digits = 2) => Math.round(value * 10 ** digits) / 10 ** digits
const at = (millis: ReadonlyArray<number>, share: number) =>
  round(
    Samples.percentile(
      millis.toSorted((a, b) => a - b),
      share
    )
  )

/** Rounds of calls of one run and of all runs, of both proxies in turns. */
const compare = async (ways: ReadonlyArray<readonly [name: string, sources: ReadonlyArray<string>]>) => {
  const millis = new Map<string, Array<number>>()
  const cases = ways.flatMap(([name, sources]) => [
    [`${name}, one run`, sources.slice(0, 1)] as const,
    [`${name}, ${sources.length} runs`, sources] as const
  ])
  for (let turn = 0; turn < rounds; turn++)
    for (const [name, sources] of Samples.rotate(cases, turn)) {
      const taken = await calls(sources, samples / rounds)
      millis.set(name, [...(millis.get(name) ?? []), ...taken])
    }
  return millis
}

const main = async () => {
  const load = round(loadavg()[0]!, 1)
  const { url } = await hear<{ readonly url: string }>(child("UpstreamProcess.ts"))
  const direct = { host: "127.0.0.1", port: Number(new URL(url).port) }
  const gateway = await host("gateway", url)
  const shared = await host("nginx-shared", url)
  mkdirSync(join(directory, "own"))
  say("an nginx for one run")
  ownNginx = NginxProcess.start({ url, image: images.proxy, directory: join(directory, "own") })
  const own = await ownNginx
  const ownVolume = docker("volume", "inspect", "--format", "{{.Mountpoint}}", own.source).trim()
  const ownContainer = docker("ps", "--quiet", "--filter", `volume=${own.source}`).trim()
  const ownBytes = containerBytes(ownContainer)

  say(`${sandboxes} sandboxes`)
  const first = { gateway: await gateway.open(1), shared: await shared.open(1) }
  const firstNginx = containerBytes(sharedContainer(shared))
  const more = { gateway: await gateway.open(sandboxes - 1), shared: await shared.open(sandboxes - 1) }
  const sources = {
    gateway: [...first.gateway.sources, ...more.gateway.sources],
    shared: [...first.shared.sources, ...more.shared.sources]
  }
  const waiting = sources.gateway.map((source, index) => [source, sources.shared[index]!])
  const starter = async () => {
    for (let pair = waiting.shift(); pair !== undefined; pair = waiting.shift()) await startSandbox(pair)
  }
  await Promise.all(Array.from({ length: 4 }, starter))

  say(`${samples} calls each, in turns`)
  const agent = new Agent({ keepAlive: true })
  const directMillis: Array<number> = []
  for (let sample = 0; sample < samples; sample++) directMillis.push(await directCall(direct, agent))
  agent.destroy()
  const millis = await compare([
    ["gateway", sources.gateway],
    ["nginx-shared", sources.shared]
  ])
  millis.set("nginx, one run", [...(await calls([ownVolume], samples))])
  await own.stop()

  say(`${idleRuns} runs`)
  const last = {
    gateway: await gateway.open(idleRuns - sandboxes),
    shared: await shared.open(idleRuns - sandboxes)
  }
  const lastNginx = containerBytes(sharedContainer(shared))
  for (let start = 0; start < containers.length; start += 50)
    docker("rm", "--force", ...containers.slice(start, start + 50))
  containers.length = 0
  const live = [...(await density("gateway", url)), ...(await density("nginx-shared", url))]
  const idlePercent = Math.max(
    ...live.filter(({ part }) => part === Density.sumPart).map((row) => row.idlePercent)
  )
  const perRun = (from: number, to: number) => round((to - from) / (idleRuns - 1) / 1000, 1)
  const ratio = (name: string) =>
    round(at(millis.get(`${name}, ${sandboxes} runs`)!, 0.5) / at(millis.get(`${name}, one run`)!, 0.5))
  const nginxKilobytes = perRun(firstNginx, lastNginx)
  const hostKilobytes = perRun(first.shared.memoryBytes, last.shared.memoryBytes)
  const bars: ReadonlyArray<Report.Bar> = [
    {
      name: "shared nginx: its container's memory for each further run, kB",
      value: nginxKilobytes,
      atMost: 50
    },
    { name: "shared nginx: the host's memory too, kB", value: round(nginxKilobytes + hostKilobytes, 1) },
    {
      name: `shared nginx: p50 of a call, ${sandboxes} live sandboxes ÷ one`,
      value: ratio("nginx-shared"),
      atMost: 2
    },
    { name: `gateway: p50 of a call, ${sandboxes} live sandboxes ÷ one`, value: ratio("gateway"), atMost: 2 },
    {
      name: `${sandboxes} idle sandboxes, without the engine's daemon: processor time, % of one`,
      value: idlePercent,
      atMost: 10
    }
  ]
  const report = {
    takenAt: new Date().toISOString(),
    machine: {
      cores: availableParallelism(),
      kernel: release(),
      node: process.version,
      "load before": load,
      samples
    },
    calls: [["direct", directMillis] as const, ...millis].map(([name, taken]) => ({
      name,
      p50: at(taken, 0.5),
      p99: at(taken, 0.99),
      addedP50: round(at(taken, 0.5) - at(directMillis, 0.5))
    })),
    memory: [
      { name: "nginx, for each run", first: round(ownBytes / 1e6, 1), further: round(ownBytes / 1e3, 1) },
      {
        name: "nginx-shared, its container",
        first: round(firstNginx / 1e6, 1),
        further: nginxKilobytes
      },
      {
        name: "nginx-shared, the host process",
        first: round(first.shared.memoryBytes / 1e6, 1),
        further: hostKilobytes
      },
      {
        name: "gateway, the host process",
        first: round(first.gateway.memoryBytes / 1e6, 1),
        further: perRun(first.gateway.memoryBytes, last.gateway.memoryBytes)
      }
    ],
    live,
    bars
  }
  const text = [
    `A call with a body of 1.2 kB that is answered at once, over a connection that is open already. ${sandboxes} sandboxes live while the calls are measured.`,
    Report.table(
      ["ms", "p50", "p99", "added p50"],
      report.calls.map((row) => Object.values(row))
    ),
    Report.table(
      ["memory", "first run, MB", `each further of ${idleRuns}, kB`],
      report.memory.map((row) => Object.values(row))
    ),
    `${sandboxes} live sealed runs with a model, whose program sleeps: memory of each part, and processor time over ${Density.idleSeconds} s, which begin ${Density.idleAfterSeconds} s after the last start: until then, the host looks at new sandboxes more often. For comparison, ${Density.bareContainers} containers that only sleep, started with \`docker run\`, are measured at the same time, and counted as if they were ${sandboxes}.`,
    Report.table(
      ["proxy", "part", `memory of ${sandboxes}, MB`, "each further run, kB", "idle, % of one processor"],
      live.map((row) => Object.values(row))
    ),
    Report.barTable(bars),
    Report.taken(report)
  ].join("\n\n")
  Report.publish({
    name: "sharing",
    title: "Many runs on one proxy, measured",
    text,
    data: report,
    bars,
    directory: options.output ?? (options.quick ? undefined : join(import.meta.dirname, "results"))
  })
}

const directCall = (way: { readonly host: string; readonly port: number }, agent: Agent): Promise<number> =>
  new Promise((resolve, reject) => {
    const before = performance.now()
    const headers = { "content-type": "application/json", "content-length": Buffer.byteLength(body) }
    request({ ...way, agent, method: "POST", path: "/v1/chat/completions", headers }, (answer) => {
      answer.on("data", () => undefined)
      answer.once("end", () => resolve(performance.now() - before))
    })
      .once("error", reject)
      .end(body)
  })

/** Removes all containers with the label of this benchmark, also one whose start was interrupted. */
const removeContainers = async () => {
  await Promise.allSettled(starting)
  const left = docker("ps", "--all", "--quiet", "--filter", `label=${ownLabel}`).split("\n")
  const ids = left.filter((id) => id !== "")
  for (let start = 0; start < ids.length; start += 50)
    execFileSync("docker", ["rm", "--force", ...ids.slice(start, start + 50)], { stdio: "ignore" })
}

const interrupted = new Promise<void>((resolve) => {
  for (const signal of ["SIGINT", "SIGTERM"] as const)
    process.on(signal, () => {
      if (!interruption.signal.aborted) say("interrupted: removing the containers")
      interruption.abort()
      process.exitCode = 130
      resolve()
    })
})

try {
  await Promise.race([main(), interrupted])
} finally {
  // Before their files are removed: the end of a run reads its log.
  await Promise.all([...children.map(end), ownNginx?.then((own) => own.stop()).catch(() => undefined)])
  await removeContainers()
  rmSync(directory, { recursive: true, force: true })
}
// Nothing waits for the measurement that the signal has interrupted.
if (interruption.signal.aborted) process.exit()
