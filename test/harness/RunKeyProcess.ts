/**
 * A separate host process that creates the key of a run, for tests that kill it.
 *
 * The first half starts the process and waits for its key. The second half is the program of the process.
 */
import { RunId } from "@cogni/sandbox-core/RunId"
import * as HostOwner from "@cogni/sandbox-docker/HostOwner"
import * as LiteLlmRunKeys from "@cogni/sandbox-proxy/LiteLlmRunKeys"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Duration, Effect, Redacted, type Scope } from "effect"
import { spawn } from "node:child_process"
import { createInterface } from "node:readline"
import * as LinkedPrograms from "./LinkedPrograms.ts"
import * as Pace from "./Pace.ts"

export interface Asked {
  readonly url: string
  readonly masterKey: string
  readonly deployment: string
  readonly runId: string
}

export interface RunKeyProcess {
  readonly alias: string
  /** Sends SIGKILL and waits for the end. */
  readonly kill: Effect.Effect<void>
}

/** Settles when the key exists. */
export const start = (asked: Asked): Effect.Effect<RunKeyProcess, never, Scope.Scope> =>
  Effect.gen(function* () {
    const child = yield* Effect.acquireRelease(
      Effect.sync(() =>
        spawn(
          process.execPath,
          [
            "--disable-warning=ExperimentalWarning",
            LinkedPrograms.pathOf(import.meta.filename),
            JSON.stringify(asked)
          ],
          {
            stdio: ["ignore", "pipe", "inherit"]
          }
        )
      ),
      (made) => Effect.sync(() => made.kill("SIGKILL"))
    )
    const alias = yield* Effect.callback<string>((resume) => {
      const lines = createInterface({ input: child.stdout })
      lines.on("line", (line) => line.startsWith("alias ") && resume(Effect.succeed(line.slice(6))))
      lines.once("close", () => resume(Effect.die(new Error("the process has ended"))))
    }).pipe(Effect.timeout(Duration.millis(Pace.hangMillis)), Effect.orDie)
    return {
      alias,
      kill: Effect.callback((resume) => {
        child.once("exit", () => resume(Effect.void))
        child.kill("SIGKILL")
      })
    }
  })

const program = (asked: Asked) =>
  Effect.gen(function* () {
    const runId = RunId.make(asked.runId)
    const keys = yield* LiteLlmRunKeys.make({
      ...asked,
      key: Redacted.make(asked.masterKey),
      owners: HostOwner,
      requestSecondsMax: Pace.requestSecondsMax
    })
    const { alias } = yield* keys.create(keys.aliasOf(runId), {
      runId,
      models: ["chat"],
      routes: ["/v1/chat/completions"],
      lifetimeSeconds: 960,
      spendMetadata: {}
    })
    console.log(`alias ${alias}`)
    return yield* Effect.never
  })

if (import.meta.main) NodeRuntime.runMain(program(JSON.parse(process.argv[2]!) as Asked))
