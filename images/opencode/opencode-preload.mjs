/**
 * Loads opencode in a sandbox that waits for a run. Bun executes this file before the entry of opencode's executable,
 * because the variable BUN_INSPECT_PRELOAD names it. It loads the modules of a run, answers one prompt with them, and
 * removes what that left. When there is a run, opencode's own entry runs as always.
 *
 * It uses three exports of opencode. The build of the image fails if a version of opencode has not got them.
 */
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { isReadAtStart, receiveRun } from "./preload.mjs"
import { becomeProgram, openInput } from "./preload-bun.mjs"

const entry = Bun.main
const home = "/home/agent"
const places = ["/tmp", home, "/dev/shm"]

/** Variables that opencode or its engine reads when it is loaded, or may have kept since. */
const isKept = (name) =>
  name !== "BUN_INSPECT_PRELOAD" &&
  (isReadAtStart(name) || /^(?:HOME|TMPDIR|(?:MIMALLOC|OPENCODE|OTEL|XDG)_.*)$/iu.test(name))
const kept = Object.entries(process.env).filter(([name]) => isKept(name))

/** Returns the modules that one imports when it is loaded, and those that it imports later, by the name of an export. */
const importsOf = (path) => {
  const text = readFileSync(path, "utf8")
  const loaded = [...text.matchAll(/(?:from|import)"([^"]+\.js)"/gu)].map(([, module]) => module)
  const later = [...text.matchAll(/\{(\w+):[\w$]+\}=(?:await |yield\*[^;]{0,40})import\("([^"]+\.js)"\)/gu)]
  return { loaded, later: later.map(([, name, module]) => [name, module]) }
}

/** Loads all modules of opencode's entry but the entry itself, and returns the modules that a run loads later. */
const load = async () => {
  const later = new Map()
  const seen = new Set([entry])
  const next = [entry]
  for (const path of next) {
    const found = importsOf(path)
    for (const [name, module] of found.later) later.set(name, module)
    for (const module of found.loaded) {
      if (!seen.has(module)) next.push(module)
      seen.add(module)
    }
  }
  for (const module of next.slice(1)) await import(module)
  return async (name) => {
    if (!later.has(name)) throw new Error(`this version of opencode has no module with ${name}`)
    return (await import(later.get(name)))[name]
  }
}

const model = { providerID: "none", modelID: "none" }

const configuration = {
  enabled_providers: [model.providerID],
  provider: {
    [model.providerID]: {
      npm: "@ai-sdk/openai-compatible",
      options: { baseURL: "http://localhost/", apiKey: "none" },
      models: { [model.modelID]: {} }
    }
  },
  autoupdate: false,
  formatter: false,
  lsp: false,
  share: "disabled",
  snapshot: false
}

const answer = () => {
  const choices = [{ delta: { role: "assistant", content: "." } }, { delta: {}, finish_reason: "stop" }]
  const chunks = choices.map((choice) => ({
    id: "none",
    object: "chat.completion.chunk",
    created: 0,
    model: "none",
    choices: [{ index: 0, ...choice }],
    usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 }
  }))
  const lines = [...chunks.map((chunk) => JSON.stringify(chunk)), "[DONE]"].map((data) => `data: ${data}\n\n`)
  return new Response(lines.join(""), { headers: { "content-type": "text/event-stream" } })
}

/** Answers one prompt in a directory of its own, with a model in this process. */
const use = async (directory, moduleOf) => {
  const runtime = await moduleOf("AppRuntime")
  const { Service } = await moduleOf("InstanceStore")
  const server = await moduleOf("Server")
  const store = await runtime.runPromise(Service)
  const instance = await runtime.runPromise(store.load({ directory }))
  const call = async (method, path, body) => {
    const headers = { "x-opencode-directory": directory, "content-type": "application/json" }
    const request = new Request(`http://localhost${path}`, { method, headers, body: JSON.stringify(body) })
    const response = await server.Default().app.fetch(request)
    const text = await response.text()
    if (!response.ok) throw new Error(`opencode refused ${method} ${path}: ${text}`)
    return JSON.parse(text)
  }
  let asked = 0
  const { fetch } = globalThis
  globalThis.fetch = async () => {
    asked++
    return answer()
  }
  const { id } = await call("POST", "/session", { title: "none" })
  await call("POST", `/session/${id}/message`, { model, parts: [{ type: "text", text: "." }] })
  globalThis.fetch = fetch
  if (asked === 0) throw new Error("opencode did not call its model")
  await call("DELETE", `/session/${id}`)
  await runtime.runPromise(store.dispose(instance))
}

/** Removes all that was written, in places that were empty. Returns the directories that opencode makes when it is loaded. */
const clear = () => {
  const made = places.flatMap((place) =>
    readdirSync(place, { recursive: true, withFileTypes: true })
      .filter((found) => found.isDirectory())
      .map((found) => `${found.parentPath}/${found.name}`)
  )
  for (const place of places)
    for (const name of readdirSync(place)) rmSync(`${place}/${name}`, { recursive: true })
  return made
}

for (const place of places)
  if (readdirSync(place).length > 0) throw new Error(`${place} is not empty: this is no sandbox that waits`)
const moduleOf = await load()
const directory = "/tmp/none"
const packages = `${home}/.config/opencode`
mkdirSync(directory)
writeFileSync(`${directory}/opencode.json`, JSON.stringify(configuration))
// opencode installs its package for plugins here, unless a lock file says that it has.
mkdirSync(`${packages}/node_modules`, { recursive: true })
writeFileSync(
  `${packages}/package-lock.json`,
  JSON.stringify({ packages: { "": { dependencies: { "@opencode-ai/plugin": "*" } } } })
)
await use(directory, moduleOf)
rmSync(directory, { recursive: true })
rmSync(packages, { recursive: true })
mkdirSync(packages)
const made = clear()
Bun.gc(true)

const run = receiveRun(openInput)
const isLoaded =
  run.argv[0] === "opencode" &&
  kept.every(([name, value]) => run.env[name] === value) &&
  Object.keys(run.env).filter(isKept).length === kept.length
if (!isLoaded) becomeProgram(run)
for (const path of made) mkdirSync(path, { recursive: true })
process.argv = ["bun", entry, ...run.argv.slice(1)]
