/**
 * What each package shows, and that its manifest shows the same before and after it is packed.
 *
 * The names are kept in `exports/<package>.txt`, so that a change of the public surface is a line in a review.
 */
import { assert, describe, it } from "@effect/vitest"
import { existsSync } from "node:fs"
import { join } from "node:path"
import { expect } from "vitest"
import * as SourceTree from "./SourceTree.ts"

/** Folders of `src` that are not reached through the index: closed, or an entry point of their own. */
const folders = new Set(["internal", "testing"])

/** The program of a package is no part of its library. */
const programs = new Set(["bin.ts"])

const isPublic = (module: string) =>
  module !== "index.ts" && !programs.has(module) && !folders.has(module.split("/")[0]!)

const namespaceOf = (module: string) => module.slice(module.lastIndexOf("/") + 1).replace(/\.ts$/u, "")

const exportLine = (module: string) => `export * as ${namespaceOf(module)} from "./${module}"`

const byName = (a: string, b: string) => (namespaceOf(a) < namespaceOf(b) ? -1 : 1)

/** An index is nothing but its sorted list of namespaces. */
const assertIndex = (folder: string, modules: ReadonlyArray<string>) => {
  const path = `${folder}/index.ts`
  const code = SourceTree.read(path)
    .replace(/^\/\*\*[\s\S]*?\*\/\n/u, "")
    .trimEnd()
    .split("\n")
  assert.deepStrictEqual(
    code,
    [...modules].toSorted(byName).map(exportLine),
    `${path} has one line per public module, sorted: export * as Noun from "./Noun.ts"`
  )
}

for (const name of SourceTree.packages) {
  const folder = `packages/${name}`
  const manifest = SourceTree.readJson(`${folder}/package.json`)

  describe(`@cogni/sandbox-${name}`, () => {
    it.skipIf(SourceTree.isLibrary(name))("exports nothing: it is a program", () => {
      assert.deepStrictEqual(Object.keys(manifest.exports), ["./package.json"])
      assert.notInclude(SourceTree.modules(name), "index.ts")
    })

    it.runIf(SourceTree.isLibrary(name))("the index names every public module, and nothing else", () => {
      assertIndex(`${folder}/src`, SourceTree.modules(name).filter(isPublic))
    })

    it("so does the index of testing, where there is one", () => {
      const modules = SourceTree.modules(name).filter((module) => module.startsWith("testing/"))
      const others = modules
        .map((module) => module.slice("testing/".length))
        .filter((module) => module !== "index.ts")
      assert.strictEqual(modules.includes("testing/index.ts"), manifest.exports["./testing"] !== undefined)
      if (modules.includes("testing/index.ts")) assertIndex(`${folder}/src/testing`, others)
    })

    it.runIf(SourceTree.isLibrary(name))("its exported names are the ones on record", async () => {
      const names = SourceTree.modules(name)
        .filter((module) => isPublic(module) || /^testing\/(?!index\.ts$)/u.test(module))
        .flatMap((module) =>
          SourceTree.exportedNames(`${folder}/src/${module}`).map((exported) => {
            const where = module.replace(/\.ts$/u, "")
            return exported.startsWith("type ")
              ? `${where}.${exported.slice(5)} (type)`
              : `${where}.${exported}`
          })
        )
      // After a change that is meant: pnpm vitest run test/architecture/exports.test.ts -u
      await expect(`${names.toSorted().join("\n")}\n`).toMatchFileSnapshot(`exports/${name}.txt`)
    })

    it("is named after its folder, and lists what it packs", () => {
      assert.strictEqual(manifest.name, `@cogni/sandbox-${name}`)
      assert.deepStrictEqual(manifest.files, ["dist", "!dist/.tsbuildinfo", "src", "README.md", "LICENSE"])
      assert.strictEqual(manifest.license, "MIT")
      assert.strictEqual(manifest.type, "module")
      assert.isTrue(existsSync(join(SourceTree.root, folder, "README.md")), `${folder}/README.md is missing`)
    })

    it("exports the same before and after packing, and keeps internal modules closed", () => {
      const built = (source: string | null) => {
        if (source === null || source === "./package.json") return source
        const path = source.replace("./src/", "./dist/").replace(/\.ts$/u, "")
        return { types: `${path}.d.ts`, import: `${path}.js` }
      }
      const expected = Object.fromEntries(
        Object.entries(manifest.exports as Record<string, string | null>).map(([key, source]) => [
          key,
          built(source)
        ])
      )
      assert.deepStrictEqual(
        manifest.publishConfig.exports,
        expected,
        "publishConfig.exports mirrors exports"
      )
      if (SourceTree.isLibrary(name))
        assert.isNull(manifest.exports["./internal/*"], "internal modules stay closed")
      for (const target of Object.values(manifest.exports as Record<string, string | null>)) {
        if (target === null || target.includes("*")) continue
        assert.isTrue(
          existsSync(join(SourceTree.root, folder, target)),
          `${folder} exports ${target}, which is missing`
        )
      }
      for (const [program, source] of Object.entries((manifest.bin ?? {}) as Record<string, string>)) {
        assert.strictEqual(
          manifest.publishConfig.bin?.[program],
          source.replace("./src/", "./dist/").replace(/\.ts$/u, ".js"),
          "publishConfig.bin mirrors bin"
        )
        assert.isTrue(
          existsSync(join(SourceTree.root, folder, source)),
          `${program} is ${source}, which is missing`
        )
      }
    })
  })
}
