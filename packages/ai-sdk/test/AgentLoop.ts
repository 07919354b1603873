/** Tools that use the sandbox of the AI SDK's loop, as an application would write them, and one task with them. */
import { assert } from "@effect/vitest"
import type { Sandbox } from "@cogni/sandbox-promise"
import { generateText, isStepCount, jsonSchema, tool, ToolLoopAgent } from "ai"
import { sandboxSession } from "../src/index.ts"
import { resultsOf, scripted } from "./ScriptedModel.ts"

const object = <A>(...names: ReadonlyArray<string>) =>
  jsonSchema<A>({
    type: "object",
    properties: Object.fromEntries(names.map((name) => [name, { type: "string" as const }])),
    required: [...names],
    additionalProperties: false
  })

const shell = tool({
  description: ({ experimental_sandbox }) => `Runs a command. ${experimental_sandbox?.description ?? ""}`,
  inputSchema: object<{ command: string }>("command"),
  execute: async ({ command }, { abortSignal, experimental_sandbox }) =>
    await experimental_sandbox!.run({ command, ...(abortSignal === undefined ? {} : { abortSignal }) })
})

const write = tool({
  description: "Writes a file",
  inputSchema: object<{ path: string; content: string }>("path", "content"),
  execute: async ({ content, path }, { experimental_sandbox }) => {
    await experimental_sandbox!.writeTextFile({ path, content })
    return await experimental_sandbox!.stat({ path })
  }
})

/** Writes a file with one tool and reads it with another. `read` is the command for that. */
export const task = async (sandbox: Sandbox, read: string): Promise<void> => {
  const experimental_sandbox = sandboxSession(sandbox)
  const tools = { shell, write }
  const calls = [
    { tool: "write", input: { path: "notes/one.txt", content: "written by a model" } },
    { tool: "shell", input: { command: read } },
    { tool: "write", input: { path: "../outside", content: "x" } }
  ]
  const check = (model: ReturnType<typeof scripted>) => {
    const [wrote, said, refused] = resultsOf(model)
    assert.deepStrictEqual(wrote, { type: "json", value: { type: "file", size: 18 } })
    assert.deepStrictEqual(said, {
      type: "json",
      value: { exitCode: 0, stdout: "written by a model", stderr: "" }
    })
    assert.include(JSON.stringify(refused), "leads out of the workspace")
    assert.include(JSON.stringify(model.doGenerateCalls[0]?.tools), sandbox.workspace)
  }
  const model = scripted(calls)
  const { text } = await generateText({
    model,
    tools,
    prompt: "Write a note, and read it",
    stopWhen: isStepCount(5),
    experimental_sandbox
  })
  assert.strictEqual(text, "done")
  check(model)

  const other = scripted(calls)
  const agent = new ToolLoopAgent({ model: other, tools, stopWhen: isStepCount(5) })
  assert.strictEqual((await agent.generate({ prompt: "Again", experimental_sandbox })).text, "done")
  check(other)
}
