/**
 * Faults of any `ContainerRuntime`, in memory or a real engine's: a create that fails, a start that hangs, a slow stop.
 */
import * as Fault from "./Fault.ts"
import type { ContainerRuntimeOperations } from "./Interceptor.ts"

export const { dieOnRelease, failNth, hang, layer, slow } = Fault.of<keyof ContainerRuntimeOperations>()
