/**
 * A worker of OpenClaw that is started before its run (preload.mjs): loads the modules of its script, waits for the
 * variables of the run, and becomes the script. Messages that arrive before wait for the script's listener.
 */
import { watchProcess } from "../cogni/preload-node.mjs"
import { syncBuiltinESMExports } from "node:module"
import { fileURLToPath } from "node:url"
import { workerData } from "node:worker_threads"

const { modules, port, script } = workerData
const end = watchProcess()
for (const url of modules) await import(url)
port.postMessage(end())
port.once("message", async (variables) => {
  port.close()
  for (const name of Object.keys(process.env)) if (!Object.hasOwn(variables, name)) delete process.env[name]
  Object.assign(process.env, variables)
  syncBuiltinESMExports()
  process.argv[1] = fileURLToPath(script)
  await import(script)
})
