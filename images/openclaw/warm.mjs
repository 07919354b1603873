/**
 * Runs OpenClaw during the image build against a scripted model, which sends three answers: a call to read a file, a
 * call to run a command, and a final text.
 *
 *     node warm.mjs compile   so that Node compiles the modules that a run loads
 *     node warm.mjs record    writes loaded.json, the modules and workers that preload.mjs prepares
 *     node warm.mjs try       runs it as preload.mjs does, and fails if little was prepared
 */
import { execFileSync, spawn } from "node:child_process"
import { mkdirSync, openSync, readFileSync, readdirSync, rmSync, writeFileSync, writeSync } from "node:fs"
import { createServer } from "node:http"

const lib = "/usr/local/lib/openclaw"
const program = `${lib}/node_modules/openclaw/openclaw.mjs`
const place = "/tmp/warm"
const records = `${place}/records`
/** First request of the run without a preload. */
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

/** As the agent's definition configures a run (graph-provider/src/agents/OpenClaw.ts). */
const config = {
  models: {
    mode: "replace",
    providers: {
      cogni: {
        baseUrl: "http://localhost:8080/v1",
        api: "openai-completions",
        apiKey: "none",
        models: [{ id: "m", name: "m" }]
      }
    }
  },
  agents: {
    ownership: "explicit",
    defaults: {
      model: { primary: "cogni/m", fallbacks: [] },
      skipBootstrap: true,
      skills: [],
      sandbox: { mode: "off" },
      timeoutSeconds: 60,
      subagents: { runTimeoutSeconds: 50 }
    },
    entries: { main: { workspace: place } }
  },
  tools: {
    allow: ["read", "write", "edit", "apply_patch", "ls", "exec", "process"],
    elevated: { enabled: false },
    exec: { security: "full", ask: "off" },
    toolSearch: false
  },
  session: { maintenance: { mode: "warn" } },
  cron: { enabled: false },
  gateway: { controlUi: { enabled: false } },
  memory: { search: { enabled: false } },
  plugins: { enabled: false },
  update: { checkOnStart: false }
}

const argv = [
  "agent",
  "--local",
  "--agent",
  "main",
  "--session-id",
  "warm",
  "--message-file",
  `${place}/prompt.md`,
  "--json",
  "--timeout",
  "60"
]

const constants = {
  HOME: process.env.HOME,
  PATH: process.env.PATH,
  OPENCLAW_BUNDLED_SKILLS_DIR: "/var/empty",
  OPENCLAW_CONFIG_PATH: `${place}/openclaw.json`,
  OPENCLAW_DISABLE_BUNDLED_PLUGINS: "1",
  OPENCLAW_LOAD_SHELL_ENV: "0",
  OPENCLAW_NO_AUTO_UPDATE: "1",
  OPENCLAW_NO_RESPAWN: "1",
  OPENCLAW_STATE_DIR: `${place}/state`
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

const workersOf = (lines) => lines.filter(({ worker }) => worker?.startsWith("file:"))

const run = (env) =>
  ended(spawn("node", [program, ...argv], { cwd: place, env, stdio: ["ignore", "inherit", "inherit"] }))

const compile = async () => {
  const code = await run(constants)
  writeFileSync(plain, asked)
  return code
}

const record = async () => {
  let before
  onFirstCall = () => (before = workersOf(linesOf(recordOf(program))))
  const code = await run({ ...constants, ...recording })
  const name = recordOf(program)
  const scripts = new Set([`file://${program}`, `file://${lib}/node_modules/openclaw/dist/entry.js`])
  const workers = before.map(({ options, threadId, worker: script }) => ({
    script,
    options,
    modules: modulesOf(linesOf(name.replace(/-0\.jsonl$/, `-${threadId}.jsonl`)), new Set([script]))
  }))
  writeFileSync(`${lib}/loaded.json`, JSON.stringify({ main: modulesOf(linesOf(name), scripts), workers }))
  return code
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
  writeSync(line, `${JSON.stringify({ argv: ["openclaw", ...argv], env, cwd: place })}\n`)
  const code = await end
  const after = linesOf(name).slice(before.length)
  const urls = urlsOf(after)
  const started = workersOf(after)
  console.log(
    `preload.mjs: ${urlsOf(before).length} modules before the run, ${urls.length} after, ${started.length} workers`
  )
  if (started.length > 0 || urls.length > 100)
    throw new Error(`not prepared: ${JSON.stringify([started, urls])}`)
  if (asked !== readFileSync(plain, "utf8")) throw new Error(`it asks its model something else: ${asked}`)
  return code
}

rmSync(place, { recursive: true, force: true })
mkdirSync(records, { recursive: true })
writeFileSync(`${place}/openclaw.json`, JSON.stringify(config))
writeFileSync(`${place}/prompt.md`, "Warm up.")
await new Promise((resolve) => server.listen(8080, "127.0.0.1", resolve))
const code = await { compile, record, try: tryPreload }[process.argv[2]]()
server.close()
server.closeAllConnections()
if (code !== 0 || turn < says.length)
  throw new Error(`OpenClaw ended with ${code} after ${turn} calls of its model`)
