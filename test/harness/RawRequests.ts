/** Requests that a sealed agent sends byte by byte, each on its own connection. */
import type { SandboxSpecInput } from "@cogni/sandbox-core/SandboxSpec"

export interface Sent {
  readonly name: string
  /** The whole request, in base64. */
  readonly bytes: string
}

/** Builds a request with header lines that are sent unchanged, and a body in UTF-8. */
export const raw = (method: string, path: string, headers: ReadonlyArray<string>, body: string): string =>
  Buffer.from(
    [
      `${method} ${path} HTTP/1.1`,
      "Host: localhost",
      ...(headers.some((line) => /^connection:/iu.test(line)) ? headers : ["Connection: close", ...headers]),
      "Content-Type: application/json",
      `Content-Length: ${Buffer.byteLength(body)}`,
      "",
      body
    ].join("\r\n"),
    "utf8"
  ).toString("base64")

/** Sends as many requests at once as its first argument says. Prints the name, the status and the end of each answer. */
const program = `
const { connect } = require("node:net")
const isComplete = (text) => {
  const end = text.indexOf("\\r\\n\\r\\n")
  if (end < 0) return false
  const length = /^content-length: (\\d+)/im.exec(text.slice(0, end))?.[1]
  return length === undefined ? text.endsWith("\\r\\n0\\r\\n\\r\\n") : text.length - end - 4 >= Number(length)
}
const send = ({ name, bytes }) => new Promise((resolve) => {
  let text = ""
  const socket = connect(8080, "127.0.0.1")
  const done = () => {
    socket.destroy()
    resolve(JSON.stringify([name, Number(text.slice(9, 12)) || 0, text.slice(-2000)]))
  }
  socket.setTimeout(120000, done)
  socket.on("data", (data) => {
    text += data.toString("latin1")
    if (isComplete(text)) done()
  })
  socket.on("end", done).on("error", done)
  socket.write(Buffer.from(bytes, "base64"))
})
const all = JSON.parse(require("node:fs").readFileSync("/cogni/requests.json", "utf8"))
const work = async () => {
  for (let one = all.shift(); one !== undefined; one = all.shift()) console.log(await send(one))
}
for (let index = 0; index < Number(process.argv[1]); index++) work()
`

/** The part of a spec that sends requests: in their order, unless more are sent at once. */
export const sending = (
  requests: ReadonlyArray<Sent>,
  atOnce = 1
): Pick<SandboxSpecInput, "argv" | "inputs"> => ({
  argv: ["node", "-e", program, String(atOnce)],
  inputs: [{ name: "requests.json", content: JSON.stringify(requests) }]
})

export type Answered = readonly [name: string, status: number, text: string]

/** Reads the output of the program. */
export const answersOf = (output: string): ReadonlyArray<Answered> =>
  output
    .trimEnd()
    .split("\n")
    .map((line): Answered => JSON.parse(line))
