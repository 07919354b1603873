/** Behaviours of the containers in `ContainerRuntimeContract`, each implemented for a shell and in memory. */
import { Effect, Stream } from "effect"
import { ContainerRuntime, type ContainerSpec } from "../ContainerRuntime.ts"
import type { Program } from "../MemoryContainerRuntime.ts"
import type { OutputChunk } from "../RunResult.ts"

/** Behaviour of a container in the contract. */
export type Behaviour =
  | { readonly _tag: "ExitsWith"; readonly exitCode: number }
  | { readonly _tag: "Writes"; readonly stdout: string; readonly stderr: string }
  /** Prints `ready`, then ends with this code on SIGTERM. */
  | { readonly _tag: "ExitsOnTerm"; readonly exitCode: number }
  /** Prints `ready`, and ignores SIGTERM. */
  | { readonly _tag: "IgnoresTerm" }
  | { readonly _tag: "SleepsForever" }
  /** Writes its standard input. */
  | { readonly _tag: "EchoesStdin" }
  /** Writes this many `x`, then ends. */
  | { readonly _tag: "EchoesManyBytes"; readonly bytes: number }

/** Acquires and starts a container, and lets its agent start. */
export const started = Effect.fnUntraced(function* (spec: ContainerSpec) {
  const runtime = yield* ContainerRuntime
  const container = yield* runtime.acquire(spec)
  yield* container.start
  yield* container.proceed
  return container
})

/** Returns the output of one channel as text. */
export const written = (chunks: ReadonlyArray<OutputChunk>, channel: OutputChunk["channel"]): string =>
  Buffer.concat(chunks.filter((chunk) => chunk.channel === channel).map((chunk) => chunk.bytes)).toString()

/** Quotes a text as one word of a shell script. */
export const quoted = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`

const script = (behaviour: Behaviour): string => {
  switch (behaviour._tag) {
    case "ExitsWith":
      return `exit ${behaviour.exitCode}`
    case "Writes":
      return `printf %s ${quoted(behaviour.stdout)}; printf %s ${quoted(behaviour.stderr)} >&2`
    case "ExitsOnTerm":
      return `trap 'exit ${behaviour.exitCode}' TERM; echo ready; while :; do sleep 0.1; done`
    case "IgnoresTerm":
      return `trap '' TERM; echo ready; while :; do sleep 0.1; done`
    case "SleepsForever":
      return "while :; do sleep 1; done"
    case "EchoesStdin":
      return "cat"
    case "EchoesManyBytes":
      return `head -c ${behaviour.bytes} /dev/zero | tr '\\0' x`
  }
}

/** Argv for any image with a POSIX shell and coreutils. */
export const shell = (behaviour: Behaviour): readonly [string, ...Array<string>] => [
  "sh",
  "-c",
  script(behaviour)
]

/** An argv that {@link program} understands. */
export const argv = (behaviour: Behaviour): readonly [string, ...Array<string>] => [
  "behave",
  JSON.stringify(behaviour)
]

/** Program for `MemoryContainerRuntime`. */
export const program: Program = ({ argv, stderr, stdin, stdout, terminated }) => {
  const behaviour: Behaviour = JSON.parse(argv[1]!)
  switch (behaviour._tag) {
    case "ExitsWith":
      return Effect.succeed(behaviour.exitCode)
    case "Writes":
      return stdout(behaviour.stdout).pipe(Effect.andThen(stderr(behaviour.stderr)), Effect.as(0))
    case "ExitsOnTerm":
      return stdout("ready\n").pipe(Effect.andThen(terminated), Effect.as(behaviour.exitCode))
    case "IgnoresTerm":
      return Effect.andThen(stdout("ready\n"), Effect.never)
    case "SleepsForever":
      return Effect.as(terminated, 143)
    case "EchoesStdin":
      return Effect.as(Stream.runForEach(stdin, stdout), 0)
    case "EchoesManyBytes": {
      const pieceBytes = 32 * 1024
      const pieces = Array.from({ length: Math.ceil(behaviour.bytes / pieceBytes) }, (_, index) =>
        Math.min(pieceBytes, behaviour.bytes - index * pieceBytes)
      )
      return Effect.as(
        Effect.forEach(pieces, (bytes) => stdout("x".repeat(bytes)), { discard: true }),
        0
      )
    }
  }
}
