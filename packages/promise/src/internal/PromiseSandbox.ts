/** Wraps an open sandbox, and the commands that it runs, in Promises. */
import type * as Executor from "@cogni/sandbox-core/Executor"
import type * as ExecutorValues from "@cogni/sandbox-core/ExecutorValues"
import type { Sandbox as OpenSandbox } from "@cogni/sandbox-core/SandboxRunner"
import { Effect, Stream } from "effect"
import { Closed } from "../Closed.ts"
import type { Process, Sandbox, Spawn } from "../Sandbox.ts"
import * as HostRuntime from "./HostRuntime.ts"
import * as PromiseFiles from "./PromiseFiles.ts"

/** Wraps an open sandbox. `release` also runs when it closes, for what the sandbox has for itself. */
export const make = <R>(
  runtime: HostRuntime.HostRuntime<R>,
  { close: closeHeld, value: sandbox }: HostRuntime.Held<OpenSandbox>,
  release: () => Promise<void> = async () => undefined
): Sandbox => {
  const { files, runId, workspace } = sandbox
  const over = new AbortController()
  const close = HostRuntime.once(async () => {
    over.abort(new Closed({ what: "sandbox" }))
    try {
      await closeHeld()
    } finally {
      await release()
    }
  })
  const settle = <A, E>(effect: Effect.Effect<A, E>, signal?: AbortSignal) =>
    runtime.settle(effect, HostRuntime.signalOf(over.signal, signal))
  return {
    runId,
    workspace,
    exec: async (command, { signal, stdin, ...options } = {}) => {
      const result = await settle(sandbox.exec(command, { ...options, stdin: inputOf(stdin) }), signal)
      return { ...result, stdout: result.output.stdout.text, stderr: result.output.stderr.text }
    },
    spawn: async (command, { signal, stdin, ...options } = {}) => {
      const ends = HostRuntime.signalOf(over.signal, signal)
      const spawned = sandbox.spawn(command, { ...options, stdin: inputOf(stdin) })
      const held = await runtime.hold(spawned, ends)
      // Also of a process that has ended and was not disposed of: the host would hold it until it closes.
      const close = HostRuntime.once(async () => {
        over.signal.removeEventListener("abort", end)
        await held.close()
      })
      const end = () => void close().catch(() => undefined)
      over.signal.addEventListener("abort", end, { once: true })
      return processOf(runtime, { ...held, close }, ends)
    },
    files: PromiseFiles.make(files, settle),
    ended: settle(Effect.flip(sandbox.ended)).catch(() => undefined),
    close,
    [Symbol.asyncDispose]: close
  }
}

/** The error of an iterable that throws becomes the reason of `CommandInputFailed`. */
const inputOf = (stdin: Spawn["stdin"]): ExecutorValues.SpawnOptions["stdin"] =>
  stdin === undefined || typeof stdin === "string" || stdin instanceof Uint8Array
    ? stdin
    : Stream.fromAsyncIterable(stdin, (thrown) => thrown)

const processOf = <R>(
  runtime: HostRuntime.HostRuntime<R>,
  { close, value: running }: HostRuntime.Held<Executor.RunningCommand>,
  signal: AbortSignal
): Process => {
  const exit = runtime.settle(running.exit, signal).catch(async (error: unknown) => {
    // No caller waits for the command any more, so it ends.
    if (signal.aborted) await close()
    throw error
  })
  // A caller that reads only the output must not end the program with an unhandled rejection.
  exit.catch(() => undefined)
  return {
    output: runtime.iterate(running.output, signal),
    exit,
    kill: (name = "SIGTERM") => runtime.settle(running.signal(name), signal),
    [Symbol.asyncDispose]: close
  }
}
