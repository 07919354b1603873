/**
 * The tools that a caller may use, and the one way to call them. A session's registry, a run's gateway and the loop on
 * the host use the same one.
 *
 * Unknown and forbidden tools get the same answer, so that an agent cannot discover which tools the host has.
 */
import * as Telemetry from "@cogni/sandbox-core/Telemetry"
import { Effect, Result } from "effect"
import * as Json from "./internal/Json.ts"
import { dottedName, type Tool, type ToolContext, ToolFailed } from "./Tool.ts"

/** A model's call with arguments that its tool accepts. */
export interface CheckedCall {
  readonly tool: Tool
  readonly input: Readonly<Record<string, unknown>>
}

export interface ToolSet {
  /** Tools that may be called. */
  readonly offered: ReadonlyArray<Tool>
  /** Calls a tool by name, if it may be called. Each call is a span. */
  readonly call: (name: string, input: unknown, context: ToolContext) => Effect.Effect<unknown, ToolFailed>
  /** Parses and checks the arguments that a model wrote as JSON text, without calling the tool. */
  readonly read: (name: string, written: string) => Result.Result<CheckedCall, ToolFailed>
}

export const make = (offered: ReadonlyArray<Tool>): ToolSet => {
  const find = (name: string): Result.Result<Tool, ToolFailed> =>
    Result.fromNullishOr(
      offered.find((tool) => tool.name === name),
      () => denied(offered, name)
    )
  return {
    offered,
    call: (name, input, context) =>
      Result.match(find(name), {
        onSuccess: (tool) => called(tool, input, context),
        // A span must not contain a name that a model made up.
        onFailure: (error) =>
          Effect.withSpan(Effect.fail(error), Telemetry.operation.executeTool, {
            attributes: {
              [Telemetry.attribute.operation]: Telemetry.operation.executeTool,
              [Telemetry.attribute.runId]: context.runId,
              [Telemetry.attribute.errorType]: error.code
            }
          })
      }),
    read: (name, written) =>
      Result.gen(function* () {
        const tool = yield* find(name)
        const input = yield* parse(written)
        if (!Json.isObject(input)) return yield* fail("the arguments are not a JSON object. Send one")
        const problem = tool.check(input)
        return problem === undefined ? { tool, input } : yield* fail(problem)
      })
  }
}

/** Answer to a call, as a model reads it over any transport. */
export interface ToolAnswer {
  /** The result as JSON, or the code and remedy of a failed call. */
  readonly text: string
  readonly isError: boolean
  readonly result?: unknown
}

export const answered = (result: unknown): ToolAnswer => ({
  text: JSON.stringify(result ?? null),
  isError: false,
  result
})

export const refused = ({ code, detail }: Pick<ToolFailed, "code" | "detail">): ToolAnswer => ({
  text: `${code}: ${detail}`,
  isError: true
})

export const answer = (called: Effect.Effect<unknown, ToolFailed>): Effect.Effect<ToolAnswer> =>
  Effect.match(called, { onSuccess: answered, onFailure: refused })

/** Call IDs come from the caller and may have any length. */
const callIdCharactersMax = 200

/** Calls a tool in a span, named by OpenTelemetry's conventions for generative AI. */
const called = (tool: Tool, input: unknown, context: ToolContext) =>
  tool.call(input, context).pipe(
    Effect.tapError(({ code }) => Effect.annotateCurrentSpan(Telemetry.attribute.errorType, code)),
    Effect.withSpan(`${Telemetry.operation.executeTool} ${dottedName(tool.name)}`, {
      attributes: {
        [Telemetry.attribute.operation]: Telemetry.operation.executeTool,
        [Telemetry.attribute.toolCallId]: context.requestId.slice(0, callIdCharactersMax),
        [Telemetry.attribute.runId]: context.runId,
        [Telemetry.attribute.toolName]: tool.name
      }
    })
  )

/** Parses the arguments of a model's call. For tools without arguments, some models send an empty text. */
export const parse = (written: string): Result.Result<unknown, ToolFailed> =>
  Result.try({
    try: (): unknown => JSON.parse(written.trim() || "{}"),
    catch: (error) =>
      new ToolFailed({
        code: "invalid_json",
        detail: `the arguments are not JSON (${String(error).slice(0, 200)}). Send one object that matches the tool's parameters`
      })
  })

const denied = (offered: ReadonlyArray<Tool>, name: string): ToolFailed =>
  new ToolFailed({
    code: "policy_denied",
    detail:
      `the tool ${JSON.stringify(name.slice(0, 100))} may not be called. ` +
      (offered.length === 0
        ? "No tools are allowed"
        : `Allowed tools: ${offered.map((tool) => tool.name).join(", ")}`)
  })

const fail = (detail: string): Result.Result<never, ToolFailed> =>
  Result.fail(new ToolFailed({ code: "validation", detail }))
