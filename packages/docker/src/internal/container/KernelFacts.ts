/**
 * Kernel facts about a container on this host: its first process, its peak usage, and refused processes.
 *
 * Reads the host's `/proc` and `/sys/fs/cgroup` (cgroup v1 and v2). With a remote engine the facts are absent, never
 * zero.
 */
import type { FileIdentity } from "@cogni/sandbox-core/Posture"
import type { Peak } from "@cogni/sandbox-core/RunFigures"
import * as HostPath from "@cogni/sandbox-host-files/HostPath"
import * as KernelFile from "@cogni/sandbox-host-files/KernelFile"
import * as MountIdentity from "@cogni/sandbox-host-files/MountIdentity"
import { closeSync, lstatSync, openSync, readlinkSync, readSync, watch } from "node:fs"
import { Effect, type Scope } from "effect"
import * as KernelSamples from "./KernelSamples.ts"

export interface KernelFacts {
  readonly oomKilled: boolean
  readonly processesRefused: boolean
  readonly peak: Peak
}

export interface KernelWatch {
  /** Whether the kernel counts here what it killed and refused. Otherwise only the engine knows. */
  readonly isComplete: boolean
  /**
   * Takes a sample now, and returns whether a value has changed. The last chance is between the last output and the
   * removal of the control group.
   */
  readonly sample: () => boolean
  /** Takes a sample, unless no process has used the processor since the last call. Returns whether a value has changed. */
  readonly sampleActive: () => boolean
  /** Processor time that all processes have used. `undefined`: this host cannot read it. */
  readonly processorMicros: () => number | undefined
  /** Longest pause between two samples, in milliseconds. */
  readonly pauseMillisMax: number
  readonly facts: () => KernelFacts
  /** Reads the limits in force. */
  readonly limits: () => KernelLimits
  /** Reads how much memory is in use. Without pages of files, which the kernel gives up when it needs memory. */
  readonly memoryBytes: () => number | undefined
}

/** Opens a file once, and returns a function that reads it from the beginning on each call. */
const opened = (path: string | undefined): Effect.Effect<() => string | undefined, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.sync(() => {
      try {
        return path === undefined ? undefined : openSync(path, "r")
      } catch {
        return undefined
      }
    }),
    (descriptor) => Effect.sync(() => descriptor !== undefined && closeSync(descriptor))
  ).pipe(
    Effect.map((descriptor) => () => {
      if (descriptor === undefined) return undefined
      try {
        return buffer.toString("latin1", 0, readSync(descriptor, buffer, 0, buffer.length, 0))
      } catch {
        // The control group was removed.
        return undefined
      }
    })
  )

const buffer = Buffer.alloc(4096)

const numberIn = (text: string | undefined, pattern: RegExp): number | undefined => {
  const value = pattern.exec(text ?? "")?.[1]
  return value === undefined ? undefined : Number(value)
}

const count = (text: string | undefined): number | undefined => numberIn(text, /^\s*(\d+)/u)

/** Number of processes that were killed because memory ran out. */
const oomKills = (text: string | undefined): number | undefined => numberIn(text, /^oom_kill\s+(\d+)/mu)

/** Number of processes that were refused. */
const refusals = (text: string | undefined): number | undefined => numberIn(text, /^max\s+(\d+)/mu)

/** Reads processor time from `cpuacct.usage` (cgroup v1, in nanoseconds) or `cpu.stat` (v2, in microseconds). Pure. */
export const processorMicrosIn = (text: string | undefined): number | undefined => {
  const nanos = count(text)
  return nanos === undefined ? numberIn(text, /^usage_usec\s+(\d+)/mu) : nanos / 1000
}

/**
 * Returns the paths of the control group files of a process, from its `/proc/PID/cgroup`. `undefined`: its control
 * group is unknown or is the root. Pure.
 */
export const cgroupFiles = (cgroup: string): CgroupFiles | undefined => {
  const path = (controller: string) => pathOf(cgroup, controller)
  const [memory, pids, unified] = [path("memory"), path("pids"), path("")]
  if (memory !== undefined && pids !== undefined)
    return filesIn(
      `/memory${memory}`,
      ["memory.max_usage_in_bytes", "memory.oom_control", "memory.usage_in_bytes"],
      `/pids${pids}`,
      path("cpuacct") === undefined ? undefined : `/cpuacct${path("cpuacct")}/cpuacct.usage`
    )
  if (unified === undefined || unified === "/") return undefined
  const names = ["memory.peak", "memory.events", "memory.current"] as const
  return filesIn(unified, names, unified, `${unified}/cpu.stat`)
}

