/** An agent of the SDK with a scripted model, and one task: it patches a file, runs a command, pauses and goes on. */
import { assert } from "@effect/vitest"
import { Runner, RunState, tool } from "@openai/agents-core"
import { SandboxAgent, type SandboxClient } from "@openai/agents-core/sandbox"
import { assistantMessage, functionCall, ScriptedModel } from "@openai/agents-core/testing"
import { z } from "zod"
import type { SealedSandboxClient } from "../src/index.ts"
import { lines } from "./MemoryShell.ts"

/** The outputs of tools that the model has read, by the ID of the call. */
const outputsOf = (model: ScriptedModel): Readonly<Record<string, string>> => {
  const input = model.lastCall?.request.input
  if (input === undefined || typeof input === "string") return {}
  return Object.fromEntries(
    input.flatMap((item) =>
      "callId" in item && "output" in item ? [[String(item.callId), JSON.stringify(item.output)]] : []
    )
  )
}

const runner = new Runner({ tracingDisabled: true })

const agentOf = (model: ScriptedModel) =>
  new SandboxAgent({
    name: "clerk",
    model,
    instructions: "Do what you are asked.",
    defaultManifest: {
      entries: {
        "notes/one.txt": { type: "file", content: "first\n" },
        "notes/two": { type: "dir", description: "for later" }
      },
      environment: { WORD: "word" }
    },
    tools: [
      tool({
        name: "publish",
        description: "Publishes the note",
        parameters: z.object({}),
        needsApproval: true,
        execute: async () => "published"
      })
    ]
  })

const patch = (callId: string, path: string, diff: string) => ({
  type: "apply_patch_call" as const,
  callId,
  status: "completed" as const,
  operation: { type: "update_file" as const, path, diff }
})

/** An agent works in a session of the caller, and then goes on from a state that the caller has stored. */
export const ownSession = async (client: SealedSandboxClient): Promise<void> => {
  const reads = () =>
    new ScriptedModel([
      [functionCall("exec_command", { cmd: lines.note }, { callId: "read" })],
      [assistantMessage("done")]
    ])
  const before = reads()
  const session = await client.create({ manifest: agentOf(before).defaultManifest! })
  await session.materializeEntry({ path: "own", entry: { type: "file", content: "of the caller" } })
  await runner.run(agentOf(before), "Read the note", { sandbox: { session } })
  assert.include(outputsOf(before)["read"], "first")
  assert.isTrue(await session.running())
  const stored = JSON.stringify(await client.serializeSessionState(session.state))
  await session.close()

  const sessionState = await client.deserializeSessionState(JSON.parse(stored) as Record<string, unknown>)
  sessionState.environment = { WORD: "word" }
  const next = reads()
  await runner.run(agentOf(next), "Read it again", { sandbox: { client, sessionState } })
  assert.include(outputsOf(next)["read"], "first")
}

/** `client` runs the task. With `after`, the state is stored as JSON in between, and this client goes on. */
export const task = async (
  client: SandboxClient<any, any>,
  after?: () => Promise<SandboxClient<any, any>>
): Promise<void> => {
  const before = new ScriptedModel([
    [patch("patch", "notes/one.txt", "@@\n-first\n+written by a model\n")],
    [functionCall("exec_command", { cmd: lines.note }, { callId: "read" })],
    [functionCall("exec_command", { cmd: lines.variable }, { callId: "variable" })],
    [functionCall("exec_command", { cmd: lines.where, workdir: "../outside" }, { callId: "outside" })],
    [functionCall("view_image", { path: "notes/one.txt" }, { callId: "image" })],
    [functionCall("publish", {}, { callId: "publish" })]
  ])
  const paused = await runner.run(agentOf(before), "Write a note", { sandbox: { client } })
  before.assertComplete()
  assert.strictEqual(paused.interruptions.length, 1)
  const outputs = outputsOf(before)
  assert.include(outputs["read"], "written by a model")
  assert.include(outputs["variable"], "word")
  assert.include(outputs["outside"], "must not escape")
  assert.include(outputs["image"], "is not a supported image file")

  const model = after === undefined ? before : new ScriptedModel()
  model.enqueue(
    [functionCall("exec_command", { cmd: lines.note }, { callId: "again" })],
    [functionCall("exec_command", { cmd: lines.variable }, { callId: "variable again" })],
    [assistantMessage("done")]
  )
  const agent = after === undefined ? paused.lastAgent! : agentOf(model)
  const text = paused.state.toString()
  const next = (await after?.()) ?? client
  const state =
    after === undefined ? paused.state : ((await RunState.fromString(agent, text)) as typeof paused.state)
  for (const interruption of state.getInterruptions()) state.approve(interruption)
  const { finalOutput } = await runner.run(agent, state, { sandbox: { client: next } })
  assert.strictEqual(finalOutput, "done")
  assert.include(outputsOf(model)["publish"], "published")
  assert.include(outputsOf(model)["again"], "written by a model")
  assert.include(outputsOf(model)["variable again"], "word")
}
