/**
 * A worker of OpenClaw that is started before its run (preload.mjs): loads the modules of its script, waits for the
 * variables of the run, and becomes the script. Messages that arrive before wait for the script's listener.
 */
import { watchProcess } from "../cogni/preload-node.mjs"
import { collectGarbage } from "./preload-garbage.mjs"
import { functionOf, rehearseSchemas } from "./preload-rehearse.mjs"
import { syncBuiltinESMExports } from "node:module"
import { fileURLToPath } from "node:url"
import { workerData } from "node:worker_threads"

const { modules, port, schemas, script } = workerData
const end = watchProcess()
for (const url of modules) await import(url)
await rehearseSchemas(modules, schemas)
const names = end()

/**
 * Lets OpenClaw collect the garbage of this worker. It does that in each idle worker whose memory has grown by 32 MiB
 * since the last time: without this, after the first message of the run, which then waits for it.
 */
const beIdle = async () => {
  const schedule = await functionOf(modules, "worker-idle-gc-", "scheduleWorkerIdleGc")
  schedule()
  // It begins one turn later.
  await new Promise((resolve) => setImmediate(resolve))
}

await collectGarbage(beIdle)
port.postMessage(names)
port.once("message", async (variables) => {
  port.close()
  for (const name of Object.keys(process.env)) if (!Object.hasOwn(variables, name)) delete process.env[name]
  Object.assign(process.env, variables)
  syncBuiltinESMExports()
  process.argv[1] = fileURLToPath(script)
  await import(script)
})
