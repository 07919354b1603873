/** The flags of `logs` and `top`, which show runs in a terminal. */
import { Flag } from "effect/cli"
import * as Flags from "./Flags.ts"

export const logs = {
  stderr: Flags.toggle("stderr", "Print standard error instead of standard output"),
  follow: Flags.toggle(
    "follow",
    "Print the output of an active run as it comes, until the run ends; with --output json, its events"
  ).pipe(Flag.withAlias("f")),
  output: Flag.Literals("output", ["text", "json", "asciicast"]).pipe(
    Flag.withAlias("o"),
    Flag.withDescription(
      "Output format: text for people, json for scripts, asciicast for a recording of both channels with their times, " +
        "which asciinema replays (default text)"
    ),
    Flag.withDefault("text")
  ),
  file: Flags.outputFile(
    "file",
    "Write the recording of --output asciicast to this file (default standard output)"
  )
}

export const top = {
  once: Flags.toggle("once", "Print the table once"),
  intervalSeconds: Flags.duration("interval", "Time between two tables, such as 5s (default 2s)").pipe(
    Flag.map((seconds) => seconds ?? 2)
  ),
  output: Flags.output
}
