/**
 * The promises of Mastra's documentation of a sandbox, by title. They run over a sandbox in memory and one on Docker.
 *
 * Mastra's own suite, `@internal/workspace-test-utils`, is not published.
 */
import { assert } from "@effect/vitest"
import { type Sandbox, Unsupported } from "@cogni/sandbox-promise"
import {
  SandboxError,
  SandboxExecutionError,
  supportsComputer,
  supportsNetworking
} from "@mastra/core/workspace"
import { type CogniSandboxOptions, mastraSandbox } from "../src/index.ts"
import { lines } from "./MemoryShell.ts"

export const rejected = async (call: () => unknown): Promise<unknown> => {
  try {
    await call()
  } catch (error) {
    return error
  }
  return assert.fail("it did not reject")
}

/** The code of an expected error of Mastra. */
export const codeOf = async (call: () => unknown): Promise<string> => {
  const error = await rejected(call)
  return error instanceof Error && "code" in error ? String(error.code) : assert.fail(String(error))
}

interface Opened {
  /** Another adapter of the same sandbox. */
  readonly make: (options?: CogniSandboxOptions) => ReturnType<typeof mastraSandbox>
  readonly sandbox: Sandbox
  /** Whether the sandbox has a real shell. */
  readonly isReal: boolean
}

type Promises = Readonly<Record<string, (opened: Opened) => Promise<void>>>

const commandPromises: Promises = {
  "returns exit code and output, and streams it": async ({ make }) => {
    const heard: Array<string> = []
    const result = await make().executeCommand(lines.both, [], {
      onStdout: (text) => heard.push(`1${text}`),
      onStderr: (text) => heard.push(`2${text}`)
    })
    assert.deepInclude(result, {
      success: false,
      exitCode: 3,
      stdout: "out",
      stderr: "err",
      killed: false,
      timedOut: false,
      stdoutTruncated: false,
      command: lines.both
    })
    assert.deepStrictEqual(heard.toSorted(), ["1out", "2err"])
  },

  "passes arguments on as they are": async ({ make }) => {
    const { stdout } = await make().executeCommand(lines.arguments, ["a b", "$HOME", "it's"])
    assert.strictEqual(stdout, "a b|$HOME|it's|")
  },

  "starts in the working directory, and relative directories are below it": async ({ make, sandbox }) => {
    await sandbox.files.write("place/below/file", "")
    const where = async (options: CogniSandboxOptions, cwd?: string) =>
      (await make(options).executeCommand(lines.where, [], cwd === undefined ? {} : { cwd })).stdout
    assert.strictEqual(await where({}), `${sandbox.workspace}\n`)
    assert.strictEqual(await where({}, "place"), `${sandbox.workspace}/place\n`)
    assert.strictEqual(await where({ workingDirectory: "place" }), `${sandbox.workspace}/place\n`)
    assert.strictEqual(
      await where({ workingDirectory: "place" }, "below"),
      `${sandbox.workspace}/place/below\n`
    )
    assert.strictEqual(await where({ workingDirectory: "place" }, "/tmp"), "/tmp\n")
  },

  "sets variables for all commands, of which a command's own win": async ({ make }) => {
    const adapter = make({ env: { WORD: "first" } })
    const word = async (env?: Record<string, string>) =>
      (await adapter.executeCommand(lines.variable, [], env && { env })).stdout
    assert.strictEqual(await word(), "first")
    adapter.setEnv((env) => ({ ...env, WORD: "second" }))
    assert.strictEqual(await word(), "second")
    assert.strictEqual(await word({ WORD: "own" }), "own")
    adapter.setEnv(() => ({}))
    assert.strictEqual(await word(), "")
  },

  "gives a command an empty input": async ({ make }) => {
    assert.deepInclude(await make().executeCommand(lines.cat), { exitCode: 0, stdout: "" })
  },

  "ends a command at its time limit, and returns what it wrote": async ({ make }) => {
    const adapter = make({ timeoutSecondsMax: 0.5 })
    for (const [options, endedAfter] of [
      [{}, "500 ms"],
      [{ timeout: 100 }, "100 ms"],
      [{ timeout: 10_000_000 }, "500 ms"]
    ] as const) {
      const result = await adapter.executeCommand(lines.sleeps, [], options)
      assert.deepInclude(result, { exitCode: 124, timedOut: true, killed: true, success: false })
      assert.include(result.stderr, `was still running after ${endedAfter}`)
    }
    assert.strictEqual(
      await codeOf(() => adapter.executeCommand(lines.cat, [], { timeout: -1 })),
      "INVALID_ARGUMENT"
    )
  },

  "ends a command that writes too much, and says so": async ({ make }) => {
    const result = await make({ outputBytesMax: 1_000_000 }).executeCommand(lines.floods)
    assert.deepInclude(result, { exitCode: 137, killed: true })
    assert.include(result.stderr, "wrote more than 1000000 bytes")
  },

  "keeps the newest output, also if a caller asks for more": async ({ make }) => {
    const adapter = make({ outputRetainedBytesMax: 1000 })
    const result = await adapter.executeCommand(lines.floods, [], { maxRetainedBytes: Infinity })
    assert.deepInclude(result, { exitCode: 0, stdoutTruncated: true, stdoutDroppedBytes: 8_999_005 })
    assert.strictEqual(result.stdout.length, 1000)
    assert.isTrue(result.stdout.endsWith("edone\n"))
  },

  "kills a command when its signal aborts": async ({ make }) => {
    const controller = new AbortController()
    const result = await make().executeCommand(lines.sleeps, [], {
      abortSignal: controller.signal,
      onStdout: () => controller.abort()
    })
    assert.deepInclude(result, { exitCode: 137, killed: true, stdout: "ready\n" })
  },

  "rejects a command that cannot be started": async ({ make }) => {
    const error = await rejected(() => make().executeCommand(`: ${"x".repeat(200_000)}`))
    assert.instanceOf(error, SandboxExecutionError)
    assert.deepInclude<object>(error as SandboxExecutionError, { exitCode: 126 })
    assert.deepInclude<object | undefined>((error as Error).cause as object, { _tag: "SandboxError" })
  }
}

