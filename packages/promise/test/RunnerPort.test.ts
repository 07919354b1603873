/** The ports of applications of Cogni over a host in memory: results and codes, never an exception. */
import { assert, describe, it } from "@effect/vitest"
import { ContainerFailed, OomKilled } from "@cogni/sandbox-core/SandboxReason"
import { createHost, type MemoryProgram, type RunOptions, SandboxError } from "../src/index.ts"
import { runnerPort } from "../src/RunnerPort.ts"

const retainedBytesMax = 4 * 1024 * 1024

const program: MemoryProgram = async ({ argv, files, signal }) => {
  // A command is a line for a shell, a run its own program.
  const [name, ...rest] = argv[0] === "/bin/sh" ? argv.slice(2).join(" ").split(" ") : argv
  switch (name) {
    case "echo":
      return { stdout: `${rest.join(" ")}\n` }
    case "cat":
      return { stdout: await files.readText(rest.join(" ")) }
    case "yes":
      return { stdout: "x".repeat(retainedBytesMax + 1) }
    case "wait":
      await new Promise((_, reject) => signal.addEventListener("abort", () => reject(new Error("killed"))))
      return {}
    default:
      return { exitCode: 3, stdout: "some", stderr: "no\n" }
  }
}

const spec = {
  workspacePath: "/tmp",
  limits: { maxRuntimeSec: 30, maxMemoryMb: 256 }
}

