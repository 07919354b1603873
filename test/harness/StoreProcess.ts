/**
 * A separate process that opens a run database, begins some runs, and ends, like a command that is called many times.
 *
 * It has its own spool, like another host, so that only the database decides who owns a run ID.
 */
import * as RunId from "@cogni/sandbox-core/RunId"
import { RunStore } from "@cogni/sandbox-core/RunStore"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Context, Effect, Layer } from "effect"
import { spawn } from "node:child_process"
import { join } from "node:path"
import * as LinkedPrograms from "./LinkedPrograms.ts"
import * as Stores from "../../packages/sql/test/Stores.ts"

const secondsMax = 300

/** Begins these runs in a separate process. Returns the obtained IDs, and errors except `RunIdInUse`, as JSON. */
export const begin = (directory: string, runIds: ReadonlyArray<string>): Effect.Effect<string> =>
  Effect.callback((resume) => {
    const child = spawn(
      process.execPath,
      [
        "--disable-warning=ExperimentalWarning",
        LinkedPrograms.pathOf(import.meta.filename),
        directory,
        ...runIds
      ],
      { stdio: ["ignore", "pipe", "pipe"], timeout: secondsMax * 1000 }
    )
    let said = ""
    child.stdout.on("data", (chunk) => (said += String(chunk)))
    child.stderr.on("data", (chunk) => (said += String(chunk)))
    child.once("close", () => resume(Effect.succeed(said)))
    return Effect.sync(() => child.kill("SIGKILL"))
  })

const main = Effect.gen(function* () {
  const [directory = "", ...runIds] = process.argv.slice(2)
  const { spool } = Stores.options(join(directory, `spool-${process.pid}`))
  const store = Context.get(yield* Layer.build(Stores.sqlite(directory, { spool })), RunStore)
  const had: Array<string> = []
  for (const runId of runIds.map((text) => RunId.RunId.make(text))) {
    const spec = yield* Stores.spec
    const got = yield* Effect.result(
      Effect.scoped(
        Effect.flatMap(store.open(runId, spec), (open) => open.save(Stores.finished(runId, open, spec)))
      )
    )
    if (got._tag === "Success") had.push(runId)
    else if (got.failure._tag !== "RunIdInUse") had.push(`${got.failure._tag}: ${got.failure.message}`)
  }
  process.stdout.write(JSON.stringify(had))
})

if (import.meta.main) main.pipe(Effect.scoped, NodeRuntime.runMain)
