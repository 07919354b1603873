#!/usr/local/bin/node
// cogni-tool: calls a host tool through the sandbox's socket. Exit codes: docs/reference/image-contracts.md.
import { readFileSync } from "node:fs"
import { request } from "node:http"
import { parseArgs } from "node:util"

const base = process.env.COGNI_TOOL_URL ?? "http://localhost:8080"
const exitCode = { ok: 0, failed: 1, usage: 2, denied: 3, unreachable: 4 }

const help = `Usage: cogni-tool COMMAND

  exec TOOL ['{"name": "value"}' | -]   call a tool; - reads the arguments from standard input
  list                                  list the tools that this sandbox may call
  schema TOOL                           print the arguments of a tool as JSON Schema

  --timeout SECONDS                     how long to wait for an answer (default 3700: a call may wait for an approval)

The result is JSON on standard output. Exit codes: 0 success, 1 the tool failed, 2 wrong usage, 3 not allowed, 4 no host.`

const stop = (code, message) => {
  console.error(`cogni-tool: ${message}`)
  process.exit(code)
}

// Unlike fetch, which gives up on an answer after five minutes.
const send = (path, { body, headers = {}, method = "GET" } = {}) =>
  new Promise((resolve, reject) => {
    const signal = AbortSignal.timeout(secondsMax * 1000)
    const outgoing = request(`${base}${path}`, { method, headers, signal }, (incoming) => {
      const pieces = []
      incoming.on("data", (piece) => pieces.push(piece))
      incoming.on("error", reject)
      incoming.on("end", () => {
        const status = incoming.statusCode ?? 0
        resolve({ status, ok: status >= 200 && status < 300, text: Buffer.concat(pieces).toString("utf8") })
      })
    })
    outgoing.on("error", reject)
    outgoing.end(body)
  })

const ask = async (path, init) => {
  let response
  try {
    response = await send(path, init)
  } catch (error) {
    if (error.name === "AbortError" || error.name === "TimeoutError")
      return stop(
        exitCode.failed,
        `timeout: no answer within ${secondsMax} s. The call may still wait or run: check before you repeat it`
      )
    if (error.code === "ECONNRESET")
      return stop(
        exitCode.failed,
        "unavailable: the host ended the connection. The call may have had its effect"
      )
    return stop(exitCode.unreachable, "no host answers: this sandbox has no model, and therefore no tools")
  }
  const { text } = response
  let answer
  try {
    answer = JSON.parse(text)
  } catch {
    return stop(exitCode.unreachable, `the host's answer is not JSON (HTTP ${response.status})`)
  }
  const { error } = answer
  if (error === undefined && response.ok) return answer
  return stop(
    error?.code === "policy_denied" ? exitCode.denied : exitCode.failed,
    `${error?.code ?? `HTTP ${response.status}`}: ${error?.message ?? text.slice(0, 200)}`
  )
}

const print = (value) => console.log(JSON.stringify(value))

const argumentsOf = (text) => {
  try {
    return JSON.parse(text === "-" ? readFileSync(0, "utf8") : (text ?? "{}"))
  } catch {
    return stop(exitCode.usage, 'the arguments are not JSON: write them as \'{"name": "value"}\'')
  }
}

const commands = {
  exec: async (tool, text, ...rest) => {
    if (tool === undefined || rest.length > 0)
      return stop(exitCode.usage, "exec requires a tool and accepts its arguments as one JSON object")
    const body = JSON.stringify({ tool, args: argumentsOf(text) })
    const headers = { "content-type": "application/json" }
    print((await ask("/tool/exec", { method: "POST", headers, body })).result)
  },
  list: async () => {
    for (const { description, effect, name } of (await ask("/tool/list")).tools)
      console.log(`${name}\t${effect}\t${description}`)
  },
  schema: async (tool) => {
    if (tool === undefined) return stop(exitCode.usage, "schema requires a tool")
    print((await ask(`/tool/schema?tool=${encodeURIComponent(tool)}`)).inputSchema)
  }
}

const parse = () => {
  try {
    return parseArgs({
      allowPositionals: true,
      options: { help: { type: "boolean", short: "h" }, timeout: { type: "string", default: "3700" } }
    })
  } catch (error) {
    return stop(exitCode.usage, error.message)
  }
}

const { positionals, values } = parse()
const [command, ...rest] = positionals
const secondsMax = Number(values.timeout)
if (!(secondsMax > 0 && secondsMax <= 86_400))
  stop(exitCode.usage, "--timeout requires seconds, from 1 to 86400")
if (values.help) console.log(help)
else if (command === undefined || !Object.hasOwn(commands, command)) {
  console.error(help)
  process.exit(exitCode.usage)
} else await commands[command](...rest)
