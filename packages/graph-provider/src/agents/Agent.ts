/**
 * A coding agent as data: what to start, which files to place in its sandbox, and how to parse its output.
 *
 * No code of the agent runs on the host. `argv`, `env` and `inputs` are pure functions of a task. `reader` is a pure
 * function of the sandbox's output, every byte of which it treats as hostile. An agent has no access to credentials:
 * core configures how it reaches its model, through a socket.
 */
import { Schema } from "effect"
import type { Input, Limits } from "@cogni/sandbox-core/SpecFields"
import * as SessionDirectory from "../internal/SessionDirectory.ts"
import { type AgentReader, answered, failed, jsonLines, whole } from "./AgentOutput.ts"
import { ModelApi, Capabilities } from "./AgentFields.ts"
import type { AgentSession, AgentTask } from "./AgentFields.ts"

export const AgentId = Schema.String.check(
  Schema.isPattern(/^[a-z][a-z0-9-]{0,31}$/u, {
    expected: "at most 32 lower-case letters, digits and hyphens, starting with a letter"
  })
).pipe(Schema.brand("@cogni/sandbox-graph-provider/AgentId"))

export type AgentId = typeof AgentId.Type

/** Description of an agent for people and catalogs. */
export const AgentDescription = Schema.Struct({
  id: AgentId,
  name: Schema.NonEmptyString,
  description: Schema.NonEmptyString,
  /**
   * A full reference, such as `registry.example.com/agent:1`, or a short name, such as `codex`, for which the caller has
   * a tag.
   */
  image: Schema.String.check(
    Schema.isPattern(/^[a-z0-9][\w.:/@-]{0,511}$/u, { expected: "a short name, or a reference of an image" })
  ),
  modelApi: ModelApi,
  capabilities: Capabilities
})

export type AgentDescription = typeof AgentDescription.Type

type Argv = readonly [string, ...ReadonlyArray<string>]

export interface Agent extends AgentDescription {
  /** Command line, without the prompt: one argument is limited to 128 KiB, and visible in `ps`. */
  readonly argv: (task: AgentTask) => Argv
  readonly env: (task: AgentTask) => Readonly<Record<string, string>>
  /**
   * Program of the image that loads the agent's code in a sandbox of a pool, and becomes the agent when a run comes
   * (`receiveRun` of the runtime image's `preload.mjs`). The same for every task.
   */
  readonly preload?: Argv | undefined
  /** Limits that this agent needs, unless the caller sets others. */
  readonly limits: Partial<Limits>
  /** Files at `/cogni/<name>`, read-only. */
  readonly inputs: (task: AgentTask) => ReadonlyArray<Input>
  /** Parses the standard output of one run. */
  readonly reader: AgentReader
}

/**
 * Parts of a reader for an agent of an application: `jsonLines` for one JSON object per line, `whole` for one document
 * at the end; `answered` and `failed` for its outcome. They bound the size of what they read, and never throw.
 */
export const readers = { answered, failed, jsonLines, whole } as const

/** Returns the input file that contains the prompt. */
export const promptInput = (task: Pick<AgentTask, "messages">): Input => ({
  name: "prompt.md",
  content: prompt(task.messages)
})

export const promptPath = "/cogni/prompt.md"

/** Makes the prompt file the standard input of a command, with a program of the runtime image. */
export const withPrompt = (argv: Argv): Argv => ["/usr/local/bin/cogni-stdin", promptPath, ...argv]

/**
 * Creates the directory of a session before a command starts, because some agents refuse a missing one. `configuration`
 * names what configures the agent there: an earlier turn may have written it, so it is removed.
 */
export const withSession = (
  session: AgentSession | undefined,
  argv: Argv,
  configuration: ReadonlyArray<string> = []
): Argv =>
  session === undefined
    ? argv
    : [
        "/bin/sh",
        "-c",
        SessionDirectory.script,
        "sh",
        session.directory,
        String(configuration.length),
        ...configuration,
        ...argv
      ]

/**
 * Merges a conversation into one prompt, for agents that accept nothing else. The last message comes last, unchanged.
 * Earlier turns are quoted above it, each in a tag of its role.
 */
const prompt = (messages: AgentTask["messages"]): string => {
  const earlier = messages.slice(0, -1)
  const last = messages.at(-1)!
  if (earlier.length === 0) return last.content
  const turns = earlier.map(({ content, role }) => `<${role}>\n${content}\n</${role}>`)
  return ["Earlier messages:", ...turns, "The current request:", last.content].join("\n\n")
}
