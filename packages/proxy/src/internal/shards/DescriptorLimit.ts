/**
 * Calculates how many connections all runs of this process may have open, so that the process itself never runs out of
 * file descriptors.
 */
import * as KernelFile from "@cogni/sandbox-host-files/KernelFile"

/** Assumed if the system does not report its limit: the smallest usual one. */
const descriptorsDefault = 1024

/** An agent's connection, its upstream connection, and the connection between a container's socket and the gateway. */
const descriptorsPerConnection = 3

/** Maximum that is of any use. */
const connectionsTotalMax = 65_536

/** Connections for a descriptor limit. The host process keeps a quarter of the descriptors, and at least 256. */
export const connectionsOf = (descriptorsMax: number): number =>
  Math.max(
    16,
    Math.min(
      connectionsTotalMax,
      Math.floor((descriptorsMax - Math.max(256, descriptorsMax / 4)) / descriptorsPerConnection)
    )
  )

/** Parses the soft limit from the text of `/proc/self/limits`. */
export const parse = (limits: string): number => {
  const soft = /^Max open files\s+(\d+|unlimited)\s/mu.exec(limits)?.[1]
  if (soft === undefined) return descriptorsDefault
  return soft === "unlimited" ? Number.MAX_SAFE_INTEGER : Number(soft)
}

/** Connections for the descriptor limit of this process. */
export const connectionsMax = (): number => connectionsOf(parse(KernelFile.read("/proc/self/limits") ?? ""))
