/**
 * Directories of the host, and small volumes, that containers mount.
 */
import type { HeldIdentity, User } from "./Posture.ts"
import type { Role } from "./ResourceLabels.ts"
import type { RunId } from "./RunId.ts"

/** A host directory or an engine volume, mounted into a container. */
export interface Mount {
  readonly type: "directory" | "volume"
  readonly source: string
  readonly target: string
  readonly readOnly: boolean
  /** The directory that must be mounted; otherwise the agent does not start. */
  readonly held?: HeldIdentity | undefined
}

/** A small memory-backed volume that two containers of one run share. */
export interface VolumeSpec {
  readonly runId: RunId
  readonly role: Role
  readonly owner: User
  readonly bytesMax: number
  readonly filesMax: number
  /** The run's time limit. The volume's labels derive the latest end of the run from it. */
  readonly runtimeSecondsMax: number
  /** Distinguishes volumes of the same run and role. */
  readonly index?: number | undefined
}
