/** Child processes that OpenClaw's preload has started, and gives out in place of new ones. */
import { assert, describe, it } from "@effect/vitest"
import { EventEmitter } from "node:events"
import { PassThrough } from "node:stream"

type Callback = (error: NodeJS.ErrnoException | null, stdout: string, stderr: string) => void

interface Module {
  readonly giveOutChild: (
    execFile: (...call: ReadonlyArray<unknown>) => unknown,
    prepared: Array<{ readonly script: string; readonly child: unknown }>
  ) => (...call: ReadonlyArray<unknown>) => unknown
}

const { giveOutChild }: Module = await import(
  new URL("../../../images/openclaw/preload-execute.mjs", import.meta.url).href
)

const script = "/lib/worker.js"

/** A child process that waits, and `execFile` that gives it out instead of starting another. */
const setUp = () => {
  const stdio = [0, 1, 2, 3].map(() => Object.assign(new PassThrough(), { ref: () => {} }))
  const [, stdout, stderr, line] = stdio
  const child = Object.assign(new EventEmitter(), {
    pid: 7,
    exitCode: null,
    signalCode: null,
    killed: false,
    stdio,
    stdout: stdout!,
    stderr: stderr!,
    ref: () => {},
    kill: (signal: string) => {
      child.killed = true
      child.emit("close", null, signal)
    }
  })
  const execFile = giveOutChild((...call) => ({ call }), [{ script, child }])
  return { child, execFile, lineOf: (): unknown => JSON.parse(String(line!.read())) }
}

/** As OpenClaw 2026.9.6 executes it. */
const options = { encoding: "utf8", env: { A: "1" }, maxBuffer: 8, timeout: undefined, killSignal: "SIGKILL" }
const callback: Callback = () => {}

describe("prepared child processes of OpenClaw", () => {
  it("are given out once, with the arguments and variables of their call", () => {
    const { child, execFile, lineOf } = setUp()
    assert.strictEqual(execFile(process.execPath, [script, "a"], options, callback), child)
    assert.deepStrictEqual(lineOf(), { args: [script, "a"], env: { A: "1" } })
    const call = [process.execPath, [script], options, callback]
    assert.deepStrictEqual(execFile(...call), { call })
  })

  it.each([
    [
      "with an option that they cannot follow",
      [process.execPath, [script], { ...options, cwd: "/" }, callback]
    ],
    ["with an unknown option", [process.execPath, [script], { ...options, isNew: true }, callback]],
    ["with another encoding", [process.execPath, [script], { ...options, encoding: "buffer" }, callback]],
    ["without options", [process.execPath, [script], callback]],
    ["without a callback", [process.execPath, [script], options]],
    ["of another script", [process.execPath, ["/lib/other.js"], options, callback]],
    ["of another program", ["/bin/true", [script], options, callback]]
  ])("are not given out for a call %s", (_, call) => {
    assert.deepStrictEqual(setUp().execFile(...call), { call })
  })

  it("are not given out after they have ended", () => {
    const { child, execFile } = setUp()
    Object.assign(child, { exitCode: 1 })
    const call = [process.execPath, [script], options, callback]
    assert.deepStrictEqual(execFile(...call), { call })
  })

  it("answer with their output, and are killed when it exceeds its limit", async () => {
    const answered = async (output: string, end: boolean) => {
      const { child, execFile } = setUp()
      const answer = new Promise((resolve) => {
        const answered: Callback = (error, stdout) => resolve([error?.code, stdout, child.killed])
        execFile(process.execPath, [script], options, answered)
      })
      child.stdout.write(output)
      if (end) child.stdout.end(() => child.emit("close", 0, null))
      return answer
    }
    assert.deepStrictEqual(await answered("12345678", true), [undefined, "12345678", false])
    assert.deepStrictEqual(await answered("123456789", false), [
      "ERR_CHILD_PROCESS_STDIO_MAXBUFFER",
      "12345678",
      true
    ])
  })
})
