/**
 * Writes the programs of the gateway's threads into the built package, each as one text without imports.
 *
 * Runs before the package is packed, after the compiler. A text contains the parts of Effect that its thread uses.
 */
import { readFileSync, writeFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { rolldown } from "rolldown"

const pathOf = (relative: string) => fileURLToPath(new URL(`../${relative}`, import.meta.url))

const textOf = async (entry: string): Promise<string> => {
  const bundle = await rolldown({
    input: pathOf(`src/internal/${entry}`),
    platform: "node",
    // Anything that a text cannot contain would fail only when the thread starts.
    onLog: (_level, log) => {
      throw new Error(`${entry}: ${log.message}`)
    }
  })
  const { output } = await bundle.generate({
    // A worker that is started from a text runs it as CommonJS.
    format: "cjs",
    codeSplitting: false,
    comments: false,
    minify: { compress: true, mangle: false, codegen: true }
  })
  await bundle.close()
  const [text, ...others] = output
  if (others.length > 0) throw new Error(`${entry} is more than one file`)
  return text.code
}

const texts = {
  shard: await textOf("shards/ShardWorker.ts"),
  inspection: await textOf("gateway/InspectionWorker.ts"),
  relay: await textOf("nginx/RelayWorker.ts")
}
const license = readFileSync(pathOf("node_modules/effect/LICENSE"), "utf8").replaceAll("*/", "* /")
writeFileSync(
  pathOf("dist/internal/ThreadText.js"),
  `/*!\nThe texts contain code of effect (https://effect.website), under this license:\n\n${license.trim()}\n*/\n` +
    `export const texts = ${JSON.stringify(texts)}\n`
)
