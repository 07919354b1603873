/**
 * Runs OpenClaw during the image build against a scripted model, which sends three answers: a call to read a file, a
 * call to run a command, and a final text.
 *
 *     node warm.mjs compile   so that Node compiles the modules that a run loads
 *     node warm.mjs functions adds to what Node has compiled the functions that a run calls
 *     node warm.mjs record    writes loaded.json, the modules, workers and processes that preload.mjs prepares
 *     node warm.mjs try       runs it as preload.mjs does, and fails if little was prepared
 */
import { execFileSync, spawn } from "node:child_process"
import { mkdirSync, openSync, readFileSync, readdirSync, rmSync, writeFileSync, writeSync } from "node:fs"
import { createServer } from "node:http"
import { dirname } from "node:path"

const lib = "/usr/local/lib/openclaw"
const program = `${lib}/node_modules/openclaw/openclaw.mjs`
const place = "/tmp/warm"
const records = `${place}/records`
const state = `${place}/state`
/** First request of the run without a preload, and the files that it leaves. */
const plain = "/tmp/asked"

const call = (name, args) => ({
  index: 0,
  id: `call_${name}`,
  type: "function",
  function: { name, arguments: JSON.stringify(args) }
})

const says = [
  { tool_calls: [call("read", { path: "prompt.md" })] },
  { tool_calls: [call("exec", { command: "true" })] },
  { content: "Warm." }
]

let turn = 0
let onFirstCall = () => {}
/** First request of OpenClaw, without its time. */
let asked = ""
const server = createServer((request, response) => {
  const parts = []
  request
    .on("data", (part) => parts.push(part))
    .on("end", () => {
      if (turn === 0) {
        asked = Buffer.concat(parts)
          .toString()
          .replace(/\[\w+ [\d-]+ [\d:]+ UTC\]/gu, "")
        onFirstCall()
      }
      const delta = says[Math.min(turn++, says.length - 1)]
      const finish_reason = "content" in delta ? "stop" : "tool_calls"
      response.writeHead(200, { "content-type": "text/event-stream" })
      for (const choice of [{ delta }, { delta: {}, finish_reason }]) {
        const chunk = {
          id: "c",
          object: "chat.completion.chunk",
          created: 1,
          model: "m",
          choices: [{ index: 0, ...choice }]
        }
        response.write(`data: ${JSON.stringify(chunk)}\n\n`)
      }
      response.end("data: [DONE]\n\n")
    })
})

/** All that a run gets of the agent's definition. graph-provider/test/OpenClaw.test.ts compares it with that. */
const { argv, configuration, variables } = JSON.parse(
  readFileSync("/tmp/warm.json", "utf8").replaceAll("/cogni/", `${place}/`)
)

const constants = {
  HOME: process.env.HOME,
  PATH: process.env.PATH,
  ...variables,
  OPENCLAW_STATE_DIR: state
}

const recording = { NODE_OPTIONS: "--import=/tmp/record.mjs", RECORD_DIRECTORY: records }

const ended = (child) => new Promise((resolve) => child.on("exit", resolve))

const linesOf = (name) =>
  readFileSync(`${records}/${name}`, "utf8")
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line))

/** Returns the name of the record of the main thread of the program whose script is `path`. */
const recordOf = (path) =>
  readdirSync(records).find((name) => {
    const [{ isMain, script }] = linesOf(name)
    return isMain && script === path
  })

const urlsOf = (lines) => [...new Set(lines.flatMap(({ url }) => (url === undefined ? [] : [url])))]

/** Modules that `import` takes as they are, without the scripts that a run starts. */
const modulesOf = (lines, scripts) =>
  urlsOf(lines).filter((url) => !url.endsWith(".json") && !scripts.has(url))

/** Schemas that a thread has made in memory. */
const schemasOf = (lines) => [
  ...new Set(lines.flatMap(({ schema }) => (schema === undefined ? [] : [schema])))
]

const workersOf = (lines) => lines.filter(({ worker }) => worker?.startsWith("file:"))

const run = (env, ...options) =>
  ended(
    spawn("node", [...options, program, ...argv.slice(1)], {
      cwd: place,
      env,
      stdio: ["ignore", "inherit", "inherit"]
    })
  )

/** Returns the first request of OpenClaw, and the names of the files that it has left, without IDs. */
const traces = () => {
  const files = readdirSync(state, { recursive: true }).map((name) => name.replace(/[0-9a-f-]{10,}/gu, "ID"))
  return [asked, ...files.toSorted()].join("\n")
}

const compile = async () => {
  const code = await run(constants)
  writeFileSync(plain, traces())
  return code
}

/** The only directory below those that OpenClaw and Node make. */
const compiledIn = (directory) => {
  const [first] = readdirSync(directory, { withFileTypes: true })
  return first.isDirectory() ? compiledIn(`${directory}/${first.name}`) : directory
}

const functions = () =>
  run(
    { ...constants, NODE_DISABLE_COMPILE_CACHE: "1", COMPILED: compiledIn("/tmp/node-compile-cache") },
    "--no-warnings",
    "--expose-internals",
    "--import=/tmp/functions.mjs"
  )

