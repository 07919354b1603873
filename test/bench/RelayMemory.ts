/**
 * Measures the memory of a process and its descendants every 20 ms, in a separate process.
 *
 * The kernel's own peaks cannot be added up: two processes do not reach theirs at the same time.
 */
import { readdirSync, readFileSync } from "node:fs"

/** Maxima between two requests, in bytes. */
export interface Seen {
  /** Growth of the process itself since the beginning. */
  readonly ownGrowth: number
  /** Sum over all descendants at one time. */
  readonly children: number
  /** Part of `children` without pages of files: the kernel cannot reclaim it when memory is short. */
  readonly childrenAnonymous: number
}

/** The process to watch. Without one, the measurement stops and returns what it has seen. */
export interface Asked {
  readonly processId?: number
  readonly except?: ReadonlyArray<number>
}

const everyMillis = 20

const facts = (processId: number) => {
  try {
    const text = readFileSync(`/proc/${processId}/status`, "latin1")
    const kilobytes = (name: string) => Number(new RegExp(`^${name}:\\s*(\\d+)`, "mu").exec(text)?.[1] ?? 0)
    return {
      name: /^Name:\s*(.*)$/mu.exec(text)?.[1] ?? "",
      parent: kilobytes("PPid"),
      bytes: kilobytes("VmRSS") * 1024,
      anonymous: kilobytes("RssAnon") * 1024
    }
  } catch {
    return undefined
  }
}

const watch = ({ except, processId }: Required<Asked>) => {
  const self = facts(processId)!
  const parents = new Map<number, number>()
  let seen: Seen = { ownGrowth: 0, children: 0, childrenAnonymous: 0 }
  const others = new Set([...except, process.pid])
  const isDescendant = (id: number): boolean => {
    if (others.has(id)) return false
    const parent = parents.get(id)
    return parent === processId || (parent !== undefined && parent > 1 && isDescendant(parent))
  }
  const look = () => {
    const all = readdirSync("/proc").filter((name) => /^\d+$/u.test(name))
    for (const name of all)
      if (!parents.has(Number(name))) parents.set(Number(name), facts(Number(name))?.parent ?? 0)
    const children = all
      .map(Number)
      .filter(isDescendant)
      .map(facts)
      // Between fork and exec, a child has its parent's memory and name.
      .filter((child) => child !== undefined && child.name !== self.name && child.name !== "node")
    const sum = (of: "bytes" | "anonymous") => children.reduce((total, child) => total + child![of], 0)
    const grown = (facts(processId)?.bytes ?? 0) - self.bytes
    seen = {
      ownGrowth: Math.max(seen.ownGrowth, grown),
      children: Math.max(seen.children, sum("bytes")),
      childrenAnonymous: Math.max(seen.childrenAnonymous, sum("anonymous"))
    }
  }
  look()
  const timer = setInterval(look, everyMillis)
  return () => {
    look()
    clearInterval(timer)
    return seen
  }
}

let stop: (() => Seen) | undefined

process.on("message", ({ except = [], processId }: Asked) => {
  if (processId === undefined) {
    process.send?.(stop?.())
    return
  }
  stop = watch({ processId, except })
  process.send?.({})
})
process.once("disconnect", () => process.exit(0))
