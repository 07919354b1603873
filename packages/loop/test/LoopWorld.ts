/** An executor and a model for tests of loops, given as functions. */
import { type Executor, type RunResult, SandboxError } from "@cogni/sandbox-core"
import type * as ExecutorValues from "@cogni/sandbox-core/ExecutorValues"
import * as SandboxReason from "@cogni/sandbox-core/SandboxReason"
import { ChatModel } from "@cogni/sandbox-loop"
import type * as ChatMessage from "@cogni/sandbox-loop/ChatMessage"
import * as ChatError from "@cogni/sandbox-loop/ChatError"
import type * as LoopEvent from "@cogni/sandbox-loop/LoopEvent"
import { Effect, Stream } from "effect"

export const output = (stdout: string, stderr = ""): RunResult.Output => ({
  stdout: { text: stdout, bytes: new TextEncoder().encode(stdout).byteLength, truncated: false },
  stderr: { text: stderr, bytes: new TextEncoder().encode(stderr).byteLength, truncated: false }
})

export const broken = (reason: SandboxError.Reason) => new SandboxError.SandboxError({ reason })

export const gone = broken(
  new SandboxReason.ContainerFailed({ operation: "exec", detail: "is over", remedy: "Open another" })
)

export const fileRefused = (path: string) =>
  broken(
    new SandboxReason.FileRefused({ path, problem: "not_found", detail: "does not exist", remedy: "List it" })
  )

const chunksOf = ({ stderr, stdout }: RunResult.Output) =>
  Stream.make(
    { channel: "stdout" as const, bytes: new TextEncoder().encode(stdout.text) },
    { channel: "stderr" as const, bytes: new TextEncoder().encode(stderr.text) }
  )

/** An executor with files in a map and commands as a function. */
export const executorOf = (
  run: (
    command: ExecutorValues.CommandLine,
    options: ExecutorValues.SpawnOptions
  ) => Effect.Effect<RunResult.Output | number, SandboxError.SandboxError>,
  files = new Map<string, string>()
): Executor.Executor => ({
  workspace: "/workspace",
  exec: () => Effect.fail(gone),
  spawn: (command, options = {}) =>
    Effect.map(Effect.cached(run(command, options)), (ended) => ({
      output: Stream.unwrap(
        Effect.map(ended, (said) => (typeof said === "number" ? Stream.empty : chunksOf(said)))
      ),
      exit: Effect.map(ended, (said) => ({ exitCode: typeof said === "number" ? said : 0 })),
      signal: () => Effect.void
    })),
  files: {
    read: (path) => {
      const found = files.get(path)
      return found === undefined
        ? Effect.fail(fileRefused(path))
        : Effect.succeed(new TextEncoder().encode(found))
    },
    write: (path, content) =>
      Effect.sync(() => {
        files.set(path, typeof content === "string" ? content : new TextDecoder().decode(content))
      }),
    list: () => Effect.succeed([]),
    stat: () => Effect.die("no stat"),
    remove: () => Effect.die("no remove")
  }
})

/** A model that answers its requests with the given answers in order, and then fails. */
export const inTurn = (...answers: ReadonlyArray<ChatModel.ScriptedAnswer>) => {
  const requests: Array<ChatModel.ChatRequest> = []
  return {
    requests,
    layer: ChatModel.layerMemory((request) => {
      requests.push(request)
      return answers[requests.length - 1] ?? ChatError.failed("invalid_request", "the script is over")
    })
  }
}

export const callOf = (name: string, input: unknown, id = `call-${name}`): ChatMessage.ChatToolCall => ({
  id,
  name,
  arguments: typeof input === "string" ? input : JSON.stringify(input)
})

/** Returns what is invalid in a conversation, by the rules of chat completions. */
export const problemsOf = (messages: ReadonlyArray<ChatMessage.ChatMessage>): ReadonlyArray<string> => {
  const problems: Array<string> = []
  const seen = new Set<string>()
  let open: Array<string> = []
  for (const message of messages) {
    if (message.role === "tool") {
      if (!open.includes(message.toolCallId)) problems.push(`${message.toolCallId} is answered but not open`)
      open = open.filter((id) => id !== message.toolCallId)
      continue
    }
    if (open.length > 0) problems.push(`${open.join()} left open before ${message.role}`)
    open = []
    if (message.role !== "assistant") continue
    for (const { arguments: written, id, name } of message.toolCalls ?? []) {
      if (seen.has(id) || id === "") problems.push(`the id ${id} is not unique`)
      if (!/^[A-Za-z0-9_-]{1,64}$/u.test(name)) problems.push(`the name ${name} is invalid`)
      const parsed: unknown = JSON.parse(written)
      if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed)) {
        problems.push(`the arguments ${written} are not an object`)
      }
      seen.add(id)
      open.push(id)
    }
  }
  return open.length > 0 ? [...problems, `${open.join()} left open`] : problems
}

/** Returns what is invalid in the events of a loop that has ended. */
export const misorderOf = (events: ReadonlyArray<LoopEvent.LoopEvent>): ReadonlyArray<string> => {
  const problems: Array<string> = []
  const open = new Set<string>()
  let ends = 0
  for (const event of events) {
    if (ends > 0) problems.push(`${event.type} after the end`)
    if (event.type === "ended") ends += 1
    if (event.type === "tool_call_started") {
      if (open.size > 0) problems.push("two concurrent calls")
      open.add(event.id)
    }
    if (event.type === "tool_call_ended" && !open.delete(event.id))
      problems.push(`${event.id} ends without a start`)
  }
  if (ends !== 1) problems.push(`${ends} ends`)
  if (open.size > 0) problems.push(`${[...open].join()} never ended`)
  return problems
}
