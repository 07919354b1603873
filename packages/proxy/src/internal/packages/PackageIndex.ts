/**
 * Remembers where the files of packages are, as their registries last said. Bounded: the longest unused packages are
 * forgotten. Without a clock of its own.
 */
import type { Registry } from "@cogni/sandbox-core/PackagePattern"
import type { Published, Rewritten } from "./Metadata.ts"

export interface PackageIndex {
  readonly find: (registry: Registry, name: string, file: string, nowMillis: number) => Published | undefined
  readonly put: (registry: Registry, name: string, files: Rewritten["files"], nowMillis: number) => void
}

interface Entry {
  readonly files: ReadonlyMap<string, Published>
  readonly untilMillis: number
}

/** Files of all packages together. One takes about 400 bytes. */
const filesMaxDefault = 100_000

/** How long an address is used. A registry may move its files. */
const freshMillis = 300_000

export const make = (filesMax = filesMaxDefault): PackageIndex => {
  const entries = new Map<string, Entry>()
  let filesTotal = 0
  const keyOf = (registry: Registry, name: string) => `${registry}:${name}`
  const forget = (key: string) => {
    filesTotal -= entries.get(key)?.files.size ?? 0
    entries.delete(key)
  }
  return {
    find: (registry, name, file, nowMillis) => {
      const key = keyOf(registry, name)
      const entry = entries.get(key)
      if (entry === undefined) return undefined
      if (entry.untilMillis <= nowMillis) {
        forget(key)
        return undefined
      }
      entries.delete(key)
      entries.set(key, entry)
      return entry.files.get(file)
    },
    put: (registry, name, files, nowMillis) => {
      const key = keyOf(registry, name)
      forget(key)
      entries.set(key, { files: new Map(files), untilMillis: nowMillis + freshMillis })
      filesTotal += files.length
      // The newest package stays, however many files it has.
      for (const oldest of entries.keys()) {
        if (filesTotal <= filesMax || oldest === key) break
        forget(oldest)
      }
    }
  }
}
