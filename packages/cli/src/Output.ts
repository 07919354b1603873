/**
 * Writes output: the answer to standard output, everything else to standard error.
 *
 * A write waits until the stream accepts it (back-pressure), so an agent is as fast as its reader. The run ends if the
 * reader of standard output closes it. A closed standard error is ignored, and so is one that is not read: our own
 * messages wait for it only for some seconds. Otherwise a program that starts the command and forgets to read its
 * messages could keep it from ending.
 *
 * All output of the command goes through this module, which makes control characters visible on a terminal. No other
 * module writes to a stream or contains a terminal's escape sequences.
 */
import { Context, Effect, Layer, Ref } from "effect"
import { ReaderGone } from "./Failure.ts"
import type { OutputFormat } from "./Invocation.ts"
import { makeFilter, visible, visibleJson } from "./TerminalText.ts"

/** Input of a command that answers people and scripts. */
export interface Asked {
  readonly output: OutputFormat
}

export class Output extends Context.Service<
  Output,
  {
    /** Writes raw bytes to a pipe or a file, and visible text to a terminal, as does `stderr`. */
    readonly stdout: (data: string | Uint8Array) => Effect.Effect<void, ReaderGone>
    readonly stderr: (data: string | Uint8Array) => Effect.Effect<void>
    /** Writes JSON text. On a terminal, hidden characters become JSON escapes, which do not change its value. */
    readonly stdoutJson: (text: string) => Effect.Effect<void, ReaderGone>
    /** Replaces the last line of standard error. Does nothing if that is not a terminal. */
    readonly redraw: (line: string) => Effect.Effect<void>
    /** Replaces everything on the terminal of standard output. */
    readonly screen: (lines: ReadonlyArray<string>) => Effect.Effect<void, ReaderGone>
    readonly stdoutIsTerminal: boolean
    readonly stderrIsTerminal: boolean
    /** Width of the narrower terminal of the two, now. */
    readonly columns: () => number
    /** Sets the exit code of the process. */
    readonly exitWith: (code: number) => Effect.Effect<void>
    readonly code: Effect.Effect<number>
  }
>()("@cogni/sandbox-cli/Output") {}

/** Prints a value as one JSON document. */
export const json = (value: unknown): Effect.Effect<void, ReaderGone, Output> =>
  Output.use((output) => output.stdoutJson(`${JSON.stringify(value, undefined, 2)}\n`))

export const lines = (all: ReadonlyArray<string>): Effect.Effect<void, ReaderGone, Output> =>
  Output.use((output) => output.stdout(all.map((line) => `${line}\n`).join("")))

/** Prints a note for people on standard error. */
export const note = (text: string): Effect.Effect<void, never, Output> =>
  Output.use((output) => output.stderr(`· ${text}\n`))

/** Width of a terminal that does not tell it. */
const columnsUnknown = 80

/** Longest time that one of our own messages waits for the reader of standard error. */
const messageSecondsMax = 10

/** Writes to two streams, such as those of the process. */
export const layerStreams = ({
  stderr,
  stdout
}: {
  readonly stdout: Writer
  readonly stderr: Writer
}): Layer.Layer<Output> =>
  Layer.effect(
    Output,
    Effect.gen(function* () {
      const code = yield* Ref.make(0)
      // Without a listener, a closed pipe would be an uncaught exception.
      for (const stream of [stdout, stderr]) stream.on("error", () => undefined)
      return make({
        stdout: (data) =>
          write(stdout, data).pipe(Effect.flatMap((taken) => (taken ? Effect.void : new ReaderGone()))),
        // Text is ours. Bytes are an agent's, which has to be as slow as its reader.
        stderr: (data) =>
          typeof data === "string"
            ? write(stderr, data).pipe(Effect.timeoutOption(`${messageSecondsMax} seconds`), Effect.asVoid)
            : Effect.asVoid(write(stderr, data)),
        stdoutIsTerminal: stdout.isTTY === true,
        stderrIsTerminal: stderr.isTTY === true,
        columns: () =>
          Math.min(
            ...[stdout, stderr].map(({ columns = columnsUnknown, isTTY }) =>
              isTTY === true && columns > 0 ? columns : columnsUnknown
            )
          ),
        exitWith: (next) => Ref.set(code, next),
        code: Ref.get(code)
      })
    })
  )

/** The process's own streams. */
export const layer: Layer.Layer<Output> = Layer.suspend(() => layerStreams(process))

/** Collects output in memory, for tests. */
export const makeMemory = (options?: {
  readonly terminal?: boolean | undefined
  readonly columns?: number | undefined
}) => {
  const said = { stdout: "", stderr: "", code: 0 }
  const text = (data: string | Uint8Array) =>
    typeof data === "string" ? data : new TextDecoder().decode(data)
  const service = make({
    stdout: (data) => Effect.sync(() => void (said.stdout += text(data))),
    stderr: (data) => Effect.sync(() => void (said.stderr += text(data))),
    stdoutIsTerminal: options?.terminal ?? false,
    stderrIsTerminal: options?.terminal ?? false,
    columns: () => options?.columns ?? columnsUnknown,
    exitWith: (code) => Effect.sync(() => void (said.code = code)),
    code: Effect.sync(() => said.code)
  })
  return { said, layer: Layer.succeed(Output, service) }
}

type Streams = Omit<Output["Service"], "stdoutJson" | "redraw" | "screen">

/** Goes to the first line and clears everything. */
const eraseScreen = "\u001b[H\u001b[2J"

/** Returns to the beginning of the line and clears it. */
const eraseLine = "\r\u001b[K"

const make = (streams: Streams): Output["Service"] => {
  const { stderr, stderrIsTerminal, stdout, stdoutIsTerminal } = streams
  const filters = { stdout: makeFilter(), stderr: makeFilter() }
  return Output.of({
    ...streams,
    stdout: stdoutIsTerminal ? (data) => Effect.suspend(() => stdout(filters.stdout(data))) : stdout,
    stderr: stderrIsTerminal ? (data) => Effect.suspend(() => stderr(filters.stderr(data))) : stderr,
    stdoutJson: (text) => stdout(stdoutIsTerminal ? visibleJson(text) : text),
    screen: (lines) => stdout(`${eraseScreen}${lines.map((line) => `${visible(line)}\n`).join("")}`),
    redraw: (line) => (stderrIsTerminal ? stderr(`${eraseLine}${visible(line)}`) : Effect.void)
  })
}

/** A stream of the process. */
type Writer = NodeJS.WritableStream & {
  readonly isTTY?: boolean | undefined
  readonly columns?: number | undefined
}

/** Writes data, and returns whether the stream accepted it. */
const write = (stream: Writer, data: string | Uint8Array): Effect.Effect<boolean> =>
  data.length === 0
    ? Effect.succeed(true)
    : Effect.callback((resume) => {
        stream.write(data, (problem) => resume(Effect.succeed(problem === undefined || problem === null)))
      })
