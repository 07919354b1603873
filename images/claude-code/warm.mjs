/**
 * Runs Claude Code during the image build against a scripted model, which asks it to read a file and to run a command,
 * and then ends.
 *
 *     node warm.mjs record   writes loaded.json, the modules that preload.mjs loads
 *     node warm.mjs try      runs it as preload.mjs does, and fails if it does not become Claude Code or asks otherwise
 *     node warm.mjs other    the same with a variable that modules have read, and fails if the loaded code is used
 */
import { spawn, spawnSync } from "node:child_process"
import {
  closeSync,
  openSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync
} from "node:fs"
import { createServer } from "node:http"

const lib = "/usr/local/lib/claude-code"
const place = "/tmp/warm"
const prompt = `${place}.md`
/** First request of the run without a preload. */
const plain = `${place}-asked`
const cwd = "/workspace"
const { gid, uid } = statSync(cwd)

/** All that a run gets of the agent's definition. graph-provider/test/ClaudeCode.test.ts compares it with that. */
const definition = JSON.parse(readFileSync("/tmp/warm.json", "utf8"))

/** The program, which gets its standard input from elsewhere here. */
const [, , ...argv] = definition.argv
const { BUN_OPTIONS, ...constants } = Object.fromEntries(
  definition.preload.flatMap((word) => {
    const [, name, value] = /^(\w+)=(.*)$/u.exec(word) ?? []
    return name === undefined ? [] : [[name, value]]
  })
)

const container = { HOME: "/home/agent", PATH: "/usr/local/bin:/usr/bin:/bin", LANG: "C.UTF-8" }
const env = { ...container, ...constants, ...definition.variables, ANTHROPIC_API_KEY: "none" }

const says = [
  { type: "tool_use", id: "toolu_read", name: "Read", input: { file_path: prompt } },
  {
    type: "tool_use",
    id: "toolu_run",
    name: "Bash",
    input: { command: "env", description: "Lists variables" }
  },
  { type: "text", text: "Warm." }
]

/** Returns the events of one answer with one block. */
const answer = (block) => {
  const { input, text, ...rest } = block
  const isText = block.type === "text"
  const delta = isText
    ? { type: "text_delta", text }
    : { type: "input_json_delta", partial_json: JSON.stringify(input) }
  const usage = { input_tokens: 1, output_tokens: 1 }
  const message = { id: "msg_1", type: "message", role: "assistant", model: "m", content: [], usage }
  const events = [
    { type: "message_start", message },
    {
      type: "content_block_start",
      index: 0,
      content_block: isText ? { ...rest, text: "" } : { ...rest, input: {} }
    },
    { type: "content_block_delta", index: 0, delta },
    { type: "content_block_stop", index: 0 },
    { type: "message_delta", delta: { stop_reason: isText ? "end_turn" : "tool_use" }, usage },
    { type: "message_stop" }
  ]
  return events.map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`).join("")
}

const requests = []
let onFirst = () => {}
const server = createServer((request, response) => {
  const parts = []
  request
    .on("data", (part) => parts.push(part))
    .on("end", () => {
      if (requests.push(Buffer.concat(parts).toString()) === 1) onFirst()
      response.writeHead(200, { "content-type": "text/event-stream" })
      response.end(answer(says[Math.min(requests.length, says.length) - 1]))
    })
})

/** First request, without what differs between any two runs: IDs, hashes and the time. */
const asked = () =>
  (requests[0] ?? "")
    .replace(/[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32,64}|cch=\w+/gu, "")
    .replace(/\d\d:\d\d(?::\d\d)?/gu, "")

/** Removes all that a run leaves. */
const clear = () => {
  for (const directory of ["/home/agent", "/tmp", cwd])
    for (const name of readdirSync(directory))
      if (!/\.(?:mjs|md)$|^warm[-.]/u.test(name)) rmSync(`${directory}/${name}`, { recursive: true })
}

const ended = (child) => new Promise((resolve) => child.on("exit", resolve))

/** Starts `claude` with one line of standard input, or with the prompt. */
const start = (args, variables, input) => {
  const child = spawn("claude", args, {
    cwd,
    env: variables,
    gid,
    uid,
    stdio: [input, "pipe", "inherit", "pipe"]
  })
  let output = ""
  child.stdout.on("data", (data) => (output += data))
  return { child, end: ended(child).then((code) => ({ code, output })) }
}

const record = async () => {
  const file = `${place}-loaded.json`
  const variables = { ...env, BUN_OPTIONS: "--preload=/tmp/record.mjs", RECORD_FILE: file }
  const { end } = start(argv.slice(1), variables, openSync(prompt, "r"))
  const ending = await end
  writeFileSync(`${lib}/loaded.json`, readFileSync(file))
  writeFileSync(plain, asked())
  return ending
}

/** Loads it, and gives it a run. `command` is what the process shows as its command then. */
const load = async (variables, command) => {
  const file = `${place}-line`
  spawnSync("mkfifo", [file])
  const line = openSync(file, "r+")
  const { child, end } = start([], { ...container, ...constants, BUN_OPTIONS }, line)
  let said = ""
  for await (const text of child.stdio[3]) said += text
  if (said !== "ready\n") throw new Error(`preload.mjs is not ready: ${said}`)
  const left = ["/home/agent", cwd].flatMap((directory) => readdirSync(directory))
  // Bun keeps in .bun what it has compiled of a file of about 4 KiB or more, so preload.mjs must stay shorter.
  if (left.length > 0) throw new Error(`preload.mjs has left something: ${left.join(", ")}`)
  onFirst = () => {
    const shown = readFileSync(`/proc/${child.pid}/cmdline`, "utf8").replaceAll("\0", " ").trim()
    if (shown !== command) throw new Error(`the loaded process became: ${shown}`)
  }
  writeSync(
    line,
    `${JSON.stringify({ argv: ["/usr/local/bin/cogni-stdin", prompt, ...argv], env: variables, cwd })}\n`
  )
  closeSync(line)
  const ending = await end
  rmSync(file)
  if (asked() !== readFileSync(plain, "utf8")) throw new Error(`it asks its model something else: ${asked()}`)
  if (!JSON.stringify(requests).includes("ANTHROPIC_MODEL=m")) throw new Error("its command saw no variables")
  if (JSON.stringify(requests).includes("BUN_OPTIONS"))
    throw new Error("a command of it would wait for a run too")
  return ending
}

const modes = {
  record,
  try: () => load(env, "claude"),
  other: () => load({ ...env, TERM: "dumb" }, argv.join(" "))
}

writeFileSync(prompt, "Warm up.")
await new Promise((resolve) => server.listen(8080, "127.0.0.1", resolve))
clear()
const { code, output } = await modes[process.argv[2]]()
clear()
server.close()
server.closeAllConnections()
if (code !== 0 || requests.length < says.length)
  throw new Error(`Claude Code ended with ${code} after ${requests.length} calls of its model: ${output}`)
