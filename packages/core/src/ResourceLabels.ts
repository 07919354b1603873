/**
 * The only place that spells a label.
 *
 * Every container, volume and network carries them, so that whatever a killed host process left behind can be
 * recognised, attributed and removed, and so that nothing of a living owner is ever touched.
 */
import type { RunId } from "./RunId.ts"

export const prefix = "dev.cogni.sandbox"

/** Label names. */
export const label = {
  /** The run that owns the resource. */
  run: `${prefix}.run`,
  /** What the resource is for: `agent`, `proxy`, `gateway`, `relay`, `socket`, `network`. */
  role: `${prefix}.role`,
  /** The host process that owns the run, as {@link formatOwner} writes it. */
  owner: `${prefix}.owner`,
  /** When the resource was made, ISO 8601. */
  startedAt: `${prefix}.started-at`,
  /** When its run must be over at the latest, ISO 8601. */
  expiresAt: `${prefix}.expires-at`
} as const

/** What a resource is for. */
export type Role = "agent" | "proxy" | "gateway" | "relay" | "socket" | "network"

/**
 * A host process, told apart from a later one that got the same process id by the time it started and by the boot
 * of the machine.
 */
export interface Owner {
  readonly bootId: string
  readonly processId: number
  /** Kernel clock ticks after boot at which the process started (`/proc/PID/stat`, field 22); 0 where unknown. */
  readonly startTicks: number
}

/** `bootId/processId/startTicks` */
export const formatOwner = (owner: Owner): string => `${owner.bootId}/${owner.processId}/${owner.startTicks}`

export const parseOwner = (text: string): Owner | undefined => {
  const match = /^([A-Za-z0-9-]{1,64})\/(\d{1,10})\/(\d{1,20})$/u.exec(text)
  if (match === null) return undefined
  return { bootId: match[1]!, processId: Number(match[2]), startTicks: Number(match[3]) }
}

export const make = (options: {
  readonly runId: RunId
  readonly role: Role
  readonly owner: Owner
  readonly startedAt: Date
  readonly expiresAt: Date
}): Record<string, string> => ({
  [label.run]: options.runId,
  [label.role]: options.role,
  [label.owner]: formatOwner(options.owner),
  [label.startedAt]: options.startedAt.toISOString(),
  [label.expiresAt]: options.expiresAt.toISOString()
})
