/**
 * Labels of the containers, volumes and networks of runs. Only this module spells out their names.
 *
 * They make it possible to recognize, attribute and remove everything that a killed host process left behind, without
 * touching the resources of a living owner.
 */
import type { RunId } from "./RunId.ts"

export const prefix = "dev.cogni.sandbox"

/** Label names. */
export const label = {
  /** The run that owns the resource. */
  run: `${prefix}.run`,
  /** Purpose of the resource: `agent`, `proxy`, `gateway`, `relay`, `socket`, or `network` (holds one ready). */
  role: `${prefix}.role`,
  /** The host process that owns the run, as {@link formatOwner} writes it. */
  owner: `${prefix}.owner`,
  /** When the resource was made, ISO 8601. */
  startedAt: `${prefix}.started-at`,
  /** Latest time at which its run can end, ISO 8601. */
  expiresAt: `${prefix}.expires-at`
} as const

/** Purpose of a resource. */
export type Role = "agent" | "proxy" | "gateway" | "relay" | "socket" | "network"

/**
 * A host process. Its boot ID and start time distinguish it from a later process with the same process ID.
 */
export interface Owner {
  readonly bootId: string
  readonly processId: number
  /** Kernel clock ticks after boot at which the process started (`/proc/PID/stat`, field 22); 0 if unknown. */
  readonly startTicks: number
}

/** Formats an owner as `bootId/processId/startTicks`. */
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
