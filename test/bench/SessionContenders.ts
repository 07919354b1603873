/** Ways to run a command in a container that stays: our session, the engine's bare API, its command line. */
import type { SessionSandbox } from "@cogni/sandbox-sessions/sandbox/DockerSandbox"
import { Effect } from "effect"
import { execFile } from "node:child_process"
import { Agent, type IncomingMessage, request } from "node:http"
import type { Duplex } from "node:stream"
import { promisify } from "node:util"

/** Runs once, and throws on failure. */
export type Contender = () => Promise<unknown>

const exec = promisify(execFile)

export const ours =
  (sandbox: SessionSandbox, argv: readonly [string, ...Array<string>], outputBytes = 0): Contender =>
  () =>
    Effect.runPromise(
      Effect.map(sandbox.exec(argv), ({ exitCode, output }) => {
        if (exitCode !== 0) throw new Error(`the command ended with ${exitCode}`)
        if (output.stdout.bytes !== outputBytes) throw new Error(`received ${output.stdout.bytes} bytes`)
      })
    )

export const cli =
  (container: string): Contender =>
  () =>
    exec("docker", ["exec", container, "true"])

/** The needed part of the engine's API, as plain requests over persistent connections. */
export interface BareApi {
  readonly exec: (container: string, argv: ReadonlyArray<string>, outputBytes?: number) => Promise<void>
  readonly create: (image: string) => Promise<string>
  readonly start: (container: string) => Promise<void>
  readonly remove: (container: string) => Promise<void>
}

const version = "v1.41"

const text = async (answer: IncomingMessage): Promise<string> => {
  let all = ""
  for await (const piece of answer) all += String(piece)
  return all
}

/** Counts the bytes in a stream of the engine's frames: an eight-byte header before each piece. */
const outputOf = (socket: Duplex, head: Buffer): Promise<number> =>
  new Promise((resolve, reject) => {
    let pending = head
    let bytes = 0
    const take = (piece: Buffer) => {
      pending = pending.length === 0 ? piece : Buffer.concat([pending, piece])
      while (pending.length >= 8) {
        const length = pending.readUInt32BE(4)
        if (pending.length < 8 + length) break
        bytes += length
        pending = pending.subarray(8 + length)
      }
    }
    socket.on("data", take)
    socket.on("error", reject)
    socket.on("end", () => {
      socket.end()
      resolve(bytes)
    })
  })

export const bareApi = (socketPath: string): BareApi => {
  const agent = new Agent({ keepAlive: true })
  const json = { "content-type": "application/json" }

  const answered = (method: string, path: string, body?: object): Promise<IncomingMessage> =>
    new Promise((resolve, reject) => {
      const asked = request({ socketPath, agent, method, path: `/${version}${path}`, headers: json }, resolve)
      asked.on("error", reject)
      asked.end(body === undefined ? undefined : JSON.stringify(body))
    })

  const call = async (method: string, path: string, body?: object): Promise<string> => {
    const answer = await answered(method, path, body)
    const said = await text(answer)
    if ((answer.statusCode ?? 500) >= 400) throw new Error(`${method} ${path}: ${answer.statusCode} ${said}`)
    return said
  }

  /** Uses a new connection, because the command takes it over. */
  const hijack = (path: string): Promise<number> =>
    new Promise((resolve, reject) => {
      const asked = request({
        socketPath,
        method: "POST",
        path: `/${version}${path}`,
        headers: { ...json, connection: "Upgrade", upgrade: "tcp" }
      })
      asked.on("upgrade", (_answer, socket, head) => outputOf(socket, head).then(resolve, reject))
      asked.on("response", (answer) => reject(new Error(`${path}: ${answer.statusCode}`)))
      asked.on("error", reject)
      asked.end(JSON.stringify({ Detach: false, Tty: false }))
    })

  return {
    exec: async (container, argv, outputBytes = 0) => {
      const { Id } = JSON.parse(
        await call("POST", `/containers/${container}/exec`, {
          Cmd: argv,
          AttachStdout: true,
          AttachStderr: true
        })
      ) as { readonly Id: string }
      const bytes = await hijack(`/exec/${Id}/start`)
      const { ExitCode } = JSON.parse(await call("GET", `/exec/${Id}/json`)) as { readonly ExitCode: number }
      if (ExitCode !== 0) throw new Error(`the command ended with ${ExitCode}`)
      if (bytes !== outputBytes) throw new Error(`received ${bytes} bytes`)
    },
    create: async (image) =>
      (
        JSON.parse(
          await call("POST", "/containers/create", {
            Image: image,
            Entrypoint: ["sleep", "infinity"],
            Cmd: [],
            HostConfig: { NetworkMode: "none", Init: true }
          })
        ) as { readonly Id: string }
      ).Id,
    start: async (container) => void (await call("POST", `/containers/${container}/start`)),
    remove: async (container) => void (await call("DELETE", `/containers/${container}?force=true`))
  }
}
