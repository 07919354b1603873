/**
 * An agent of a host: what it is told, how able a model it gets, which tools it may call, and where it executes.
 *
 * Plain data. What a configuration leaves out is the least: the smallest profile of tools, and a sandbox.
 */
import { Schema } from "effect"
import type { ToolProfile } from "@cogni/sandbox-loop/ToolProfile"

/** Under which it is routed to. */
export const AgentName = Schema.String.check(
  Schema.isPattern(/^[a-z][a-z0-9_-]{0,63}$/u, {
    expected: "the name of an agent: 1 to 64 lower-case letters, digits, `_` and `-`, beginning with a letter"
  })
)

/** Which model that is, the host or the configuration's `models` says. */
export const ModelTier = Schema.Literals(["fast", "default", "complex", "local"])

export type ModelTier = typeof ModelTier.Type

/** The name of a tool such as `shell.exec`, of a group of them such as `process.*`, or `*`. */
export const ToolEntry = Schema.String.check(
  Schema.isPattern(/^(?:\*|[A-Za-z][A-Za-z0-9_.-]{0,62}\*?)$/u, {
    expected: "the name of a tool such as shell.exec, or of a group of them such as process.*"
  })
)

export interface AgentConfig {
  readonly name: string
  /** Instead of the host's own. */
  readonly systemPrompt?: string
  readonly modelTier: ModelTier
  readonly toolProfile: ToolProfile
  /** What differs from the profile; `deny` goes before `allow`. */
  readonly toolOverrides: { readonly allow: ReadonlyArray<string>; readonly deny: ReadonlyArray<string> }
  /** Whether it executes in a container, where the configuration has those. Otherwise on the host, if it has an executor. */
  readonly sandbox: boolean
}
