/**
 * Defines the commands, and runs one invocation.
 *
 * Only parses. Each command has its own module, which loads when the command is called, so that `--help` and a mistyped
 * flag respond quickly. Every failure becomes one line on standard error and one exit code; with `--output json` also
 * an object on standard output.
 */
import * as Telemetry from "@cogni/sandbox-core/Telemetry"
import { Cause, Effect, type FileSystem, Layer, Logger, References } from "effect"
import { Argument, CliConfig, CliOutput, Command, Flag, GlobalFlag } from "effect/cli"
import * as ExitCode from "./ExitCode.ts"
import * as DurableCommands from "./DurableCommands.ts"
import * as Failure from "./Failure.ts"
import * as Flags from "./Flags.ts"
import * as LogsFlags from "./LogsFlags.ts"
import * as PruneFlags from "./PruneFlags.ts"
import { approvalsCommand } from "./ApprovalCommands.ts"
import * as ConnectionFlags from "./ConnectionFlags.ts"
import * as GrantFlags from "./GrantFlags.ts"
import * as ConfigurationCommands from "./ConfigurationCommands.ts"
import * as SpendFlags from "./SpendFlags.ts"
import { threadsCommand } from "./ThreadCommands.ts"
import * as LogFormat from "./LogFormat.ts"
import * as ImageFlags from "./ImageFlags.ts"
import * as ImageScript from "./ImageScript.ts"
import * as InstalledImages from "./InstalledImages.ts"
import * as Invocation from "./Invocation.ts"
import * as Output from "./Output.ts"
import * as PoolFlags from "./PoolFlags.ts"
import * as RunReport from "./RunReport.ts"
import * as Settings from "./Settings.ts"
import * as Version from "./Version.ts"
import * as TemporalFlags from "./TemporalFlags.ts"
import * as ServeFlags from "./ServeFlags.ts"

const runCommand = (operands: Invocation.Invocation["operands"]) =>
  Command.make("run", { prompt: Flags.prompt, ...Flags.run }, (flags) =>
    Effect.promise(() => import("./RunCommand.ts")).pipe(
      Effect.flatMap(({ run }) => run({ ...flags, command: operands }))
    )
  ).pipe(
    Command.withDescription(
      `Run an agent on a prompt, or any command, in a sandbox

To run a command, put it last: cogni-sandbox run [flags] -- CMD ARG…
A command has access to a model if --model or --demo is given, or if COGNI_LLM_URL and COGNI_LLM_MODEL are set.
--no-model prevents that.

The sandbox has no network. Without --workspace or --repo, it starts in an empty directory. Install dependencies
in the directory first, or build them into the image.

Use - to read the prompt from standard input. Only the answer goes to standard output.

${ExitCode.describe("run")}`
    ),
    Command.withShortDescription("Run an agent on a prompt, or any command, in a sandbox"),
    Command.withExamples([
      {
        command: 'cogni-sandbox run "What does this project do?" -w .',
        description: "Ask an agent about a directory"
      },
      {
        command: "cogni-sandbox run --repo . -- sh -c 'node --test && pnpm run format'",
        description: "Run a command in a clone, and push its changes to a branch"
      },
      {
        command: "cogni-sandbox run -w . --timeout 2m --memory 512m -- node --test",
        description: "Run a command in the current directory, with limits"
      }
    ])
  )

const taskCommand = Command.make("task", { prompt: Flags.prompt, ...Flags.task }, (flags) =>
  Effect.promise(() => import("./TaskCommand.ts")).pipe(Effect.flatMap(({ task }) => task(flags)))
).pipe(
  Command.withDescription(
    `Do a task in a directory: the host asks the model, and the sandbox only runs commands and accesses files\n\nUse - to read the prompt from standard input. The answer goes to standard output, followed by the patch unless --patch names a file.\n\n${ExitCode.describe("task")}`
  ),
  Command.withShortDescription("Do a task in a directory, and report the changes as a patch"),
  Command.withExamples([
    {
      command: 'cogni-sandbox task "Make the test pass" -w . --patch ../fix.patch',
      description: "Work in a directory, and save the changes as a patch"
    }
  ])
)

