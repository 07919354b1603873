/** Commands of a session: their number, their end, and what becomes of those that are still being started. */
import { emptyOutput } from "@cogni/sandbox-core/RunResult"
import { SandboxError } from "@cogni/sandbox-core/SandboxError"
import { OomKilled } from "@cogni/sandbox-core/SandboxReason"
import { createHost, type Sandbox, Unsupported } from "@cogni/sandbox-promise"
import { assert, describe, it } from "@effect/vitest"
import { setImmediate } from "node:timers/promises"
import * as Pace from "../../../test/harness/Pace.ts"
import * as SessionCommands from "../src/internal/SessionCommands.ts"
import { lines, program } from "./MemoryShell.ts"
import { rejected } from "./SessionSuite.ts"

const commandsOf = (sandbox: Sandbox) =>
  SessionCommands.make(sandbox, {
    shell: "/bin/bash",
    outputCharactersMax: 1000,
    environment: () => ({}),
    directory: () => sandbox.workspace
  })

const opened = async () => {
  const host = createHost({ inMemory: program })
  const sandbox = await host.createSandbox()
  return { sandbox, commands: commandsOf(sandbox), [Symbol.asyncDispose]: () => host.close() }
}

describe("commands of a session", () => {
  it("are counted once while their first output is awaited", async () => {
    await using world = await opened()
    const { sandbox } = world
    const most = SessionCommands.commandsMax - 1
    const all = Promise.withResolvers<void>()
    let started = 0
    const commands = commandsOf({
      ...sandbox,
      spawn: async (command, options) => {
        const process = await sandbox.spawn(command, options)
        if (++started === most) all.resolve()
        return process
      }
    })
    const waiting = Array.from({ length: most }, () =>
      commands.exec({ cmd: lines.cat, yieldTimeMs: Pace.hangMillis }).catch(() => undefined)
    )
    await all.promise
    // Lets the last one be counted.
    await setImmediate()
    assert.strictEqual((await commands.exec({ cmd: lines.both })).exitCode, 3)
    await sandbox.close()
    await Promise.all(waiting)
  })

  it("are ended when the session stops while they start", async () => {
    await using world = await opened()
    const { commands, sandbox } = world
    const gate = Promise.withResolvers<void>()
    let disposed = 0
    const slow = commandsOf({
      ...sandbox,
      spawn: async (command, options) => {
        await gate.promise
        const process = await sandbox.spawn(command, options)
        return {
          ...process,
          [Symbol.asyncDispose]: async () => {
            disposed++
            await process[Symbol.asyncDispose]()
          }
        }
      }
    })
    const starting = rejected(slow.exec({ cmd: lines.sleeps, yieldTimeMs: 1 }))
    await slow.endAll()
    gate.resolve()
    assert.match(String(await starting), /stopped while the command started/u)
    assert.isAtLeast(disposed, 1)
    assert.strictEqual((await commands.exec({ cmd: lines.both })).exitCode, 3)
  })

  it("report a limit that one of them broke, after its output, with its exit code", async () => {
    await using world = await opened()
    const { sandbox } = world
    const partial = { output: emptyOutput, peak: {}, exitCode: 137 }
    const commands = commandsOf({
      ...sandbox,
      spawn: async (command, options) => {
        const process = await sandbox.spawn(command, options)
        const exit = process.exit.then(() =>
          Promise.reject(new SandboxError({ reason: new OomKilled({ memoryBytesMax: 1024, partial }) }))
        )
        exit.catch(() => undefined)
        return { ...process, exit }
      }
    })
    const result = await commands.exec({ cmd: lines.both, yieldTimeMs: Pace.hangMillis })
    assert.include(result, { exitCode: 137, stdout: "out" })
    assert.match(result.stderr, /^err\nthe kernel killed .*memory limit/u)
    assert.include(result.output, "memory limit")
  })

  it("look for the program of a terminal again, unless the image does not have it", async () => {
    await using world = await opened()
    const { sandbox } = world
    let failures = 1
    const exec: Sandbox["exec"] = (command, options) =>
      failures-- > 0 ? Promise.reject(new Error("the engine is away")) : sandbox.exec(command, options)
    const commands = commandsOf({ ...sandbox, exec })
    assert.match(String(await rejected(commands.exec({ cmd: lines.terminal, tty: true }))), /away/u)
    assert.strictEqual((await commands.exec({ cmd: lines.terminal, tty: true })).exitCode, 0)
    const without = commandsOf({ ...sandbox, exec: () => sandbox.exec(lines.both) })
    assert.instanceOf(await rejected(without.exec({ cmd: lines.terminal, tty: true })), Unsupported)
  })
})