/** Returns the paths of the limits of a process, from its `/proc/PID/cgroup`. Pure. */
export const limitFiles = (cgroup: string) => {
  const path = (controller: string) => pathOf(cgroup, controller)
  const [memory, pids, cpu, unified] = [path("memory"), path("pids"), path("cpu"), path("") ?? ""]
  return memory !== undefined && pids !== undefined
    ? {
        memory: `/sys/fs/cgroup/memory${memory}/memory.limit_in_bytes`,
        pids: `/sys/fs/cgroup/pids${pids}/pids.max`,
        cpu: `/sys/fs/cgroup/cpu${cpu ?? ""}/cpu.cfs_quota_us`
      }
    : {
        memory: `/sys/fs/cgroup${unified}/memory.max`,
        pids: `/sys/fs/cgroup${unified}/pids.max`,
        cpu: `/sys/fs/cgroup${unified}/cpu.max`
      }
}

/** Returns the path of the control group of a controller; `""` is the unified hierarchy. */
const pathOf = (cgroup: string, controller: string): string | undefined =>
  cgroup
    .split("\n")
    .map((line) => /^\d+:([^:]*):(\/.*)$/u.exec(line))
    .find((match) => match !== null && match[1]!.split(",").includes(controller))?.[2]

type CgroupFiles = ReturnType<typeof filesIn>

const filesIn = (
  memory: string,
  [peak, events, current]: readonly [string, string, string],
  pids: string,
  processor: string | undefined
) => ({
  memoryPeak: `/sys/fs/cgroup${memory}/${peak}`,
  memoryEvents: `/sys/fs/cgroup${memory}/${events}`,
  memory: `/sys/fs/cgroup${memory}/${current}`,
  memoryParts: `/sys/fs/cgroup${memory}/memory.stat`,
  pidsEvents: `/sys/fs/cgroup${pids}/pids.events`,
  pidsPeak: `/sys/fs/cgroup${pids}/pids.peak`,
  pids: `/sys/fs/cgroup${pids}/pids.current`,
  processes: `/sys/fs/cgroup${pids}/cgroup.procs`,
  processor: processor === undefined ? undefined : `/sys/fs/cgroup${processor}`
})

/** Limits in force for a container: Infinity without one, absent if this host cannot read it. */
export interface KernelLimits {
  readonly memoryBytes?: number | undefined
  readonly processes?: number | undefined
  /** Microseconds of processor time in each period of 100 ms. */
  readonly cpuQuotaMicros?: number | undefined
}

const limitOf = (text: string | undefined): number | undefined =>
  text === undefined ? undefined : (count(text) ?? Infinity)

/** The first process of a container, as this host sees it. */
interface FirstProcess {
  /** Its `/proc/PID/status`. */
  readonly status: string
  /** Identities at paths of its file system, by path. Absent: access was denied. */
  readonly identities: ReadonlyMap<string, FileIdentity>
}

/** Returns a container's network namespace, such as `net:[4026532182]`. `undefined`: this host cannot read it. */
export const networkNamespace = (processId: number, containerId: string): string | undefined => {
  if (KernelFile.read(`/proc/${processId}/cgroup`)?.includes(containerId) !== true) return undefined
  try {
    return readlinkSync(`/proc/${processId}/ns/net`)
  } catch {
    return undefined
  }
}

/** Returns the number of this process's network namespace, as a posture has it. `undefined`: it cannot be read. */
export const ownNetworkNamespace = (): string | undefined => {
  try {
    return /\d+/u.exec(readlinkSync("/proc/self/ns/net"))?.[0]
  } catch {
    return undefined
  }
}

/** Returns the IDs of a container's processes. `undefined`: this host cannot read them. */
export const processes = (processId: number, containerId: string): ReadonlyArray<number> | undefined => {
  const cgroup = KernelFile.read(`/proc/${processId}/cgroup`)
  const files = cgroup?.includes(containerId) === true ? cgroupFiles(cgroup) : undefined
  const text = files === undefined ? undefined : KernelFile.read(files.processes)
  return text?.split("\n").filter(Boolean).map(Number)
}

/**
 * Looks at a process, and at paths of its file system. Opens no file of it. `undefined`: it does not belong to this
 * container on this host. That is asked last, so that everything else was seen of the same process.
 */
export const firstProcess = (
  processId: number,
  containerId: string,
  paths: ReadonlyArray<string>
): FirstProcess | undefined => {
  const status = KernelFile.read(`/proc/${processId}/status`)
  const identities = new Map(
    paths.flatMap((path) => {
      const identity = identityInside(processId, path)
      return identity === undefined ? [] : [[path, identity] as const]
    })
  )
  const isOurs = KernelFile.read(`/proc/${processId}/cgroup`)?.includes(containerId) === true
  return status === undefined || !isOurs ? undefined : { status, identities }
}