const demoCommand = Command.make(
  "demo",
  { model: Flags.model, output: Flags.output, quiet: Flags.quiet },
  (flags) => Effect.promise(() => import("./DemoCommand.ts")).pipe(Effect.flatMap(({ demo }) => demo(flags)))
).pipe(
  Command.withDescription(
    "Run an agent in a sealed container and show what happened; needs no key\n\nIf COGNI_LLM_URL is set, the demo asks that model, with its key. Otherwise it asks an embedded demo upstream."
  ),
  Command.withShortDescription("Run an agent in a sealed container and show what happened; needs no key")
)

const doctorCommand = Command.make(
  "doctor",
  { workspace: Flags.doctorWorkspace, output: Flags.output },
  (flags) =>
    Effect.promise(() => import("./DoctorCommand.ts")).pipe(Effect.flatMap(({ doctor }) => doctor(flags)))
).pipe(Command.withDescription("Diagnose this machine and list what to fix; changes nothing"))

const imagesBuildCommand = Command.make("build", ImageFlags.build, (flags) =>
  Effect.promise(() => import("./ImagesCommand.ts")).pipe(Effect.flatMap(({ build }) => build(flags)))
).pipe(
  Command.withDescription(
    `Build images on this machine: runtime, proxy and gateway, and the agents that you name

Builds only images that the engine does not have, from the files of this installation. Needs Docker Engine with its
client, bash and npm. The base comes from a registry if one answers, else from Debian packages. The first build takes
one to three minutes and about 1 GB of disk; each agent adds up to a minute.`
  ),
  Command.withShortDescription("Build the images that this engine does not have"),
  Command.withExamples([
    { command: "cogni-sandbox images build", description: "Build the runtime, the proxy and the gateway" },
    { command: "cogni-sandbox images build codex", description: "Build these and an agent" }
  ])
)

const imagesListCommand = Command.make("list", { output: Flags.output }, (flags) =>
  Effect.promise(() => import("./ImagesCommand.ts")).pipe(Effect.flatMap(({ list }) => list(flags)))
).pipe(Command.withDescription("List the images of this version, and whether this engine has them"))

const imagesPullCommand = Command.make("pull", ImageFlags.pull, (flags) =>
  Effect.promise(() => import("./ImagesCommand.ts")).pipe(Effect.flatMap(({ pull }) => pull(flags)))
).pipe(
  Command.withDescription(
    `Pull images that are named by their digest, after verification of their signatures

Needs COGNI_IMAGE_KEY_FILE, the public key of the signer. An image without a signature of this key is refused. The
signatures have the format that cosign writes with --new-bundle-format=false.`
  ),
  Command.withShortDescription("Pull images by digest, if their signatures are valid")
)

const imagesCommand = Command.make("images").pipe(
  Command.withDescription("Build, list or pull the images of sandboxes"),
  Command.withSubcommands([imagesBuildCommand, imagesListCommand, imagesPullCommand])
)

const psCommand = Command.make(
  "ps",
  {
    all: Flags.toggle("all", "Include runs that have ended").pipe(Flag.withAlias("a")),
    output: Flags.output
  },
  (flags) => Effect.promise(() => import("./RecordCommand.ts")).pipe(Effect.flatMap(({ ps }) => ps(flags)))
).pipe(Command.withDescription("List active runs"))

const topCommand = Command.make("top", LogsFlags.top, (flags) =>
  Effect.promise(() => import("./TopCommand.ts")).pipe(Effect.flatMap(({ top }) => top(flags)))
).pipe(
  Command.withDescription(
    `Show active runs and what they are doing, until it is interrupted

Only the host that runs a run knows what it is doing. Without a terminal, the table is printed once.`
  ),
  Command.withShortDescription("Show active runs and what they are doing")
)

