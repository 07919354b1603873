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
  readonly bytes: number
  readonly untilMillis: number
}

/** Memory of all packages together. It is a part of the heap of a shard. */
const bytesMaxDefault = 48 * 1024 * 1024

/** Memory of one file, without its address. */
const fileBytes = 400

/** How long an address is used. A registry may move its files. */
const freshMillis = 300_000

export const make = (bytesMax = bytesMaxDefault): PackageIndex => {
  const entries = new Map<string, Entry>()
  let bytesTotal = 0
  const keyOf = (registry: Registry, name: string) => `${registry}:${name}`
  const forget = (key: string) => {
    bytesTotal -= entries.get(key)?.bytes ?? 0
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
      const bytes = files.reduce((sum, [, { url }]) => sum + fileBytes + url.length, 0)
      // A name can be a part of a page, which would then stay in memory as a whole.
      const own = files.map(([file, published]) => [Buffer.from(file).toString(), published] as const)
      entries.set(key, { files: new Map(own), bytes, untilMillis: nowMillis + freshMillis })
      bytesTotal += bytes
      // The newest package stays, however many files it has.
      for (const oldest of entries.keys()) {
        if (bytesTotal <= bytesMax || oldest === key) break
        forget(oldest)
      }
    }
  }
}
