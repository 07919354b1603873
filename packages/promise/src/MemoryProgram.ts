/** A program in memory, as an ordinary function. It takes the place of the agent and of each command. */
import type { Files } from "./Sandbox.ts"

/** A command that a program in memory receives. */
export interface MemoryCommand {
  readonly argv: ReadonlyArray<string>
  readonly env: Readonly<Record<string, string>>
  /** Standard input, for one reader. Empty if the command has none. A reader that stops early closes it. */
  readonly stdin: AsyncIterable<Uint8Array>
  readonly workingDirectory: string
  /** Files of the workspace, with paths as the command sees them, or relative to the workspace. */
  readonly files: Files
  /** Prints while the program runs. Settles when the output is accepted. */
  readonly stdout: (output: string | Uint8Array) => Promise<void>
  readonly stderr: (output: string | Uint8Array) => Promise<void>
  /** Aborts when the command is killed or gets SIGTERM. */
  readonly signal: AbortSignal
}

/** Output of a program at its end, and its exit code (default 0). */
export interface MemoryOutput {
  readonly exitCode?: number | undefined
  readonly stdout?: string | Uint8Array | undefined
  readonly stderr?: string | Uint8Array | undefined
}

/** Simulates a program. If it throws, the command ends with exit code 1, and the error is its standard error. */
export type MemoryProgram = (command: MemoryCommand) => MemoryOutput | Promise<MemoryOutput>