const runArgument = Argument.String("run").pipe(Argument.withDescription("Run ID or unique prefix"))

const logsCommand = Command.make("logs", { run: runArgument, ...LogsFlags.logs }, ({ output, ...flags }) =>
  output === "asciicast"
    ? Effect.promise(() => import("./RecordingCommand.ts")).pipe(
        Effect.flatMap(({ recording }) => recording(flags))
      )
    : Effect.promise(() => import("./RecordCommand.ts")).pipe(
        Effect.flatMap(({ logs }) => logs({ ...flags, output }))
      )
).pipe(Command.withDescription("Print the output of a run, or write its recording"))

const inspectCommand = Command.make(
  "inspect",
  {
    run: runArgument,
    posture: Flags.toggle("posture", "Print only the posture: the actual isolation of the sandbox"),
    output: Flags.output
  },
  (flags) =>
    Effect.promise(() => import("./RecordCommand.ts")).pipe(Effect.flatMap(({ inspect }) => inspect(flags)))
).pipe(Command.withDescription("Summarize a run; with --output json, print its whole record"))

const auditVerifyCommand = Command.make("verify", { run: runArgument, output: Flags.output }, (flags) =>
  Effect.promise(() => import("./AuditCommand.ts")).pipe(Effect.flatMap(({ verify }) => verify(flags)))
).pipe(Command.withDescription("Verify the audit of a run, and report the first change"))

const auditShowCommand = Command.make("show", { run: runArgument }, (flags) =>
  Effect.promise(() => import("./AuditCommand.ts")).pipe(Effect.flatMap(({ show }) => show(flags)))
).pipe(Command.withDescription("Print the audit of a run, one entry per line"))

const auditCommand = Command.make("audit").pipe(
  Command.withDescription("Verify or print the audit of a run's model calls"),
  Command.withSubcommands([auditVerifyCommand, auditShowCommand])
)

const pruneCommand = Command.make("prune", PruneFlags.prune, (flags) =>
  Effect.promise(() => import("./PruneCommand.ts")).pipe(Effect.flatMap(({ prune }) => prune(flags)))
).pipe(Command.withDescription("Remove what dead processes left, and on request what runs leave"))

const relayListCommand = Command.make("list", { output: Flags.output }, (flags) =>
  Effect.promise(() => import("./RelayCommand.ts")).pipe(Effect.flatMap(({ list }) => list(flags)))
).pipe(Command.withDescription("List commits that are kept because they were not delivered"))

const relayRetryCommand = Command.make("retry", { run: runArgument, ...Flags.retry }, (flags) =>
  Effect.promise(() => import("./RelayCommand.ts")).pipe(Effect.flatMap(({ retry }) => retry(flags)))
).pipe(Command.withDescription("Retry the delivery of a run's commits: collect, check, push"))

const relayDropCommand = Command.make("drop", { run: runArgument, output: Flags.output }, (flags) =>
  Effect.promise(() => import("./RelayCommand.ts")).pipe(Effect.flatMap(({ drop }) => drop(flags)))
).pipe(Command.withDescription("Delete the kept commits of a run, for good"))

const relayCommand = Command.make("relay").pipe(
  Command.withDescription("List, retry or delete undelivered commits"),
  Command.withSubcommands([relayListCommand, relayRetryCommand, relayDropCommand])
)

const agentsCommand = Command.make("agents", { output: Flags.output }, (flags) =>
  Effect.promise(() => import("./AgentsCommand.ts")).pipe(Effect.flatMap(({ agents }) => agents(flags)))
).pipe(Command.withDescription("List agents and their capabilities"))

