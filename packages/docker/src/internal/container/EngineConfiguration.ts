/**
 * Compares what the engine says about one container with what was asked for. Pure.
 *
 * The container of a waiting sandbox is compared twice. A configuration that was found equal is not compared in detail
 * again, if neither text has changed: that takes longer than reading the answer of the engine, and a run waits for it.
 */
import type { Inspected } from "../../DockerApi.ts"
import type * as Hardening from "./Hardening.ts"
import { engineMismatches } from "./PostureReport.ts"

export interface Compared {
  readonly inspected: Inspected | undefined
  /** How the configuration differs from what was asked for, a sentence each. */
  readonly mismatches: ReadonlyArray<string>
}

/** Keeps the texts only while a container waits: they have 50 KB. */
export const make = ({ isWaiting }: { readonly isWaiting: boolean }) => {
  let equal: readonly [asked: string, used: string] | undefined
  return {
    of: (inspected: Inspected | undefined, hostConfig: Hardening.HostConfig): Compared => {
      if (inspected === undefined)
        return { inspected, mismatches: ["the engine does not know the container"] }
      const [asked, used] = [JSON.stringify(hostConfig), JSON.stringify(inspected.HostConfig)]
      const isEqual = equal?.[0] === asked && equal[1] === used
      const mismatches = isEqual ? [] : engineMismatches(hostConfig, inspected.HostConfig)
      equal = isWaiting && !isEqual && mismatches.length === 0 ? [asked, used] : undefined
      return { inspected, mismatches }
    }
  }
}
