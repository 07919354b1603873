/**
 * Starts programs from a small helper process. A large process, such as a test's, takes many times longer to fork, and
 * the tests start thousands of programs.
 *
 * The first half is the client for the tests; the second half is the helper. The helper and all its programs end with
 * the process that started it.
 */
import { type ChildProcess, fork, spawn } from "node:child_process"

export interface Asked {
  readonly argv: ReadonlyArray<string>
  readonly env: Readonly<Record<string, string>>
  readonly cwd: string
  readonly input?: string | Uint8Array
  /** Time limit, after which the process group is killed. */
  readonly millis?: number
  /** Approximate limit for the captured output of both channels together, in bytes. */
  readonly outputMax: number
}

export interface Ended {
  /** `undefined` after a signal. */
  readonly exitCode: number | undefined
  readonly hung: boolean
  /** Decoded as Latin-1: one character per byte. */
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

/** Starts the helper. An idle helper does not keep the test process alive. */
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

/** Runs a program, and waits for its end. */
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
    // The group has already ended.
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
