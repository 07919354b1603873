/**
 * Who owns a resource: this host process, and whether another one still lives.
 *
 * A process id alone is not an identity. With the boot of the machine, the process id namespace and the kernel's start
 * time of the process it is.
 */
import { type Owner, parseOwner } from "@cogni/sandbox-core/ResourceLabels"
import * as KernelFile from "@cogni/sandbox-host-files/KernelFile"
import { readlinkSync } from "node:fs"
import { hostname, release } from "node:os"
import type { DockerAddress } from "./DockerSocket.ts"

/** When a process started; `undefined` when there is none. One that is dead and not yet reaped by its parent is none. */
const startTicks = (processId: number): number | undefined => {
  const stat = KernelFile.read(`/proc/${processId}/stat`)
  // The name, in parentheses, may hold anything; fields count from behind it. Field 3 is the state, 22 the start time.
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

/** This process. */
export const self = (): Owner => ({
  bootId: machine(),
  processId: process.pid,
  startTicks: startTicks(process.pid) ?? 0
})

/** Whether an owner lives, or lived, under this boot of this kernel. */
export const isOfThisBoot = ({ bootId }: Owner): boolean => bootId.startsWith(`${KernelFile.bootId()}-`)

/** What this machine is called, whichever boot or process asks. */
export const machineName = (): string => hostname()

/** `unknown` is an owner that cannot be seen from here: another machine, boot or namespace. */
export const liveness = (owner: Owner): "alive" | "dead" | "unknown" => {
  if (owner.bootId !== machine() || owner.startTicks === 0) return "unknown"
  if (startTicks(owner.processId) === owner.startTicks) return "alive"
  // Where /proc is mounted with hidepid, somebody else's living process looks as a dead one does.
  return startTicks(1) === undefined ? "unknown" : "dead"
}

/** After its run must be over, what an owner has that cannot be seen (after a reboot, say) is kept this much longer. */
export const expiryGraceSeconds = 3600

/** Whether what carries these words is left over: its owner is dead, or unknown and long over. */
export const isLeftover = (owner: string | undefined, expiresAt: string | undefined, now: Date): boolean => {
  const parsed = owner === undefined ? undefined : parseOwner(owner)
  const seen = parsed === undefined ? "unknown" : liveness(parsed)
  if (seen !== "unknown") return seen === "dead"
  const expiry = Date.parse(expiresAt ?? "")
  return Number.isFinite(expiry) && expiry < now.getTime()
}

/**
 * Whether an engine mounts directories of this host, and sockets in them: it is spoken to over a socket, and runs under
 * the same kernel and name. One in a virtual machine has a kernel of its own; this process in a container, a name of
 * its own.
 */
export const isSharedWith = (
  address: DockerAddress,
  engine: { readonly Name?: string | undefined; readonly KernelVersion?: string | undefined }
): boolean => address.type === "unix" && engine.Name === hostname() && engine.KernelVersion === release()
