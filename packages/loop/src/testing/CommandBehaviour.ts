/**
 * Commands of `ToolContract` and of the `ExecutorContract` of sessions: each behaviour is named once, and implemented
 * for a shell and in memory.
 */
import type { Program, ProgramIo } from "@cogni/sandbox-core/MemoryContainerRuntime"
import { quoted } from "@cogni/sandbox-core/testing/Behaviour"
import { Effect, Stream } from "effect"

/** Behaviour of a command of a contract. */
export type Behaviour =
  | { readonly _tag: "ExitsWith"; readonly exitCode: number }
  | { readonly _tag: "Writes"; readonly stdout: string; readonly stderr: string }
  /** Opens each channel again by its name. */
  | { readonly _tag: "WritesByName"; readonly stdout: string; readonly stderr: string }
  /** Writes this many `x`, and ends. */
  | { readonly _tag: "WritesManyBytes"; readonly bytes: number }
  /** Writes this many lines with their numbers, from 1. */
  | { readonly _tag: "Counts"; readonly lines: number }
  | { readonly _tag: "EchoesStdin" }
  /** Writes `got` and the line for each line of its input, and `end` at its end. */
  | { readonly _tag: "AnswersLines" }
  /** Writes how many bytes its input has. */
  | { readonly _tag: "CountsStdin" }
  /** Writes how many bytes its input has, once this file exists. */
  | { readonly _tag: "CountsStdinLater"; readonly path: string }
  /** Reads this many bytes, writes their number, and exits. */
  | { readonly _tag: "ReadsSome"; readonly bytes: number }
  /** Closes its input, writes `ready`, and runs until it is ended. */
  | { readonly _tag: "ClosesStdin" }
  /** Exits. Its child reads the input, and then creates this file. */
  | { readonly _tag: "LeavesReading"; readonly path: string }
  /** Writes a NUL after each. */
  | { readonly _tag: "SaysArguments"; readonly arguments: ReadonlyArray<string> }
  /** Writes `unset` if it has no value. */
  | { readonly _tag: "SaysVariable"; readonly name: string }
  | { readonly _tag: "SaysDirectory" }
  | { readonly _tag: "SaysFile"; readonly path: string }
  | { readonly _tag: "WritesFile"; readonly path: string; readonly content: string }
  | { readonly _tag: "KillsItself"; readonly signal: "SIGKILL" | "SIGTERM" }
  /** Writes `ready`; on SIGTERM writes `tidied` and exits with this code. */
  | { readonly _tag: "TidiesUp"; readonly exitCode: number }
  /** Writes `ready`, and runs until it is ended. */
  | { readonly _tag: "Sleeps" }
  /** Writes `ready`, and ignores SIGTERM. */
  | { readonly _tag: "IgnoresTerm" }
  /** Writes a line every tenth of a second, like a server, until it is ended. */
  | { readonly _tag: "Ticks" }
  /** Writes `ready` and runs until it is ended, while its child keeps writing to a file. */
  | { readonly _tag: "Beats"; readonly path: string; readonly ignoringTerm: "nobody" | "child" | "both" }
  /** Writes `ready` and exits. Its child keeps writing to a file for some seconds. */
  | { readonly _tag: "LeavesBeating"; readonly path: string }
  /** Writes `ready` and exits. Its child writes two gigabytes to stdout. */
  | { readonly _tag: "LeavesWriting" }
  /** Its child keeps writing to a file. After the first write, the command writes to stdout without end. */
  | { readonly _tag: "Floods"; readonly path: string }

/** Command lines of the behaviours for one kind of executor. */
export interface Words {
  readonly argv: (behaviour: Behaviour) => readonly [string, ...ReadonlyArray<string>]
  /** The same command as a shell line. */
  readonly line: (behaviour: Behaviour) => string
}

/** Lasts about ten seconds, so that leftovers of a test end by themselves. */
const beating = (path: string) =>
  `i=0; while [ $i -lt 200 ]; do printf x >> ${quoted(path)}; sleep 0.05; i=$((i + 1)); done`

