/**
 * The modules that each package exports: to users, and to our other packages.
 *
 * An index names the public modules: `src/index.ts`, and `src/testing/index.ts` for contract suites. Shared modules are
 * others that one of our packages imports. They can be imported, are in no index, and may change in any release. All
 * other modules are closed.
 */
import * as SourceTree from "./SourceTree.ts"

type Package = SourceTree.Package

const ours = /^@cogni\/sandbox-([a-z-]+)(?:\/(.+))?$/u

/** Modules that an index names, as paths below `src`; empty without an index. */
const named = (name: Package, folder: string): ReadonlyArray<string> =>
  SourceTree.modules(name).includes(`${folder}index.ts`)
    ? SourceTree.imports(`packages/${name}/src/${folder}index.ts`).map(
        ({ specifier }) => folder + specifier.slice("./".length)
      )
    : []

export const publicModules = (name: Package): ReadonlyArray<string> => [
  ...named(name, ""),
  ...named(name, "testing/")
]

const specifierOf = (name: Package, module: string) =>
  `@cogni/sandbox-${name}/${module.replace(/\.tsx?$/u, "")}`

/** The packages whose source imports each of our specifiers; read once. */
let known: ReadonlyMap<string, ReadonlySet<Package>> | undefined
const importers = (): ReadonlyMap<string, ReadonlySet<Package>> => (known ??= readImporters())

const readImporters = (): ReadonlyMap<string, ReadonlySet<Package>> => {
  const found = new Map<string, Set<Package>>()
  for (const importer of SourceTree.packages) {
    for (const module of SourceTree.modules(importer)) {
      for (const { specifier } of SourceTree.imports(`packages/${importer}/src/${module}`)) {
        if (!ours.test(specifier)) continue
        found.set(specifier, (found.get(specifier) ?? new Set()).add(importer))
      }
    }
  }
  return found
}

export interface Shared {
  readonly module: string
  /** The packages that import it. */
  readonly by: ReadonlyArray<Package>
}

export const sharedModules = (name: Package): ReadonlyArray<Shared> => {
  const found = importers()
  const isPublic = new Set(publicModules(name))
  return SourceTree.modules(name)
    .filter((module) => !isPublic.has(module) && !module.endsWith("index.ts"))
    .map((module) => ({
      module,
      by: SourceTree.packages.filter((other) => found.get(specifierOf(name, module))?.has(other))
    }))
    .filter(({ by }) => by.length > 0)
}

/** `exports` of the manifest in the workspace. */
export const exportsOf = (name: Package): Readonly<Record<string, string>> => {
  const indexes = SourceTree.modules(name).filter((module) => /^(?:testing\/)?index\.ts$/u.test(module))
  const modules = [...publicModules(name), ...sharedModules(name).map(({ module }) => module)].toSorted()
  const subpaths = modules.map((module) => [`./${module.replace(/\.tsx?$/u, "")}`, `./src/${module}`])
  return Object.fromEntries([
    ...indexes.map((module) => [
      `./${module.replace(/\/?index\.ts$/u, "")}`.replace(/\/$/u, ""),
      `./src/${module}`
    ]),
    ...subpaths,
    // A style sheet is published as it is written.
    ...SourceTree.files(`packages/${name}/src/*.css`).map((path) => {
      const sheet = path.slice(`packages/${name}/src/`.length)
      return [`./${sheet}`, `./src/${sheet}`]
    }),
    ["./package.json", "./package.json"]
  ])
}

/** `publishConfig.exports`: the same modules after the build. `default` serves `import` and `require`. */
export const publishedExportsOf = (name: Package): Readonly<Record<string, unknown>> =>
  Object.fromEntries(
    Object.entries(exportsOf(name)).map(([key, source]) => {
      const path = source.replace("./src/", "./dist/").replace(/\.tsx?$/u, "")
      return [
        key,
        /\.(?:css|json)$/u.test(source) ? source : { types: `${path}.d.ts`, default: `${path}.js` }
      ]
    })
  )
