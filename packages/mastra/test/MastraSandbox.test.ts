/** The adapter over sandboxes in memory: its promises, its life, and Mastra's own agent loop. */
import { afterAll, assert, beforeAll, describe, expectTypeOf, it } from "@effect/vitest"
import { createHost, createSandbox, type Sandbox } from "@cogni/sandbox-promise"
import {
  type FilesystemError,
  SandboxError,
  SandboxNotReadyError,
  Workspace,
  type WorkspaceSandbox
} from "@mastra/core/workspace"
import { Effect } from "effect"
import { type CogniSandbox, mastraSandbox } from "../src/index.ts"
import * as AgentLoop from "./AgentLoop.ts"
import * as FilesystemSuite from "./FilesystemSuite.ts"
import { lines, program } from "./MemoryShell.ts"
import * as SandboxSuite from "./SandboxSuite.ts"

const { rejected } = SandboxSuite

describe("a sandbox in memory", () => {
  let sandbox: Sandbox
  beforeAll(async () => {
    sandbox = await createSandbox({ inMemory: program })
  })
  afterAll(() => sandbox.close())

  for (const [title, promise] of Object.entries({ ...SandboxSuite.promises, ...FilesystemSuite.promises })) {
    it.effect(title, () => Effect.promise(() => promise(sandbox, false)))
  }

  it("has the types of Mastra", () => {
    expectTypeOf<CogniSandbox>().toExtend<WorkspaceSandbox>()
  })
})

/** Counts the sandboxes that were opened. */
const counted = () => {
  const host = createHost({ inMemory: program })
  const opened: Array<Sandbox> = []
  const asked: Array<string | undefined> = []
  return {
    host,
    opened,
    asked,
    open: async ({ actingUserId }: { readonly actingUserId: string | undefined }) => {
      asked.push(actingUserId)
      const sandbox = await host.createSandbox()
      opened.push(sandbox)
      return sandbox
    }
  }
}

