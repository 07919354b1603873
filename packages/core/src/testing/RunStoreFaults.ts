/** Faults of any `RunStore`: an id that is taken, a disk on which no record can be written. */
import * as Fault from "./Fault.ts"
import type { RunStoreOperations } from "./Interceptor.ts"

export const { dieOnRelease, failNth, hang, layer, slow } = Fault.of<keyof RunStoreOperations>()
