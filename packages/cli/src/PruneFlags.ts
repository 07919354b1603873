/** The flags of `prune`. */
import { Flag } from "effect/cli"
import * as Flags from "./Flags.ts"

export const prune = {
  all: Flags.toggle("all", "Also remove resources whose owner cannot be checked from this host").pipe(
    Flag.withAlias("a")
  ),
  force: Flags.toggle("force", "With --all: also remove resources of runs that are still alive"),
  records: Flags.toggle("records", "Also delete records, output and audits of runs that have ended"),
  sessions: Flags.toggle("sessions", "Also delete the files of chat sessions that no container is using"),
  cache: Flags.toggle("cache", "Also delete the caches of fetched repositories and packages"),
  dryRun: Flags.toggle("dry-run", "Show what would be removed, and remove nothing"),
  output: Flags.output
}
