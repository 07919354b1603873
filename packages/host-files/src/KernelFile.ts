/** Files that the kernel generates when they are read: `/proc` and `/sys`. */
import { readFileSync } from "node:fs"

/** Reads such a file; `undefined` if it does not exist, or if this process cannot read it. */
export const read = (path: string): string | undefined => {
  try {
    return readFileSync(path, "utf8")
  } catch {
    return undefined
  }
}

/** Returns the boot ID of the kernel, or `unknown` if it is not available. */
export const bootId = (): string => read("/proc/sys/kernel/random/boot_id")?.trim() ?? "unknown"
