#!/usr/bin/env node
/** The program `cogni-sandbox`: removes the secrets from its environment, then runs one invocation. */
import { enableCompileCache } from "node:module"

enableCompileCache()

const { takeEnvironment } = await import("./Settings.ts")
const environment = takeEnvironment(process.env)

const [NodeRuntime, NodeServices, { Effect, Exit, Layer }, Cli, ExitCode, Output] = await Promise.all([
  import("@effect/platform-node/NodeRuntime"),
  import("@effect/platform-node/NodeServices"),
  import("effect"),
  import("./Cli.ts"),
  import("./ExitCode.ts"),
  import("./Output.ts")
])

let signal: NodeJS.Signals | undefined
for (const name of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
  process.on(name, () => {
    if (signal === undefined && process.stderr.isTTY)
      process.stderr.write("\n· ending; this takes a few seconds at most\n")
    signal ??= name
  })
}
// `runMain` handles the other two.
process.on("SIGHUP", () => process.emit("SIGTERM"))

NodeRuntime.runMain(
  Cli.main({ argv: process.argv.slice(2), environment, signal: () => signal }).pipe(
    Effect.provide(Layer.merge(NodeServices.layer, Output.layer))
  ),
  {
    disableErrorReporting: true,
    teardown: (exit) => process.exit(Exit.isSuccess(exit) ? Number(exit.value) : ExitCode.ofSignal(signal))
  }
)
