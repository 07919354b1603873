/** The backend over a sandbox in memory, and the framework's own agent loop with a scripted model. */
import { assert, describe, it } from "@effect/vitest"
import { createHost, createSandbox, type MemoryProgram } from "@cogni/sandbox-promise"
import { fakeModel } from "@langchain/core/testing"
import { AIMessage, ToolMessage } from "@langchain/core/messages"
import { createDeepAgent, isSandboxProtocol, SandboxError as BackendError } from "deepagents"
import { deepAgentsBackend } from "../src/index.ts"

const text = new TextDecoder()

/** A shell that knows three lines. */
const program: MemoryProgram = async ({ argv, files, signal }) => {
  const [name = "", ...rest] = (argv[0] === "/bin/sh" ? (argv[2] ?? "") : argv.join(" ")).split(" ")
  switch (name) {
    case "cat":
      return { stdout: await files.read(rest[0]!) }
    case "fail":
      return { exitCode: 3, stdout: "before", stderr: "no such thing\n" }
    case "print":
      return { stdout: "x".repeat(Number(rest[0])) }
    case "wait":
      await new Promise((_, reject) => signal.addEventListener("abort", () => reject(new Error("killed"))))
      return {}
    default:
      return { exitCode: 127, stderr: `${name}: not found\n` }
  }
}

const rejected = async (promise: unknown): Promise<unknown> => {
  try {
    await promise
  } catch (error) {
    return error
  }
  return assert.fail("it did not reject")
}

