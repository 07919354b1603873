/**
 * Where words go: the answer to standard output, everything else to standard error.
 *
 * Writes wait until they are taken, so the agent is as fast as its reader. A reader of standard output who has gone
 * ends the run; one of standard error is not missed.
 *
 * This is the one way out of the command. Where a stream is a terminal, everything written to it is made visible here,
 * whatever module it comes from: no other module knows a terminal's escape sequences or writes to a stream.
 */
import { Context, Effect, Layer, Ref } from "effect"
import { ReaderGone } from "./Failure.ts"
import type { OutputFormat } from "./Invocation.ts"
import { makeFilter, visible, visibleJson } from "./TerminalText.ts"

/** What a command is told that answers people and scripts. */
export interface Asked {
  readonly output: OutputFormat
}

export class Output extends Context.Service<
  Output,
  {
    /** Raw into a pipe or a file, visible on a terminal; so is `stderr`. */
    readonly stdout: (data: string | Uint8Array) => Effect.Effect<void, ReaderGone>
    readonly stderr: (data: string | Uint8Array) => Effect.Effect<void>
    /** JSON text. On a terminal it is escaped as JSON is, and stays the same JSON. */
    readonly stdoutJson: (text: string) => Effect.Effect<void, ReaderGone>
    /** Clears the last line of standard error, which is a terminal, and writes this in its place. */
    readonly redraw: (line: string) => Effect.Effect<void>
    readonly stdoutIsTerminal: boolean
    readonly stderrIsTerminal: boolean
    /** What the process will end with. */
    readonly exitWith: (code: number) => Effect.Effect<void>
    readonly code: Effect.Effect<number>
  }
>()("@cogni/sandbox-cli/Output") {}

/** One JSON document, for scripts and for people. */
export const json = (value: unknown): Effect.Effect<void, ReaderGone, Output> =>
  Output.use((output) => output.stdoutJson(`${JSON.stringify(value, undefined, 2)}\n`))

export const lines = (all: ReadonlyArray<string>): Effect.Effect<void, ReaderGone, Output> =>
  Output.use((output) => output.stdout(all.map((line) => `${line}\n`).join("")))

/** Something beside the answer, for people. */
export const note = (text: string): Effect.Effect<void, never, Output> =>
  Output.use((output) => output.stderr(`· ${text}\n`))

/** The process's own streams. */
export const layer: Layer.Layer<Output> = Layer.effect(
  Output,
  Effect.gen(function* () {
    const code = yield* Ref.make(0)
    // Without a listener, a reader who goes would be an uncaught exception.
    for (const stream of [process.stdout, process.stderr]) stream.on("error", () => undefined)
    return make({
      stdout: (data) =>
        write(process.stdout, data).pipe(Effect.flatMap((taken) => (taken ? Effect.void : new ReaderGone()))),
      stderr: (data) => Effect.asVoid(write(process.stderr, data)),
      stdoutIsTerminal: process.stdout.isTTY === true,
      stderrIsTerminal: process.stderr.isTTY === true,
      exitWith: (next) => Ref.set(code, next),
      code: Ref.get(code)
    })
  })
)

/** Keeps what was said, for tests. */
export const makeMemory = (options?: { readonly terminal?: boolean | undefined }) => {
  const said = { stdout: "", stderr: "", code: 0 }
  const text = (data: string | Uint8Array) =>
    typeof data === "string" ? data : new TextDecoder().decode(data)
  const service = make({
    stdout: (data) => Effect.sync(() => void (said.stdout += text(data))),
    stderr: (data) => Effect.sync(() => void (said.stderr += text(data))),
    stdoutIsTerminal: options?.terminal ?? false,
    stderrIsTerminal: options?.terminal ?? false,
    exitWith: (code) => Effect.sync(() => void (said.code = code)),
    code: Effect.sync(() => said.code)
  })
  return { said, layer: Layer.succeed(Output, service) }
}

type Streams = Omit<Output["Service"], "stdoutJson" | "redraw">

/** Back to the beginning of the line, and clear it. */
const eraseLine = "\r\u001b[K"

const make = (streams: Streams): Output["Service"] => {
  const { stderr, stderrIsTerminal, stdout, stdoutIsTerminal } = streams
  const filters = { stdout: makeFilter(), stderr: makeFilter() }
  return Output.of({
    ...streams,
    stdout: stdoutIsTerminal ? (data) => Effect.suspend(() => stdout(filters.stdout(data))) : stdout,
    stderr: stderrIsTerminal ? (data) => Effect.suspend(() => stderr(filters.stderr(data))) : stderr,
    stdoutJson: (text) => stdout(stdoutIsTerminal ? visibleJson(text) : text),
    redraw: (line) => (stderrIsTerminal ? stderr(`${eraseLine}${visible(line)}`) : Effect.void)
  })
}

/** Whether it was taken. */
const write = (stream: NodeJS.WriteStream, data: string | Uint8Array): Effect.Effect<boolean> =>
  data.length === 0
    ? Effect.succeed(true)
    : Effect.callback((resume) => {
        stream.write(data, (problem) => resume(Effect.succeed(problem === undefined || problem === null)))
      })
