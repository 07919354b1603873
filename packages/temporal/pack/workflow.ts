/**
 * Writes the code of the workflow into the built package, as one text, so that a worker need not bundle it.
 *
 * Runs before the package is packed, after the compiler. The text contains parts of Temporal's SDK and of what they use.
 */
import { bundleWorkflowCode } from "@temporalio/worker"
import { globSync, readFileSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"
import * as WorkflowCode from "../src/internal/WorkflowCode.ts"

const pathOf = (relative: string) => fileURLToPath(new URL(`../${relative}`, import.meta.url))

const { code } = await bundleWorkflowCode({
  ...WorkflowCode.optionsOf(pathOf("dist/internal/SandboxAgentRun.js")),
  // No name of a module says where this checkout is.
  webpackConfigHook: (config) => ({
    ...config,
    mode: "production",
    optimization: { minimize: false, moduleIds: "deterministic" }
  })
})

const mapMark = "//# sourceMappingURL=data:application/json;charset=utf-8;base64,"
const at = code.lastIndexOf(mapMark)
if (at === -1) throw new Error("the bundle of the workflow has no map of its sources")
const map = JSON.parse(Buffer.from(code.slice(at + mapMark.length), "base64").toString("utf8")) as {
  readonly sources: ReadonlyArray<string>
}

/** The installed packages of which there is code in the text. */
const packages = [
  ...new Set(
    map.sources.flatMap(
      (source) => /(?<=^|\|)\/[^|]*\/node_modules\/(?:@[^/]+\/)?[^/]+(?=\/)/u.exec(source)?.[0] ?? []
    )
  )
].toSorted()

const licenseOf = (directory: string): string => {
  const manifest = JSON.parse(readFileSync(join(directory, "package.json"), "utf8")) as {
    readonly name: string
    readonly license: string
  }
  const [file] = globSync("{LICENSE,LICENCE,license}*", { cwd: directory })
  const text = file === undefined ? manifest.license : readFileSync(join(directory, file), "utf8").trim()
  return `${manifest.name}:\n\n${text.replaceAll("*/", "* /")}`
}

/** The SDK needs a map, but this one would name files of this machine. */
const emptyMap = { version: 3, file: "workflow-bundle.js", sources: [], names: [], mappings: "" }
const text = `${code.slice(0, at)}${mapMark}${Buffer.from(JSON.stringify(emptyMap)).toString("base64")}\n`
const here = dirname(pathOf("package.json"))
if (text.includes(here)) throw new Error(`the bundle of the workflow names ${here}`)

writeFileSync(
  pathOf("dist/internal/WorkflowText.js"),
  `/*!\nThe text contains code of these packages, under their licenses:\n\n${packages.map(licenseOf).join("\n\n")}\n*/\n` +
    `export const built = ${JSON.stringify({ sdkVersion: WorkflowCode.sdkVersion(), code: text })}\n`
)