/** Scripts of OpenClaw that processes have executed, each with the name of its record. */
const childrenOf = () =>
  readdirSync(records).flatMap((name) => {
    const [{ isMain, script }] = linesOf(name)
    return isMain && script.startsWith(`${dirname(program)}/dist/`) ? [{ script, name }] : []
  })

const record = async () => {
  let before
  let childrenBefore
  onFirstCall = () => {
    before = workersOf(linesOf(recordOf(program)))
    childrenBefore = childrenOf()
  }
  const code = await run({ ...constants, ...recording })
  const name = recordOf(program)
  const scripts = new Set([`file://${program}`, `file://${lib}/node_modules/openclaw/dist/entry.js`])
  const workers = before.map(({ options, threadId, worker: script }) => {
    const lines = linesOf(name.replace(/-0\.jsonl$/, `-${threadId}.jsonl`))
    return { script, options, modules: modulesOf(lines, new Set([script])), schemas: schemasOf(lines) }
  })
  const children = childrenBefore.map(({ name, script }) => ({
    script,
    modules: modulesOf(linesOf(name), new Set([`file://${script}`]))
  }))
  const lines = linesOf(name)
  const loaded = {
    main: modulesOf(lines, scripts),
    schemas: schemasOf(lines),
    configuration,
    workers,
    children
  }
  writeFileSync(`${lib}/loaded.json`, JSON.stringify(loaded))
  return code
}

/** How often all threads of a process have collected their garbage, and made a schema in memory. */
const countsOf = (pid) => {
  const lines = readdirSync(records)
    .filter((name) => name.startsWith(`${pid}-`))
    .flatMap(linesOf)
  return {
    collections: lines.filter(({ inspector }) => inspector === "HeapProfiler.collectGarbage").length,
    schemas: lines.filter(({ schema }) => schema !== undefined).length
  }
}

/** How many schemas all threads compare with, which preload.mjs must have made. */
const schemasMax = () => {
  const { schemas, workers } = JSON.parse(readFileSync(`${lib}/loaded.json`, "utf8"))
  return [schemas, ...workers.map((one) => one.schemas)].flat().length
}

const home = `${place}/home`
let own

/** Without its run, the program must be alone, and have left nothing. */
const requireUntouched = (pid) => {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8")
  const files = readdirSync("/tmp").filter((name) => !own.has(name))
  const found = [...files, ...readdirSync(home), ...children.split(" ").filter((one) => one !== "")]
  if (found.length > 0) throw new Error(`preload.mjs has left something: ${found.join(", ")}`)
}

const tryPreload = async () => {
  mkdirSync(home)
  own = new Set(readdirSync("/tmp"))
  const env = { ...constants, ...recording, HOME: home }
  const preload = `${lib}/preload.mjs`
  // A pipe of spawn is a socket, which does not wait.
  execFileSync("mkfifo", [`${place}/line`])
  const line = openSync(`${place}/line`, "r+")
  const child = spawn("node", [preload], { cwd: place, env, stdio: [line, "inherit", "inherit", "pipe"] })
  const end = ended(child)
  let said = ""
  for await (const text of child.stdio[3]) said += text
  if (said !== "ready\n") throw new Error(`preload.mjs is not ready: ${said}`)
  requireUntouched(child.pid)
  const name = recordOf(preload)
  const before = linesOf(name)
  const loaded = countsOf(child.pid)
  const children = childrenOf().length
  let called
  let executed
  onFirstCall = () => {
    called = countsOf(child.pid)
    executed = childrenOf().length - children
  }
  writeSync(line, `${JSON.stringify({ argv, env, cwd: place })}\n`)
  const code = await end
  const after = linesOf(name).slice(before.length)
  const urls = urlsOf(after)
  const started = workersOf(after)
  console.log(
    `preload.mjs: ${urlsOf(before).length} modules before the run, ${urls.length} after, ${started.length} workers`
  )
  if (started.length > 0 || urls.length > 100)
    throw new Error(`not prepared: ${JSON.stringify([started, urls])}`)
  if (executed > 0) throw new Error(`${executed} processes were not prepared`)
  const collected = called.collections - loaded.collections
  if (loaded.collections === 0 || collected !== 0)
    throw new Error(
      `garbage was collected ${loaded.collections} times before the run, and ${collected} after`
    )
  const made = called.schemas - loaded.schemas
  if (made >= schemasMax()) throw new Error(`${made} schemas were made in the run, of ${schemasMax()}`)
  console.log(`${made} of ${schemasMax()} schemas were made in the run`)
  const cold = readFileSync(plain, "utf8")
  if (traces() !== cold)
    throw new Error(
      `it asks its model something else, or leaves other files:\n${traces()}\ninstead of\n${cold}`
    )
  return code
}

rmSync(place, { recursive: true, force: true })
mkdirSync(records, { recursive: true })
writeFileSync(`${place}/openclaw.json`, JSON.stringify(configuration))
writeFileSync(`${place}/prompt.md`, "Warm up.")
await new Promise((resolve) => server.listen(8080, "127.0.0.1", resolve))
const code = await { compile, functions, record, try: tryPreload }[process.argv[2]]()
server.close()
server.closeAllConnections()
if (code !== 0 || turn < says.length)
  throw new Error(`OpenClaw ended with ${code} after ${turn} calls of its model`)