const identityInside = (processId: number, path: string): FileIdentity | undefined => {
  try {
    const found = lstatSync(`/proc/${processId}/root${path}`, { bigint: true })
    return MountIdentity.written(HostPath.identityOf(found))
  } catch {
    return undefined
  }
}

/** Looks at containers of this process, with one sampler for all of them. */
export const make = Effect.gen(function* () {
  const samples = yield* KernelSamples.make

  /** Opens the counters of a container. Returns `undefined` if its control groups are not accessible. */
  const open = Effect.fnUntraced(function* (processId: number, containerId: string) {
    const cgroup = KernelFile.read(`/proc/${processId}/cgroup`)
    if (cgroup?.includes(containerId) !== true) return undefined
    const files = cgroupFiles(cgroup)
    return files === undefined ? undefined : yield* watchOne(files, limitFiles(cgroup))
  })
  /** Reads the counters of a container again and again, until the scope closes. */
  const follow = ({ pauseMillisMax, sampleActive }: KernelWatch): Effect.Effect<void, never, Scope.Scope> =>
    samples.follow(sampleActive, pauseMillisMax)
  return { open, follow, bootId: KernelFile.bootId() }
})

const most = (before: number | undefined, now: number | undefined) =>
  now === undefined ? before : Math.max(before ?? 0, now)

const watchOne = Effect.fnUntraced(function* (files: CgroupFiles, limitsOf: ReturnType<typeof limitFiles>) {
  const memoryPeak = yield* opened(files.memoryPeak)
  const memoryEvents = yield* opened(files.memoryEvents)
  const pidsPeak = yield* opened(files.pidsPeak)
  const pids = yield* opened(files.pids)
  const pidsEvents = yield* opened(files.pidsEvents)
  const processor = yield* opened(files.processor)
  const memoryLimit = yield* opened(limitsOf.memory)
  const pidsLimit = yield* opened(limitsOf.pids)
  const cpuLimit = yield* opened(limitsOf.cpu)
  let oomKilled = false
  let processesRefused = false
  let memoryBytes: number | undefined
  let processes: number | undefined
  const sample = () => {
    const before = [memoryBytes, processes, oomKilled, processesRefused]
    memoryBytes = most(memoryBytes, count(memoryPeak()))
    processes = most(processes, count(pidsPeak()) ?? count(pids()))
    oomKilled ||= (oomKills(memoryEvents()) ?? 0) > 0
    processesRefused ||= (refusals(pidsEvents()) ?? 0) > 0
    return [memoryBytes, processes, oomKilled, processesRefused].some(
      (value, index) => value !== before[index]
    )
  }
  const processorMicros = () => processorMicrosIn(processor())
  sample()
  // In cgroup v2, a refused process triggers a file change immediately.
  yield* Effect.acquireRelease(
    Effect.sync(() => {
      try {
        const watcher = watch(files.pidsEvents, { persistent: false }, (event) => {
          // The file changes only if a process was refused. It may be removed before its count can be read.
          if (event === "change") processesRefused = true
        })
        watcher.on("error", () => watcher.close())
        return watcher
      } catch {
        return undefined
      }
    }),
    (watcher) => Effect.sync(() => watcher?.close())
  )
  const facts = (): KernelFacts => ({
    oomKilled,
    processesRefused,
    peak: {
      ...(memoryBytes === undefined ? {} : { memoryBytes }),
      ...(processes === undefined ? {} : { processes })
    }
  })
  const memoryUsed = () => {
    const used = count(KernelFile.read(files.memory))
    const parts = KernelFile.read(files.memoryParts)
    const field = (name: string) => numberIn(parts, new RegExp(`^${name}\\s+(\\d+)`, "mu"))
    const filePages = (name: string) => field(`total_${name}`) ?? field(name) ?? 0
    return used === undefined ? undefined : used - filePages("active_file") - filePages("inactive_file")
  }
  const isComplete = oomKills(memoryEvents()) !== undefined && refusals(pidsEvents()) !== undefined
  const limits = (): KernelLimits => ({
    memoryBytes: limitOf(memoryLimit()),
    processes: limitOf(pidsLimit()),
    cpuQuotaMicros: limitOf(cpuLimit())
  })
  const pauseMillisMax =
    count(pidsPeak()) === undefined ? KernelSamples.uncountedPauseMillisMax : KernelSamples.pauseMillisMax
  return {
    isComplete,
    sample,
    sampleActive: KernelSamples.whileActive(processorMicros, sample),
    processorMicros,
    pauseMillisMax,
    facts,
    limits,
    memoryBytes: memoryUsed
  } satisfies KernelWatch
})
