/** Every TypeScript sample of a page is a module that compiles against the packages as they are. */
import { assert, describe, it } from "@effect/vitest"
import { execFile } from "node:child_process"
import { mkdirSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { promisify } from "node:util"
import * as Pace from "../harness/Pace.ts"
import * as SourceTree from "./SourceTree.ts"

/** Inside the repository, where the packages can be resolved. Ignored by git. */
const directory = join(SourceTree.root, ".cogni/samples")

const compilerOptions = {
  composite: false,
  declarationMap: false,
  noEmit: true,
  rewriteRelativeImportExtensions: false,
  allowImportingTsExtensions: true,
  jsx: "react-jsx",
  lib: ["ES2024", "ESNext.Disposable", "DOM", "DOM.Iterable", "DOM.AsyncIterable"],
  // A sample ends where its reader goes on.
  noUnusedLocals: false,
  noUnusedParameters: false,
  plugins: []
}

interface Sample {
  readonly page: string
  readonly line: number
  readonly name: string
  readonly text: string
}

const samples = (): ReadonlyArray<Sample> =>
  SourceTree.pages().flatMap((page) => {
    const text = SourceTree.read(page)
    return [...text.matchAll(/^```(tsx?)\n([\s\S]*?)^```/gmu)].map(({ 1: kind, 2: body, index }) => {
      const line = text.slice(0, index).split("\n").length
      return { page, line, name: `${page.replaceAll(/[/.]/gu, "-")}-${line}.${kind}`, text: body! }
    })
  })

describe("samples", () => {
  it("each compiles", async () => {
    const all = samples().filter(({ text }) => /^import /mu.test(text))
    assert.isAbove(all.length, 10)
    rmSync(directory, { recursive: true, force: true })
    mkdirSync(directory, { recursive: true })
    for (const { name, text } of all) writeFileSync(join(directory, name), text)
    const extended = join(SourceTree.root, "tsconfig.base.json")
    writeFileSync(
      join(directory, "tsconfig.json"),
      JSON.stringify({ extends: extended, compilerOptions, include: ["*.ts", "*.tsx"] })
    )
    const compile = promisify(execFile)("pnpm", ["exec", "tsc", "--pretty", "false", "-p", directory], {
      cwd: SourceTree.root,
      timeout: Pace.hangMillis / 2
    })
    const output = await compile.then(
      () => "",
      // Without a diagnostic, the compiler did not run.
      (error: Error & { readonly stdout?: string }) => error.stdout || Promise.reject(error)
    )
    const where = all.reduce(
      (text, { line, name, page }) => text.replaceAll(name, `${page}:${line} +`),
      output
    )
    assert.strictEqual(where, "", "a sample that its reader cannot compile")
  })

  it("a fence names a known language, and stands at the beginning of a line", () => {
    const known = /^(?:|sh|ts|tsx|json|yaml|text|diff|dockerfile|mermaid)$/u
    const offenders = SourceTree.files(
      "*.md",
      "docs/**/*.md",
      "packages/*/README.md",
      "images/**/*.md"
    ).flatMap((page) =>
      [...SourceTree.read(page).matchAll(/^([ \t]*)(?:```|~~~)([^\n`]*)$/gmu)]
        .filter(([, indent, language]) => !known.test(language!) || (indent !== "" && language !== ""))
        .map(([fence]) => `${page}: ${fence}`)
    )
    assert.deepStrictEqual(offenders, [], "a sample in another form is not compiled")
  })

  it("a sample that is no module is an expression of one line", () => {
    const offenders = samples()
      .filter(({ text }) => !/^import /mu.test(text) && text.trim().split("\n").length > 1)
      .map(({ line, page }) => `${page}:${line}`)
    assert.deepStrictEqual(offenders, [], "add what it imports and defines")
  })
})
