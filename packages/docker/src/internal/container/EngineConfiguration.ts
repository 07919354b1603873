/**
 * Compares what the engine says about one container with what was asked for. Pure.
 *
 * The container of a waiting sandbox is compared twice. A configuration that was found equal is not compared in detail
 * again, if neither what was asked for nor the engine's answer has changed: that takes long, and a run waits for it.
 */
import { isDeepStrictEqual } from "node:util"
import type { Inspected } from "../../DockerApi.ts"
import type * as Hardening from "./Hardening.ts"
import { engineMismatches, mountMismatches } from "./PostureReport.ts"

export interface Compared {
  readonly inspected: Inspected | undefined
  /** How the configuration differs from what was asked for, a sentence each. */
  readonly mismatches: ReadonlyArray<string>
}

/** An answer of the engine has not changed if it is the same object (`KnownContainer.ts`). */
export const make = ({ isWaiting }: { readonly isWaiting: boolean }) => {
  let equal: readonly [asked: Hardening.HostConfig, inspected: Inspected] | undefined
  return {
    of: (inspected: Inspected | undefined, hostConfig: Hardening.HostConfig): Compared => {
      if (inspected === undefined)
        return { inspected, mismatches: ["the engine does not know the container"] }
      const isEqual = equal?.[1] === inspected && isDeepStrictEqual(equal[0], hostConfig)
      const mismatches = isEqual
        ? []
        : [
            ...engineMismatches(hostConfig, inspected.HostConfig),
            ...mountMismatches(hostConfig, inspected.Mounts ?? [])
          ]
      equal = isWaiting && mismatches.length === 0 ? [hostConfig, inspected] : undefined
      return { inspected, mismatches }
    }
  }
}