const processPromises: Promises = {
  "runs processes in the background, and lists, finds and kills them": async ({ make }) => {
    const adapter = make()
    const { processes } = adapter
    await adapter.executeCommand(lines.both)
    const { promise: ready, resolve } = Promise.withResolvers<void>()
    const handle = await processes.spawn(lines.sleeps, { onStdout: () => resolve() })
    await ready
    assert.deepStrictEqual(await processes.list(), [
      { pid: handle.pid, running: true, command: lines.sleeps }
    ])
    assert.strictEqual(await processes.get(handle.pid), handle)
    assert.isUndefined(await processes.get("no such process"))
    assert.isTrue(await processes.kill(handle.pid))
    assert.deepInclude(await handle.wait(), { exitCode: 137, killed: true, stdout: "ready\n" })
    assert.isFalse(await handle.kill())
    assert.isFalse(await processes.kill(handle.pid))
    assert.deepStrictEqual(await processes.list(), [])
  },

  "keeps a process that has ended until it is read": async ({ make }) => {
    const { processes } = make()
    const { pid } = await processes.spawn(lines.both)
    await (await processes.get(pid))?.wait()
    const [listed] = await processes.list()
    assert.deepInclude(listed, { pid, running: false, exitCode: 3 })
    assert.deepInclude(await processes.get(pid), { stdout: "out", stderr: "err" })
    assert.isUndefined(await processes.get(pid))
  },

  "writes to a process, and closes its input": async ({ make }) => {
    const { processes } = make()
    const handle = await processes.spawn(lines.cat)
    await handle.sendStdin("half ")
    await handle.sendStdin("and ü")
    await handle.closeStdin()
    await handle.closeStdin()
    assert.deepInclude(await handle.wait(), { exitCode: 0, stdout: "half and ü" })
    assert.strictEqual(await codeOf(() => handle.sendStdin("x")), "PROCESS_ENDED")
    const deaf = await processes.spawn(lines.sleeps, { stdinMode: "ignore" })
    assert.strictEqual(await codeOf(() => deaf.sendStdin("x")), "STDIN_UNAVAILABLE")
    await deaf.kill()
  },

  "offers a process as streams": async ({ make }) => {
    const handle = await make().processes.spawn(lines.cat)
    let text = ""
    const read = (async () => {
      for await (const piece of handle.reader) text += String(piece)
    })()
    handle.writer.end("through a pipe")
    await read
    assert.strictEqual(text, "through a pipe")
  },

  "lets a process wait for a reader that is behind, and kills it then": async ({ make }) => {
    const adapter = make()
    const handle = await adapter.processes.spawn(lines.floods)
    const { reader } = handle
    const { promise: full, resolve } = Promise.withResolvers<void>()
    const listening = handle.wait({
      onStdout: () => {
        if (reader.readableLength >= reader.readableHighWaterMark) resolve()
      }
    })
    await full
    // Meanwhile, a process that does not wait goes on.
    for (let turn = 0; turn < 5; turn++) await adapter.executeCommand(lines.both)
    assert.isUndefined(handle.exitCode)
    assert.isBelow(reader.readableLength, 2 * reader.readableHighWaterMark)
    assert.isTrue(await handle.kill())
    await listening
    assert.isBelow(reader.readableLength, 9_000_000)
  },

  "limits the number of processes, and forgets those that have ended": async ({ make }) => {
    const { executeCommand, processes } = bound(make({ processesMax: 2 }))
    const first = await processes.spawn(lines.sleeps)
    const second = await processes.spawn(lines.both)
    await second.wait()
    const third = await processes.spawn(lines.sleeps)
    assert.isUndefined(await processes.get(second.pid))
    for (const call of [() => processes.spawn(lines.both), () => executeCommand(lines.both)]) {
      assert.strictEqual(await codeOf(call), "PROCESS_LIMIT")
    }
    await first.kill()
    await first.wait()
    assert.strictEqual((await executeCommand(lines.both)).exitCode, 3)
    await third.kill()
  },

  "rejects with the error of a listener, after the process was killed": async ({ make }) => {
    const handle = await make().processes.spawn(lines.sleeps, {
      onStdout: () => {
        throw new Error("of the listener")
      }
    })
    assert.include(String(await rejected(() => handle.wait())), "of the listener")
    assert.strictEqual(handle.exitCode, 137)
  }
}

