/**
 * How many connections all runs of this process may have open, so that the process itself never runs out of file
 * descriptors.
 */
import * as KernelFile from "@cogni/sandbox-host-files/KernelFile"

/** Assumed where the system does not say: the smallest usual limit. */
const descriptorsDefault = 1024

/** Of an agent's connection: itself, the upstream's, and the one between a container's socket and the gateway. */
const descriptorsPerConnection = 3

/** More than this is of no use to anybody. */
const connectionsTotalMax = 65_536

/** A quarter of the descriptors, and at least 256, are left to the host process. */
export const connectionsOf = (descriptorsMax: number): number =>
  Math.max(
    16,
    Math.min(
      connectionsTotalMax,
      Math.floor((descriptorsMax - Math.max(256, descriptorsMax / 4)) / descriptorsPerConnection)
    )
  )

/** The soft limit in the words of `/proc/self/limits`. */
export const parse = (limits: string): number => {
  const soft = /^Max open files\s+(\d+|unlimited)\s/mu.exec(limits)?.[1]
  if (soft === undefined) return descriptorsDefault
  return soft === "unlimited" ? Number.MAX_SAFE_INTEGER : Number(soft)
}

/** Of this process. */
export const connectionsMax = (): number => connectionsOf(parse(KernelFile.read("/proc/self/limits") ?? ""))
