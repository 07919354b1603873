/**
 * Loads the modules of pi in a sandbox that waits for a run, and becomes pi when its run comes. They are the modules
 * that the program imports, and the client of the model API that runs use.
 */
import { becomeProgram } from "../cogni/preload.mjs"
import { receiveRunLike, watchProcess } from "../cogni/preload-node.mjs"
import { readFileSync, readdirSync } from "node:fs"
import { syncBuiltinESMExports } from "node:module"

const bundle = "/usr/local/lib/pi/node_modules/@earendil-works/pi-coding-agent/dist/bundle"
const program = `${bundle}/cli.js`

const imported = [...readFileSync(`${bundle}/cli-runtime.js`, "utf8").matchAll(/"\.\/(chunks\/[^"]+)"/gu)]
const client = readdirSync(`${bundle}/chunks`).filter((name) => name.startsWith("openai-completions-"))
const modules = [...imported.map(([, name]) => name), ...client.map((name) => `chunks/${name}`)]
if (imported.length === 0 || client.length !== 1)
  throw new Error(`the bundle of pi has another form: ${modules}`)

// A warning would be the first output of the run.
const { emitWarning } = process
process.emitWarning = () => {}
process.argv = [process.execPath, program]
const end = watchProcess()
for (const name of modules) await import(`${bundle}/${name}`)
const run = receiveRunLike(end())
if (run.argv[0] !== "pi") becomeProgram(run)
process.emitWarning = emitWarning
process.argv = [process.execPath, program, ...run.argv.slice(1)]
// Also for modules that import `env` or `argv` by their names.
syncBuiltinESMExports()
await import(program)
