/** Finds the run that a user means: by its ID, or by a prefix that no other run has. Pure. */
import type { RunId } from "@cogni/sandbox-core/RunId"

export type Match =
  | { readonly _tag: "Found"; readonly runId: RunId }
  | { readonly _tag: "None" }
  | { readonly _tag: "Several" }

export const match = (run: string, runs: ReadonlyArray<RunId>): Match => {
  const exact = runs.find((runId) => runId === run)
  const [only, another] =
    exact !== undefined ? [exact] : run === "" ? [] : runs.filter((runId) => runId.startsWith(run))
  if (only === undefined) return { _tag: "None" }
  return another === undefined ? { _tag: "Found", runId: only } : { _tag: "Several" }
}
