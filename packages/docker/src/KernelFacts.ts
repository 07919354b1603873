/**
 * What the kernel says of a container on this host: its first process, its peaks, and what was refused to it.
 *
 * Reads the host's `/proc` and `/sys/fs/cgroup`, both versions of it. On a remote engine there is nothing to read, and
 * the facts are absent, never zero.
 */
import type { Peak } from "@cogni/sandbox-core/RunResult"
import { readFileSync, watch } from "node:fs"
import { Effect, type Scope } from "effect"

/** How often the peaks are sampled while a container runs, besides at its end. */
const sampleMillis = 250

/** @category models */
export interface KernelFacts {
  readonly oomKilled: boolean
  readonly processesRefused: boolean
  readonly peak: Peak
}

/** @category models */
export interface KernelWatch {
  /** Read once more now: between the last output and the removal of the control group is the last chance. */
  readonly sample: () => void
  readonly facts: () => KernelFacts
}

const read = (path: string): string | undefined => {
  try {
    return readFileSync(path, "utf8")
  } catch {
    return undefined
  }
}

const count = (text: string | undefined, key?: string): number | undefined => {
  const digits = key === undefined ? /^\s*(\d+)/u : new RegExp(`^${key}\\s+(\\d+)`, "mu")
  const value = digits.exec(text ?? "")?.[1]
  return value === undefined ? undefined : Number(value)
}

/** Where the figures of a process lie. Pure. @category converting */
export const cgroupFiles = (
  cgroup: string
): { readonly memoryPeak: string; readonly memoryEvents: string; readonly pidsEvents: string; readonly pidsPeak: string; readonly pids: string } | undefined => {
  const path = (controller: string) =>
    cgroup
      .split("\n")
      .map((line) => /^\d+:([^:]*):(\/.*)$/u.exec(line))
      .find((match) => match !== null && match[1]!.split(",").includes(controller))?.[2]
  const [memory, pids, unified] = [path("memory"), path("pids"), path("")]
  if (memory !== undefined && pids !== undefined) {
    return {
      memoryPeak: `/sys/fs/cgroup/memory${memory}/memory.max_usage_in_bytes`,
      memoryEvents: `/sys/fs/cgroup/memory${memory}/memory.oom_control`,
      pidsEvents: `/sys/fs/cgroup/pids${pids}/pids.events`,
      pidsPeak: `/sys/fs/cgroup/pids${pids}/pids.peak`,
      pids: `/sys/fs/cgroup/pids${pids}/pids.current`
    }
  }
  if (unified === undefined || unified === "/") return undefined
  return {
    memoryPeak: `/sys/fs/cgroup${unified}/memory.peak`,
    memoryEvents: `/sys/fs/cgroup${unified}/memory.events`,
    pidsEvents: `/sys/fs/cgroup${unified}/pids.events`,
    pidsPeak: `/sys/fs/cgroup${unified}/pids.peak`,
    pids: `/sys/fs/cgroup${unified}/pids.current`
  }
}

/** `/proc/PID/status`, only when that process really is of this container on this host. @category constructors */
export const processStatus = (processId: number, containerId: string): string | undefined =>
  read(`/proc/${processId}/cgroup`)?.includes(containerId) === true ? read(`/proc/${processId}/status`) : undefined

/** `undefined` where the container's control groups cannot be seen. @category constructors */
export const observe = (
  processId: number,
  containerId: string
): Effect.Effect<KernelWatch | undefined, never, Scope.Scope> =>
  Effect.gen(function* () {
    const cgroup = read(`/proc/${processId}/cgroup`)
    if (cgroup?.includes(containerId) !== true) return undefined
    const files = cgroupFiles(cgroup)
    if (files === undefined) return undefined

    let oomKilled = false
    let processesRefused = false
    let memoryBytes: number | undefined
    let processes: number | undefined
    const most = (before: number | undefined, now: number | undefined) =>
      now === undefined ? before : Math.max(before ?? 0, now)
    const sample = () => {
      memoryBytes = most(memoryBytes, count(read(files.memoryPeak)))
      processes = most(processes, count(read(files.pidsPeak)) ?? count(read(files.pids)))
      oomKilled ||= (count(read(files.memoryEvents), "oom_kill") ?? 0) > 0
      processesRefused ||= (count(read(files.pidsEvents), "max") ?? 0) > 0
    }
    sample()
    yield* Effect.acquireRelease(
      Effect.sync(() => {
        const timer = setInterval(sample, sampleMillis)
        timer.unref()
        return timer
      }),
      (timer) => Effect.sync(() => clearInterval(timer))
    )
    // The kernel tells of a refused process at once, so that the end of a container cannot hide it.
    yield* Effect.acquireRelease(
      Effect.sync(() => {
        try {
          const watcher = watch(files.pidsEvents, { persistent: false }, (event) => {
            // It only ever changes when a process was refused; its count may be gone before it can be read.
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
    return {
      sample,
      facts: () => ({
        oomKilled,
        processesRefused,
        peak: {
          ...(memoryBytes === undefined ? {} : { memoryBytes }),
          ...(processes === undefined ? {} : { processes })
        }
      })
    }
  })
