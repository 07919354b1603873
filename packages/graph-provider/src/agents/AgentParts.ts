/**
 * Parts of which the built-in agents are made.
 */
import type { Input } from "@cogni/sandbox-core/SpecFields"
import { type AgentTask } from "./AgentFields.ts"
import type { Capabilities } from "./AgentFields.ts"

/** Capabilities of a coding agent that has its own tools, reports their calls, and takes one prompt. */
export const codingCapabilities = (streaming: Capabilities["streaming"]): Capabilities => ({
  tools: true,
  streaming,
  toolEvents: true,
  history: "prompt",
  personalities: [],
  sessions: true
})

/** Returns the input file that contains the messages. */
export const messagesInput = (task: Pick<AgentTask, "messages">): Input => ({
  name: "messages.json",
  content: JSON.stringify(task.messages)
})

/** Name of the only model provider in the configuration of agents. */
export const provider = "cogni"

/** Provider entry in the configuration of pi and OpenClaw. */
export const chatProvider = ({ model }: AgentTask) => ({
  baseUrl: "http://localhost:8080/v1",
  api: "openai-completions",
  apiKey: "none",
  models: [{ id: model, name: model }]
})

/** Returns the default tag of an agent's image. A full reference has a tag, a digest or a path, and is returned as it is. */
export const defaultImage = (image: string): string =>
  /[:/@]/u.test(image) ? image : `cogni-sandbox/${image}:latest`
