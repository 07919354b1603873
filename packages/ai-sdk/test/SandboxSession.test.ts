/** The session over a sandbox in memory, its type, and the AI SDK's own loops with it. */
import { afterAll, assert, beforeAll, describe, expectTypeOf, it } from "@effect/vitest"
import { createSandbox, type Sandbox } from "@cogni/sandbox-promise"
import { Effect } from "effect"
import type { Experimental_SandboxProcess, Experimental_SandboxSession } from "ai"
import { sandboxSession, type SandboxSession } from "../src/index.ts"
import { task } from "./AgentLoop.ts"
import { program, promises } from "./SessionSuite.ts"

describe("a session in memory", () => {
  let sandbox: Sandbox
  beforeAll(async () => {
    sandbox = await createSandbox({ inMemory: program })
  })
  afterAll(() => sandbox.close())

  for (const [title, promise] of Object.entries(promises))
    it.effect(title, () => Effect.promise(() => promise(sandbox, false)))

  it("describes where commands start, and what file operations accept", () => {
    const { description } = sandboxSession(sandbox)
    assert.include(description, sandbox.workspace)
    assert.include(description, "16 MiB")
    assert.strictEqual(sandboxSession(sandbox, { description: "mine" }).description, "mine")
  })

  it("rejects when the sandbox is closed", async () => {
    const own = await createSandbox({ inMemory: program })
    const session = sandboxSession(own)
    await own.close()
    const errors = await Promise.all(
      [session.run({ command: "pwd" }), session.stat({ path: "." }), session.spawn({ command: "cat" })].map(
        (asked) => Promise.resolve(asked).catch((error: unknown) => error)
      )
    )
    for (const error of errors) assert.include(error, { _tag: "Closed" })
  })
})

describe("the AI SDK", () => {
  it.effect("runs tools in a session with generateText and with an agent", () =>
    Effect.promise(async () => {
      await using sandbox = await createSandbox({
        inMemory: async ({ argv, files }) =>
          argv[2] === "cat notes/one.txt" ? { stdout: await files.read("notes/one.txt") } : { exitCode: 127 }
      })
      await task(sandbox, "cat notes/one.txt")
    })
  )

  it("accepts the session's type, in both directions of a process", () => {
    expectTypeOf<SandboxSession>().toExtend<Experimental_SandboxSession>()
    expectTypeOf<keyof SandboxSession>().toEqualTypeOf<keyof Experimental_SandboxSession>()
    expectTypeOf<Awaited<ReturnType<SandboxSession["spawn"]>>>().toExtend<Experimental_SandboxProcess>()
  })
})
