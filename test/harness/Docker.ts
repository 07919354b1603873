/** The `docker` command, for actions of tests that bypass the library. */
import { Effect } from "effect"
import { execFile } from "node:child_process"
import { promisify } from "node:util"
import * as Pace from "./Pace.ts"

/** Runs `docker` and returns its stdout. A nonzero exit code or a hang ({@link Pace.hangMillis}) is a defect. */
export const docker = (...argv: ReadonlyArray<string>): Effect.Effect<string> =>
  Effect.promise(() =>
    promisify(execFile)("docker", [...argv], { timeout: Pace.hangMillis, maxBuffer: 64 * 1024 ** 2 })
  ).pipe(Effect.map(({ stdout }) => stdout.trim()))

/** Creates an internal network for a test. */
export const internalNetwork = Effect.fnUntraced(function* (name: string) {
  yield* Effect.acquireRelease(docker("network", "create", "--internal", name), () =>
    docker("network", "rm", name)
  )
  return name
})

/** Starts a container for a test, and removes it at the end. */
export const container = (...argv: ReadonlyArray<string>) =>
  Effect.acquireRelease(docker("create", ...argv), (id) => docker("rm", "-f", id)).pipe(
    Effect.tap((id) => docker("start", id))
  )
