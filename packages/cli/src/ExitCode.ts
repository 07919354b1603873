/**
 * The exit codes of the command, in one table.
 *
 * The agent's own exit code passes through unchanged, so it can equal any of ours. Two things distinguish them. If the
 * code is ours, standard error ends in a line that begins with `cogni-sandbox:`, and the object of `--output json` has
 * an `error` whose `code` is the name of the exit code. Pure.
 */
import type { Reason } from "@cogni/sandbox-core/SandboxError"
import { Record } from "effect"

interface ExitCodeEntry {
  readonly code: number
  readonly name: string
  readonly meaning: string
}

/** 64 to 78 follow `sysexits.h`, 119 to 124 are limits (124 as in `timeout`), and above 128 is 128 plus a signal. */
const entries = {
  success: [0, "success"],
  findings: [
    1,
    "doctor found a problem that must be fixed, prune could not remove a resource, an audit is not intact, the cost of a call differs from the upstream's row (spend reconcile); or a secret was not encrypted (connections reencrypt)"
  ],
  usage: [64, "invalid command line"],
  input: [65, "invalid input: prompt, limits, run ID, workspace"],
  notFound: [66, "run, agent or file not found, or an approval that is over"],
  unavailable: [
    69,
    "the container engine, an image, the run database, a directory of this host, or a place for another run of the account is unavailable; or calls could not be compared (spend reconcile)"
  ],
  fault: [70, "the run could not be created, or failed: container, proxy, posture, a task's model"],
  undelivered: [
    75,
    "the run succeeded, and its commits are kept: the origin rejected them, or no pull request could be opened (relay retry)"
  ],
  noAnswer: [76, "the agent succeeded without a readable answer, or a task's model gave invalid answers"],
  refused: [
    77,
    "the run succeeded, and its commits are kept: the policy refuses them (relay retry); or connections test was denied"
  ],
  configuration: [
    78,
    "the environment lacks the required configuration, or has an invalid one (COGNI_LLM_URL, …)"
  ],
  exfiltration: [119, "a canary was detected leaving the sandbox (--canaries stop)"],
  budget: [
    120,
    "limit: the model budget is exceeded, and the agent failed or was stopped; or the account cannot pay for the run; or a limit of a task: steps, calls, tokens or conversation size"
  ],
  processes: [121, "limit: --processes"],
  output: [122, "limit: --output-limit"],
  disk: [123, "limit: --disk"],
  timeout: [124, "limit: --timeout"],
  hangup: [129, "ended by SIGHUP; no sandbox is left"],
  interrupted: [130, "ended by Ctrl-C (SIGINT); no sandbox is left"],
  oom: [137, "limit: --memory (the kernel killed a process)"],
  readerGone: [141, "the reader of standard output closed it; no sandbox is left"],
  terminated: [143, "ended by SIGTERM; no sandbox is left"]
} as const

export type ExitName = keyof typeof entries

export const exitCode = Record.map(entries, ([code]): number => code)

export const table: ReadonlyArray<ExitCodeEntry> = Object.entries(entries)
  .map(([name, [code, meaning]]) => ({ code, name, meaning }))
  .toSorted((a, b) => a.code - b.code)

const names: { readonly [Tag in Reason["_tag"]]: ExitName } = {
  TimedOut: "timeout",
  OomKilled: "oom",
  PidsExhausted: "processes",
  OutputLimitExceeded: "output",
  DiskFull: "disk",
  BudgetExceeded: "budget",
  ExfiltrationSuspected: "exfiltration",
  InvalidSpec: "input",
  RunIdInUse: "input",
  WorkspaceFailed: "input",
  StoreUnavailable: "unavailable",
  InsufficientCredits: "budget",
  AccountBusy: "unavailable",
  RuntimeUnavailable: "unavailable",
  ImageNotFound: "unavailable",
  ContainerFailed: "fault",
  ProxyFailed: "fault",
  PostureMismatch: "fault",
  HostFailed: "unavailable",
  Misconfigured: "configuration",
  CommandTimedOut: "timeout",
  CommandRefused: "input",
  CommandInputFailed: "input",
  FileRefused: "input"
}

/** Returns the name of the exit code for the reason that a run failed. */
export const ofReason = (tag: Reason["_tag"]): ExitName => names[tag]

/** Returns the name of the exit code for a reason that another process named, if it is one of ours. */
export const ofReasonNamed = (name: string): ExitName | undefined =>
  Object.hasOwn(names, name) ? names[name as Reason["_tag"]] : undefined

/** Returns the name of the exit code for a signal. An unknown signal counts as Ctrl-C. */
export const nameOfSignal = (signal: NodeJS.Signals | undefined): ExitName =>
  signal === "SIGTERM" ? "terminated" : signal === "SIGHUP" ? "hangup" : "interrupted"

export const ofSignal = (signal: NodeJS.Signals | undefined): number => exitCode[nameOfSignal(signal)]

type Prompted = "run" | "task"

const engineUnavailable =
  "the container engine, an image, the run database, a directory of this host, or a place for another run of the account is unavailable"
const spent =
  "limit: the model budget is exceeded, and the agent failed or was stopped; or the account cannot pay for the run"

/** Meanings for the commands that take a prompt, which share codes with others. Undefined: not an end of this command. */
const meanings: Readonly<Record<Prompted, Partial<Record<ExitName, string | undefined>>>> = {
  run: {
    findings: undefined,
    notFound: "agent or file not found",
    unavailable: engineUnavailable,
    fault: "the run could not be created, or failed: container, proxy, posture",
    undelivered: "the run succeeded, and its commits are kept: the origin rejected them (relay retry)",
    noAnswer: "the agent succeeded without a readable answer",
    refused: "the run succeeded, and its commits are kept: the policy refuses them (relay retry)",
    budget: spent
  },
  task: {
    findings: undefined,
    notFound: "file not found",
    unavailable: engineUnavailable,
    undelivered: undefined,
    noAnswer: "the model gave invalid answers",
    refused: undefined,
    budget: `${spent}; or a limit of the task: steps, calls, tokens or conversation size`
  }
}

/** Returns the codes of a command, aligned, for its `--help`. */
export const describe = (command: Prompted): string => {
  const own: Readonly<Record<string, string | undefined>> = meanings[command]
  return [
    command === "run" ? "Exit codes: the agent's own, or" : "Exit codes:",
    ...table
      .map(({ meaning, name, ...entry }) => ({ ...entry, meaning: name in own ? own[name] : meaning }))
      .flatMap(({ code, meaning }) =>
        meaning === undefined ? [] : `  ${String(code).padStart(3)}  ${meaning}`
      ),
    "Codes of all commands: docs/reference/exit-codes.md"
  ].join("\n")
}
