// cogni-gateway: listens on the sockets of runs, and forwards every connection to the host process over standard input
// and output.
//
// HTTP/2 multiplexes the connections. Each has its own stream with flow control, so a run that does not read delays no
// other run. This program has no key, no policy and no knowledge of runs. It knows only which socket a connection used.
// Protocol: docs/reference/image-contracts.md.
import { chmodSync, rmSync } from "node:fs"
import { connect } from "node:http2"
import { createServer } from "node:net"
import { Duplex } from "node:stream"

const socketOf = (slot) => `/sockets/${slot}/llm.sock`
const connectionsMax = 128
/** New connections per slot and second. Above it, the socket stops listening, so refusals cost this process nothing. */
const connectionsPerSecondMax = 200
const crowdMillis = 1000

const session = connect("http://host", {
  createConnection: () => Duplex.from({ readable: process.stdin, writable: process.stdout }),
  settings: { initialWindowSize: 256 * 1024, enablePush: false },
  maxSessionMemory: 1024
})
// Flow control applies to each stream. The session's window must not limit all of them together.
session.on("connect", () => session.setLocalWindowSize(2 ** 31 - 1))
const end = () => process.exit(0)
session.on("close", end)
session.on("error", end)

/** Server and connections of each slot. */
const slots = new Map()

const carry = (slot, connections, socket) => {
  if (connections.size >= connectionsMax) return socket.destroy()
  const stream = session.request({ ":method": "POST", ":path": `/${slot}` }, { endStream: false })
  connections.add(socket)
  const drop = () => {
    connections.delete(socket)
    socket.destroy()
    if (!stream.destroyed) stream.close(8)
  }
  socket.on("error", drop)
  stream.on("error", drop)
  stream.on("aborted", drop)
  stream.on("close", drop)
  socket.on("close", (broken) => {
    connections.delete(socket)
    if (broken) drop()
    else if (!stream.writableEnded) stream.end()
  })
  socket.pipe(stream)
  stream.pipe(socket)
}

const listen = (slot, { server }, listening) =>
  server.listen({ path: socketOf(slot), backlog: 512 }, () => {
    chmodSync(socketOf(slot), 0o666)
    listening?.()
  })

const pause = (slot, held) => {
  if (held.crowd !== undefined) return
  held.server.close()
  held.crowd = setTimeout(() => {
    held.crowd = undefined
    if (slots.get(slot) === held) listen(slot, held)
  }, crowdMillis)
}

const open = (slot) =>
  new Promise((resolve, reject) => {
    rmSync(socketOf(slot), { force: true })
    const connections = new Set()
    const held = { server: undefined, connections, crowd: undefined }
    let left = connectionsPerSecondMax
    let filled = performance.now()
    held.server = createServer({ allowHalfOpen: true }, (socket) => {
      const now = performance.now()
      left = Math.min(connectionsPerSecondMax, left + ((now - filled) * connectionsPerSecondMax) / 1000)
      filled = now
      if (left < 1) {
        socket.destroy()
        return pause(slot, held)
      }
      left -= 1
      carry(slot, connections, socket)
    })
    held.server.once("error", reject)
    listen(slot, held, () => {
      held.server.off("error", reject)
      // If a slot cannot listen again, only its own run fails. The process continues for the others.
      held.server.on("error", () => undefined)
      slots.set(slot, held)
      resolve()
    })
  })

const close = (slot) =>
  new Promise((resolve) => {
    const held = slots.get(slot)
    slots.delete(slot)
    if (held === undefined) return resolve()
    const gone = () => {
      rmSync(socketOf(slot), { force: true })
      resolve()
    }
    clearTimeout(held.crowd)
    // Settles when the last connection has ended, even if the server is not listening now.
    held.server.close(gone)
    for (const socket of held.connections) socket.destroy()
  })

// The host sends its requests on a separate stream, one JSON object per line. The answers go back on that stream.
const control = session.request({ ":method": "POST", ":path": "/control" }, { endStream: false })
control.setEncoding("utf8")
const answer = async ({ id, slot, what }) => {
  try {
    await (what === "open" ? open(slot) : close(slot))
    control.write(`${JSON.stringify({ id })}\n`)
  } catch (error) {
    control.write(`${JSON.stringify({ id, problem: String(error) })}\n`)
  }
}
let rest = ""
control.on("data", (text) => {
  const lines = (rest + text).split("\n")
  rest = lines.pop()
  for (const line of lines) void answer(JSON.parse(line))
})
control.on("close", end)
