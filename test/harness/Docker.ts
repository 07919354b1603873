/** The engine's own command line, for what tests do behind the library's back. */
import { Effect } from "effect"
import { execFile } from "node:child_process"
import { promisify } from "node:util"
import * as Pace from "./Pace.ts"

/** What it printed on stdout; a non-zero exit is a defect of the test. Bounded to 30 s. */
export const docker = (...argv: ReadonlyArray<string>): Effect.Effect<string> =>
  Effect.promise(() =>
    promisify(execFile)("docker", [...argv], { timeout: Pace.hangMillis, maxBuffer: 64 * 1024 ** 2 })
  ).pipe(Effect.map(({ stdout }) => stdout.trim()))

/** An internal network of the test's own. */
export const internalNetwork = Effect.fnUntraced(function* (name: string) {
  yield* Effect.acquireRelease(docker("network", "create", "--internal", name), () =>
    docker("network", "rm", name)
  )
  return name
})

/** A container of the test's own, removed at its end, started or not. */
export const container = (...argv: ReadonlyArray<string>) =>
  Effect.acquireRelease(docker("create", ...argv), (id) => docker("rm", "-f", id)).pipe(
    Effect.tap((id) => docker("start", id))
  )
