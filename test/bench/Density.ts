/**
 * Memory and processor time of live sandboxes with a model: of each process in them, of the engine's process for each
 * container, and of what all of them share. Read from `/proc`, so it needs root.
 */
import { label } from "@cogni/sandbox-core/ResourceLabels"
import { execFileSync } from "node:child_process"
import { readdirSync, readFileSync } from "node:fs"

/** Time over which idle sandboxes are measured. The engine's process for a container frees its memory once in 30 s. */
export const idleSeconds = 60

/** Time for the host and the engine to become quiet after the first start. */
const settleSeconds = 10

/**
 * Time after the last start until sandboxes are idle. A host counts the workspace of a run 10 s and 20 s after its
 * start, and then only after its program has run.
 */
export const idleAfterSeconds = 30

/** Containers with nothing of ours that are measured too, to tell what the engine needs for any container. */
export const bareContainers = 20

/** Ticks of the kernel's processor time in a second, on every Linux of ours. */
const ticksPerSecond = 100

const daemonPart = "the engine's daemon: "

/** Name of the row with the sum of all parts but the engine's daemon. */
export const sumPart = "all without the daemon"

/** Name of the row with what the engine needs for as many containers that only sleep. Not in the sum. */
const barePart = "for comparison: engine's process for a bare container"

interface Process {
  readonly parent: number
  readonly name: string
  readonly ticks: number
}

interface Usage {
  readonly memoryBytes: number
  readonly ticks: number
}

interface Row {
  readonly part: string
  readonly memoryMegabytes: number
  readonly furtherKilobytes: number
  /** Processor time while all runs sleep, in percent of one processor. */
  readonly idlePercent: number
}

const read = (path: string): string => {
  try {
    return readFileSync(path, "utf8")
  } catch {
    // The process has ended.
    return ""
  }
}

const processes = (): ReadonlyMap<number, Process> =>
  new Map(
    readdirSync("/proc")
      .filter((name) => /^\d+$/u.test(name))
      .flatMap((pid) => {
        const found = /^\d+ \((.*)\) \S (\d+)((?: \S+)*)/su.exec(read(`/proc/${pid}/stat`))
        if (found === null) return []
        const rest = found[3]!.trim().split(" ")
        // Fields 14 and 15 of the line: user and system time.
        const ticks = Number(rest[9]) + Number(rest[10])
        return [[Number(pid), { name: found[1]!, parent: Number(found[2]), ticks }] as const]
      })
  )

/** Memory of a process. Pages that several share are divided among them. */
const memoryOf = (pid: number): number =>
  Number(/^Pss: +(\d+) kB/mu.exec(read(`/proc/${pid}/smaps_rollup`))?.[1] ?? 0) * 1024

const docker = (...args: ReadonlyArray<string>) =>
  execFileSync("docker", args, { encoding: "utf8", maxBuffer: 64 * 1024 ** 2 })

/** First process of each container of an owner, and whether it is a sandbox. */
const containersOf = (owner: string) => {
  const ids = docker("ps", "--quiet", "--no-trunc", "--filter", `label=${label.owner}=${owner}`).split("\n")
  const format = `{{.State.Pid}} {{index .Config.Labels "${label.role}"}}`
  return docker("inspect", "--format", format, ...ids.filter((id) => id !== ""))
    .trim()
    .split("\n")
    .map((line) => line.split(" "))
    .map(([pid, role]) => ({ pid: Number(pid), isSandbox: role === "agent" }))
}

/** First process of each of these containers. */
const firstProcesses = (ids: ReadonlyArray<string>): ReadonlyArray<number> =>
  docker("inspect", "--format", "{{.State.Pid}}", ...ids)
    .trim()
    .split("\n")
    .map(Number)

/** Names the part that each process belongs to. */
const partsOf = (
  owner: string,
  hostPid: number,
  bare: ReadonlyArray<string>
): ReadonlyMap<number, string> => {
  const all = processes()
  const below = (pid: number): ReadonlyArray<number> => [
    pid,
    ...[...all].filter(([, { parent }]) => parent === pid).flatMap(([child]) => below(child))
  ]
  const parts = new Map<number, string>([[hostPid, "host process"]])
  for (const { isSandbox, pid } of containersOf(owner)) {
    parts.set(
      all.get(pid)!.parent,
      isSandbox ? "engine's process for a sandbox" : "engine's process for nginx"
    )
    for (const inside of below(pid))
      parts.set(inside, isSandbox ? `in the sandbox: ${all.get(inside)!.name}` : "nginx-shared")
  }
  for (const pid of firstProcesses(bare)) parts.set(all.get(pid)!.parent, barePart)
  for (const [pid, { name }] of all)
    if (name === "dockerd" || name === "containerd") parts.set(pid, `${daemonPart}${name}`)
  return parts
}

const usageOf = (parts: ReadonlyMap<number, string>): ReadonlyMap<string, Usage> => {
  const all = processes()
  const usage = new Map<string, Usage>()
  for (const [pid, part] of parts) {
    const before = usage.get(part) ?? { memoryBytes: 0, ticks: 0 }
    usage.set(part, {
      memoryBytes: before.memoryBytes + memoryOf(pid),
      ticks: before.ticks + (all.get(pid)?.ticks ?? 0)
    })
  }
  return usage
}

const pause = (seconds: number) => new Promise((resolve) => setTimeout(resolve, seconds * 1000))

const round = (value: number, digits = 1) => Math.round(value * 10 ** digits) / 10 ** digits

/** Measures a host process with one run, and with as many as asked for. `open` starts more, and returns the owner. */
export const measure = async (options: {
  readonly hostPid: number
  readonly runs: number
  readonly open: (count: number) => Promise<string>
  /** IDs of containers that only sleep. */
  readonly bare: ReadonlyArray<string>
}): Promise<ReadonlyArray<Row>> => {
  const { bare, hostPid, open, runs } = options
  const owner = await open(1)
  await pause(settleSeconds)
  const first = usageOf(partsOf(owner, hostPid, bare))
  await open(runs - 1)
  await pause(idleAfterSeconds)
  const parts = partsOf(owner, hostPid, bare)
  const before = usageOf(parts)
  await pause(idleSeconds)
  const after = usageOf(parts)
  const rows = [...after].map(([part, { memoryBytes, ticks }]) => {
    const idle = (ticks - before.get(part)!.ticks) / ticksPerSecond / idleSeconds
    if (part !== barePart)
      return {
        part,
        memoryBytes,
        furtherBytes: (memoryBytes - (first.get(part)?.memoryBytes ?? 0)) / (runs - 1),
        idle
      }
    const times = runs / bare.length
    return {
      part,
      memoryBytes: memoryBytes * times,
      furtherBytes: memoryBytes / bare.length,
      idle: idle * times
    }
  })
  // Other programs of the machine use the engine's daemon too.
  const own = rows.filter(({ part }) => !part.startsWith(daemonPart) && part !== barePart)
  const sum = (field: "furtherBytes" | "idle" | "memoryBytes") =>
    own.reduce((total, row) => total + row[field], 0)
  const all = {
    part: sumPart,
    memoryBytes: sum("memoryBytes"),
    furtherBytes: sum("furtherBytes"),
    idle: sum("idle")
  }
  return [...rows.toSorted((a, b) => (a.part < b.part ? -1 : 1)), all].map((row) => ({
    part: row.part,
    memoryMegabytes: round(row.memoryBytes / 1e6),
    furtherKilobytes: round(row.furtherBytes / 1e3),
    idlePercent: round(100 * row.idle)
  }))
}
