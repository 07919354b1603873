/** The commands for durable runs, which need a Temporal server. Each module is loaded only if its command is used. */
import { Effect } from "effect"
import { Argument, Command } from "effect/cli"
import * as Flags from "./Flags.ts"
import * as TemporalFlags from "./TemporalFlags.ts"

/** Takes durable runs. */
export const worker = Command.make("worker", TemporalFlags.worker, (flags) =>
  Effect.promise(() => import("./WorkerCommand.ts")).pipe(Effect.flatMap(({ worker: run }) => run(flags)))
).pipe(
  Command.withDescription(
    `Take durable runs from Temporal, and run them in the server of this host

Needs cogni-sandbox serve on this host, and the package @cogni/sandbox-temporal. The worker holds nothing of a run: if
it ends, its runs go on in the server, and the next worker with the same --name follows them. Another host takes
nothing over. On SIGTERM the worker takes no more runs. With --drain, it then follows those that it has.`
  ),
  Command.withShortDescription("Take durable runs from Temporal, and run them in the server of this host"),
  Command.withExamples([
    {
      command: "cogni-sandbox worker --name host-1 --token-file grant.token --max-runs 4",
      description: "Take at most four runs at a time"
    }
  ])
)

/** Submits one. */
export const submit = Command.make("submit", { prompt: Flags.prompt, ...TemporalFlags.submit }, (flags) =>
  Effect.promise(() => import("./SubmitCommand.ts")).pipe(Effect.flatMap(({ submit: run }) => run(flags)))
).pipe(
  Command.withDescription(
    `Submit a durable run to Temporal, which a worker with room takes

Prints the run ID. With --wait, waits for the end of the run: then an interruption only stops waiting. The prompt is
stored in the history of Temporal. The answer is not: the server of the host has it.`
  ),
  Command.withShortDescription("Submit a durable run to Temporal, which a worker with room takes"),
  Command.withExamples([
    {
      command:
        'cogni-sandbox submit "Update the dependencies" --grant GRANT --repo https://github.com/acme/app --wait',
      description: "Run an agent on a repository, on any host, and wait for it"
    }
  ])
)

const scheduleArgument = Argument.String("name").pipe(Argument.withDescription("Name of the schedule"))

const scheduleCommandOf = () => Effect.promise(() => import("./ScheduleCommand.ts"))

const scheduleAddCommand = Command.make(
  "add",
  { name: scheduleArgument, prompt: Flags.prompt, ...TemporalFlags.scheduleAdd },
  (flags) => Effect.flatMap(scheduleCommandOf(), ({ add }) => add(flags))
).pipe(
  Command.withDescription(
    `Add a schedule: Temporal starts a durable run at each of its times

Each run has an ID of its own, such as nightly-20261127t030000z. Its grant is checked when it is due: if it was revoked
or has expired, that run is refused. The prompt is stored in Temporal for as long as the schedule exists.`
  ),
  Command.withShortDescription("Add a schedule: Temporal starts a durable run at each of its times"),
  Command.withExamples([
    {
      command:
        'cogni-sandbox schedule add nightly "Update the dependencies" --grant GRANT --cron "0 3 * * *" --time-zone Europe/Berlin',
      description: "Run an agent each night at three"
    }
  ])
)

const scheduleListCommand = Command.make("list", TemporalFlags.schedules, (flags) =>
  Effect.flatMap(scheduleCommandOf(), ({ list }) => list(flags))
).pipe(Command.withDescription("List the schedules of durable runs in the namespace"))

const scheduleShowCommand = Command.make(
  "show",
  { name: scheduleArgument, ...TemporalFlags.schedules },
  (flags) => Effect.flatMap(scheduleCommandOf(), ({ show }) => show(flags))
).pipe(Command.withDescription("Show a schedule, its next time and its last runs"))

const schedulePauseCommand = Command.make(
  "pause",
  { name: scheduleArgument, ...TemporalFlags.schedulePause },
  (flags) => Effect.flatMap(scheduleCommandOf(), ({ pause }) => pause(flags))
).pipe(Command.withDescription("Pause a schedule. Runs under way go on"))

const scheduleResumeCommand = Command.make(
  "resume",
  { name: scheduleArgument, ...TemporalFlags.schedules },
  (flags) => Effect.flatMap(scheduleCommandOf(), ({ resume }) => resume(flags))
).pipe(Command.withDescription("Resume a paused schedule"))

const scheduleRemoveCommand = Command.make(
  "remove",
  { name: scheduleArgument, ...TemporalFlags.schedules },
  (flags) => Effect.flatMap(scheduleCommandOf(), ({ remove }) => remove(flags))
).pipe(Command.withDescription("Remove a schedule. Runs under way go on"))

/** Subcommands for schedules. */
export const schedule = Command.make("schedule").pipe(
  Command.withDescription("Manage schedules of durable runs"),
  Command.withSubcommands([
    scheduleAddCommand,
    scheduleListCommand,
    scheduleShowCommand,
    schedulePauseCommand,
    scheduleResumeCommand,
    scheduleRemoveCommand
  ])
)
