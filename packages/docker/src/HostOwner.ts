/**
 * The owner of a resource: identifies this host process, and checks whether another owner is alive.
 *
 * A process ID alone is not unique. It is unique together with the machine's boot ID, the PID namespace and the
 * process's start time as the kernel reports it.
 */
import { type Owner, parseOwner } from "@cogni/sandbox-core/ResourceLabels"
import * as KernelFile from "@cogni/sandbox-host-files/KernelFile"
import { readlinkSync } from "node:fs"
import { hostname, release } from "node:os"
import type { DockerAddress } from "./DockerSocket.ts"

/** Returns the start time of a process, or `undefined` if it does not exist or is a zombie. */
const startTicks = (processId: number): number | undefined => {
  const stat = KernelFile.read(`/proc/${processId}/stat`)
  // The name is in parentheses and can contain anything, so split after it. Field 3 is the state, 22 the start time.
  const fields = stat?.slice(stat.lastIndexOf(")") + 2).split(" ")
  const [state, ticks] = [fields?.[0], fields?.[19]]
  return ticks === undefined || state === "Z" || state === "X" ? undefined : Number(ticks)
}

const machine = (): string => {
  const boot = KernelFile.bootId()
  try {
    return `${boot}-${/\d+/u.exec(readlinkSync("/proc/self/ns/pid"))?.[0] ?? "0"}`
  } catch {
    return `${boot}-0`
  }
}

/**
 * Returns whether `/proc` shows the processes of this PID namespace. After `unshare --pid` without a new `/proc`, it
 * shows others under the same numbers.
 */
const procIsOurs = (): boolean => {
  try {
    return readlinkSync("/proc/self") === String(process.pid)
  } catch {
    return false
  }
}

/** Returns this process as an owner. */
export const self = (): Owner => ({
  bootId: machine(),
  processId: process.pid,
  startTicks: procIsOurs() ? (startTicks(process.pid) ?? 0) : 0
})

/** Returns whether the boot ID of an owner is the current one. */
export const isOfThisBoot = ({ bootId }: Owner): boolean => bootId.startsWith(`${KernelFile.bootId()}-`)

/** Returns the machine's host name, which stays the same across boots and processes. */
export const machineName = (): string => hostname()

/** Checks an owner. `unknown`: it is on another machine, from another boot or in another PID namespace. */
export const liveness = (owner: Owner): "alive" | "dead" | "unknown" => {
  if (owner.bootId !== machine() || owner.startTicks === 0 || !procIsOurs()) return "unknown"
  if (startTicks(owner.processId) === owner.startTicks) return "alive"
  // If /proc is mounted with hidepid, another user's living process looks like a dead one.
  return startTicks(1) === undefined ? "unknown" : "dead"
}

/** Seconds that a resource is kept after its run must have ended, if its owner cannot be checked (after a reboot). */
export const expiryGraceSeconds = 3600

/** Returns whether a resource with these labels is orphaned: its owner is dead, or unknown and the resource expired. */
export const isOrphaned = (owner: string | undefined, expiresAt: string | undefined, now: Date): boolean => {
  const parsed = owner === undefined ? undefined : parseOwner(owner)
  const seen = parsed === undefined ? "unknown" : liveness(parsed)
  if (seen !== "unknown") return seen === "dead"
  const expiry = Date.parse(expiresAt ?? "")
  return Number.isFinite(expiry) && expiry < now.getTime()
}

/**
 * Returns whether an engine can mount directories of this host, and sockets in them. It can if it is reached over a
 * unix socket and reports the same kernel and host name as this process. An engine in a virtual machine has a different
 * kernel. If this process runs in a container, it has a different host name.
 */
export const isSharedWith = (
  address: DockerAddress,
  engine: { readonly Name?: string | undefined; readonly KernelVersion?: string | undefined }
): boolean => address.type === "unix" && engine.Name === hostname() && engine.KernelVersion === release()