const serveCommand = Command.make(
  "serve",
  { ...ServeFlags.serve, ...PoolFlags.serve, ...TemporalFlags.serve },
  (flags) =>
    Effect.promise(() => import("./ServeCommand.ts")).pipe(Effect.flatMap(({ serve }) => serve(flags)))
).pipe(
  Command.withDescription(
    `Serve agents and their runs over HTTP, to callers with a grant

Chats are refused unless SANDBOX_ENABLED=true. Create a grant with: cogni-sandbox grants create. On SIGTERM or Ctrl-C,
the server refuses new runs, and ends when its active runs have ended. After --drain, it cancels the others.

With --durable, it needs no engine: runs are submitted to Temporal, and go on when this server ends.`
  ),
  Command.withShortDescription("Serve agents and their runs over HTTP, to callers with a grant"),
  Command.withExamples([
    {
      command: "SANDBOX_ENABLED=true cogni-sandbox serve --pool 8 --pool-memory 4g",
      description: "Let up to 8 sandboxes wait for runs, with loaded agents of 4 GiB together"
    }
  ])
)

const mcpCommand = Command.make("mcp", { ...Flags.mcp, ...PoolFlags.mcp }, (flags) =>
  Effect.promise(() => import("./McpCommand.ts")).pipe(Effect.flatMap(({ mcp }) => mcp(flags)))
).pipe(
  Command.withDescription(
    `Serve tools of a sealed sandbox to an MCP client, on standard input and output

The first call opens the sandbox, which has no network and no model. Without --workspace, it starts in an empty
directory, which is deleted when the command ends. With --workspace, it closes when it is idle, and the next call opens
another one. The command ends when its input ends.`
  ),
  Command.withShortDescription("Serve tools of a sealed sandbox to an MCP client")
)

const acpCommand = Command.make("acp", { ...Flags.acp, ...PoolFlags.acp }, (flags) =>
  Effect.promise(() => import("./AcpCommand.ts")).pipe(Effect.flatMap(({ acp }) => acp(flags)))
).pipe(
  Command.withDescription(
    `Serve a sealed agent to an editor that speaks ACP, on standard input and output

Each prompt of a session is a run in a sandbox of its own. With --workspace cwd, the default, the agent changes the
files of the editor's project. With fresh, each session starts in an empty directory, which is deleted at its end.
With clone, each prompt works in a clone of the project's repository, and its commits go to a branch below sandbox/.
The command ends when its input ends.`
  ),
  Command.withShortDescription("Serve a sealed agent to an editor that speaks ACP")
)

const grantArgument = Argument.String("grant").pipe(Argument.withDescription("Grant ID"))

const grantsCreateCommand = Command.make("create", GrantFlags.create, (flags) =>
  Effect.promise(() => import("./GrantsCommand.ts")).pipe(Effect.flatMap(({ create }) => create(flags)))
).pipe(
  Command.withDescription(
    `Create a grant; its token goes to standard output, once

In a PATTERN, * matches any characters except /, and ** any characters; ** alone matches everything.
A repository pattern is https://HOST/PATH, or http:// for this host only. The host is in lower case, without
wildcards. /PATH is a path on this host, without a trailing slash. Tool and model patterns contain no spaces.`
  ),
  Command.withShortDescription("Create a grant; its token goes to standard output, once")
)

const grantsListCommand = Command.make("list", { output: Flags.output }, (flags) =>
  Effect.promise(() => import("./GrantsCommand.ts")).pipe(Effect.flatMap(({ list }) => list(flags)))
).pipe(Command.withDescription("List grants, newest first; tokens are not stored"))

const grantsShowCommand = Command.make("show", { grant: grantArgument, output: Flags.output }, (flags) =>
  Effect.promise(() => import("./GrantsCommand.ts")).pipe(Effect.flatMap(({ show }) => show(flags)))
).pipe(Command.withDescription("Show everything that a grant allows"))

const grantsRevokeCommand = Command.make("revoke", { grant: grantArgument, output: Flags.output }, (flags) =>
  Effect.promise(() => import("./GrantsCommand.ts")).pipe(Effect.flatMap(({ revoke }) => revoke(flags)))
).pipe(Command.withDescription("Revoke a grant: it allows nothing from now on"))

