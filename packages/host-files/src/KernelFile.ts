/** Files that the kernel makes up as they are read: `/proc` and `/sys`. */
import { readFileSync } from "node:fs"

/** The text of one; `undefined` where it is not there, or closed to this process. */
export const read = (path: string): string | undefined => {
  try {
    return readFileSync(path, "utf8")
  } catch {
    return undefined
  }
}

/** This boot of the kernel, by which it is told from every other; `unknown` where it does not say. */
export const bootId = (): string => read("/proc/sys/kernel/random/boot_id")?.trim() ?? "unknown"
