/**
 * An agent of a host, as plain data: its system prompt, model tier, tools and place of execution.
 *
 * The defaults of a configuration are the most restrictive: the smallest tool profile, and a sandbox.
 */
import { Schema } from "effect"
import type { ToolProfile } from "@cogni/sandbox-loop/ToolProfile"

/** Name that routing rules refer to. */
export const AgentName = Schema.String.check(
  Schema.isPattern(/^[a-z][a-z0-9_-]{0,63}$/u, {
    expected: "the name of an agent: 1 to 64 lower-case letters, digits, `_` and `-`, beginning with a letter"
  })
)

/** Model tier. The configuration's `models`, or else the host, selects the model. */
export const ModelTier = Schema.Literals(["fast", "default", "complex", "local"])

export type ModelTier = typeof ModelTier.Type

/** A tool name such as `shell.exec`, a group such as `process.*`, or `*`. */
export const ToolEntry = Schema.String.check(
  Schema.isPattern(/^(?:\*|[A-Za-z][A-Za-z0-9_.-]{0,62}\*?)$/u, {
    expected: "the name of a tool such as shell.exec, or a group of tools such as process.*"
  })
)

export interface AgentConfig {
  readonly name: string
  /** Replaces the host's prompt. */
  readonly systemPrompt?: string
  readonly modelTier: ModelTier
  readonly toolProfile: ToolProfile
  /** Exceptions from the profile; `deny` takes precedence over `allow`. */
  readonly toolOverrides: { readonly allow: ReadonlyArray<string>; readonly deny: ReadonlyArray<string> }
  /** Run the agent in a container, if the configuration enables containers. Otherwise it needs a host executor. */
  readonly sandbox: boolean
}