const bound = (adapter: ReturnType<typeof mastraSandbox>) => ({
  processes: adapter.processes,
  executeCommand: (line: string) => adapter.executeCommand(line)
})

const sandboxPromises: Promises = {
  "writes files that commands see": async ({ isReal, make, sandbox }) => {
    const adapter = make()
    await adapter.writeFiles([
      { path: "note.txt", content: "written\n" },
      { path: `${sandbox.workspace}/deep/run.sh`, content: Buffer.from("echo ran"), mode: 0o750 }
    ])
    assert.strictEqual((await adapter.executeCommand(lines.echo)).stdout, "written\n")
    if (isReal) {
      assert.strictEqual(
        (await adapter.executeCommand("deep/run.sh && stat -c %a deep/run.sh")).stdout,
        "ran\n750\n"
      )
    }
    assert.strictEqual(
      await codeOf(() => adapter.writeFiles([{ path: "/etc/x", content: "" }])),
      "INVALID_ARGUMENT"
    )
    assert.strictEqual(
      await codeOf(() => adapter.writeFiles([{ path: "x", content: "", mode: 0o4755 }])),
      "INVALID_ARGUMENT"
    )
    assert.strictEqual(
      await codeOf(() =>
        adapter.writeFiles([{ path: "x", content: "" }], { abortSignal: AbortSignal.abort(new Error("no")) })
      ),
      "ABORTED"
    )
  },

  "rejects what a sealed sandbox cannot do, and stays usable": async ({ make }) => {
    const adapter = make()
    await adapter.start()
    const other = make().filesystem
    for (const [operation, call] of [
      ["stop", () => adapter.stop()],
      ["stop", () => adapter._stop()],
      ["snapshot", () => adapter.snapshot()],
      ["mount", () => adapter.mount?.(other, "/data")],
      ["unmount", () => adapter.unmount?.("/data")],
      ["clone", () => adapter.clone()],
      ["clone with sandboxId", () => adapter.clone({ sandboxId: "x" })],
      ["clone with checkpointName", () => adapter.clone({ checkpointName: "x" })]
    ] as const) {
      const error = await rejected(call)
      assert.instanceOf(error, Unsupported)
      assert.strictEqual((error as Unsupported).operation, operation)
    }
    assert.isFalse(adapter.supportsCheckpoints)
    assert.isFalse(supportsNetworking(adapter))
    assert.isFalse(supportsComputer(adapter))
    assert.strictEqual(adapter.status, "running")
    assert.strictEqual((await adapter.executeCommand(lines.both)).exitCode, 3)
  },

  "describes itself": async ({ make, sandbox }) => {
    const adapter = make({ timeoutSecondsMax: 77 })
    await adapter.start()
    assert.deepInclude(adapter.getInfo(), {
      id: sandbox.runId,
      provider: "cogni-sandbox",
      status: "running",
      metadata: { runId: sandbox.runId, workspace: sandbox.workspace }
    })
    assert.include(adapter.getInstructions(), sandbox.workspace)
    assert.include(adapter.getInstructions(), "77 seconds")
    assert.strictEqual(make({ instructions: "mine" }).getInstructions(), "mine")
  },

  "leaves an open sandbox to its owner, and ends its own processes": async ({ make, sandbox }) => {
    const adapter = make()
    const handle = await adapter.processes.spawn(lines.sleeps)
    await adapter._destroy()
    assert.strictEqual(handle.exitCode, 137)
    assert.strictEqual(adapter.status, "destroyed")
    assert.instanceOf(await rejected(() => adapter.executeCommand(lines.both)), SandboxError)
    assert.strictEqual((await sandbox.exec(lines.both)).exitCode, 3)
  }
}

export const promises: Readonly<Record<string, (sandbox: Sandbox, isReal: boolean) => Promise<void>>> =
  Object.fromEntries(
    Object.entries({ ...commandPromises, ...processPromises, ...sandboxPromises }).map(([title, check]) => [
      title,
      (sandbox: Sandbox, isReal: boolean) =>
        check({ sandbox, isReal, make: (options) => mastraSandbox(sandbox, options) })
    ])
  )
