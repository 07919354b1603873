/**
 * What the kernel says of a container on this host: its first process, its peaks, and what was refused to it.
 *
 * Reads the host's `/proc` and `/sys/fs/cgroup`, both versions of it. On a remote engine there is nothing to read, and
 * the facts are absent, never zero.
 */
import type { FileIdentity } from "@cogni/sandbox-core/Posture"
import type { Peak } from "@cogni/sandbox-core/RunResult"
import * as HostPath from "@cogni/sandbox-host-files/HostPath"
import * as KernelFile from "@cogni/sandbox-host-files/KernelFile"
import * as MountIdentity from "@cogni/sandbox-host-files/MountIdentity"
import { closeSync, lstatSync, openSync, readSync, watch } from "node:fs"
import { Effect, type Scope } from "effect"

/**
 * How long between two readings of a container's figures. Its control group is gone before its end is told, so what is
 * not read in the milliseconds before is never known.
 */
const sampleMillisMin = 5

/** A reading takes some forty microseconds: with more containers than this at once, each is read less often. */
const frequentlyReadMax = 4

export interface KernelFacts {
  readonly oomKilled: boolean
  readonly processesRefused: boolean
  readonly peak: Peak
}

export interface KernelWatch {
  /** Read once more now: between the last output and the removal of the control group is the last chance. */
  readonly sample: () => void
  readonly facts: () => KernelFacts
}

/** A file that is read again and again; opened once. */
const opened = (path: string): Effect.Effect<() => string | undefined, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.sync(() => {
      try {
        return openSync(path, "r")
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
        // The group is gone.
        return undefined
      }
    })
  )

const buffer = Buffer.alloc(4096)

const count = (text: string | undefined, key?: string): number | undefined => {
  const digits = key === undefined ? /^\s*(\d+)/u : new RegExp(`^${key}\\s+(\\d+)`, "mu")
  const value = digits.exec(text ?? "")?.[1]
  return value === undefined ? undefined : Number(value)
}

/** Where the figures of a process lie. Pure. */
export const cgroupFiles = (cgroup: string): CgroupFiles | undefined => {
  const path = (controller: string) =>
    cgroup
      .split("\n")
      .map((line) => /^\d+:([^:]*):(\/.*)$/u.exec(line))
      .find((match) => match !== null && match[1]!.split(",").includes(controller))?.[2]
  const [memory, pids, unified] = [path("memory"), path("pids"), path("")]
  if (memory !== undefined && pids !== undefined)
    return filesIn(`/memory${memory}`, ["memory.max_usage_in_bytes", "memory.oom_control"], `/pids${pids}`)
  if (unified === undefined || unified === "/") return undefined
  return filesIn(unified, ["memory.peak", "memory.events"], unified)
}

type CgroupFiles = ReturnType<typeof filesIn>

const filesIn = (memory: string, [peak, events]: readonly [string, string], pids: string) => ({
  memoryPeak: `/sys/fs/cgroup${memory}/${peak}`,
  memoryEvents: `/sys/fs/cgroup${memory}/${events}`,
  pidsEvents: `/sys/fs/cgroup${pids}/pids.events`,
  pidsPeak: `/sys/fs/cgroup${pids}/pids.peak`,
  pids: `/sys/fs/cgroup${pids}/pids.current`
})

/** `/proc/PID/status`, only when that process really is of this container on this host. */
export const processStatus = (processId: number, containerId: string): string | undefined =>
  KernelFile.read(`/proc/${processId}/cgroup`)?.includes(containerId) === true
    ? KernelFile.read(`/proc/${processId}/status`)
    : undefined

/**
 * What the host sees at a path of a container's file system; `undefined` where this process may not look, or where the
 * process is of no such container on this host. Nothing is opened there.
 */
export const identityInside = (
  processId: number,
  containerId: string,
  path: string
): FileIdentity | undefined => {
  if (KernelFile.read(`/proc/${processId}/cgroup`)?.includes(containerId) !== true) return undefined
  try {
    const found = lstatSync(`/proc/${processId}/root${path}`, { bigint: true })
    return MountIdentity.written(HostPath.identityOf(found))
  } catch {
    return undefined
  }
}

/** One for all containers of a process, so that watching many costs no more than watching a few. */
export const make = Effect.gen(function* () {
  const samplers = new Set<() => void>()
  let timer: NodeJS.Timeout | undefined
  const tick = () => {
    for (const sample of samplers) sample()
    timer = samplers.size === 0 ? undefined : schedule()
  }
  const schedule = () =>
    setTimeout(tick, sampleMillisMin * Math.max(1, samplers.size / frequentlyReadMax)).unref()
  yield* Effect.addFinalizer(() => Effect.sync(() => clearTimeout(timer)))

  /** Until the scope closes; `undefined` where the container's control groups cannot be seen. */
  const observe = Effect.fnUntraced(function* (processId: number, containerId: string) {
    const cgroup = KernelFile.read(`/proc/${processId}/cgroup`)
    if (cgroup?.includes(containerId) !== true) return undefined
    const files = cgroupFiles(cgroup)
    if (files === undefined) return undefined
    const seen = yield* watchOne(files)
    yield* Effect.acquireRelease(
      Effect.sync(() => {
        samplers.add(seen.sample)
        timer ??= schedule()
      }),
      () => Effect.sync(() => samplers.delete(seen.sample))
    )
    return seen
  })
  return { observe }
})

const most = (before: number | undefined, now: number | undefined) =>
  now === undefined ? before : Math.max(before ?? 0, now)

const watchOne = Effect.fnUntraced(function* (files: CgroupFiles) {
  const memoryPeak = yield* opened(files.memoryPeak)
  const memoryEvents = yield* opened(files.memoryEvents)
  const pidsPeak = yield* opened(files.pidsPeak)
  const pids = yield* opened(files.pids)
  const pidsEvents = yield* opened(files.pidsEvents)
  let oomKilled = false
  let processesRefused = false
  let memoryBytes: number | undefined
  let processes: number | undefined
  const sample = () => {
    memoryBytes = most(memoryBytes, count(memoryPeak()))
    processes = most(processes, count(pidsPeak()) ?? count(pids()))
    oomKilled ||= (count(memoryEvents(), "oom_kill") ?? 0) > 0
    processesRefused ||= (count(pidsEvents(), "max") ?? 0) > 0
  }
  sample()
  // The second version of control groups tells of a refused process at once.
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
  const facts = (): KernelFacts => ({
    oomKilled,
    processesRefused,
    peak: {
      ...(memoryBytes === undefined ? {} : { memoryBytes }),
      ...(processes === undefined ? {} : { processes })
    }
  })
  return { sample, facts } satisfies KernelWatch
})
