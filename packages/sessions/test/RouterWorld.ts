/** A router over agents, sandboxes and a host that only record what is done with them. */
import type { Executor } from "@cogni/sandbox-core/Executor"
import { RunId } from "@cogni/sandbox-core/RunId"
import { SandboxError } from "@cogni/sandbox-core/SandboxError"
import { ContainerFailed, RuntimeUnavailable } from "@cogni/sandbox-core/SandboxReason"
import * as ConfigurationStore from "@cogni/sandbox-sessions/config/ConfigurationStore"
import * as MessageRouter from "@cogni/sandbox-sessions/router/MessageRouter"
import * as Executors from "../src/executor/Executors.ts"
import * as Orchestrator from "@cogni/sandbox-sessions/router/Orchestrator"
import type { SessionRefused } from "@cogni/sandbox-sessions/sandbox/SandboxManager"
import * as ToolRegistry from "@cogni/sandbox-loop/ToolRegistry"
import { Context, Effect, Layer, Logger, Option, References, Result, Stream } from "effect"

/** Answers a message in place of an agent. */
export type Script = (
  message: Orchestrator.Message,
  input: Orchestrator.OrchestratorInput
) => Effect.Effect<string, Orchestrator.OrchestratorFailed>

export interface World {
  /** Text of the configuration, which a reload reads. */
  text: string
  script: Script
  /** Error of all sandboxes, if set. */
  trouble: SandboxError | SessionRefused | undefined
  /** `make agent key`, `end key`, `sandbox key`, `release key`, `exec PLACE COMMAND`. */
  readonly log: Array<string>
  /** Log lines, as `LEVEL message`. */
  readonly said: Array<string>
  readonly inputs: Array<Orchestrator.OrchestratorInput>
}

export const runId = RunId.make("run-4f7k2m9q0x1z")

export const engineGone = new SandboxError({
  reason: new RuntimeUnavailable({ detail: "cannot be reached", remedy: "Start it", isAbsent: true })
})

/** An executor whose commands print its place. */
export const executorOf = (world: World, place: string, workspace: string): Executor => {
  const note = (what: string) => Effect.sync(() => void world.log.push(`${what} ${place}`))
  return {
    workspace,
    exec: (command) =>
      Effect.as(note(`exec ${String(command)}`), {
        exitCode: 0,
        durationMs: 1,
        output: {
          stdout: { text: place, bytes: place.length, truncated: false },
          stderr: { text: "", bytes: 0, truncated: false }
        }
      }),
    spawn: (command) =>
      Effect.as(note(`spawn ${String(command)}`), {
        output: Stream.empty,
        exit: Effect.succeed({ exitCode: 0 }),
        signal: () => Effect.void
      }),
    files: {
      read: (path) => Effect.as(note(`read ${path}`), new TextEncoder().encode(place)),
      write: (path) => note(`write ${path}`),
      list: (path) => Effect.as(note(`list ${path}`), []),
      stat: (path) =>
        Effect.as(note(`stat ${path}`), {
          name: path,
          type: "file",
          bytes: 0,
          modifiedAt: new Date(0).toISOString()
        }),
      remove: (path) => note(`remove ${path}`)
    }
  }
}

/** Runs the message's text as a command, and answers with the place of execution. */
export const execute: Script = ({ text }, { executor }) =>
  executor.exec(text).pipe(
    Effect.map(({ output }) => output.stdout.text),
    // Like a tool, reports a failure to the agent, which continues.
    Effect.catch((error) => Effect.succeed(`no: ${error.reason._tag}`))
  )

export const failed = (detail: string) =>
  new Orchestrator.OrchestratorFailed({ detail, remedy: "Ask less", isRetryable: false })

export const noSandbox = new SandboxError({
  reason: new ContainerFailed({ operation: "create", detail: "no", remedy: "Look" })
})

const layerOf = (
  world: World,
  { host, ...options }: Partial<MessageRouter.RouterOptions> & { readonly host?: boolean | undefined }
) => {
  const orchestrators = Layer.succeed(Orchestrator.Orchestrators, {
    make: Effect.fnUntraced(function* (input: Orchestrator.OrchestratorInput) {
      yield* Effect.acquireRelease(
        Effect.sync(() => {
          world.inputs.push(input)
          world.log.push(`make ${input.key}`)
        }),
        () => Effect.sync(() => world.log.push(`end ${input.key}`))
      )
      return {
        handle: (message: Orchestrator.Message) =>
          Effect.map(
            Effect.suspend(() => world.script(message, input)),
            (text) => ({ text })
          )
      }
    })
  })
  const executors = Layer.succeed(Executors.Executors, {
    sandboxFor: (key) =>
      Effect.suspend(() =>
        world.trouble === undefined
          ? Effect.acquireRelease(
              Effect.sync(() => {
                world.log.push(`sandbox ${key}`)
                return { ...executorOf(world, "sandbox", "/workspace"), runId }
              }),
              () => Effect.sync(() => world.log.push(`release ${key}`))
            )
          : Effect.fail(world.trouble)
      ),
    host: host === false ? Option.none() : Option.some(executorOf(world, "host", "/srv/agents"))
  })
  const store = ConfigurationStore.layer(
    Effect.sync(() => world.text),
    { file: "f.yaml" }
  )
  return MessageRouter.layer({
    toolsFor: () => Effect.succeed(Result.getOrThrow(ToolRegistry.make())),
    ...options
  }).pipe(Layer.provideMerge(Layer.mergeAll(orchestrators, executors, store)))
}

/** Creates a world with a router until the test's scope closes. `log` is empty at first. */
export const make = Effect.fnUntraced(function* (
  text: string,
  options: Partial<MessageRouter.RouterOptions> & {
    readonly host?: boolean | undefined
    readonly script?: Script | undefined
  } = {}
) {
  const { script = execute, ...rest } = options
  const world: World = { text, script, trouble: undefined, log: [], said: [], inputs: [] }
  const logger = Logger.make<unknown, void>(
    ({ logLevel, message }) => void world.said.push(`${logLevel} ${String(message)}`)
  )
  const logged = Layer.merge(Logger.layer([logger]), Layer.succeed(References.MinimumLogLevel, "Info"))
  const context = yield* Layer.build(Layer.provideMerge(layerOf(world, rest), logged))
  const router = Context.get(context, MessageRouter.MessageRouter)
  const store = Context.get(context, ConfigurationStore.ConfigurationStore)
  return {
    world,
    sessions: router.sessions,
    handle: (message: Orchestrator.Message) => Effect.provide(router.handle(message), context),
    reload: (next: string) =>
      Effect.provide(
        Effect.suspend(() => {
          world.text = next
          return store.reload
        }),
        context
      )
  }
})

export const message = (
  text = "ls",
  { channel = "slack", senderId = "U1" }: { readonly channel?: string; readonly senderId?: string } = {}
): Orchestrator.Message => ({ channel, senderId, text })
