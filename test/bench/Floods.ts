/**
 * Programs for the two sides of `./dev bench neighbours`, as text for `node -e` in a sandbox, and the attacker's
 * floods.
 *
 * They write HTTP by hand, because no client would send the requests of a flood.
 */

/** A flood of the gateway, over the socket of the attacker's run, until it is killed. */
export interface Flood {
  readonly name: string
  /** Statements that use the definitions in `common`. */
  readonly program: string
  /** Lifetime of the attacker, if the default is too short for the flood to do harm. */
  readonly seconds?: number
}

/** Model name that the scripted upstream understands: number of events, and milliseconds between them. */
export const slowModel = "stream-500-20"

const socketPath = "/llm-sock/llm.sock"

/** Shared by all floods: a connection that is opened again when it ends, and a request as bytes. */
const common = `
const net = require("node:net")
const open = (write, again = true) => {
  const socket = net.connect("${socketPath}")
  socket.on("error", () => undefined)
  socket.on("data", () => undefined)
  socket.on("connect", () => write(socket))
  socket.on("close", () => again && setTimeout(() => open(write), 1))
  return socket
}
const request = (body, path = "/v1/chat/completions") => Buffer.from(
  "POST " + path + " HTTP/1.1\\r\\nHost: x\\r\\nContent-Type: application/json\\r\\nContent-Length: " +
  Buffer.byteLength(body) + "\\r\\n\\r\\n" + body)
/** Writes without end, as fast as the other side reads. */
const pour = (bytes) => (socket) => {
  const more = () => { while (!socket.destroyed && socket.write(bytes)); socket.once("drain", more) }
  more()
}
const hi = '{"messages":[{"role":"user","content":"hi"}]'
`

/** Bodies just below the size that the reviewed gateway read on its event loop, each expensive in its own way. */
const heavyBodies = `
const size = 196606
const filled = (before, piece, after) =>
  before + piece.repeat(Math.floor((size - before.length - after.length) / piece.length)) + after
const tool = hi + ',"tools":[{"type":"function","function":{"name":"f","parameters":'
const bodies = [
  filled(tool + "[99999999999999999", ",1", "]}}]}"),
  filled('{"messages":[{"role":"user","content":""}', ',{"role":"user","content":""}', "]}"),
  filled('{"messages":[{"role":"user","content":"', "\\\\u0000\\\\ud800", '"}]}'),
  filled(hi + ',"x":[{}', ",{}", "]}"),
  filled(tool + '{"a":[[]', ",[]", "]}}}]}")
].map((body) => request(body))
`

export const floods: ReadonlyArray<Flood> = [
  {
    name: "health",
    program: `const all = Buffer.from("GET /health HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n".repeat(200))
for (let index = 0; index < 32; index++) open(pour(all))`
  },
  {
    name: "over the rate",
    program: `const all = Buffer.concat(Array.from({ length: 50 }, () => request(hi + "}")))
for (let index = 0; index < 32; index++) open(pour(all))`
  },
  {
    name: "malformed",
    program: `for (let index = 0; index < 32; index++) open((socket) => socket.end("\\0\\0 no HTTP\\r\\n\\r\\n"))`
  },
  {
    name: "heavy bodies",
    program: `${heavyBodies}
for (let index = 0; index < 64; index++) open(pour(bodies[index % bodies.length]))`
  },
  {
    name: "vast numbers",
    program: `${heavyBodies}
for (let index = 0; index < 64; index++) open(pour(bodies[0]))`
  },
  {
    name: "stalled bodies",
    seconds: 10,
    program: `const size = 32 * 1024 * 1024
const head = Buffer.from("POST /v1/chat/completions HTTP/1.1\\r\\nHost: x\\r\\nContent-Type: application/json\\r\\nContent-Length: " + size + "\\r\\n\\r\\n")
const body = Buffer.alloc(1024 * 1024, " ")
for (let index = 0; index < 16; index++) open((socket) => {
  socket.write(head)
  let left = size - 1
  const more = () => {
    while (left > 0 && !socket.destroyed) {
      const piece = left < body.length ? body.subarray(0, left) : body
      left -= piece.length
      if (!socket.write(piece)) { socket.once("drain", more); return }
    }
  }
  more()
})`
  },
  {
    name: "500 connections",
    program: `for (let index = 0; index < 500; index++) open((socket) => {
  socket.write("POST /v1/chat/completions HTTP/1.1\\r\\nHost: x\\r\\n")
  const timer = setInterval(() => socket.write("X-A: b\\r\\n"), 500)
  socket.once("close", () => clearInterval(timer))
})`
  },
  {
    name: "abandoned calls",
    program: `const call = request('{"model":"${slowModel}","stream":true,' + hi.slice(1) + "}")
const abandon = (socket) => { socket.write(call); setTimeout(() => socket.destroy(), 20) }
for (let index = 0; index < 32; index++) open(abandon)`
  }
]

/** Statements that print the number of processors that the kernel grants. */
const tellProcessors = `
const quota = (() => {
  const read = (path) => { try { return require("node:fs").readFileSync(path, "utf8").trim().split(" ").map(Number) } catch { return [] } }
  const [max, period] = read("/sys/fs/cgroup/cpu.max")
  if (max > 0) return max / period
  const [old] = read("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
  return old > 0 ? old / read("/sys/fs/cgroup/cpu/cpu.cfs_period_us")[0] : -1
})()
console.log("cpus " + quota)
`

/** Floods until it is killed. A separate process prints beats, which show how long the sandbox really lived. */
export const attacker = ({ program }: Flood): string => `${tellProcessors}
require("node:child_process").spawn("sh", ["-c", "while :; do date +'beat %s%3N'; sleep 0.1; done"], { stdio: ["ignore", "inherit", "ignore"] })
${common}
${program}`

/** Time between the starts of two calls, whether or not earlier calls are answered. */
export const callEveryMillis = 20

/** Calls its model at a steady pace, and prints the start, duration, status and number of each call. */
export const victim = (seconds: number): string => `${tellProcessors}
const http = require("node:http")
const agent = new http.Agent({ keepAlive: true, maxSockets: 32 })
const body = '{"messages":[{"role":"user","content":"hi"}]}'
let serial = 0
const call = () => {
  const number = serial++
  const began = Date.now()
  const before = performance.now()
  let told = false
  const tell = (status) => {
    if (told) return
    told = true
    console.log("call " + began + " " + (performance.now() - before).toFixed(2) + " " + status + " " + number)
  }
  const request = http.request({ agent, host: "localhost", port: 8080, path: "/v1/chat/completions", method: "POST",
    headers: { "content-type": "application/json", "content-length": body.length } }, (response) => {
    response.on("data", () => undefined)
    response.on("end", () => tell(response.statusCode))
    response.on("error", () => tell(0))
  })
  request.on("error", () => tell(0))
  request.end(body)
}
const timer = setInterval(call, ${callEveryMillis})
setTimeout(() => { clearInterval(timer); setTimeout(() => process.exit(0), 2000) }, ${seconds * 1000})
`
