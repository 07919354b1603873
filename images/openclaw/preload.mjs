/**
 * Loads OpenClaw in a sandbox that waits for a run, and becomes OpenClaw when its run comes. Which modules, and which
 * workers and child processes with which modules, a run of the image build has recorded (loaded.json). OpenClaw's files
 * are as published.
 *
 * Nothing of OpenClaw runs before there is a run, except that its modules are evaluated, that some functions without a
 * run are called (preload-rehearse.mjs), and that its garbage is collected.
 * A worker of OpenClaw does all of its work for messages, so one that is started before does the same as one that is
 * started in the run.
 */
import { becomeProgram } from "../cogni/preload.mjs"
import { watchProcess, receiveRunLike } from "../cogni/preload-node.mjs"
import { giveOutChild, startChild } from "./preload-execute.mjs"
import { collectGarbage } from "./preload-garbage.mjs"
import { loadNative, rehearseConfiguration, rehearseSchemas } from "./preload-rehearse.mjs"
import { mkdirSync, readFileSync, readdirSync, rmSync, symlinkSync } from "node:fs"
import { createRequire, enableCompileCache, syncBuiltinESMExports } from "node:module"
import { MessageChannel, Worker } from "node:worker_threads"

const lib = "/usr/local/lib/openclaw"
const root = `${lib}/node_modules/openclaw`
const cache = "/tmp/node-compile-cache"

/** Links the compile cache of the image to where OpenClaw expects it, as the program `openclaw` does. */
const linkCache = () => {
  const [version] = readdirSync(`${lib}/compiled/openclaw`)
  const [marker] = readdirSync(`${lib}/compiled/openclaw/${version}`)
  const directory = `${cache}/openclaw/${version}/${marker}`
  mkdirSync(directory, { recursive: true })
  for (const name of readdirSync(`${lib}/compiled/openclaw/${version}/${marker}`)) {
    const own = name.replace(/-\d+$/, `-${process.getuid()}`)
    symlinkSync(`${lib}/compiled/openclaw/${version}/${marker}/${name}`, `${directory}/${own}`)
  }
  return directory
}

/** Starts a worker that loads its modules, and waits for its run to start it. */
const prepare = async ({ script, options, modules, schemas }) => {
  const { port1: port, port2 } = new MessageChannel()
  const worker = new Worker(`${lib}/preload-worker.mjs`, {
    ...options,
    workerData: { script, modules, schemas, port: port2 },
    transferList: [port2]
  })
  const names = await new Promise((resolve, reject) => {
    port.once("message", resolve)
    worker.once("error", reject)
    worker.once("exit", (code) => reject(new Error(`the worker of ${script} ended with ${code}`)))
  })
  worker.removeAllListeners()
  worker.unref()
  port.unref()
  return { script, options, worker, port, names }
}

/** Whether a worker with `options` can stand for one with the others. It gets its variables from the run. */
const isLike = (options, { env: _env, ...asked }) => JSON.stringify(options) === JSON.stringify(asked)

/** Gives out each prepared worker once, in place of a new one of the same script with the same options. */
const giveOut = (prepared) => {
  const threads = createRequire(import.meta.url)("node:worker_threads")
  threads.Worker = new Proxy(Worker, {
    construct: (target, [script, options = {}], created) => {
      const at = prepared.findIndex((one) => one.script === String(script) && isLike(one.options, options))
      if (at === -1) return Reflect.construct(target, [script, options], created)
      const [{ port, worker }] = prepared.splice(at, 1)
      port.postMessage({ ...(options.env ?? process.env) })
      worker.ref()
      return worker
    }
  })
}

const { children, configuration, main, schemas, workers } = JSON.parse(
  readFileSync(`${lib}/loaded.json`, "utf8")
)
// A warning would be the first output of the run.
const { emitWarning } = process
process.emitWarning = () => {}
const directory = linkCache()
enableCompileCache(directory)
// OpenClaw passes the directory to its child process only if it has enabled the cache itself.
globalThis[Symbol.for("openclaw.nodeCompileCacheBase")] = { baseDirectory: directory }
let end = watchProcess()
const { detectCurrentSqliteCapabilities } = await import(`${root}/node-sqlite.mjs`)
// It looks at what this Node can do, and keeps nothing of its variables.
await detectCurrentSqliteCapabilities?.()
end()
// Two modules read the path of their program, and chalk reads the options of colors.
process.argv = [process.execPath, `${root}/dist/entry.js`]
end = watchProcess()
for (const url of main) await import(url)
await rehearseSchemas(main, schemas)
await rehearseConfiguration(main, configuration)
await loadNative(main)
const names = end()
const prepared = []
for (const one of workers) prepared.push(await prepare(one))
await collectGarbage()
const run = receiveRunLike([...names, ...prepared.flatMap((one) => one.names)], () =>
  rmSync(cache, { recursive: true })
)
// Such as a shell that first prepares a file of the run.
if (run.argv[0] !== "openclaw" || run.argv.some((one) => /^--(no-)?color/.test(one))) becomeProgram(run)
process.emitWarning = emitWarning
linkCache()
const processes = createRequire(import.meta.url)("node:child_process")
const started = children.map(({ script }) =>
  startChild(script, { ...process.env, NODE_COMPILE_CACHE: directory })
)
processes.execFile = giveOutChild(processes.execFile, started)
giveOut(prepared)
process.argv = [process.execPath, `${root}/dist/entry.js`, ...run.argv.slice(1)]
// Also for modules that import `env`, `argv` or `Worker` by their names.
syncBuiltinESMExports()
await import(`file://${process.argv[1]}`)
