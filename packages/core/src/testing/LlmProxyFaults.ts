/** Faults of any `LlmProxy`: one that is never ready, that dies during the run, whose audit cannot be read. */
import * as Fault from "./Fault.ts"
import type { LlmProxyOperations } from "./Interceptor.ts"

export const { dieOnRelease, failNth, hang, layer, slow } = Fault.of<keyof LlmProxyOperations>()
