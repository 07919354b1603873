/** Faults of any `Workspace`: a directory that cannot be had, or not be measured. */
import * as Fault from "./Fault.ts"
import type { WorkspaceOperations } from "./Interceptor.ts"

export const { dieOnRelease, failNth, hang, layer, slow } = Fault.of<keyof WorkspaceOperations>()
