/**
 * Memory of an idle session: in its container, in this process, and in the engine.
 *
 * Read from the kernel of this machine, so the engine must be local, and its processes readable (root).
 */
import { execFile } from "node:child_process"
import { readdirSync, readFileSync } from "node:fs"
import { promisify } from "node:util"

/** In bytes. */
export interface Memory {
  /** All processes of the container, with a share of each page that they share with others. */
  readonly proportional: number
  /** Memory of the container's control group without a file behind it. */
  readonly anonymous: number
  /** Memory of the container's control group without the page cache. */
  readonly withoutCache: number
  /** Resident memory of the engine's process that stays with the container. */
  readonly shim: number
}

const read = (path: string): string => readFileSync(path, "latin1")

const kilobytes = (text: string, name: string): number =>
  Number(new RegExp(`^${name}:\\s+(\\d+) kB`, "mu").exec(text)?.[1] ?? Number.NaN) * 1024

const figure = (text: string, name: string): number | undefined => {
  const found = new RegExp(`^${name} (\\d+)$`, "mu").exec(text)?.[1]
  return found === undefined ? undefined : Number(found)
}

/** Returns the directory with the memory of a process's control group, in cgroup v1 and v2. */
const groupOf = (processId: number) => {
  const lines = read(`/proc/${processId}/cgroup`).trim().split("\n")
  const legacy = lines.find((line) => /^\d+:memory:/u.test(line))
  const path = (legacy ?? lines.find((line) => line.startsWith("0::")) ?? "").replace(/^\d+:[^:]*:/u, "")
  return legacy === undefined ? `/sys/fs/cgroup${path}` : `/sys/fs/cgroup/memory${path}`
}

const ofGroup = (path: string): Pick<Memory, "anonymous" | "withoutCache"> => {
  const stat = read(`${path}/memory.stat`)
  const legacy = figure(stat, "total_rss")
  if (legacy !== undefined) {
    const used = Number(read(`${path}/memory.usage_in_bytes`))
    return { anonymous: legacy, withoutCache: used - (figure(stat, "total_cache") ?? 0) }
  }
  const used = Number(read(`${path}/memory.current`))
  return { anonymous: figure(stat, "anon") ?? Number.NaN, withoutCache: used - (figure(stat, "file") ?? 0) }
}

/** Finds processes whose command line contains a word. */
const processesWith = (word: string): ReadonlyArray<number> =>
  readdirSync("/proc")
    .filter((name) => /^\d+$/u.test(name))
    .filter((id) => {
      try {
        return read(`/proc/${id}/cmdline`).includes(word)
      } catch {
        return false
      }
    })
    .map(Number)

/** Measures a running container. */
export const ofContainer = async (name: string): Promise<Memory> => {
  const format = "{{.Id}} {{.State.Pid}}"
  const { stdout } = await promisify(execFile)("docker", ["inspect", "--format", format, name])
  const [id, first] = stdout.trim().split(" ") as [string, string]
  const group = groupOf(Number(first))
  const inside = read(`${group}/cgroup.procs`).trim().split("\n").map(Number)
  const shim = processesWith(id).filter((one) => read(`/proc/${one}/comm`).startsWith("containerd-shim"))
  return {
    proportional: inside.reduce((sum, one) => sum + kilobytes(read(`/proc/${one}/smaps_rollup`), "Pss"), 0),
    ...ofGroup(group),
    shim: shim.reduce((sum, one) => sum + kilobytes(read(`/proc/${one}/status`), "VmRSS"), 0)
  }
}

/** Measures the resident memory of this process, after a garbage collection. */
export const ofThisProcess = (): number => {
  globalThis.gc?.()
  globalThis.gc?.()
  return process.memoryUsage.rss()
}
