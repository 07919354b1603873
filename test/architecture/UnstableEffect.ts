/**
 * Finds what built code uses of Effect that a minor version may change.
 *
 * Effect marks each module and each export with `@stability` in its declarations. Whatever is not marked stable counts
 * as unstable, and so does a folder's index, which loads all modules of the folder.
 */
import { existsSync, readFileSync } from "node:fs"
import { join } from "node:path"

const comment = String.raw`/\*\*((?:(?!\*/)[\s\S])*)\*/`

const stabilityOf = (documentation: string): string | undefined =>
  /@stability (\w+)/u.exec(documentation)?.[1]

interface Module {
  readonly isStable: boolean
  /** Unstable exports of a stable module. */
  readonly unstable: ReadonlySet<string>
}

const moduleOf = (declarations: string): Module => {
  const [, head = ""] = new RegExp(comment, "u").exec(declarations) ?? []
  const documented = new RegExp(
    String.raw`${comment}\s*export (?:declare )?(?:const|function|interface|class|type|namespace) (\w+)`,
    "gu"
  )
  const unstable = [...declarations.matchAll(documented)].flatMap(([, documentation = "", name = ""]) =>
    (stabilityOf(documentation) ?? "stable") === "stable" ? [] : [name]
  )
  return { isStable: stabilityOf(head) === "stable", unstable: new Set(unstable) }
}

interface Imported {
  /** Module of Effect, such as `Schema` or `sql/SqlClient`. */
  readonly module: string
  /** Name in the code. `undefined`: the module was imported in a place of its own, such as `import("…")`. */
  readonly local?: string | undefined
  /** Names that the code takes from it directly. */
  readonly names?: ReadonlyArray<string>
}

const namesIn = (list: string): ReadonlyArray<readonly [name: string, local: string]> =>
  list
    .split(",")
    .map((one) => one.replace(/^\s*type\s/u, "").trim())
    .filter((one) => one !== "")
    .map((one) => {
      const [name = "", local = name] = one.split(/\s+as\s+/u)
      return [name, local] as const
    })

const importsOf = (code: string): ReadonlyArray<Imported> => {
  const found: Array<Imported> = []
  const statement =
    /\b(?:import|export)\s+(?:type\s+)?(?:\*\s*as\s+(\w+)|\{([^}]*)\})\s*from\s*"effect(?:\/([\w/-]+))?"/gu
  for (const [, local, list = "", module] of code.matchAll(statement)) {
    const names = namesIn(list)
    if (module === undefined) found.push(...names.map(([name, as]) => ({ module: name, local: as })))
    else found.push({ module, local, names: names.map(([name]) => name) })
  }
  const places = /\bimport\(\s*"effect\/([\w/-]+)"\s*\)(?:\.(\w+))?|\bimport\s*"effect\/([\w/-]+)"/gu
  for (const [, module, name, alone] of code.matchAll(places))
    found.push({ module: (module ?? alone)!, names: name === undefined ? [] : [name] })
  return found
}

/** Makes a function that lists what a file of JavaScript or declarations uses, for an installed Effect. */
export const usesIn = (effect: string): ((code: string) => ReadonlyArray<string>) => {
  const known = new Map<string, Module | undefined>()
  const read = (name: string): Module | undefined => {
    if (!known.has(name)) {
      const path = join(effect, "dist", `${name}.d.ts`)
      // A folder has an index, and the root of Effect exports some functions by their own names.
      const isFolder = existsSync(join(effect, "dist", name, "index.d.ts"))
      known.set(
        name,
        existsSync(path)
          ? moduleOf(readFileSync(path, "utf8"))
          : isFolder
            ? { isStable: false, unstable: new Set() }
            : undefined
      )
    }
    return known.get(name)
  }
  return (code) => [
    ...new Set(
      importsOf(code).flatMap(({ local, module, names = [] }) => {
        const found = read(module)
        if (found === undefined) return []
        if (!found.isStable) return [module]
        const members =
          local === undefined
            ? []
            : [...code.matchAll(new RegExp(String.raw`\b${local}\.(\w+)`, "gu"))].map(([, name]) => name!)
        return [...names, ...members]
          .filter((name) => found.unstable.has(name))
          .map((name) => `${module}.${name}`)
      })
    )
  ]
}
