/**
 * The entries of a run's directory that are kept, and whether a run is over.
 */
import { type RunRecord } from "@cogni/sandbox-core/RunRecord"
import * as StateDirectory from "@cogni/sandbox-host-files/StateDirectory"
import * as HostOwner from "./HostOwner.ts"

/** Names in a run's directory that stay after the run. All others belong to the living run. */
export const keptEntries: ReadonlyArray<string> = Object.values(StateDirectory.runEntries)

/** Returns whether the owner of a run is dead, or is unknown and the run has expired. */
export const isOver = ({ owner, spec, startedAt }: RunRecord): boolean => {
  const secondsMax = spec.limits.runtimeSecondsMax + HostOwner.expiryGraceSeconds
  const expiresAt = new Date(Date.parse(startedAt) + secondsMax * 1000)
  return HostOwner.isOrphaned(owner, expiresAt.toISOString(), new Date())
}
