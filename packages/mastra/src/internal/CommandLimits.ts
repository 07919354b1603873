/** Limits of the commands and processes of one adapter. */

export interface CommandLimits {
  /**
   * Time limit of one command, in seconds (default 600). A caller can ask for less, not for more. A command that takes
   * longer is ended with all its children. Its exit code is 124. Background processes have no limit of their own.
   */
  readonly timeoutSecondsMax: number
  /** Bytes of stdout and stderr of one command together (default 64 MiB). Afterwards it is ended, with exit code 137. */
  readonly outputBytesMax: number
  /** Newest bytes of each of stdout and stderr that are kept of a command or process (default 1 MiB). */
  readonly outputRetainedBytesMax: number
  /** Commands and processes at one time, and processes that have ended and can still be read (default 32). */
  readonly processesMax: number
}

const MiB = 1024 * 1024

const defaults: CommandLimits = {
  timeoutSecondsMax: 600,
  outputBytesMax: 64 * MiB,
  outputRetainedBytesMax: MiB,
  processesMax: 32
}

export type Given = { readonly [Name in keyof CommandLimits]?: CommandLimits[Name] | undefined }

/** Completes the limits. Throws a `RangeError` if one is not positive. */
export const of = (given: Given): CommandLimits => {
  const limits: { -readonly [Name in keyof CommandLimits]: number } = { ...defaults }
  for (const name of Object.keys(defaults) as ReadonlyArray<keyof CommandLimits>) {
    const value = given[name] ?? defaults[name]
    if (!(value > 0)) throw new RangeError(`${name} is ${value}. Give a positive number, or leave it out`)
    limits[name] = value
  }
  return limits
}