describe("deepAgentsBackend", () => {
  it("is a sandbox of the framework, with the run's ID", async () => {
    await using sandbox = await createSandbox({ inMemory: program })
    const backend = deepAgentsBackend(sandbox)
    assert.isTrue(isSandboxProtocol(backend))
    assert.strictEqual(backend.id, sandbox.runId)
  })

  it("returns output, exit code and standard error as one text", async () => {
    await using sandbox = await createSandbox({ inMemory: program })
    const backend = deepAgentsBackend(sandbox)
    assert.deepStrictEqual(await backend.execute("fail"), {
      output: "before\nno such thing\n",
      exitCode: 3,
      truncated: false
    })
    const { output, truncated } = await backend.execute("print 40000")
    assert.deepStrictEqual([output.length, truncated], [32_768, true])
  })

  it("returns a command that broke a limit as a result", async () => {
    await using sandbox = await createSandbox({ inMemory: program, limits: { outputBytesMax: 5 } })
    const said = await deepAgentsBackend(sandbox).execute("print 10")
    assert.deepInclude(said, { exitCode: null, truncated: true })
    assert.match(said.output, /wrote more than/u)
  })

  it.each(["timeoutSecondsMax", "outputRetainedBytesMax"] as const)(
    "refuses a value of %s that is not positive",
    async (name) => {
      await using sandbox = await createSandbox({ inMemory: program })
      for (const value of [0, -1, Number.NaN]) {
        assert.throws(() => deepAgentsBackend(sandbox, { [name]: value }), RangeError, name)
      }
    }
  )

  it("reports a file tool whose command broke a limit as an error with the reason", async () => {
    await using sandbox = await createSandbox({
      inMemory: ({ argv }) => ({
        stdout: argv[2]!.startsWith("test -e") ? "" : "/a.txt:1:one\n/b.txt:2:two\n"
      }),
      limits: { outputBytesMax: 20 }
    })
    const backend = deepAgentsBackend(sandbox)
    for (const { error, ...rest } of [
      await backend.grep("o", "/"),
      await backend.glob("*.txt", "/"),
      await backend.ls("/"),
      await backend.read("/a.txt"),
      await backend.delete("/a.txt")
    ]) {
      assert.match(error ?? "no error", /wrote more than/u)
      assert.deepStrictEqual(rest, {})
    }
  })

  it("tells the agent when the matches of a search or the entries of a directory are not complete", async () => {
    await using sandbox = await createSandbox({
      inMemory: () => ({ stdout: "/a.txt:1:one\n/b.txt:2:two\n" }),
      limits: { outputRetainedBytesMax: 15 }
    })
    const backend = deepAgentsBackend(sandbox)
    const { matches = [], truncated } = await backend.grep("o", "/")
    assert.deepStrictEqual([matches[0]?.path, truncated], ["/a.txt", true])
    assert.match((await backend.ls("/")).error ?? "no error", /too many entries/u)
  })

  it("reports a copy outside the workspace whose command broke a limit as a file that is not permitted", async () => {
    await using sandbox = await createSandbox({
      inMemory: () => ({ stdout: "0123456789" }),
      limits: { outputBytesMax: 5 }
    })
    const backend = deepAgentsBackend(sandbox, { timeoutSecondsMax: 1 })
    const [written] = await backend.uploadFiles([["/tmp/a", new Uint8Array(1)]])
    assert.strictEqual(written!.error, "permission_denied")
  })

  it("uploads, edits and downloads files of the workspace, each with its own outcome", async () => {
    await using sandbox = await createSandbox({ inMemory: program })
    const backend = deepAgentsBackend(sandbox)
    const path = `${sandbox.workspace}/a/b.txt`
    assert.deepStrictEqual(await backend.uploadFiles([[path, new TextEncoder().encode("one two")]]), [
      { path, error: null }
    ])
    assert.strictEqual((await backend.edit(path, "one", "1")).occurrences, 1)
    assert.strictEqual((await backend.execute("cat a/b.txt")).output, "1 two")
    const [found, directory, absent] = await backend.downloadFiles([
      path,
      `${sandbox.workspace}/a`,
      `${sandbox.workspace}/absent`
    ])
    assert.strictEqual(text.decode(found!.content!), "1 two")
    assert.deepStrictEqual([directory!.error, absent!.error], ["is_directory", "file_not_found"])
  })

  it("rejects with the framework's error when the sandbox is closed, with ours as its cause", async () => {
    await using host = createHost({ inMemory: program })
    const sandbox = await host.createSandbox()
    const backend = deepAgentsBackend(sandbox)
    const waiting = rejected(backend.execute("wait"))
    assert.isTrue(backend.isRunning)
    await sandbox.close()
    await sandbox.ended
    assert.isFalse(backend.isRunning)
    for (const [error, code] of [
      [await waiting, "COMMAND_FAILED"],
      [await rejected(backend.execute("cat a")), "COMMAND_FAILED"],
      [await rejected(backend.downloadFiles(["a"])), "FILE_OPERATION_FAILED"],
      [await rejected(backend.uploadFiles([["a", new Uint8Array(0)]])), "FILE_OPERATION_FAILED"]
    ] as const) {
      if (!BackendError.isInstance(error)) return assert.fail(String(error))
      assert.strictEqual(error.code, code)
      assert.deepInclude<object | undefined>(error.cause, { _tag: "Closed", what: "sandbox" })
      assert.match(error.message, /the sandbox is closed/u)
    }
  })
})

describe("an agent of the framework", () => {
  it("works in the sandbox, and sees what its commands print", async () => {
    await using sandbox = await createSandbox({ inMemory: program })
    const file_path = `${sandbox.workspace}/note.txt`
    const model = fakeModel()
      .respondWithTools([{ name: "write_file", args: { file_path, content: "half" } }])
      .respondWithTools([{ name: "edit_file", args: { file_path, old_string: "half", new_string: "whole" } }])
      .respondWithTools([{ name: "execute", args: { command: "cat note.txt" } }])
      .respondWithTools([{ name: "execute", args: { command: "fail" } }])
      .respond(new AIMessage("done"))
    const agent = createDeepAgent({ model, backend: deepAgentsBackend(sandbox) })
    const { messages } = await agent.invoke({ messages: [{ role: "user", content: "Write a note." }] })
    const said = messages.filter((message) => ToolMessage.isInstance(message)).map((message) => message.text)
    assert.deepStrictEqual(said.slice(2), [
      "whole\n[Command succeeded with exit code 0]",
      "before\nno such thing\n\n[Command failed with exit code 3]"
    ])
    assert.strictEqual(messages.at(-1)?.text, "done")
    assert.strictEqual(await sandbox.files.readText("note.txt"), "whole")
  })
})
