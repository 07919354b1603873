/**
 * Reads the progress of a pull: lines of JSON.
 *
 * An engine answers a pull with status 200 before it starts, and reports a failure in the progress.
 */
import { Option, Schema } from "effect"
import { addAbortSignal, type Readable } from "node:stream"

const Progress = Schema.fromJsonString(Schema.Struct({ error: Schema.optional(Schema.String) }))

/** Largest number of characters that are kept of an incomplete line. */
const lineCharactersMax = 64 * 1024

/** Reads the progress to its end. Rejects with the engine's message if the pull failed. */
export const finished = async (progress: Readable, signal: AbortSignal): Promise<void> => {
  let rest = ""
  for await (const piece of addAbortSignal(signal, progress)) {
    const lines = `${rest}${String(piece)}`.split("\n")
    rest = (lines.pop() ?? "").slice(-lineCharactersMax)
    for (const line of lines) fail(line)
  }
  fail(rest)
}

const fail = (line: string): void => {
  const told = Schema.decodeUnknownOption(Progress)(line)
  const problem = Option.isSome(told) ? told.value.error : undefined
  if (problem !== undefined) throw Object.assign(new Error(problem), { statusCode: 500 })
}