const grantsCommand = Command.make("grants").pipe(
  Command.withDescription("Manage grants: who may ask the server for runs, and on whose account"),
  Command.withSubcommands([grantsCreateCommand, grantsListCommand, grantsShowCommand, grantsRevokeCommand])
)

const connectionArgument = Argument.String("name").pipe(Argument.withDescription("Name of the connection"))

const connectionsCommandOf = () => Effect.promise(() => import("./ConnectionsCommand.ts"))

const connectionsAddCommand = Command.make(
  "add",
  { name: connectionArgument, ...ConnectionFlags.add },
  (flags) => Effect.flatMap(connectionsCommandOf(), ({ add }) => add(flags))
).pipe(
  Command.withDescription(
    `Add a connection: access of an account to one server

Secrets are read from files that only you can open, and are encrypted with the key of COGNI_CONNECTIONS_KEY_FILE. An
installation of a GitHub App needs no secret of the account, only COGNI_GITHUB_APP_ID and COGNI_GITHUB_APP_KEY_FILE.
Callers of serve can use it only with a grant that opens it: cogni-sandbox grants create --connection NAME.`
  ),
  Command.withShortDescription("Add a connection: access of an account to one server")
)

const connectionsListCommand = Command.make("list", ConnectionFlags.ofAccount, (flags) =>
  Effect.flatMap(connectionsCommandOf(), ({ list }) => list(flags))
).pipe(Command.withDescription("List the connections of an account, and those of this host"))

const connectionsRemoveCommand = Command.make(
  "remove",
  { name: connectionArgument, ...ConnectionFlags.ofAccount },
  (flags) => Effect.flatMap(connectionsCommandOf(), ({ remove }) => remove(flags))
).pipe(Command.withDescription("Remove a connection: its secret is deleted, and its uses end"))

const connectionsTestCommand = Command.make(
  "test",
  { name: connectionArgument, ...ConnectionFlags.test },
  (flags) => Effect.flatMap(connectionsCommandOf(), ({ test }) => test(flags))
).pipe(Command.withDescription("Get a credential from a connection, and give it back"))

const connectionsUsesCommand = Command.make("uses", ConnectionFlags.uses, (flags) =>
  Effect.flatMap(connectionsCommandOf(), ({ uses }) => uses(flags))
).pipe(Command.withDescription("List the uses of an account's connections: granted, denied, failed, ended"))

const connectionsRevokeCommand = Command.make(
  "revoke",
  {
    lease: Argument.String("lease").pipe(
      Argument.withDescription("ID of a lease, as connections uses lists it")
    ),
    ...ConnectionFlags.ofAccount
  },
  (flags) => Effect.flatMap(connectionsCommandOf(), ({ revoke }) => revoke(flags))
).pipe(Command.withDescription("End one use of a connection, also one of another process"))

const connectionsReencryptCommand = Command.make("reencrypt", { output: Flags.output }, (flags) =>
  Effect.flatMap(connectionsCommandOf(), ({ reencrypt }) => reencrypt(flags))
).pipe(
  Command.withDescription(
    "Encrypt the secrets of all accounts with the first key of COGNI_CONNECTIONS_KEY_FILE\n\nAfterwards, the other keys can be deleted from the file. Exits with 1 if a secret could not be encrypted."
  ),
  Command.withShortDescription("Encrypt all stored secrets with the first key")
)

const connectionsCommand = Command.make("connections").pipe(
  Command.withDescription("Manage the access of accounts to other servers"),
  Command.withSubcommands([
    connectionsAddCommand,
    connectionsListCommand,
    connectionsRemoveCommand,
    connectionsTestCommand,
    connectionsUsesCommand,
    connectionsRevokeCommand,
    connectionsReencryptCommand
  ])
)

