/**
 * Paths of values that were removed from a request body, for the audit. An agent can cause any number of them, so all
 * are counted and only the first are kept. Names are shortened and stripped of control characters to protect logs.
 */

export interface DroppedPaths {
  readonly add: (path: string) => void
  readonly kept: () => ReadonlyArray<string>
  readonly total: () => number
}

const keptMax = 100
const keyCharactersMax = 100
const pathCharactersMax = 300

export const make = (): DroppedPaths => {
  const kept: Array<string> = []
  let total = 0
  return {
    add: (path) => {
      total += 1
      if (kept.length < keptMax) kept.push(path)
    },
    kept: () => kept,
    total: () => total
  }
}

/** Returns the path of a member of the value at `path`. */
export const join = (path: string, key: PropertyKey): string => {
  if (path.length > pathCharactersMax) return path
  if (typeof key === "number") return `${path}[${key}]`
  const name = String(key)
    .slice(0, keyCharactersMax)
    .replace(/\p{Cc}/gu, "\ufffd")
    .toWellFormed()
  return path === "" ? name : `${path}.${name}`
}

/** Records the paths of values in `given` that are missing in `kept`. */
export const compare = (given: unknown, kept: unknown, path: string, dropped: DroppedPaths): void => {
  // A value that passes unchanged is identical.
  if (given === kept || typeof given !== "object" || given === null) return
  if (kept === undefined) return dropped.add(path)
  if (typeof kept !== "object" || kept === null) return
  if (Array.isArray(given)) {
    for (let index = 0; index < given.length; index++)
      compareMember(given[index], (kept as ReadonlyArray<unknown>)[index], path, index, dropped)
  } else {
    for (const key of Object.keys(given)) {
      const member = Object.hasOwn(kept, key) ? (kept as Readonly<Record<string, unknown>>)[key] : undefined
      compareMember((given as Readonly<Record<string, unknown>>)[key], member, path, key, dropped)
    }
  }
}

const compareMember = (
  given: unknown,
  kept: unknown,
  path: string,
  key: PropertyKey,
  dropped: DroppedPaths
): void => {
  if (given === kept) return
  if (kept === undefined) dropped.add(join(path, key))
  // Two strings that differ were changed, not removed.
  else if (typeof given === "object") compare(given, kept, join(path, key), dropped)
}