describe("an adapter with a function", () => {
  it("opens one sandbox at the first use, and closes it with its workspace", async () => {
    const { host, open, opened } = counted()
    await using _host = host
    const sandbox = mastraSandbox(open)
    const workspace = new Workspace({ sandbox, filesystem: sandbox.filesystem })
    assert.strictEqual(sandbox.status, "pending")
    assert.strictEqual(opened.length, 0)
    const [, result] = await Promise.all([
      sandbox.filesystem.writeFile("note.txt", "text"),
      sandbox.executeCommand(lines.where)
    ])
    assert.strictEqual(result.exitCode, 0)
    assert.strictEqual(opened.length, 1)
    assert.strictEqual((await sandbox.opened()).runId, opened[0]?.runId)
    await workspace.destroy()
    assert.isUndefined(await opened[0]?.ended)
    assert.include(await rejected(() => opened[0]?.exec("pwd")), { _tag: "Closed" })
    for (const call of [
      () => sandbox.executeCommand(lines.where),
      () => sandbox.filesystem.exists("note.txt")
    ]) {
      assert.instanceOf(await rejected(call), SandboxNotReadyError)
    }
    assert.strictEqual(opened.length, 1)
  })

  it("tries again after a sandbox could not be opened, and reports whether it opened one", async () => {
    await using host = createHost({ inMemory: program })
    let isBroken = true
    const sandbox = mastraSandbox(async () => {
      if (isBroken) throw new Error("no engine")
      return await host.createSandbox()
    })
    assert.include(String(await rejected(() => sandbox.start())), "no engine")
    assert.strictEqual(sandbox.status, "error")
    isBroken = false
    assert.deepStrictEqual(await sandbox.start(), { outcome: "created" })
    assert.deepStrictEqual(await sandbox.start(), { outcome: "connected" })
    await sandbox.destroy()
  })

  it("does not replace a sandbox that is over, and says why", async () => {
    const { host, open, opened } = counted()
    await using _host = host
    const sandbox = mastraSandbox(open)
    const handle = await sandbox.processes.spawn(lines.sleeps)
    await opened[0]!.close()
    for (const call of [
      () => handle.wait(),
      () => sandbox.executeCommand(lines.where),
      () => sandbox.filesystem.readFile("note.txt"),
      () => sandbox.start()
    ]) {
      const error = await rejected(call)
      assert.instanceOf(error, SandboxError)
      assert.deepInclude<object>(error as SandboxError, { code: "NOT_READY" })
      assert.deepInclude<object>((error as Error).cause as object, { _tag: "Closed" })
    }
    assert.strictEqual(sandbox.status, "error")
    assert.isDefined(handle.exitCode)
    assert.strictEqual(opened.length, 1)
  })

  it("closes a sandbox that opens while it is destroyed", async () => {
    const { host, open, opened } = counted()
    await using _host = host
    const gate = Promise.withResolvers<void>()
    const sandbox = mastraSandbox(async (request) => {
      await gate.promise
      return await open(request)
    })
    const starting = sandbox.start()
    const destroying = sandbox.destroy()
    gate.resolve()
    await Promise.all([starting, destroying])
    assert.isUndefined(await opened[0]!.ended)
    assert.include(await rejected(() => opened[0]!.exec("pwd")), { _tag: "Closed" })
  })

  it("closes a sandbox that is over, and leaves one that is not its own", async () => {
    const { host, open, opened } = counted()
    await using _host = host
    const over = Promise.withResolvers<undefined>()
    const own = mastraSandbox(async (request) => ({ ...(await open(request)), ended: over.promise }))
    const other = await host.createSandbox()
    const shared = mastraSandbox({ ...other, ended: over.promise })
    await own.start()
    await shared.start()
    over.resolve(undefined)
    assert.isUndefined(await opened[0]!.ended)
    assert.strictEqual((await other.exec(lines.where)).exitCode, 0)
  })

  it("ends a process that starts while the adapter is destroyed", async () => {
    await using sandbox = await createSandbox({ inMemory: program })
    const gate = Promise.withResolvers<void>()
    const started = Promise.withResolvers<void>()
    let disposed = 0
    const adapter = mastraSandbox({
      ...sandbox,
      spawn: async (command, options) => {
        const process = await sandbox.spawn(command, options)
        started.resolve()
        await gate.promise
        return {
          ...process,
          [Symbol.asyncDispose]: async () => {
            disposed++
            await process[Symbol.asyncDispose]()
          }
        }
      }
    })
    await adapter.start()
    const starting = rejected(() => adapter.processes.spawn(lines.sleeps))
    await started.promise
    await adapter.destroy()
    gate.resolve()
    assert.match(String(await starting), /destroyed while the process started/u)
    assert.strictEqual(disposed, 1)
  })

  it("tells a file command that broke a limit from a sandbox that is over", async () => {
    await using sandbox = await createSandbox({
      inMemory: () => ({ stdout: "0123456789" }),
      limits: { outputBytesMax: 5 }
    })
    const { filesystem } = mastraSandbox(sandbox)
    const error = await rejected(() => filesystem.appendFile("note.txt", "text"))
    assert.deepInclude<object>(error as FilesystemError, { name: "FilesystemError", code: "COMMAND_FAILED" })
    assert.match(String(error), /append failed: .*wrote more than/u)
    assert.deepInclude<object>((error as Error).cause as object, { _tag: "SandboxError" })
  })

  it("is a template for others, which open sandboxes of their own", async () => {
    const { asked, host, open, opened } = counted()
    await using _host = host
    const template = mastraSandbox(open, { env: { WORD: "inherited" }, timeoutSecondsMax: 5 })
    const one = template.clone({ id: "one", actingUserId: "ada" })
    const two = template.clone({ env: { WORD: "own" }, workingDirectory: "/tmp" })
    assert.strictEqual(one.id, "one")
    assert.notStrictEqual(two.id, template.id)
    assert.strictEqual((await one.executeCommand(lines.variable)).stdout, "inherited")
    assert.strictEqual((await two.executeCommand(lines.variable)).stdout, "own")
    assert.strictEqual((await two.executeCommand(lines.where)).stdout, "/tmp\n")
    assert.deepStrictEqual(asked, ["ada", undefined])
    assert.strictEqual(new Set(opened.map(({ runId }) => runId)).size, 2)
    await Promise.all([one.destroy(), two.destroy()])
  })

  it("refuses limits that are not positive", () => {
    for (const limit of [0, -1, Number.NaN]) {
      assert.throws(() => mastraSandbox(counted().open, { processesMax: limit }), RangeError, /processesMax/u)
    }
  })
})

describe("a workspace of Mastra", () => {
  it("tells the agent which mounts commands cannot reach", async () => {
    await using host = createHost({ inMemory: program })
    const sandbox = mastraSandbox(() => host.createSandbox())
    const other = mastraSandbox(() => host.createSandbox())
    const workspace = new Workspace({
      sandbox,
      mounts: { "/workspace": sandbox.filesystem, "/data": other.filesystem }
    })
    await workspace.init()
    const entries = [...(sandbox.mounts?.entries ?? [])].map(([path, { error, state }]) => ({
      path,
      state,
      error
    }))
    assert.deepInclude(entries[0], { path: "/workspace", state: "mounted" })
    assert.deepInclude(entries[1], { path: "/data", state: "error" })
    assert.include(entries[1]?.error, "commands cannot reach")
    assert.match(workspace.getInstructions(), /NOT available in shell commands\):\n {2}- \/data/u)
    await workspace.filesystem.writeFile("/workspace/note.txt", "mounted")
    assert.strictEqual((await sandbox.executeCommand(lines.echo)).stdout, "mounted")
    await workspace.destroy()
  })

  it.effect("gives an agent tools for files and commands", () =>
    Effect.promise(async () => {
      await using sandbox = await createSandbox({ inMemory: program })
      await AgentLoop.task(sandbox, lines.echo)
    })
  )
})
