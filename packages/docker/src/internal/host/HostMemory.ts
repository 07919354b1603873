/** Memory that is available on this host, as the kernel states it. */
import * as KernelFile from "@cogni/sandbox-host-files/KernelFile"
import { Effect } from "effect"

/** Returns the available memory that `/proc/meminfo` states, in bytes; `undefined` if it states none. Pure. */
export const parse = (meminfo: string | undefined): number | undefined => {
  const kibibytes = /^MemAvailable:\s+(\d{1,15}) kB$/mu.exec(meminfo ?? "")?.[1]
  return kibibytes === undefined ? undefined : Number(kibibytes) * 1024
}

export const availableBytes: Effect.Effect<number | undefined> = Effect.sync(() =>
  parse(KernelFile.read("/proc/meminfo"))
)
