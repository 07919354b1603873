/** What the commands of `ToolContract` do: named once, and said once for a shell and once for memory. */
import type { Program } from "@cogni/sandbox-core/MemoryContainerRuntime"
import { quoted } from "@cogni/sandbox-core/testing/Behaviour"
import { Duration, Effect, Stream } from "effect"

/** What a command of the contract does. */
export type Behaviour =
  | { readonly _tag: "ExitsWith"; readonly exitCode: number }
  | { readonly _tag: "Writes"; readonly stdout: string; readonly stderr: string }
  /** Its standard input, as it is. */
  | { readonly _tag: "Echoes" }
  /** `name=value`, or nothing. */
  | { readonly _tag: "PrintsVariable"; readonly name: string }
  | { readonly _tag: "PrintsDirectory" }
  /** Lines with their numbers, from 1, so many. */
  | { readonly _tag: "Counts"; readonly lines: number }
  /** Says `ready`, and goes on until something ends it. */
  | { readonly _tag: "Waits" }
  /** Says `ready`, and `tidied` when it is asked to end; then ends with 3. */
  | { readonly _tag: "Tidies" }
  /** Says `ready`, and goes on whatever it is asked. */
  | { readonly _tag: "IgnoresTerm" }
  /** As a server does: a line every tenth of a second, until something ends it. */
  | { readonly _tag: "Ticks" }
  /** Lines with their numbers without end, as fast as they are taken. */
  | { readonly _tag: "Floods" }

/** For any image, or host, with a POSIX shell and coreutils. */
export const shell = (behaviour: Behaviour): string => {
  switch (behaviour._tag) {
    case "ExitsWith":
      return `exit ${behaviour.exitCode}`
    case "Writes":
      return `printf %s ${quoted(behaviour.stdout)}; printf %s ${quoted(behaviour.stderr)} >&2`
    case "Echoes":
      return "cat"
    case "PrintsVariable":
      return `env | grep '^${behaviour.name}=' || :`
    case "PrintsDirectory":
      return "pwd"
    case "Counts":
      return `seq 1 ${behaviour.lines}`
    case "Waits":
      return "echo ready; while :; do sleep 0.1; done"
    case "Tidies":
      return "trap 'echo tidied; exit 3' TERM; echo ready; while :; do sleep 0.1; done"
    case "IgnoresTerm":
      return "trap '' TERM; echo ready; while :; do sleep 0.1; done"
    case "Ticks":
      return "n=0; while :; do n=$((n+1)); echo tick $n; sleep 0.1; done"
    case "Floods":
      return "seq 1 1000000000"
  }
}

/** A command that {@link program} understands. */
export const memory = (behaviour: Behaviour): string => `behave ${JSON.stringify(behaviour)}`

const linesAtOnce = 5000

const numbered = (from: number, to: number): string =>
  Array.from({ length: to - from + 1 }, (_, index) => `${from + index}\n`).join("")

/** For `MemoryContainerRuntime`. */
export const program: Program = ({
  argv,
  env,
  signals,
  stderr,
  stdin,
  stdout,
  terminated,
  workingDirectory
}) => {
  const behaviour: Behaviour = JSON.parse((argv[2] ?? "").slice("behave ".length))
  /** 143 on SIGTERM, 129 and 130 on the others that end what does not listen. */
  const ended = Effect.raceFirst(
    Effect.as(terminated, 143),
    signals.pipe(
      Stream.filter((name) => name === "SIGINT" || name === "SIGHUP"),
      Stream.runHead,
      Effect.flatMap((found) =>
        found._tag === "None" ? Effect.never : Effect.succeed(found.value === "SIGINT" ? 130 : 129)
      )
    )
  )
  switch (behaviour._tag) {
    case "ExitsWith":
      return Effect.succeed(behaviour.exitCode)
    case "Writes":
      return stdout(behaviour.stdout).pipe(Effect.andThen(stderr(behaviour.stderr)), Effect.as(0))
    case "Echoes":
      return Effect.as(stdout(stdin), 0)
    case "PrintsVariable": {
      const value = Object.hasOwn(env, behaviour.name) ? env[behaviour.name] : undefined
      return value === undefined ? Effect.succeed(0) : Effect.as(stdout(`${behaviour.name}=${value}\n`), 0)
    }
    case "PrintsDirectory":
      return Effect.as(stdout(`${workingDirectory}\n`), 0)
    case "Counts": {
      const pieces = Array.from({ length: Math.ceil(behaviour.lines / linesAtOnce) }, (_, index) =>
        numbered(index * linesAtOnce + 1, Math.min(behaviour.lines, (index + 1) * linesAtOnce))
      )
      return Effect.as(Effect.forEach(pieces, stdout, { discard: true }), 0)
    }
    case "Waits":
      return Effect.andThen(stdout("ready\n"), ended)
    case "Tidies":
      return stdout("ready\n").pipe(
        Effect.andThen(terminated),
        Effect.andThen(stdout("tidied\n")),
        Effect.as(3)
      )
    case "IgnoresTerm":
      return Effect.andThen(stdout("ready\n"), Effect.never)
    case "Ticks": {
      let ticks = 0
      const tick = Effect.suspend(() => stdout(`tick ${++ticks}\n`)).pipe(
        Effect.andThen(Effect.sleep(Duration.millis(100))),
        Effect.forever
      )
      return Effect.raceFirst(ended, tick)
    }
    case "Floods": {
      let next = 1
      const piece = Effect.suspend(() => {
        const from = next
        next += linesAtOnce
        return stdout(numbered(from, next - 1))
      })
      return Effect.raceFirst(ended, Effect.forever(piece))
    }
  }
}
