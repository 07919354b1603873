/**
 * Programs started by a small process of its own: a large one, as a test's is, takes many times longer to fork, and
 * thousands are started here.
 *
 * The tests' half asks, the other half, below, is the program. It ends with whoever started it, and so does all it
 * runs.
 */
import { type ChildProcess, fork, spawn } from "node:child_process"

export interface Asked {
  readonly argv: ReadonlyArray<string>
  readonly env: Readonly<Record<string, string>>
  readonly cwd: string
  readonly input?: string | Uint8Array
  /** Then it is killed, with all of its process group. */
  readonly millis?: number
  /** Of both channels together, of which no more is kept. */
  readonly outputMax: number
}

export interface Ended {
  /** `undefined`: a signal. */
  readonly exitCode: number | undefined
  readonly hung: boolean
  /** As Latin-1: a character a byte. */
  readonly stdout: string
  readonly stderr: string
}

type Request = Asked & { readonly id: number }
type Answer = Ended & { readonly id: number }

interface Helper {
  readonly child: ChildProcess
  readonly waiting: Map<number, (ended: Ended) => void>
}

let helper: Helper | undefined
let asked = 0

/** Nothing waits for it once it has nothing to do. */
const start = (): Helper => {
  const child = fork(import.meta.filename, [], { serialization: "advanced", execArgv: [], stdio: "inherit" })
  const waiting: Helper["waiting"] = new Map()
  child.on("message", ({ id, ...ended }: Answer) => {
    waiting.get(id)?.(ended)
    waiting.delete(id)
    if (waiting.size > 0) return
    child.unref()
    child.channel?.unref()
  })
  return { child, waiting }
}

/** Run a program, and wait for its end. */
export const run = (request: Asked): Promise<Ended> =>
  new Promise((resolve) => {
    helper ??= start()
    const { child, waiting } = helper
    const id = ++asked
    waiting.set(id, resolve)
    child.ref()
    child.channel?.ref()
    child.send({ ...request, id } satisfies Request)
  })

const running = new Set<number>()

const killGroup = (processId: number | undefined) => {
  if (processId === undefined || !running.delete(processId)) return
  try {
    process.kill(-processId, "SIGKILL")
  } catch {
    // All of them have ended.
  }
}

const serve = (request: Request): void => {
  const { argv, cwd, env, id, input, millis, outputMax } = request
  const child = spawn(argv[0]!, argv.slice(1), {
    env,
    cwd,
    detached: true,
    stdio: [input === undefined ? "ignore" : "pipe", "pipe", "pipe"]
  })
  if (child.pid !== undefined) running.add(child.pid)
  const said = { stdout: "", stderr: "" }
  let hung = false
  for (const channel of ["stdout", "stderr"] as const) {
    child[channel]!.on("data", (piece: Buffer) => {
      if (said.stdout.length + said.stderr.length < outputMax) said[channel] += piece.toString("latin1")
    })
  }
  child.stdin?.on("error", () => {})
  child.stdin?.end(input)
  const timer =
    millis === undefined
      ? undefined
      : setTimeout(() => {
          hung = true
          killGroup(child.pid)
        }, millis)
  const answer = (exitCode: number | undefined) => {
    clearTimeout(timer)
    killGroup(child.pid)
    process.send!({ id, exitCode, hung, ...said } satisfies Answer)
  }
  child.once("error", () => answer(127))
  child.once("close", (code) => child.pid !== undefined && answer(code ?? undefined))
}

if (import.meta.main) {
  process.on("message", serve)
  process.once("disconnect", () => {
    for (const processId of running) killGroup(processId)
    process.exit(0)
  })
}
