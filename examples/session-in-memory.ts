import { SandboxRunner } from "@cogni/sandbox-core"
import { ShellTools, ToolRegistry } from "@cogni/sandbox-loop"
import { DockerSandbox, SandboxManager, SessionWorkspaces } from "@cogni/sandbox-sessions"
import { Effect, Layer, References, Result } from "effect"

// Simulates a shell in memory. With the layers of @cogni/sandbox-docker, each session has its own sealed container.
const runner = SandboxRunner.layerMemory({
  program: ({ argv, files, stdout }) =>
    argv[2]?.startsWith("echo ") === true
      ? Effect.as(Effect.orDie(files.write("note", argv[2].slice(5))), 0)
      : files
          .read("note")
          .pipe(Effect.flatMap(stdout), Effect.match({ onSuccess: () => 0, onFailure: () => 1 }))
})

/** Calls a tool in the session's sandbox, as a model would. */
const shell = (sessionId: string, command: string) =>
  Effect.scoped(
    Effect.gen(function* () {
      const manager = yield* SandboxManager.SandboxManager
      const sandbox = yield* manager.getOrCreate(sessionId)
      const all = Result.getOrThrow(ToolRegistry.make(ShellTools.make(sandbox)))
      const coding = Result.getOrThrow(all.restrict("coding"))
      const identity = { billingAccountId: "acct-1", attempt: 0 }
      return yield* coding.call("shell.exec", { command }, { runId: sandbox.runId, identity, requestId: "1" })
    })
  )

const program = Effect.gen(function* () {
  yield* shell("telegram:1", "echo hello")
  console.log("the same session:", yield* shell("telegram:1", "cat note"))
  console.log("another one:", yield* shell("telegram:2", "cat note"))
})

const layers = SandboxManager.layer({ settings: { image: "any" } }).pipe(
  Layer.provide([DockerSandbox.layer, SessionWorkspaces.layerTemporary]),
  Layer.provide(runner)
)

// At level Info, the log has a line when a session's sandbox opens, and when it ends.
await Effect.runPromise(
  program.pipe(Effect.provide(layers), Effect.provideService(References.MinimumLogLevel, "Warn"))
)
