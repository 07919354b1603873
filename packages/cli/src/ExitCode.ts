/**
 * What the process ends with, in one table.
 *
 * The agent's own code passes through unchanged, so no number of ours can be kept from it. Two things tell them apart:
 * whenever the number is ours, standard error ends in a line that begins with `cogni-sandbox:` and says so, and with
 * `--output json` the object on standard output has an `error` whose `code` is the number's name. Pure.
 */
import type { Reason } from "@cogni/sandbox-core/SandboxError"
import { Record } from "effect"

export interface ExitCodeEntry {
  readonly code: number
  readonly name: string
  readonly meaning: string
}

/** 64 to 78 as in `sysexits.h`, 119 to 124 limits (124 as in `timeout`), above 128 the signal it stands for. */
const entries = {
  success: [0, "it worked"],
  findings: [
    1,
    "doctor found something that must be fixed, prune could not remove something, or an audit is not whole"
  ],
  usage: [64, "the command line is not understood"],
  input: [65, "what was asked is refused: prompt, limits, run id, workspace"],
  notFound: [66, "there is no such run, agent or file"],
  unavailable: [69, "the container engine, an image, or the database of runs is not there"],
  fault: [70, "the run could not be made, or broke: container, proxy, posture, a task's model"],
  undelivered: [
    75,
    "the run ended well, and its commits are kept: the origin did not take them (relay retry)"
  ],
  noAnswer: [76, "the agent ended well and gave no answer that can be read, or a task's model made no sense"],
  refused: [77, "the run ended well, and its commits are kept: the policy refuses them (relay retry)"],
  configuration: [78, "the environment is not configured for this (COGNI_LLM_URL, …)"],
  exfiltration: [119, "a planted secret was seen on a way out (--canaries stop)"],
  budget: [120, "limit: the model budget is spent, or a task's steps, calls, tokens or conversation"],
  processes: [121, "limit: --processes"],
  output: [122, "limit: --output-limit"],
  disk: [123, "limit: --disk"],
  timeout: [124, "limit: --timeout"],
  hangup: [129, "ended by SIGHUP; no sandbox is left"],
  interrupted: [130, "ended by Ctrl-C (SIGINT); no sandbox is left"],
  oom: [137, "limit: --memory (the kernel killed a process)"],
  readerGone: [141, "standard output was closed by its reader; no sandbox is left"],
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
