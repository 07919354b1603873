/**
 * A host as the two small ports that applications of Cogni have: `runOnce`, one program to its end, and `execCommand`,
 * one command, read or write in a workspace.
 *
 * An adapter only: every option that these ports lack has the default of a sandbox. A failure is a code with its cause
 * in words, not an error.
 */
import { emptyOutput, type Output } from "@cogni/sandbox-core/RunResult"
import { SandboxError } from "@cogni/sandbox-core/SandboxError"
import type { SandboxSpecInput } from "@cogni/sandbox-core/SandboxSpec"
import { commandFailureOf } from "./Failure.ts"
import type { Sandbox } from "./Sandbox.ts"
import type { SandboxHost } from "./SandboxHost.ts"

const mebibyte = 1024 * 1024

interface PortLimits {
  readonly maxRuntimeSec: number
  readonly maxMemoryMb: number
}

export interface SandboxRunSpec {
  /** ID of the run: 8 to 48 lower-case letters, digits and hyphens. No second run can have it. */
  readonly runId: string
  readonly workspacePath: string
  /** Program and arguments, started without a shell. */
  readonly argv: readonly [string, ...ReadonlyArray<string>]
  readonly limits: PortLimits
  readonly image?: string | undefined
  readonly networkMode?: SandboxSpecInput["network"] | undefined
  /** With `enabled`, the run has the model of {@link RunnerPortOptions}. */
  readonly llmProxy?: { readonly enabled: boolean; readonly attempt: number } | undefined
}

export interface SandboxRunResult {
  readonly ok: boolean
  readonly stdout: string
  /** The standard error. If the run failed, its last line is the cause. */
  readonly stderr: string
  /** The program wrote more than 4 MiB to one of the two, which is then only the beginning. */
  readonly truncated?: true
  /** 124 after the time limit, and 137 if the program was killed, as a shell reports them. */
  readonly exitCode: number
  readonly errorCode?: "timeout" | "oom_killed" | "internal" | "container_failed"
}

export interface SandboxCommandSpec {
  /** The application's own, of any number of commands. Each has a sandbox and a record with another ID. */
  readonly runId: string
  readonly workspacePath: string
  readonly command:
    | { readonly type: "exec"; readonly args: { readonly command: string } }
    | { readonly type: "read"; readonly args: { readonly path: string } }
    | { readonly type: "write"; readonly args: { readonly path: string; readonly content: string } }
  readonly limits: PortLimits
}

export interface SandboxCommandResult {
  readonly ok: boolean
  /** The standard output, or the content of a file. After a failure, all output and then the cause. */
  readonly output?: string
  /** The command wrote more than 4 MiB to one of its outputs, and only the beginning is here. */
  readonly truncated?: true
  readonly errorCode?: "timeout" | "oom_killed" | "internal" | "command_failed"
}

export interface SandboxRunnerPort {
  readonly runOnce: (spec: SandboxRunSpec) => Promise<SandboxRunResult>
  readonly execCommand: (spec: SandboxCommandSpec) => Promise<SandboxCommandResult>
}

interface RunnerPortOptions {
  /** Model and payer of runs with `llmProxy.enabled`. Without it, such a run fails with `internal`. */
  readonly llm?: SandboxSpecInput["llm"] | undefined
}

/** Makes the ports of a host. Closing the host ends what they run. */
export const runnerPort = (
  host: Pick<SandboxHost, "createSandbox" | "run">,
  { llm }: RunnerPortOptions = {}
): SandboxRunnerPort => ({
  runOnce: async ({ argv, image, llmProxy, networkMode, runId, ...spec }) => {
    if (llmProxy?.enabled === true && llm === undefined)
      return failed("internal", "the run asks for a model, and runnerPort has no llm. Pass it")
    try {
      const { exitCode, output } = await host.run({
        ...termsOf(spec),
        runId,
        argv,
        ...(image === undefined ? {} : { image }),
        ...(networkMode === undefined ? {} : { network: networkMode }),
        ...(llmProxy?.enabled === true && llm !== undefined
          ? { llm: { ...llm, identity: { ...llm.identity, attempt: llmProxy.attempt } } }
          : {})
      })
      const { stderr, stdout } = output
      return { ok: exitCode === 0, exitCode, stdout: stdout.text, stderr: stderr.text, ...cut(output) }
    } catch (thrown) {
      return runFailureOf(thrown)
    }
  },
  execCommand: async ({ command, ...spec }) => {
    try {
      await using sandbox = await host.createSandbox(termsOf(spec))
      try {
        return await done(sandbox, command)
      } catch (thrown) {
        // The sandbox exists, so what is invalid is the command.
        return commandFailed(thrown, isInvalid(thrown) ? "command_failed" : codeOf(thrown))
      }
    } catch (thrown) {
      return commandFailed(thrown, codeOf(thrown))
    }
  }
})

