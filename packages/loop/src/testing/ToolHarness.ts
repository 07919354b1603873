/** Common setup of `ToolContract`: the tested executor and its tools. */
import type { Executor } from "@cogni/sandbox-core/Executor"
import * as RunId from "@cogni/sandbox-core/RunId"
import { type Tool, type ToolContext, type ToolFailed, wireName } from "../Tool.ts"
import { assert } from "@effect/vitest"
import { Context, Effect, Schedule } from "effect"
import * as FileTools from "../FileTools.ts"
import * as ProcessTable from "../ProcessTable.ts"
import * as ProcessTools from "../ProcessTools.ts"
import * as ShellTools from "../ShellTools.ts"
import * as CommandBehaviour from "./CommandBehaviour.ts"

/** The tested executor, with its own empty workspace. */
export class TestExecutor extends Context.Service<TestExecutor, Executor>()(
  "@cogni/sandbox-loop/testing/TestExecutor"
) {}

/** Properties of one kind of executor. */
export interface Fixture {
  /** Returns a command line with this behaviour. */
  readonly command: (behaviour: CommandBehaviour.Behaviour) => string
  /** True if commands run in a real shell, over the same files as `files`. */
  readonly hasShell: boolean
}

export const memoryFixture: Fixture = { command: CommandBehaviour.memory.line, hasShell: false }

export const shellFixture: Fixture = { command: CommandBehaviour.shell.line, hasShell: true }

export const context: ToolContext = {
  runId: RunId.RunId.make("run-000000000000"),
  identity: { billingAccountId: "test", attempt: 0 },
  requestId: "call-1"
}

/** Directory of the host that is the session's workspace. */
export const hostDirectory = "/srv/project"

/** Result of a tool. */
export type Result = Readonly<Record<string, unknown>>

/** The tools, as tests of the contract call them. */
export interface Tools {
  readonly workspace: string
  readonly commandOf: Fixture["command"]
  readonly call: (name: string, input: unknown) => Effect.Effect<Result, ToolFailed>
  /** Expects a call to fail, and returns the failure. */
  readonly refused: (name: string, input: unknown) => Effect.Effect<ToolFailed>
  readonly shell: (behaviour: CommandBehaviour.Behaviour, more?: object) => Effect.Effect<Result, ToolFailed>
  readonly start: (behaviour: CommandBehaviour.Behaviour, more?: object) => Effect.Effect<string, ToolFailed>
}

/** Tests by title. */
export type Promises = Readonly<Record<string, (tools: Tools) => Effect.Effect<void, ToolFailed>>>

/** Creates the tools, with a process table that ends with the test. */
export const toolsOf = Effect.fnUntraced(function* (fixture: Fixture) {
  const executor = yield* TestExecutor
  const table = yield* ProcessTable.make(executor, { logBytesMax: 8192 })
  const tools: ReadonlyArray<Tool> = [
    ...ShellTools.make(executor, {
      hostDirectory,
      outputBytesMax: 2000,
      outputReadBytesMax: 4 * 1024 * 1024
    }),
    ...ProcessTools.make(executor, table, { hostDirectory }),
    ...FileTools.make(executor, { hostDirectory })
  ]
  const call = (name: string, input: unknown) =>
    tools.find((tool) => tool.name === wireName(name))!.call(input, context) as Effect.Effect<
      Result,
      ToolFailed
    >
  return {
    workspace: executor.workspace,
    commandOf: fixture.command,
    call,
    refused: (name, input) => Effect.flip(call(name, input)).pipe(Effect.orDie),
    shell: (behaviour, more = {}) => call("shell.exec", { command: fixture.command(behaviour), ...more }),
    start: (behaviour, more = {}) =>
      Effect.map(call("process.start", { command: fixture.command(behaviour), ...more }), ({ process_id }) =>
        String(process_id)
      )
  } satisfies Tools
})

/** Repeats until the condition holds, for five minutes at most. */
export const until = <A, E>(look: Effect.Effect<A, E>, so: (found: A) => boolean) =>
  look.pipe(
    Effect.repeat({ until: so, times: 6000, schedule: Schedule.spaced("50 millis") }),
    Effect.tap((last) => Effect.sync(() => assert.isTrue(so(last), `timed out: ${JSON.stringify(last)}`)))
  )
