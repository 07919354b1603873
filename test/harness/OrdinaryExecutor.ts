/**
 * A process with a host executor of an ordinary user. It prints, as JSON, the results of operations on files and
 * directories that this user may not access.
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import * as NodeServices from "@effect/platform-node/NodeServices"
import * as HostExecutor from "@cogni/sandbox-sessions/executor/HostExecutor"
import type { SandboxError } from "@cogni/sandbox-core/SandboxError"
import { Effect } from "effect"
import { chmodSync } from "node:fs"
import { join } from "node:path"

const [workspace = "", userId = ""] = process.argv.slice(2)

const problemOf = <A>(asked: Effect.Effect<A, SandboxError>) =>
  Effect.match(asked, {
    onSuccess: () => "had",
    onFailure: ({ reason }) => (reason._tag === "FileRefused" ? reason.problem : reason._tag)
  })

const main = Effect.gen(function* () {
  const executor = yield* HostExecutor.make({
    workspace,
    limits: { outputBytesMax: 1024, outputRetainedBytesMax: 1024 }
  })
  const { files } = executor
  const close = (path: string) => Effect.sync(() => chmodSync(join(workspace, path), 0))
  yield* files.write("closed/file", "x")
  yield* close("closed/file")
  const read = yield* problemOf(files.read("closed/file"))
  yield* close("closed")
  const told = {
    read,
    list: yield* problemOf(files.list("closed")),
    write: yield* problemOf(files.write("closed/file", "y")),
    begin: yield* problemOf(executor.exec("true", { workingDirectory: join(workspace, "closed") }))
  }
  chmodSync(join(workspace, "closed"), 0o700)
  yield* Effect.sync(() => process.stdout.write(JSON.stringify(told)))
})

if (import.meta.main) {
  // After loading the modules, which only root may be able to read.
  if (process.getuid?.() === 0) {
    process.setgroups!([])
    process.setgid!(Number(userId))
    process.setuid!(Number(userId))
  }
  NodeRuntime.runMain(main.pipe(Effect.scoped, Effect.provide(NodeServices.layer)))
}