const beats = (path: string, ignoringTerm: "nobody" | "child" | "both") => {
  const ignore = "trap '' TERM; "
  const all = ignoringTerm === "both" ? ignore : ""
  return `${all}(${ignoringTerm === "child" ? ignore : ""}${beating(path)}) & echo ready; while :; do wait; sleep 0.1; done`
}

const script = (behaviour: Behaviour): string => {
  switch (behaviour._tag) {
    case "ExitsWith":
      return `exit ${behaviour.exitCode}`
    case "Writes":
      return `printf %s ${quoted(behaviour.stdout)}; printf %s ${quoted(behaviour.stderr)} >&2`
    case "WritesByName":
      return `printf %s ${quoted(behaviour.stdout)} > /dev/stdout; printf %s ${quoted(behaviour.stderr)} > /dev/stderr`
    case "WritesManyBytes":
      return `head -c ${behaviour.bytes} /dev/zero | tr '\\0' x`
    case "Counts":
      return `seq 1 ${behaviour.lines}`
    case "EchoesStdin":
      return "cat"
    case "AnswersLines":
      return 'while read -r line; do echo "got $line"; done; echo end'
    case "CountsStdin":
      return "wc -c"
    case "CountsStdinLater":
      return `while [ ! -e ${quoted(behaviour.path)} ]; do sleep 0.02; done; wc -c`
    case "ReadsSome":
      return `head -c ${behaviour.bytes} | wc -c`
    case "ClosesStdin":
      return "exec <&-; echo ready; sleep 1000"
    case "LeavesReading":
      return `exec 3<&0; (cat <&3 > /dev/null; : > ${quoted(behaviour.path)}) > /dev/null 2>&1 & exit 0`
    case "SaysArguments":
      return `printf '%s\\0' ${behaviour.arguments.map(quoted).join(" ")}`
    case "SaysVariable":
      return `printf %s "\${${behaviour.name}-unset}"`
    case "SaysDirectory":
      return "pwd"
    case "SaysFile":
      return `cat ${quoted(behaviour.path)}`
    case "WritesFile":
      return `printf %s ${quoted(behaviour.content)} > ${quoted(behaviour.path)}`
    case "KillsItself":
      return `kill -s ${behaviour.signal.slice("SIG".length)} $$; sleep 1000`
    case "TidiesUp":
      return `trap 'echo tidied; exit ${behaviour.exitCode}' TERM; echo ready; while :; do sleep 0.1; done`
    case "Sleeps":
      return "echo ready; sleep 1000"
    case "IgnoresTerm":
      return "trap '' TERM; echo ready; while :; do sleep 0.1; done"
    case "Ticks":
      return "n=0; while :; do n=$((n+1)); echo tick $n; sleep 0.1; done"
    case "Beats":
      return beats(behaviour.path, behaviour.ignoringTerm)
    case "LeavesBeating":
      return `(${beating(behaviour.path)}) & echo ready`
    case "LeavesWriting":
      return "head -c 2000000000 /dev/zero & echo ready"
    case "Floods":
      return `(${beating(behaviour.path)}) & while [ ! -s ${quoted(behaviour.path)} ]; do sleep 0.02; done; yes`
  }
}

/** Commands for any executor with a POSIX shell and coreutils. */
export const shell: Words = {
  // The arguments go to the program without a shell.
  argv: (behaviour) =>
    behaviour._tag === "SaysArguments"
      ? ["printf", "%s\\0", ...behaviour.arguments]
      : ["sh", "-c", script(behaviour)],
  line: script
}

/** Commands for a memory sandbox whose program is {@link program}. */
export const memory: Words = {
  argv: (behaviour) => ["behave", JSON.stringify(behaviour)],
  line: (behaviour) => `behave ${JSON.stringify(behaviour)}`
}

const beat = ({ files }: ProgramIo, path: string) =>
  Effect.forEach(
    Array.from({ length: 200 }, (_, index) => index),
    (index) => Effect.andThen(files.write(path, "x".repeat(index + 1)), Effect.sleep("50 millis")),
    { discard: true }
  ).pipe(Effect.ignore)

