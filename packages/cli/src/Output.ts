/**
 * Where words go: the answer to standard output, everything else to standard error.
 *
 * Writes wait until they are taken, so the pace of whoever reads is the pace of the agent. A reader of standard output
 * who has gone ends the run; one of standard error is not missed.
 */
import { Context, Effect, Layer, Ref } from "effect"
import { ReaderGone } from "./Failure.ts"

/** @category models */
export type OutputFormat = "text" | "json"

/** @category services */
export class Output extends Context.Service<
  Output,
  {
    readonly stdout: (data: string | Uint8Array) => Effect.Effect<void, ReaderGone>
    readonly stderr: (data: string | Uint8Array) => Effect.Effect<void>
    readonly stdoutIsTerminal: boolean
    readonly stderrIsTerminal: boolean
    /** What the process will end with. */
    readonly exitWith: (code: number) => Effect.Effect<void>
    readonly code: Effect.Effect<number>
  }
>()("@cogni/sandbox-cli/Output") {}

/** One JSON document, for scripts and for people. @category combinators */
export const json = (value: unknown): Effect.Effect<void, ReaderGone, Output> =>
  Output.use((output) => output.stdout(`${JSON.stringify(value, undefined, 2)}\n`))

/** @category combinators */
export const lines = (all: ReadonlyArray<string>): Effect.Effect<void, ReaderGone, Output> =>
  Output.use((output) => output.stdout(all.map((line) => `${line}\n`).join("")))

// -----------------------------------------------------------------------------
// layers
// -----------------------------------------------------------------------------

/** The process's own streams. @category layers */
export const layer: Layer.Layer<Output> = Layer.effect(
  Output,
  Effect.gen(function* () {
    const code = yield* Ref.make(0)
    // Without a listener, a reader who goes would be an uncaught exception.
    for (const stream of [process.stdout, process.stderr]) stream.on("error", () => undefined)
    return Output.of({
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

/** Keeps what was said, for tests. @category constructors */
export const makeMemory = (options?: { readonly terminal?: boolean | undefined }) => {
  const said = { stdout: "", stderr: "", code: 0 }
  const text = (data: string | Uint8Array) =>
    typeof data === "string" ? data : new TextDecoder().decode(data)
  const service = Output.of({
    stdout: (data) => Effect.sync(() => void (said.stdout += text(data))),
    stderr: (data) => Effect.sync(() => void (said.stderr += text(data))),
    stdoutIsTerminal: options?.terminal ?? false,
    stderrIsTerminal: options?.terminal ?? false,
    exitWith: (code) => Effect.sync(() => void (said.code = code)),
    code: Effect.sync(() => said.code)
  })
  return { said, layer: Layer.succeed(Output, service) }
}

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

/** Whether it was taken. */
const write = (stream: NodeJS.WriteStream, data: string | Uint8Array): Effect.Effect<boolean> =>
  data.length === 0
    ? Effect.succeed(true)
    : Effect.callback((resume) => {
        stream.write(data, (problem) => resume(Effect.succeed(problem === undefined || problem === null)))
      })
