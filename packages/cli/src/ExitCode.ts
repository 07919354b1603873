/**
 * What the process ends with, in one table.
 *
 * The agent's own code passes through unchanged, so no number of ours can be kept from it. Two things tell them apart:
 * whenever the number is ours, standard error ends in a line that begins with `cogni-sandbox:` and says so, and with
 * `--output json` the object on standard output has an `error` whose `code` is the number's name. Pure.
 */
import type { Reason } from "@cogni/sandbox-core/SandboxError"

export interface ExitCodeEntry {
  readonly code: number
  readonly name: string
  readonly meaning: string
}

/** 64 to 78 as in `sysexits.h`, 119 to 124 limits (124 as in `timeout`), above 128 the signal it stands for. */
export const exitCode = {
  success: 0,
  findings: 1,
  usage: 64,
  input: 65,
  notFound: 66,
  unavailable: 69,
  fault: 70,
  undelivered: 75,
  noAnswer: 76,
  refused: 77,
  configuration: 78,
  exfiltration: 119,
  budget: 120,
  processes: 121,
  output: 122,
  disk: 123,
  timeout: 124,
  hangup: 129,
  interrupted: 130,
  oom: 137,
  readerGone: 141,
  terminated: 143
} as const

export type ExitName = keyof typeof exitCode

const meanings: Readonly<Record<ExitName, string>> = {
  success: "it worked",
  findings:
    "doctor found something that must be fixed, prune could not remove something, or an audit is not whole",
  usage: "the command line is not understood",
  input: "what was asked is refused: prompt, limits, run id, workspace",
  notFound: "there is no such run, agent or file",
  unavailable: "the container engine, an image, or the database of runs is not there",
  fault: "the run could not be made, or broke: container, proxy, posture, a task's model",
  undelivered: "the run ended well, and its commits are kept: the origin did not take them (relay retry)",
  refused: "the run ended well, and its commits are kept: the policy refuses them (relay retry)",
  noAnswer: "the agent ended well and gave no answer that can be read, or a task's model made no sense",
  configuration: "the environment is not configured for this (COGNI_LLM_URL, …)",
  exfiltration: "a planted secret was seen on a way out (--canaries stop)",
  budget: "limit: the model budget is spent, or a task's steps, calls, tokens or conversation",
  processes: "limit: --processes",
  output: "limit: --output-limit",
  disk: "limit: --disk",
  timeout: "limit: --timeout",
  hangup: "ended by SIGHUP; no sandbox is left",
  interrupted: "ended by Ctrl-C (SIGINT); no sandbox is left",
  oom: "limit: --memory (the kernel killed a process)",
  readerGone: "standard output was closed by its reader; no sandbox is left",
  terminated: "ended by SIGTERM; no sandbox is left"
}

export const table: ReadonlyArray<ExitCodeEntry> = Object.entries(exitCode)
  .map(([name, code]) => ({ code, name, meaning: meanings[name as ExitName] }))
  .toSorted((a, b) => a.code - b.code)

const names: Readonly<Record<Reason["_tag"], ExitName>> = {
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
  RuntimeUnavailable: "unavailable",
  ImageNotFound: "unavailable",
  ContainerFailed: "fault",
  ProxyFailed: "fault",
  PostureMismatch: "fault",
  CommandTimedOut: "timeout",
  CommandRefused: "input",
  FileRefused: "input"
}

/** Why a run did not end by itself, as a number. */
export const ofReason = (tag: Reason["_tag"]): ExitName => names[tag]

/** By which signal it was ended, Ctrl-C where it is not known. */
export const nameOfSignal = (signal: NodeJS.Signals | undefined): ExitName =>
  signal === "SIGTERM" ? "terminated" : signal === "SIGHUP" ? "hangup" : "interrupted"

export const ofSignal = (signal: NodeJS.Signals | undefined): number => exitCode[nameOfSignal(signal)]

/** The table, aligned, for `--help`. */
export const describe = (): string =>
  [
    "Exit codes: the agent's own, or",
    ...table.map(({ code, meaning }) => `  ${String(code).padStart(3)}  ${meaning}`)
  ].join("\n")