/** Returns 143 on SIGTERM, 130 on SIGINT and 129 on SIGHUP. */
const untilEnded = ({ signals, terminated }: ProgramIo): Effect.Effect<number> =>
  Effect.raceFirst(
    Effect.as(terminated, 143),
    signals.pipe(
      Stream.filter((name) => name === "SIGINT" || name === "SIGHUP"),
      Stream.runHead,
      Effect.flatMap((found) =>
        found._tag === "None" ? Effect.never : Effect.succeed(found.value === "SIGINT" ? 130 : 129)
      )
    )
  )

const said = (io: ProgramIo, behaviour: Behaviour): Effect.Effect<number> => {
  const { env, files, stderr, stdout, terminated, workingDirectory } = io
  const ready = stdout("ready\n")
  switch (behaviour._tag) {
    case "ExitsWith":
      return Effect.succeed(behaviour.exitCode)
    case "Writes":
    case "WritesByName":
      return stdout(behaviour.stdout).pipe(Effect.andThen(stderr(behaviour.stderr)), Effect.as(0))
    case "WritesManyBytes":
      return Effect.as(inPieces(io, behaviour.bytes), 0)
    case "Counts":
      return Effect.raceFirst(untilEnded(io), Effect.as(counted(io, behaviour.lines), 0))
    case "EchoesStdin":
    case "AnswersLines":
    case "CountsStdin":
    case "CountsStdinLater":
    case "ReadsSome":
    case "ClosesStdin":
    case "LeavesReading":
      return reads(io, behaviour)
    case "SaysArguments":
      return Effect.as(stdout(behaviour.arguments.map((argument) => `${argument}\0`).join("")), 0)
    case "SaysVariable":
      return Effect.as(stdout(env[behaviour.name] ?? "unset"), 0)
    case "SaysDirectory":
      return Effect.as(stdout(`${workingDirectory}\n`), 0)
    case "SaysFile":
      return Effect.matchEffect(files.read(behaviour.path), {
        onSuccess: (content) => Effect.as(stdout(content), 0),
        onFailure: ({ message }) => Effect.as(stderr(`${message}\n`), 1)
      })
    case "WritesFile":
      return Effect.match(files.write(behaviour.path, behaviour.content), {
        onSuccess: () => 0,
        onFailure: () => 1
      })
    case "KillsItself":
      return Effect.succeed(behaviour.signal === "SIGKILL" ? 137 : 143)
    case "TidiesUp":
      return ready.pipe(
        Effect.andThen(terminated),
        Effect.andThen(stdout("tidied\n")),
        Effect.as(behaviour.exitCode)
      )
    case "Sleeps":
      return Effect.andThen(ready, untilEnded(io))
    case "IgnoresTerm":
      return Effect.andThen(ready, Effect.never)
    case "Ticks":
      return Effect.raceFirst(untilEnded(io), ticks(io))
    case "Beats":
      return Effect.forkChild(beat(io, behaviour.path)).pipe(
        Effect.andThen(ready),
        Effect.andThen(behaviour.ignoringTerm === "both" ? Effect.never : untilEnded(io))
      )
    case "LeavesBeating":
      return Effect.forkDetach(beat(io, behaviour.path)).pipe(Effect.andThen(ready), Effect.as(0))
    case "LeavesWriting":
      return Effect.forkDetach(inPieces(io, 2_000_000_000)).pipe(Effect.andThen(ready), Effect.as(0))
    case "Floods":
      return Effect.forkChild(beat(io, behaviour.path), { startImmediately: true }).pipe(
        Effect.andThen(Effect.forever(stdout("y\n".repeat(1024))))
      )
  }
}

type ReadsStdin = Extract<
  Behaviour,
  { _tag: `${string}Stdin${string}` | "AnswersLines" | "LeavesReading" | "ReadsSome" }
>

