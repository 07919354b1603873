/**
 * The exports of each package, which its manifest must list both before and after packing.
 *
 * Names and shared modules are recorded in `exports/`, so that a change of the public surface is a line in a review.
 * After an intended change, `pnpm vitest run test/architecture/exports.test.ts -u` updates them and the manifests.
 */
import { assert, describe, it } from "@effect/vitest"
import { existsSync } from "node:fs"
import { join } from "node:path"
import { expect } from "vitest"
import * as PublicSurface from "./PublicSurface.ts"
import { none } from "./Rule.ts"
import * as SourceTree from "./SourceTree.ts"

/**
 * Largest number of exported names in all packages together, which a newcomer may have to read. A ratchet: it only
 * falls.
 *
 * A name is what a module of an index exports: a value, a class or a type. The indexes of `testing` count too. A schema
 * and the type of its name count once. Members of a class, and keys of an object, do not count. Neither do the names of
 * shared modules, which no index shows: `exports/shared.txt` records those modules.
 */
const namesMax = 550

/** Names that may be removed before the ratchet must follow. */
const namesSpareMax = 20

const withoutEnding = (module: string) => module.replace(/\.tsx?$/u, "")

const namespaceOf = (module: string) => withoutEnding(module).replace(/^.*\//u, "")

const namesOf = (name: SourceTree.Package): ReadonlyArray<string> =>
  PublicSurface.publicModules(name)
    .flatMap((module) =>
      SourceTree.exportedNames(`packages/${name}/src/${module}`).map((exported) =>
        exported.startsWith("type ")
          ? `${withoutEnding(module)}.${exported.slice(5)} (type)`
          : `${withoutEnding(module)}.${exported}`
      )
    )
    .toSorted()

/** Packages whose users import functions, not modules: no Effect code needs a namespace for each noun there. */
const flat = new Set([
  "packages/promise/src/index.ts",
  "packages/deepagents/src/index.ts",
  "packages/ai-sdk/src/index.ts",
  "packages/openai-agents/src/index.ts",
  "packages/mastra/src/index.ts"
])

/** Asserts that an index is only a sorted list of namespaces. */
const assertIndex = (path: string) => {
  const lines = SourceTree.read(path)
    .replace(/^\/\*\*[\s\S]*?\*\/\n/u, "")
    .trimEnd()
    .split("\n")
  const modules = SourceTree.imports(path).map(({ specifier }) => specifier)
  assert.deepStrictEqual(
    lines,
    modules
      .toSorted((a, b) => (namespaceOf(a) < namespaceOf(b) ? -1 : 1))
      .map((module) =>
        flat.has(path) ? `export * from "${module}"` : `export * as ${namespaceOf(module)} from "${module}"`
      ),
    `${path} must have one line per public module, sorted: export * as Noun from "./Noun.ts"`
  )
  none(
    modules.filter((module) => module.includes("/internal/")),
    `remove these internal modules from ${path}`
  )
}

for (const name of SourceTree.packages) {
  const folder = `packages/${name}`
  const manifest = SourceTree.readJson(`${folder}/package.json`)

  describe(`@cogni/sandbox-${name}`, () => {
    it("has indexes that contain only public modules, sorted", () => {
      for (const path of SourceTree.files(`${folder}/src/{,testing/}index.ts`)) assertIndex(path)
    })

    it.each(namesOf(name).length === 0 ? [] : [name])("%s exports the recorded names", async () => {
      await expect(`${namesOf(name).join("\n")}\n`).toMatchFileSnapshot(`exports/${name}.txt`)
    })

    it("is named after its folder, and lists the files to pack", () => {
      assert.strictEqual(manifest.name, `@cogni/sandbox-${name}`)
      assert.deepStrictEqual(manifest.files, [
        "dist",
        "!dist/.tsbuildinfo",
        "src",
        "README.md",
        ...(existsSync(join(SourceTree.root, folder, "server.json")) ? ["server.json"] : []),
        "CHANGELOG.md",
        "LICENSE"
      ])
      assert.strictEqual(manifest.license, "MIT")
      assert.strictEqual(manifest.author, SourceTree.readJson("package.json").author)
      assert.isAbove(manifest.keywords.length, 3)
      assert.strictEqual(manifest.type, "module")
      assert.isTrue(existsSync(join(SourceTree.root, folder, "README.md")), `${folder}/README.md is missing`)
    })

    it("exports its public and shared modules in its manifest, before and after packing", async () => {
      const { exports: _source, publishConfig, ...rest } = manifest
      const expected = Object.fromEntries(
        Object.keys(manifest).map((key) => {
          if (key === "exports") return [key, PublicSurface.exportsOf(name)]
          if (key !== "publishConfig") return [key, rest[key]]
          return [key, { ...publishConfig, exports: PublicSurface.publishedExportsOf(name) }]
        })
      )
      await expect(`${JSON.stringify(expected, undefined, 2)}\n`).toMatchFileSnapshot(
        `../../${folder}/package.json`
      )
    })

    it("has the programs of its manifest, before and after packing", () => {
      for (const [program, source] of Object.entries((manifest.bin ?? {}) as Record<string, string>)) {
        assert.strictEqual(
          manifest.publishConfig.bin?.[program],
          source.replace("./src/", "./dist/").replace(/\.ts$/u, ".js"),
          "publishConfig.bin must mirror bin"
        )
        assert.isTrue(
          existsSync(join(SourceTree.root, folder, source)),
          `${program} names ${source}, which does not exist`
        )
      }
    })
  })
}

describe("all packages", () => {
  it(`export at most ${namesMax} names to users`, () => {
    const count = SourceTree.packages.reduce((sum, name) => sum + namesOf(name).length, 0)
    assert.isAtMost(namesMax - count, namesSpareMax, `lower namesMax to ${count}: it only falls`)
    assert.isAtMost(
      count,
      namesMax,
      "close a module, or remove modules that only our packages share from the indexes"
    )
  })

  it("share only the recorded modules, which are not public API", async () => {
    const lines = SourceTree.packages.flatMap((name) =>
      PublicSurface.sharedModules(name).map(
        ({ by, module }) => `${name}/${withoutEnding(module)}: ${by.join(", ")}`
      )
    )
    await expect(`${lines.join("\n")}\n`).toMatchFileSnapshot("exports/shared.txt")
  })

  it("are imported by examples and pages only through public modules", () => {
    const isOpen = new Set(
      SourceTree.packages.flatMap((name) => [
        `@cogni/sandbox-${name}`,
        `@cogni/sandbox-${name}/testing`,
        `@cogni/sandbox-${name}/package.json`,
        ...PublicSurface.publicModules(name).map(
          (module) => `@cogni/sandbox-${name}/${withoutEnding(module)}`
        )
      ])
    )
    const offenders = SourceTree.files(
      "examples/**/*.ts",
      "docs/**/*.md",
      "README.md",
      "packages/*/README.md"
    )
      .filter((path) => !path.startsWith("docs/adr/"))
      .flatMap((path) =>
        [...SourceTree.read(path).matchAll(/from "(@cogni\/sandbox-[^"]+)"/gu)]
          .filter(([, specifier]) => !isOpen.has(specifier!))
          .map(([, specifier]) => `${path} → ${specifier}`)
      )
    none(offenders, "users need this module: add it to the index of its package")
  })
})
