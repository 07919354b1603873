/** What the parts of `ToolContract` stand on: the executor that is tested, and its tools. */
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

/** What is tested, with a workspace of its own that is empty. */
export class TestExecutor extends Context.Service<TestExecutor, Executor>()(
  "@cogni/sandbox-loop/testing/TestExecutor"
) {}

/** What a backend does in its own way. */
export interface Fixture {
  /** A command line that behaves so. */
  readonly command: (behaviour: CommandBehaviour.Behaviour) => string
  /** Whether commands are of a real shell, over the same files as `files`. */
  readonly hasShell: boolean
}

export const memoryFixture: Fixture = { command: CommandBehaviour.memory.line, hasShell: false }

export const shellFixture: Fixture = { command: CommandBehaviour.shell.line, hasShell: true }

export const context: ToolContext = {
  runId: RunId.RunId.make("run-000000000000"),
  identity: { billingAccountId: "test", attempt: 0 },
  requestId: "call-1"
}

/** Of a session whose workspace is a directory of the host. */
export const hostDirectory = "/srv/project"

/** What a tool gives. */
export type Result = Readonly<Record<string, unknown>>

/** The tools, as a part of the contract calls them. */
export interface Tools {
  readonly workspace: string
  readonly commandOf: Fixture["command"]
  readonly call: (name: string, input: unknown) => Effect.Effect<Result, ToolFailed>
  /** Lets a call fail, and gives what the model reads. */
  readonly refused: (name: string, input: unknown) => Effect.Effect<ToolFailed>
  readonly shell: (behaviour: CommandBehaviour.Behaviour, more?: object) => Effect.Effect<Result, ToolFailed>
  readonly start: (behaviour: CommandBehaviour.Behaviour, more?: object) => Effect.Effect<string, ToolFailed>
}

/** By what they promise. */
export type Promises = Readonly<Record<string, (tools: Tools) => Effect.Effect<void, ToolFailed>>>

/** Fresh ones, with a table of processes that ends with the test. */
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

/** Look again until it is so; for five minutes at most. */
export const until = <A, E>(look: Effect.Effect<A, E>, so: (found: A) => boolean) =>
  look.pipe(
    Effect.repeat({ until: so, times: 6000, schedule: Schedule.spaced("50 millis") }),
    Effect.tap((last) => Effect.sync(() => assert.isTrue(so(last), `it never was: ${JSON.stringify(last)}`)))
  )