const chatCommand = Command.make(
  "chat",
  { file: Flags.configuration, ...Flags.chat, ...PoolFlags.chat },
  (flags) => Effect.promise(() => import("./ChatCommand.ts")).pipe(Effect.flatMap(({ chat }) => chat(flags)))
).pipe(
  Command.withDescription(
    'Answer messages with agents, each session in its own sandbox\n\nA message is a line of JSON on standard input, {"channel":"irc","senderId":"ana","text":"hello","messageId":"1"},\nand its reply is a line of JSON on standard output. The command ends when the input has ended and every message has its reply.'
  ),
  Command.withShortDescription("Answer JSON messages with agents, each session in its own sandbox"),
  Command.withExamples([
    {
      command: `echo '{"channel":"irc","senderId":"ana","text":"hello"}' | cogni-sandbox chat cogni.yaml --demo`,
      description: "Answer one message, without a model"
    }
  ])
)

const spendExplainCommand = Command.make("explain", { run: runArgument, ...SpendFlags.explain }, (flags) =>
  Effect.promise(() => import("./SpendCommand.ts")).pipe(Effect.flatMap(({ explain }) => explain(flags)))
).pipe(
  Command.withDescription(
    "Explain the cost of a run, call by call: reserved, charged, the source of the cost, its state, and why"
  ),
  Command.withShortDescription("Explain the cost of a run, call by call")
)

const spendReconcileCommand = Command.make("reconcile", SpendFlags.reconcile, (flags) =>
  Effect.promise(() => import("./ReconcileCommand.ts")).pipe(
    Effect.flatMap(({ reconcile }) => reconcile(flags))
  )
).pipe(
  Command.withDescription(
    `Compare the cost of calls with the upstream's own rows

Without flags, it compares the calls that have no verdict, and those without a row.
With --run, --from or --to, it compares all of these calls again.
It exits with 1 if a call differs or has no row, and with 69 if rows could not be read.`
  ),
  Command.withShortDescription("Compare the cost of calls with the upstream's own rows")
)

const spendCommand = Command.make("spend", SpendFlags.sums, (flags) =>
  Effect.promise(() => import("./SpendCommand.ts")).pipe(Effect.flatMap(({ spend }) => spend(flags)))
).pipe(
  Command.withDescription(
    `Sum what runs cost, from the ledger

Every call to a model is in the ledger as soon as its run has ended. A cost that is unknown is not in a sum; the table
counts such calls.`
  ),
  Command.withShortDescription("Sum what runs cost: by account, agent, model, run or day"),
  Command.withExamples([
    { command: "cogni-sandbox spend --by day --from 2026-01-01", description: "Sum the costs of each day" },
    {
      command: "cogni-sandbox spend explain run-4f7k",
      description: "Explain the cost of a run, call by call"
    }
  ]),
  Command.withSubcommands([spendExplainCommand, spendReconcileCommand])
)

const root = (operands: Invocation.Invocation["operands"]) =>
  Command.make("cogni-sandbox").pipe(
    Command.withDescription(
      "Run untrusted agents in sealed containers whose only egress is a socket to a model"
    ),
    Command.withSubcommands([
      runCommand(operands),
      taskCommand,
      demoCommand,
      doctorCommand,
      imagesCommand,
      psCommand,
      topCommand,
      logsCommand,
      inspectCommand,
      auditCommand,
      spendCommand,
      relayCommand,
      agentsCommand,
      ConfigurationCommands.personalities,
      ConfigurationCommands.skills,
      ConfigurationCommands.config,
      chatCommand,
      acpCommand,
      mcpCommand,
      serveCommand,
      DurableCommands.worker,
      DurableCommands.submit,
      DurableCommands.schedule,
      grantsCommand,
      approvalsCommand,
      connectionsCommand,
      threadsCommand,
      pruneCommand
    ])
  )

/** Input of one invocation. */
interface MainInput {
  readonly argv: ReadonlyArray<string>
  readonly environment: Record<string, string>
  /** Returns the signal that interrupted it. */
  readonly signal?: (() => NodeJS.Signals | undefined) | undefined
}

