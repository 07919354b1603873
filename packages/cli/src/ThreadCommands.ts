/** Defines the commands of `threads`. Only parses. */
import { Effect } from "effect"
import { Argument, Command } from "effect/cli"
import * as Flags from "./Flags.ts"

const commands = Effect.promise(() => import("./ThreadsCommand.ts"))

const thread = Argument.String("thread").pipe(
  Argument.withDescription("Key of the thread, from threads list")
)

const list = Command.make(
  "list",
  {
    account: Flags.optional("account", "ACCOUNT", "Only threads of this account (default all)"),
    output: Flags.output
  },
  (flags) => Effect.flatMap(commands, ({ list }) => list(flags))
).pipe(Command.withDescription("List remembered threads, last used first, with the size of their files"))

const show = Command.make("show", { thread, output: Flags.output }, (flags) =>
  Effect.flatMap(commands, ({ show }) => show(flags))
).pipe(Command.withDescription("Show the history of a thread"))

const remove = Command.make("remove", { thread, output: Flags.output }, (flags) =>
  Effect.flatMap(commands, ({ remove }) => remove({ ...flags, history: "remove" }))
).pipe(Command.withDescription("Remove a thread: its files, its agents' sessions and its history"))

const reset = Command.make("reset", { thread, output: Flags.output }, (flags) =>
  Effect.flatMap(commands, ({ remove }) => remove({ ...flags, history: "keep" }))
).pipe(
  Command.withDescription(
    "Remove the files and agents' sessions of a thread. Its next turn receives the history as text"
  )
)

const sweep = Command.make(
  "sweep",
  {
    dryRun: Flags.toggle("dry-run", "Show what would be removed, and remove nothing"),
    output: Flags.output
  },
  (flags) => Effect.flatMap(commands, ({ sweep }) => sweep(flags))
).pipe(
  Command.withDescription(
    "Remove threads that are older or larger than the limits allow, as serve does by itself"
  )
)

export const threadsCommand = Command.make("threads").pipe(
  Command.withDescription("Manage remembered threads: conversations whose files and history are kept"),
  Command.withSubcommands([list, show, remove, reset, sweep])
)
