/**
 * The tools of one executor, for commands, files and background processes, and a session's registry of them.
 *
 * The command, chat sessions and the loop on the host all take their tools from here.
 */
import type { Executor } from "@cogni/sandbox-core/Executor"
import { Effect, type Scope } from "effect"
import * as FileTools from "./FileTools.ts"
import * as ProcessTable from "./ProcessTable.ts"
import * as ProcessTools from "./ProcessTools.ts"
import * as ShellTools from "./ShellTools.ts"
import type { Tool } from "./Tool.ts"
import type { ToolOverrides, ToolProfile, UnknownTools } from "./ToolProfile.ts"
import * as ToolRegistry from "./ToolRegistry.ts"

interface ExecutorToolsOptions extends ShellTools.ShellToolsOptions, FileTools.FileToolsOptions {
  /** Background processes of this executor (default: none, and no `process.*` tools). */
  readonly processes?: ProcessTable.ProcessTable | undefined
}

export const make = (
  executor: Executor,
  { processes, ...options }: ExecutorToolsOptions = {}
): ReadonlyArray<Tool> => [
  ...ShellTools.make(executor, options),
  ...(processes === undefined ? [] : ProcessTools.make(executor, processes, options)),
  ...FileTools.make(executor, options)
]

interface SessionToolsOptions extends Omit<ExecutorToolsOptions, "processes"> {
  readonly profile: ToolProfile
  readonly overrides?: ToolOverrides | undefined
  /** Further tools of the session, which its profile must allow too. */
  readonly more?: ReadonlyArray<Tool> | undefined
}

/** Makes a session's registry, restricted by its profile. Its processes end with the scope. */
export const registry = Effect.fnUntraced(function* (
  executor: Executor,
  { more = [], overrides, profile, ...options }: SessionToolsOptions
): Effect.fn.Return<ToolRegistry.ToolRegistry, ToolRegistry.ToolRegistryError | UnknownTools, Scope.Scope> {
  const processes = yield* ProcessTable.make(executor)
  const tools = [...more, ...make(executor, { ...options, processes })]
  const all = yield* Effect.fromResult(ToolRegistry.make(tools))
  return yield* Effect.fromResult(all.restrict(profile, overrides))
})
