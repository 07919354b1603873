/**
 * Reports the result of a task, as text and as JSON. Pure.
 *
 * The changes are the result, even if the task did not finish, so every path reports them.
 */
import type { LoopEnd, LoopOutcome, LoopProgress } from "@cogni/sandbox-loop/LoopEvent"
import type { TaskResult } from "@cogni/sandbox-graph-provider/TaskRun"
import { exitCode, type ExitName } from "./ExitCode.ts"
import { plural } from "./Quantity.ts"
import { clip, oneLine } from "./TerminalText.ts"

const lineCharsMax = 160

/** Formats the start or end of a tool call as a line; `undefined` for other events. */
export const lineOf = (event: LoopProgress): string | undefined => {
  switch (event.type) {
    case "tool_call_started":
      return clip(oneLine(`${event.name} ${argumentsOf(event.input)}`), lineCharsMax)
    case "tool_call_ended":
      return clip(oneLine(`${event.isError ? "refused: " : ""}${resultOf(event)}`), lineCharsMax)
    default:
      return undefined
  }
}

const argumentsOf = (input: Readonly<Record<string, unknown>>): string => {
  const { command, path } = input
  if (typeof path === "string") return path
  if (typeof command === "string") return command
  return JSON.stringify(input)
}

/** Returns the exit code of a command, or the first line of another tool's result, which may be truncated. */
const resultOf = ({ content, durationMs }: Extract<LoopProgress, { readonly type: "tool_call_ended" }>) => {
  const exitCode = /^\{"exit_code":(\d+),/u.exec(content)?.[1]
  return exitCode === undefined
    ? firstLine(content)
    : `exit code ${exitCode}, after ${(durationMs / 1000).toFixed(1)} s`
}

const firstLine = (content: string): string => content.slice(0, 2 * lineCharsMax).split("\n")[0] ?? ""

const exits: Readonly<Record<LoopOutcome, ExitName>> = {
  finished: "success",
  steps_exhausted: "budget",
  tool_calls_exhausted: "budget",
  output_tokens_exhausted: "budget",
  context_exhausted: "budget",
  invalid_calls_exhausted: "noAnswer",
  timeout: "timeout",
  model_failed: "fault",
  sandbox_failed: "fault"
}

/** Returns the exit code of the command. The result is the patch: a finished task without one is a fault. */
export const exitOf = (result: TaskResult): ExitName => {
  const { end } = result
  if (end.outcome === "finished") return patchProblem(result) === undefined ? "success" : "fault"
  if (end.outcome !== "model_failed") return exits[end.outcome]
  switch (end.error.code) {
    case "insufficient_quota":
      return "budget"
    case "unauthorized":
      return "configuration"
    case "timeout":
      return "timeout"
    case "refused":
    case "invalid_answer":
    case "answer_too_large":
      return "noAnswer"
    default:
      return "fault"
  }
}

/** Explains why a task did not finish or has no patch, in terms of flags. */
export const problemOf = (result: TaskResult): string | undefined =>
  result.end.outcome === "finished"
    ? patchProblem(result)
    : words.reduce((message, [field, flag]) => message.replace(field, flag), oneLine(result.end.message))

/** Replacements of limit names. Only some limits have a flag; advice to raise the others is removed. */
const words: ReadonlyArray<readonly [RegExp, string]> = [
  [/Raise (?:toolCalls|outputTokens|contextBytes)Max, or g/u, "G"],
  [/stepsMax/gu, "--steps-max"],
  [/runtimeSecondsMax/gu, "--timeout"],
  [/llm\.budget/gu, "--max-calls, --max-output-tokens, …"]
]

/** Summarizes steps, calls and tokens in one line. */
export const summary = ({ steps, toolCalls, usage }: LoopEnd): string =>
  `${plural(steps, "step")}, ${plural(toolCalls, "tool call")}, ${usage.inputTokens} tokens in, ${usage.outputTokens} out`

/** Describes the changes in one line. */
export const changes = (result: TaskResult, file: string | undefined): string => {
  const { patch } = result
  if (patch.problem !== undefined) return oneLine(patch.problem)
  if (patch.files === 0) return "nothing changed"
  const what = `${plural(patch.files, "file")} changed`
  return file === undefined ? what : `${what}; the patch is in ${file}`
}

/** Explains why there is no patch; `undefined` if there is one. */
const patchProblem = ({ patch }: TaskResult): string | undefined =>
  patch.problem === undefined ? undefined : oneLine(patch.problem)

export const json = (result: TaskResult, runId: string, demo: boolean, file: string | undefined): object => {
  const { end, patch } = result
  const exit = exitOf(result)
  return {
    ok: exit === "success",
    runId,
    ...(demo ? { demo: true } : {}),
    exitCode: exitCode[exit],
    outcome: end.outcome,
    ...(end.text === "" ? {} : { answer: end.text }),
    steps: end.steps,
    toolCalls: end.toolCalls,
    usage: end.usage,
    durationMs: Math.round(end.durationMs),
    patch: file === undefined ? patch : { ...patch, text: undefined, file },
    ...(exit === "success"
      ? {}
      : {
          error: {
            code: exit,
            reason:
              end.outcome === "finished"
                ? "no_patch"
                : end.outcome === "model_failed"
                  ? end.error.code
                  : end.outcome,
            message: problemOf(result),
            isRetryable: end.outcome === "model_failed" && end.error.isRetryable
          }
        })
  }
}