const reads = (io: ProgramIo, behaviour: ReadsStdin): Effect.Effect<number> => {
  const { files, stdin, stdout } = io
  switch (behaviour._tag) {
    case "EchoesStdin":
      return Effect.as(Stream.runForEach(stdin, stdout), 0)
    case "AnswersLines":
      return stdin.pipe(
        Stream.decodeText,
        Stream.splitLines,
        Stream.runForEach((line) => stdout(`got ${line}\n`)),
        Effect.andThen(stdout("end\n")),
        Effect.as(0)
      )
    case "CountsStdin":
      return counts(io)
    case "CountsStdinLater":
      return Effect.andThen(untilExists(io, behaviour.path), counts(io))
    case "ReadsSome":
      return stdin.pipe(
        Stream.takeUntil(accumulated(behaviour.bytes)),
        Stream.runDrain,
        Effect.andThen(stdout(`${behaviour.bytes}\n`)),
        Effect.as(0)
      )
    case "ClosesStdin":
      // A reader that stops closes the input.
      return Stream.runHead(stdin).pipe(Effect.andThen(stdout("ready\n")), Effect.andThen(untilEnded(io)))
    case "LeavesReading":
      return Stream.runDrain(stdin).pipe(
        Effect.andThen(files.write(behaviour.path, "")),
        Effect.forkDetach,
        Effect.as(0)
      )
  }
}

const counts = ({ stdin, stdout }: ProgramIo) =>
  stdin.pipe(
    Stream.runFold(
      () => 0,
      (sum, { byteLength }) => sum + byteLength
    ),
    Effect.flatMap((bytes) => stdout(`${bytes}\n`)),
    Effect.as(0)
  )

/** Returns whether this many bytes have been seen with this piece. */
const accumulated = (bytes: number) => {
  let seen = 0
  return ({ byteLength }: Uint8Array) => (seen += byteLength) >= bytes
}

const untilExists = ({ files }: ProgramIo, path: string) =>
  Effect.sleep("20 millis").pipe(
    Effect.andThen(Effect.exit(files.stat(path))),
    Effect.repeat({ while: (exit) => exit._tag === "Failure" })
  )

const inPieces = ({ stdout }: ProgramIo, bytes: number) => {
  const pieceBytes = 32 * 1024
  const pieces = Array.from({ length: Math.ceil(bytes / pieceBytes) }, (_, index) =>
    Math.min(pieceBytes, bytes - index * pieceBytes)
  )
  return Effect.forEach(pieces, (piece) => stdout("x".repeat(piece)), { discard: true })
}

const linesAtOnce = 5000

const counted = ({ stdout }: ProgramIo, lines: number) =>
  Stream.runForEach(Stream.range(1, Math.ceil(lines / linesAtOnce)), (piece) => {
    const from = (piece - 1) * linesAtOnce
    const length = Math.min(linesAtOnce, lines - from)
    return stdout(Array.from({ length }, (_, index) => `${from + index + 1}\n`).join(""))
  })

const ticks = ({ stdout }: ProgramIo) => {
  let count = 0
  return Effect.suspend(() => stdout(`tick ${++count}\n`)).pipe(
    Effect.andThen(Effect.sleep("100 millis")),
    Effect.forever
  )
}

/** Reports a program that cannot run, with the message and exit code of a shell. */
const unknown = ({ files, stderr }: ProgramIo, name: string) =>
  Effect.matchEffect(files.read(name), {
    onSuccess: () => Effect.as(stderr(`${name}: permission denied\n`), 126),
    onFailure: ({ problem }) =>
      problem === "not_a_file"
        ? Effect.as(stderr(`${name}: permission denied\n`), 126)
        : Effect.as(stderr(`${name}: not found\n`), 127)
  })

/** Program for `MemoryContainerRuntime`. */
export const program: Program = (io) => {
  const [name = "", first = "", line = ""] = io.argv
  if (name === "behave") return said(io, JSON.parse(first) as Behaviour)
  const [, told] = /^behave (.*)$/su.exec(line) ?? []
  if (name === "/bin/sh" && first === "-c" && told !== undefined)
    return said(io, JSON.parse(told) as Behaviour)
  return unknown(io, name)
}
