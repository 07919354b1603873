/** Mastra's own agent loop with a scripted model, whose tools are those that Mastra makes for a workspace. */
import { assert } from "@effect/vitest"
import type { Sandbox } from "@cogni/sandbox-promise"
import { Agent } from "@mastra/core/agent"
import { Workspace } from "@mastra/core/workspace"
import { type Call, resultsOf, scripted } from "../../ai-sdk/test/ScriptedModel.ts"
import { mastraSandbox } from "../src/index.ts"

/** The mock has the interface of the AI SDK, whose promises need not be those of the language. */
type AgentModel = Extract<ConstructorParameters<typeof Agent>[0]["model"], { specificationVersion: "v4" }>

/** Returns the results of tools that the model reads, as text. */
export const results = async (
  sandbox: Sandbox,
  calls: ReadonlyArray<Call>
): Promise<ReadonlyArray<string>> => {
  const adapter = mastraSandbox(sandbox)
  const workspace = new Workspace({ sandbox: adapter, filesystem: adapter.filesystem })
  await workspace.init()
  const model = scripted(calls)
  const agent = new Agent({
    id: "worker",
    name: "worker",
    instructions: "Work.",
    model: model as AgentModel,
    workspace
  })
  const { text } = await agent.generate("Go", { maxSteps: calls.length + 1 })
  assert.strictEqual(text, "done")
  const prompt = JSON.stringify(model.doGenerateCalls[0]?.prompt)
  assert.include(prompt, sandbox.workspace)
  await workspace.destroy()
  return resultsOf(model).map((output) => JSON.stringify(output))
}

const tool = (name: string) => `mastra_workspace_${name}`

/** Writes, edits and reads a file with the file tools, and runs it with a command. `run` prints the file. */
export const task = async (sandbox: Sandbox, run: string): Promise<void> => {
  const said = await results(sandbox, [
    { tool: tool("write_file"), input: { path: "note.txt", content: "half" } },
    { tool: tool("read_file"), input: { path: `${sandbox.workspace}/note.txt` } },
    { tool: tool("edit_file"), input: { path: "note.txt", old_string: "half", new_string: "whole" } },
    { tool: tool("execute_command"), input: { command: run } },
    { tool: tool("list_files"), input: { path: "." } },
    { tool: tool("grep"), input: { pattern: "who.e" } },
    { tool: tool("read_file"), input: { path: "/etc/passwd" } },
    { tool: tool("execute_command"), input: { command: "no-such-program" } },
    { tool: tool("delete"), input: { path: "note.txt" } },
    { tool: tool("file_stat"), input: { path: "note.txt" } }
  ])
  const expected = [
    /Wrote 4 bytes/u,
    /half/u,
    /note\.txt/u,
    /whole/u,
    /note\.txt/u,
    /note\.txt:1:1: whole/u,
    /outside the workspace/u,
    /Exit code: 127/u,
    /Deleted note\.txt/u,
    /not found/u
  ]
  assert.strictEqual(said.length, expected.length, said.join("\n"))
  expected.forEach((pattern, at) => assert.match(said[at]!, pattern))
}
