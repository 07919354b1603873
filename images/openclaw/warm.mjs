/**
 * Runs OpenClaw once during the image build, so that Node compiles the modules that a run loads. A scripted model sends
 * three answers: a call to read a file, a call to run a command, and a final text.
 */
import { spawn } from "node:child_process"
import { writeFileSync } from "node:fs"
import { createServer } from "node:http"

const says = [
  { tool_calls: [call("read", { path: "prompt.md" })] },
  { tool_calls: [call("exec", { command: "true" })] },
  { content: "Warm." }
]

function call(name, args) {
  return {
    index: 0,
    id: `call_${name}`,
    type: "function",
    function: { name, arguments: JSON.stringify(args) }
  }
}

let turn = 0
const server = createServer((request, response) => {
  request.resume().on("end", () => {
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
    defaults: { model: { primary: "cogni/m" }, workspace: "/tmp/warm", skipBootstrap: true, skills: [] }
  },
  plugins: { enabled: false }
}

server.listen(8080, "127.0.0.1", () => {
  writeFileSync("/tmp/warm/openclaw.json", JSON.stringify(config))
  writeFileSync("/tmp/warm/prompt.md", "Warm up.")
  const arguments_ = [
    "agent",
    "--local",
    "--agent",
    "main",
    "--session-id",
    "warm",
    "--message-file",
    "/tmp/warm/prompt.md",
    "--json"
  ]
  spawn(
    "node",
    ["/usr/local/lib/openclaw/node_modules/openclaw/openclaw.mjs", ...arguments_, "--timeout", "60"],
    {
      cwd: "/tmp/warm",
      env: {
        ...process.env,
        OPENCLAW_CONFIG_PATH: "/tmp/warm/openclaw.json",
        OPENCLAW_STATE_DIR: "/tmp/warm/state",
        OPENCLAW_LOAD_SHELL_ENV: "0",
        OPENCLAW_NO_AUTO_UPDATE: "1"
      },
      stdio: ["ignore", "inherit", "inherit"]
    }
  ).on("exit", (code) => {
    server.close()
    server.closeAllConnections()
    process.exitCode = code === 0 && turn >= says.length ? 0 : 1
  })
})
