/** Tools over a memory sandbox, whose commands run a program of the test. */
import type { Executor } from "@cogni/sandbox-core/Executor"
import type { Program } from "@cogni/sandbox-core/MemoryContainerRuntime"
import * as RunId from "@cogni/sandbox-core/RunId"
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import type { SandboxSpecInput } from "@cogni/sandbox-core/SandboxSpec"
import * as Tool from "@cogni/sandbox-loop/Tool"
import { program } from "@cogni/sandbox-loop/testing/CommandBehaviour"
import * as CommandBehaviour from "../src/testing/CommandBehaviour.ts"
import { wireName } from "@cogni/sandbox-loop/Tool"
import { Deferred, Effect, Schema, Stream } from "effect"

export const session = {
  runId: RunId.RunId.make("run-000000000000"),
  identity: { billingAccountId: "test", attempt: 0 }
} as const

export const context: Tool.ToolContext = { ...session, requestId: "call-1" }

/** Returns a command line with a behaviour. */
export const command = CommandBehaviour.memory.line

/** Opens a sandbox until the test ends. */
export const open = (run: Program = program, limits: SandboxSpecInput["limits"] = {}) =>
  Effect.flatMap(SandboxRunner.SandboxRunner, (runner) =>
    runner.open({ image: "memory/tools", limits: { runtimeSecondsMax: 86_400, ...limits } })
  ).pipe(Effect.provide(SandboxRunner.layerMemory({ program: run }), { local: true }))

/** An executor with only the parts that a test uses. */
export const executorOf = (parts: Partial<Executor>): Executor => ({
  workspace: "/workspace",
  exec: () => Effect.die("no exec"),
  spawn: () => Effect.die("no spawn"),
  files: {
    read: () => Effect.die("no read"),
    write: () => Effect.die("no write"),
    list: () => Effect.die("no list"),
    stat: () => Effect.die("no stat"),
    remove: () => Effect.die("no remove")
  },
  ...parts
})

export const calling =
  (tools: ReadonlyArray<Tool.Tool>) =>
  (name: string, input: unknown): Effect.Effect<Readonly<Record<string, unknown>>, Tool.ToolFailed> =>
    tools.find((tool) => tool.name === wireName(name))!.call(input, context) as Effect.Effect<
      Readonly<Record<string, unknown>>,
      Tool.ToolFailed
    >

/** A tool that returns its mark. */
export const toolNamed = (name: string, mark: string, effect: Tool.ToolEffect = "read_only"): Tool.Tool =>
  Tool.make({
    name,
    description: mark,
    effect,
    input: Schema.Struct({ text: Schema.optionalKey(Schema.String) }),
    output: Schema.Struct({ mark: Schema.String, text: Schema.optionalKey(Schema.String) }),
    execute: ({ text }) => Effect.succeed({ mark, ...(text === undefined ? {} : { text }) })
  })

/** An executor whose commands run until their scope closes. */
export const endless = Effect.gen(function* () {
  const begun = yield* Deferred.make<void>()
  const ended = yield* Deferred.make<void>()
  const executor = executorOf({
    spawn: () =>
      Effect.acquireRelease(
        Effect.as(Deferred.succeed(begun, undefined), {
          output: Stream.never,
          exit: Effect.never,
          signal: () => Effect.void
        }),
        () => Deferred.succeed(ended, undefined)
      )
  })
  return { begun, ended, executor }
})
