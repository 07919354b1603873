/**
 * A host as the two small ports that applications of Cogni have: `runOnce`, one program to its end, and `execCommand`,
 * one command, read or write in a workspace.
 *
 * An adapter only: every option that these ports lack has the default of a sandbox. A failure is a code, not an error.
 */
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
  readonly stderr: string
  /** 124 after the time limit, and 137 if the program was killed, as a shell reports them. */
  readonly exitCode: number
  readonly errorCode?: "timeout" | "oom_killed" | "internal" | "container_failed"
}

export interface SandboxCommandSpec {
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
  /** The standard output, or the content of a file. */
  readonly output?: string
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
  runOnce: async ({ argv, image, llmProxy, networkMode, ...spec }) => {
    if (llmProxy?.enabled === true && llm === undefined)
      return failed("internal", "the run asks for a model, and runnerPort has no llm. Pass it")
    try {
      const { exitCode, output } = await host.run({
        ...termsOf(spec),
        argv,
        ...(image === undefined ? {} : { image }),
        ...(networkMode === undefined ? {} : { network: networkMode }),
        ...(llmProxy?.enabled === true && llm !== undefined
          ? { llm: { ...llm, identity: { ...llm.identity, attempt: llmProxy.attempt } } }
          : {})
      })
      const { stderr, stdout } = output
      return { ok: exitCode === 0, exitCode, stdout: stdout.text, stderr: stderr.text }
    } catch (thrown) {
      return runFailureOf(thrown)
    }
  },
  execCommand: async ({ command, ...spec }) => {
    try {
      await using sandbox = await host.createSandbox(termsOf(spec))
      return await done(sandbox, command)
    } catch (thrown) {
      const errorCode = codeOf(thrown)
      return { ok: false, errorCode: errorCode === "container_failed" ? "internal" : errorCode }
    }
  }
})

const termsOf = ({
  limits,
  runId,
  workspacePath
}: Pick<SandboxRunSpec, "limits" | "runId" | "workspacePath">) => ({
  runId,
  workspace: { type: "directory", path: workspacePath } as const,
  limits: { runtimeSecondsMax: limits.maxRuntimeSec, memoryBytesMax: limits.maxMemoryMb * mebibyte }
})

const done = async (
  { exec, files }: Sandbox,
  command: SandboxCommandSpec["command"]
): Promise<SandboxCommandResult> => {
  switch (command.type) {
    case "exec": {
      const { exitCode, stdout } = await exec(command.args.command)
      return exitCode === 0
        ? { ok: true, output: stdout }
        : { ok: false, output: stdout, errorCode: "command_failed" }
    }
    case "read":
      return { ok: true, output: await files.readText(command.args.path) }
    case "write":
      await files.write(command.args.path, command.args.content)
      return { ok: true }
  }
}

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
    default:
      return commandFailureOf(thrown) === undefined ? "internal" : "command_failed"
  }
}

const exitCodes = { timeout: 124, oom_killed: 137 } as const

const runFailureOf = (thrown: unknown): SandboxRunResult => {
  const code = codeOf(thrown)
  const errorCode = code === "command_failed" ? "internal" : code
  const partial = thrown instanceof SandboxError ? thrown.partial?.output : undefined
  const message = thrown instanceof Error ? thrown.message : "the run failed"
  const { stderr = "", stdout = "" } = { stdout: partial?.stdout.text, stderr: partial?.stderr.text }
  return { ...failed(errorCode, stderr === "" ? message : stderr), stdout }
}

const failed = (errorCode: NonNullable<SandboxRunResult["errorCode"]>, stderr: string): SandboxRunResult => ({
  ok: false,
  stdout: "",
  stderr,
  exitCode: errorCode === "timeout" || errorCode === "oom_killed" ? exitCodes[errorCode] : 1,
  errorCode
})
