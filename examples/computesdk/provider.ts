/** Provider of ComputeSDK for the server in this directory. */
import { defineProvider } from "@computesdk/provider"

export interface CogniSandboxConfig {
  /** Address of the server, such as `http://127.0.0.1:8790`. */
  readonly url: string
  /** Token that the server printed. */
  readonly token: string
}

/** A sandbox of the server. */
export interface RemoteSandbox {
  readonly id: string
  readonly createdAt: string
  readonly timeoutMillis: number
  readonly config: CogniSandboxConfig
}

interface CommandEnd {
  readonly stdout: string
  readonly stderr: string
  readonly exitCode: number
  readonly durationMs: number
}

/** Asks the server. Returns `undefined` if it has no such sandbox, and throws its message if it refuses. */
const ask = async <A>(
  { token, url }: CogniSandboxConfig,
  method: string,
  path: string,
  body?: object
): Promise<A | undefined> => {
  const answer = await fetch(new URL(path, url), {
    method,
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    ...(body === undefined ? {} : { body: JSON.stringify(body) })
  })
  const text = await answer.text()
  if (answer.status === 404) return undefined
  if (!answer.ok) throw new Error(`Cogni Sandbox answered ${answer.status}: ${messageIn(text)}`)
  return text === "" ? undefined : JSON.parse(text)
}

const messageIn = (text: string): string => {
  try {
    return JSON.parse(text).message ?? text
  } catch {
    return text
  }
}

const found = <A>(answer: A | undefined): A => {
  if (answer === undefined) throw new Error("this sandbox does not exist, or has ended. Create another one")
  return answer
}

const unsupported = (what: string, instead: string): Error =>
  new Error(`a sealed sandbox has no ${what}. ${instead}`)

type View = Omit<RemoteSandbox, "config">

const of = (config: CogniSandboxConfig, view: View) => ({ sandbox: { ...view, config }, sandboxId: view.id })

/** Makes a provider: `cogniSandbox({ url, token })`. */
export const cogniSandbox = defineProvider<RemoteSandbox, CogniSandboxConfig>({
  name: "cogni-sandbox",
  methods: {
    sandbox: {
      create: async (config, { envs, image, snapshotId, templateId, timeout } = {}) => {
        if ((image ?? snapshotId ?? templateId) !== undefined)
          throw unsupported("image of the caller's choice", "The server has one image for all sandboxes")
        const view = await ask<View>(config, "POST", "/sandboxes", {
          ...(envs === undefined ? {} : { env: envs }),
          ...(timeout === undefined ? {} : { timeoutMillis: timeout })
        })
        return of(config, found(view))
      },
      getById: async (config, sandboxId) => {
        const view = await ask<View>(config, "GET", `/sandboxes/${encodeURIComponent(sandboxId)}`)
        return view === undefined ? null : of(config, view)
      },
      list: async (config) => {
        const views = await ask<ReadonlyArray<View>>(config, "GET", "/sandboxes")
        return found(views).map((view) => of(config, view))
      },
      destroy: async (config, sandboxId) => {
        await ask(config, "DELETE", `/sandboxes/${encodeURIComponent(sandboxId)}`)
      },
      runCommand: async ({ config, id }, command, { background, cwd, env, timeout } = {}) => {
        if (background === true)
          throw unsupported("command in the background", "Start it in a command: nohup PROGRAM >log 2>&1 &")
        const path = `/sandboxes/${encodeURIComponent(id)}/commands`
        return found(
          await ask<CommandEnd>(config, "POST", path, {
            command,
            ...(cwd === undefined ? {} : { workingDirectory: cwd }),
            ...(env === undefined ? {} : { env }),
            ...(timeout === undefined ? {} : { timeoutMillis: timeout })
          })
        )
      },
      // Without this, ComputeSDK starts a server in the sandbox and connects to its port.
      streamCommand: () =>
        Promise.reject(unsupported("port for streamed output", "Leave onStdout and onStderr out")),
      getInfo: async ({ config, createdAt, id, timeoutMillis }) => {
        const view = await ask<View>(config, "GET", `/sandboxes/${encodeURIComponent(id)}`)
        return {
          id,
          provider: "cogni-sandbox",
          status: view === undefined ? "stopped" : "running",
          createdAt: new Date(createdAt),
          timeout: timeoutMillis
        }
      },
      getUrl: () => Promise.reject(unsupported("network", "Run the client in the same sandbox"))
    }
  }
})
