/** Commands of a session, in the words of the SDK: a result, or the number of a command that still runs. */
import { type Sandbox, Unsupported } from "@cogni/sandbox-promise"
import {
  type ExecCommandArgs,
  SandboxLifecycleError,
  SandboxRuntimeError,
  type SandboxExecResult,
  type WriteStdinArgs
} from "@openai/agents-core/sandbox"
import {
  elapsedSeconds,
  formatExecResponse,
  shellQuote,
  truncateOutput
} from "@openai/agents-core/sandbox/internal"
import * as RunningCommand from "./RunningCommand.ts"

/** Commands that run at the same time, or have ended unread. */
export const commandsMax = 64

const execWaitMillisDefault = 10_000

const writeWaitMillisDefault = 250

/** Ctrl-C. */
const interrupt = "\u0003"

export interface CommandOptions {
  readonly shell: string
  /** Unread output that is kept of each command. */
  readonly outputCharactersMax: number
  readonly environment: () => Readonly<Record<string, string>>
  /** Resolves a path as the model gives it. */
  readonly directory: (path: string | undefined) => string
}

export interface SessionCommands {
  readonly exec: (args: ExecCommandArgs) => Promise<SandboxExecResult>
  readonly writeStdin: (args: WriteStdinArgs) => Promise<string>
  /** Kills all of them. */
  readonly endAll: () => Promise<void>
}

export const make = (sandbox: Sandbox, options: CommandOptions): SessionCommands => {
  const running = new Map<number, RunningCommand.RunningCommand>()
  let starting = 0
  let last = 0
  /** Times that all commands were ended. */
  let ends = 0
  let terminal: Promise<void> | undefined

  /** Forgets commands that have ended without being read, the oldest first, when there is no room. */
  const makeRoom = () => {
    for (const [id, command] of running) {
      if (running.size + starting < commandsMax) return
      if (command.exitCode() !== undefined) running.delete(id)
    }
    if (running.size + starting >= commandsMax) {
      throw new SandboxRuntimeError(
        `${commandsMax} commands are running in this session. End one of them first, for example with Ctrl-C (\\u0003).`
      )
    }
  }

  const exec: SessionCommands["exec"] = async (args) => {
    const startedAt = Date.now()
    const hasTerminal = args.tty ?? false
    makeRoom()
    const { command, id } = await started(args, hasTerminal)
    await settled(id, command.wait(args.yieldTimeMs ?? execWaitMillisDefault))
    return { ...report(id, command, args.maxOutputTokens), wallTimeSeconds: elapsedSeconds(startedAt) }
  }

  /** Asks the image once. A check that failed for another reason is made again. */
  const checkTerminal = async () => {
    terminal ??= requireTerminal(sandbox)
    try {
      await terminal
    } catch (error) {
      if (!(error instanceof Unsupported)) terminal = undefined
      throw error
    }
  }

  const started = async (args: ExecCommandArgs, hasTerminal: boolean) => {
    const endsBefore = ends
    starting++
    try {
      if (hasTerminal) await checkTerminal()
      const command = await RunningCommand.start(sandbox, {
        argv: argvOf(args, options.shell),
        env: options.environment(),
        workingDirectory: options.directory(args.workdir),
        hasTerminal,
        outputCharactersMax: options.outputCharactersMax
      })
      if (ends !== endsBefore) {
        await command.end()
        throw new SandboxLifecycleError(
          "The session was stopped while the command started, so the command was ended. Start it again."
        )
      }
      const id = ++last
      running.set(id, command)
      return { command, id }
    } finally {
      starting--
    }
  }

  /** A command that the sandbox has ended has no further output. */
  const settled = async (id: number, waiting: Promise<void>) => {
    try {
      await waiting
    } catch (error) {
      running.delete(id)
      throw error
    }
  }

  const report = (
    id: number,
    command: RunningCommand.RunningCommand,
    outputTokensMax: number | undefined
  ): Omit<SandboxExecResult, "wallTimeSeconds"> => {
    const exitCode = command.exitCode()
    if (exitCode !== undefined) running.delete(id)
    const said = command.take()
    const { originalTokenCount, text } = truncateOutput(said.output, outputTokensMax)
    return {
      ...said,
      output: text,
      ...(originalTokenCount === undefined ? {} : { originalTokenCount }),
      ...(exitCode === undefined ? { sessionId: id } : { exitCode })
    }
  }

  const writeStdin: SessionCommands["writeStdin"] = async ({
    chars = "",
    maxOutputTokens,
    sessionId,
    yieldTimeMs
  }) => {
    const startedAt = Date.now()
    const command = running.get(sessionId)
    if (command === undefined) {
      const output = `write_stdin failed: session not found: ${sessionId}`
      return formatExecResponse({ output, wallTimeSeconds: 0, exitCode: 1 })
    }
    if (command.exitCode() === undefined) {
      const isInterrupt = !command.hasTerminal && chars.includes(interrupt)
      if (isInterrupt) await command.interrupt()
      // Without a terminal, Ctrl-C is a signal. With one, the terminal makes it a signal.
      const text = command.hasTerminal ? chars : chars.replaceAll(interrupt, "")
      if (text !== "") command.write(text)
    }
    await settled(sessionId, command.wait(yieldTimeMs ?? writeWaitMillisDefault))
    return formatExecResponse({
      ...report(sessionId, command, maxOutputTokens),
      wallTimeSeconds: elapsedSeconds(startedAt)
    })
  }

  return {
    exec,
    writeStdin,
    endAll: async () => {
      ends++
      const all = [...running.values()]
      running.clear()
      await Promise.all(all.map((command) => command.end()))
    }
  }
}

/** Program that runs another one in a terminal. It is part of util-linux, and of our images. */
const terminalProgram = "script"

const requireTerminal = async (sandbox: Sandbox): Promise<void> => {
  const { exitCode } = await sandbox.exec(`command -v ${terminalProgram}`)
  if (exitCode === 0) return
  throw new Unsupported({
    operation: "exec with tty",
    reason: `the image has no ${terminalProgram}, which util-linux provides. Use an image based on cogni-sandbox/runtime, or run the command without tty`
  })
}

const argvOf = (
  { cmd, login, shell, tty }: ExecCommandArgs,
  defaultShell: string
): readonly [string, ...ReadonlyArray<string>] => {
  const program = shell === undefined || shell.trim() === "" ? defaultShell : shell
  const flag = login === false ? "-c" : "-lc"
  if (tty !== true) return [program, flag, cmd]
  const line = [program, flag, cmd].map(shellQuote).join(" ")
  return [terminalProgram, "--quiet", "--return", "--flush", "--command", `exec ${line}`, "/dev/null"]
}
