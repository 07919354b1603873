/**
 * The limits of every executor: sizes of files and input, entries of a directory, and grace of a kill.
 */

/** Largest standard input of a command that is given as a whole, in bytes. Use a stream or a file for more. */
export const stdinBytesMax = 16 * 1024 * 1024

/** Largest file that can be read or written, in bytes. */
export const fileBytesMax = 16 * 1024 * 1024

/** Largest number of entries of a directory that can be listed. */
export const entriesMax = 10_000

/** Time from SIGTERM to a timed-out command until SIGKILL to it and all its children. */
export const killGraceSeconds = 2