describe("runnerPort", () => {
  it("runs a program once, and reports its output and its exit code", async () => {
    await using host = createHost({ inMemory: program })
    const { runOnce } = runnerPort(host)
    assert.deepStrictEqual(await runOnce({ ...spec, runId: "run-port00001", argv: ["echo", "a b"] }), {
      ok: true,
      exitCode: 0,
      stdout: "a b\n",
      stderr: ""
    })
    assert.deepStrictEqual(await runOnce({ ...spec, runId: "run-port00002", argv: ["other"] }), {
      ok: false,
      exitCode: 3,
      stdout: "some",
      stderr: "no\n"
    })
  })

  it("reports a failure as a code", async () => {
    await using host = createHost({ inMemory: program })
    const { execCommand, runOnce } = runnerPort(host)
    const limits = { maxRuntimeSec: 1, maxMemoryMb: 256 }
    const late = await runOnce({ ...spec, limits, runId: "run-port00003", argv: ["wait"] })
    assert.deepStrictEqual([late.ok, late.exitCode, late.errorCode], [false, 124, "timeout"])
    const invalid = await runOnce({ ...spec, runId: "UP", argv: ["echo"] })
    assert.deepStrictEqual([invalid.ok, invalid.errorCode], [false, "internal"])
    const asks = { enabled: true, attempt: 0 }
    const without = await runOnce({ ...spec, runId: "run-port00004", argv: ["echo"], llmProxy: asks })
    assert.deepStrictEqual([without.ok, without.errorCode], [false, "internal"])
    assert.include(without.stderr, "no llm")
    const missing = await execCommand({
      ...spec,
      runId: "run-port00005",
      command: { type: "read", args: { path: "none" } }
    })
    assert.deepStrictEqual([missing.ok, missing.errorCode], [false, "command_failed"])
    assert.include(missing.output, "none")
  })

  it("reports how the kernel and the engine end a run, with what it wrote and the cause", async () => {
    const channel = (text: string, truncated = false) => ({ text, bytes: text.length, truncated })
    const partial = {
      output: { stdout: channel("half", true), stderr: channel("warning\n") },
      peak: {},
      timings: [],
      durationMs: 1
    }
    const endedBy = (reason: SandboxError["reason"]) =>
      runnerPort({
        run: () => Promise.reject(new SandboxError({ reason })),
        createSandbox: () => Promise.reject(new SandboxError({ reason }))
      })
    const killed = endedBy(new OomKilled({ memoryBytesMax: 256 * 1024 * 1024, partial }))
    const { stderr, ...run } = await killed.runOnce({ ...spec, runId: "run-port00010", argv: ["a"] })
    assert.deepStrictEqual(run, {
      ok: false,
      exitCode: 137,
      errorCode: "oom_killed",
      stdout: "half",
      truncated: true
    })
    assert.match(stderr, /^warning\nthe kernel killed the agent at the memory limit of 256 MiB/u)
    const { output, ...command } = await killed.execCommand({
      ...spec,
      runId: "run-port00010",
      command: { type: "exec", args: { command: "a" } }
    })
    assert.deepStrictEqual(command, { ok: false, errorCode: "oom_killed", truncated: true })
    assert.match(output ?? "", /^half\nwarning\nthe kernel killed/u)

    const refused = { operation: "start", detail: "the image has no sh", remedy: "Use another image" }
    const broken = endedBy(new ContainerFailed(refused))
    const gone = await broken.runOnce({ ...spec, runId: "run-port00011", argv: ["a"] })
    assert.deepStrictEqual([gone.exitCode, gone.errorCode], [1, "container_failed"])
    assert.include(gone.stderr, "the image has no sh")
  })

  it("says that the output of a run or of a command is only its beginning", async () => {
    await using host = createHost({ inMemory: program })
    const { execCommand, runOnce } = runnerPort(host)
    const run = await runOnce({ ...spec, runId: "run-port00020", argv: ["yes"] })
    assert.deepStrictEqual([run.ok, run.truncated, run.stdout.length], [true, true, retainedBytesMax])
    const command = { type: "exec", args: { command: "yes" } } as const
    const executed = await execCommand({ ...spec, runId: "run-port00021", command })
    assert.deepStrictEqual([executed.ok, executed.truncated], [true, true])
  })

  it("gives a run its image, its network, and the model and the attempt that it asks for", async () => {
    await using host = createHost({ inMemory: program })
    const asked: Array<RunOptions> = []
    const { runOnce } = runnerPort(
      {
        createSandbox: host.createSandbox,
        run: (options) => {
          asked.push(options)
          return host.run({ argv: options.argv })
        }
      },
      { llm: { model: "m", identity: { billingAccountId: "a" } } }
    )
    const run = { ...spec, argv: ["echo"] } as const
    const network = { mode: "internal", networkName: "own" } as const
    const llmProxy = { enabled: true, attempt: 2 }
    await runOnce({ ...run, runId: "run-port00030", image: "own:1", networkMode: network, llmProxy })
    await runOnce({ ...run, runId: "run-port00031", llmProxy: { enabled: false, attempt: 0 } })
    assert.deepStrictEqual(
      asked.map(({ image, llm, network }) => ({ image, llm, network })),
      [
        { image: "own:1", llm: { model: "m", identity: { billingAccountId: "a", attempt: 2 } }, network },
        { image: undefined, llm: undefined, network: undefined }
      ]
    )
  })

  it("executes any number of commands of one run ID, and reads and writes in a workspace", async () => {
    await using host = createHost({ inMemory: program })
    const { execCommand } = runnerPort(host)
    const execute = (command: Parameters<typeof execCommand>[0]["command"]) =>
      execCommand({ ...spec, runId: "run-port00040", command })
    for (const text of ["a", "b"])
      assert.deepStrictEqual(await execute({ type: "exec", args: { command: `echo ${text}` } }), {
        ok: true,
        output: `${text}\n`
      })
    const write = { type: "write", args: { path: "a.txt", content: "a" } } as const
    assert.deepStrictEqual(await execute(write), { ok: true })
    assert.deepStrictEqual(await execute({ type: "exec", args: { command: "other" } }), {
      ok: false,
      output: "some\nno\nthe command ended with exit code 3",
      errorCode: "command_failed"
    })
  })

  it("calls a refused sandbox internal, and a refused command failed, each with the reason", async () => {
    await using host = createHost({ inMemory: program })
    const { execCommand } = runnerPort(host)
    const execute = (command: string, maxMemoryMb = 256) =>
      execCommand({
        workspacePath: "/tmp",
        limits: { maxRuntimeSec: 30, maxMemoryMb },
        runId: "run-port00050",
        command: { type: "exec", args: { command } }
      })
    const small = await execute("echo", 1)
    assert.deepStrictEqual([small.ok, small.errorCode], [false, "internal"])
    assert.include(small.output, "memoryBytesMax")
    const long = await execute(`echo ${"x".repeat(200_000)}`)
    assert.deepStrictEqual([long.ok, long.errorCode], [false, "command_failed"])
    assert.include(long.output, "at most")
  })
})
