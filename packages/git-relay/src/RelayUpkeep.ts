/**
 * Upkeep of a relay on its host: the version of git, and the cache of mirrors.
 */
import { Effect } from "effect"
import { GitRelayError } from "./GitRelayError.ts"
import * as HostGit from "./internal/git/HostGit.ts"
import * as MirrorCache from "./internal/origin/MirrorCache.ts"
import type * as KeptRuns from "./internal/steps/KeptRuns.ts"

/** Oldest supported git on the host. `http.curloptResolve` requires it. */
export const gitVersionMin = "2.37"

/** Version of the host's git, such as `2.39.5`; `undefined` if git cannot be started. */
export const gitVersion: Effect.Effect<string | undefined> = HostGit.run({
  argv: ["--version"],
  runtimeSecondsMax: 10
}).pipe(
  Effect.map(({ stdout }) => /\d+(?:\.\d+)+/u.exec(stdout.toString("latin1"))?.[0]),
  Effect.catch(() => Effect.succeed(undefined))
)

/**
 * Removes the cache of fetched objects, except what another process is using. Returns the removed paths. With `dryRun`,
 * nothing is removed.
 */
export const emptyCache = (options: {
  readonly directory: string
  readonly owners: KeptRuns.Owners
  readonly dryRun?: boolean | undefined
}): Effect.Effect<ReadonlyArray<string>, GitRelayError> =>
  Effect.mapError(MirrorCache.empty(options), (reason) => new GitRelayError({ operation: "discard", reason }))