/** Without the run ID, which only one sandbox can have. */
const termsOf = ({ limits, workspacePath }: Pick<SandboxRunSpec, "limits" | "workspacePath">) => ({
  workspace: { type: "directory", path: workspacePath } as const,
  limits: { runtimeSecondsMax: limits.maxRuntimeSec, memoryBytesMax: limits.maxMemoryMb * mebibyte }
})

const done = async (
  { exec, files }: Sandbox,
  command: SandboxCommandSpec["command"]
): Promise<SandboxCommandResult> => {
  switch (command.type) {
    case "exec": {
      const { exitCode, output, stderr, stdout } = await exec(command.args.command)
      if (exitCode === 0) return { ok: true, output: stdout, ...cut(output) }
      const told = joined(stdout, stderr, `the command ended with exit code ${exitCode}`)
      return { ok: false, output: told, ...cut(output), errorCode: "command_failed" }
    }
    case "read":
      return { ok: true, output: await files.readText(command.args.path) }
    case "write":
      await files.write(command.args.path, command.args.content)
      return { ok: true }
  }
}

/** Says that output is incomplete. */
const cut = ({ stderr, stdout }: Output): { readonly truncated?: true } =>
  stdout.truncated || stderr.truncated ? { truncated: true } : {}

/** Joins texts, each of which begins a line. */
const joined = (...texts: ReadonlyArray<string>): string =>
  texts
    .filter((text) => text !== "")
    .map((text, index, all) => (index === all.length - 1 || text.endsWith("\n") ? text : `${text}\n`))
    .join("")

const isInvalid = (thrown: unknown): boolean =>
  thrown instanceof SandboxError && thrown.reason._tag === "InvalidSpec"

const codeOf = (thrown: unknown): NonNullable<SandboxRunResult["errorCode"]> | "command_failed" => {
  if (!(thrown instanceof SandboxError)) return "internal"
  switch (thrown.reason._tag) {
    case "TimedOut":
    case "CommandTimedOut":
      return "timeout"
    case "OomKilled":
      return "oom_killed"
    case "FileRefused":
      return "command_failed"
    case "ContainerFailed":
      return "container_failed"
    case "InvalidSpec":
      return "internal"
    default:
      return commandFailureOf(thrown) === undefined ? "internal" : "command_failed"
  }
}

/** Output of a failed run or command, and the cause of its failure. */
const toldOf = (thrown: unknown): { readonly cause: string; readonly output: Output } => ({
  cause: thrown instanceof Error ? thrown.message : String(thrown),
  output: (thrown instanceof SandboxError ? thrown.partial?.output : undefined) ?? emptyOutput
})

const commandFailed = (thrown: unknown, errorCode: ReturnType<typeof codeOf>): SandboxCommandResult => {
  const { cause, output } = toldOf(thrown)
  return {
    ok: false,
    output: joined(output.stdout.text, output.stderr.text, cause),
    ...cut(output),
    errorCode: errorCode === "container_failed" ? "internal" : errorCode
  }
}

const exitCodes = { timeout: 124, oom_killed: 137 } as const

const runFailureOf = (thrown: unknown): SandboxRunResult => {
  const code = codeOf(thrown)
  const { cause, output } = toldOf(thrown)
  return {
    ...failed(code === "command_failed" ? "internal" : code, joined(output.stderr.text, cause)),
    stdout: output.stdout.text,
    ...cut(output)
  }
}

const failed = (errorCode: NonNullable<SandboxRunResult["errorCode"]>, stderr: string): SandboxRunResult => ({
  ok: false,
  stdout: "",
  stderr,
  exitCode: errorCode === "timeout" || errorCode === "oom_killed" ? exitCodes[errorCode] : 1,
  errorCode
})