/** Runs one invocation and returns its exit code. Never fails; a signal interrupts it. */
export const main = Effect.fnUntraced(
  function* ({ argv, environment, signal }: MainInput) {
    const asked = Invocation.make(argv)
    const raw = yield* Output.Output
    const out = asked.logFormat === "json" ? LogFormat.inJson(raw) : raw
    if (asked.operands !== undefined && !asked.words.includes("run")) {
      yield* complain(asked, noOperands)
    } else {
      yield* Command.runWith(root(asked.operands), { version: yield* Version.version })(
        // A command line without words gets the help.
        asked.words.length === 0 ? ["--help"] : asked.words
      ).pipe(
        Effect.provide(
          Layer.mergeAll(
            Settings.layer(environment, yield* InstalledImages.tags),
            ImageScript.layer(environment)
          )
        ),
        traced(environment, asked.words[0]),
        Effect.catchCause((cause) =>
          Cause.hasInterruptsOnly(cause) ? Effect.failCause(cause) : complain(asked, cause)
        ),
        Effect.onInterrupt(() => complain(asked, Cause.fail(Failure.ofSignal(signal?.(), asked)))),
        Effect.provideService(Output.Output, out)
      )
    }
    return yield* out.code
  },
  (effect) => Effect.provideService(effect, CliOutput.Presenter, presenter),
  Effect.provide(
    Layer.merge(
      CliConfig.layer({
        builtIns: [GlobalFlag.Help, GlobalFlag.Version, GlobalFlag.Completions, GlobalFlag.LogLevel]
      }),
      Layer.succeed(Telemetry.RunLogLevel, "Info")
    )
  ),
  (effect, { argv }) =>
    Effect.flatMap(Output.Output, (out) =>
      Effect.provide(effect, Logger.layer([LogFormat.logger(out, Invocation.make(argv).logFormat)]))
    ),
  (effect, { argv }) =>
    Effect.provideService(effect, References.MinimumLogLevel, LogFormat.levelOf(Invocation.make(argv).words))
)

/** Records an invocation as one trace, if tracing is on. A server has one trace per request instead. */
const traced =
  (environment: Record<string, string>, command: string | undefined) =>
  <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R | FileSystem.FileSystem> =>
    Settings.isTraced(environment)
      ? Effect.gen(function* () {
          const Tracing = yield* Effect.promise(() => import("./Tracing.ts"))
          const version = yield* Version.version
          return yield* (command === "serve" ? effect : Effect.withSpan(effect, "cogni-sandbox")).pipe(
            Effect.provide(
              LogFormat.isStaying(command)
                ? Tracing.layerStaying(environment, version)
                : Tracing.layer(environment, version)
            )
          )
        })
      : effect

const noOperands = Cause.fail(
  new Failure.Refusal({
    exit: "usage",
    detail: "only run takes a command after --",
    remedy: "See cogni-sandbox --help"
  })
)

/** Prints requested help. For an invalid command line, prints nothing: `complain` reports it in one line. */
const presenter: CliOutput.Presenter = {
  present: (event) =>
    event._tag === "InvalidInvocation" ? Effect.void : CliOutput.defaultPresenter.present(event)
}

const complain = Effect.fnUntraced(function* (asked: Invocation.Invocation, cause: Cause.Cause<unknown>) {
  const out = yield* Output.Output
  const failure = Failure.fromCause(cause)
  yield* out.exitWith(failure.exitCode)
  if (failure.name === "readerGone") return
  if (failure.textSoFar !== undefined && asked.format === "text")
    yield* out.stderr(RunReport.spoken(failure.textSoFar))
  yield* out.stderr(`cogni-sandbox: ${failure.message}\n`)
  if (asked.debug) yield* out.stderr(`${Cause.pretty(cause)}\n`)
  if (asked.format === "json") {
    yield* Effect.ignore(out.stdoutJson(`${JSON.stringify(Failure.toJson(failure), undefined, 2)}\n`))
  }
})
