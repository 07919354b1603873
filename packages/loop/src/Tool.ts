/**
 * Tools: Effects with a schema, an effect class and budgets. A sealed agent's gateway, a loop on the host and a session
 * use the same tools.
 *
 * Nothing is allowed by default: a run gets only the host tools that its spec names, and a session those of its profile
 * (`ToolRegistry`). A tool closes over everything it needs, including credentials, which stay on the host. Each call
 * carries the identity of its caller.
 */
import { Cause, Duration, Effect, Result, Schema } from "effect"
import * as Excerpt from "./Excerpt.ts"
import * as InputSchema from "./internal/InputSchema.ts"
import * as ToolNameProblem from "./internal/ToolNameProblem.ts"
import type { RunId } from "@cogni/sandbox-core/RunId"
import type { LlmIdentity } from "@cogni/sandbox-core/SpecFields"
import * as ToolAccess from "@cogni/sandbox-core/ToolAccess"

/** Effect class of a tool: what its calls can change. */
export const ToolEffect = ToolAccess.ToolEffect

export type ToolEffect = ToolAccess.ToolEffect

/** Reason why a call failed. */
export const ToolErrorCode = Schema.Literals([
  "validation",
  "execution",
  "unavailable",
  "redaction_failed",
  "invalid_json",
  "timeout",
  "policy_denied"
])

export type ToolErrorCode = typeof ToolErrorCode.Type

/** A failed call. The agent reads the message, which says what to do and reveals nothing about the host. */
export class ToolFailed extends Schema.TaggedError<ToolFailed>()("ToolFailed", {
  code: ToolErrorCode,
  detail: Schema.String,
  /** For the host only: why the tool has lost its sandbox. */
  cause: Schema.optionalKey(Schema.Defect())
}) {
  override get message(): string {
    return this.detail
  }
}

/** Identity of one call. */
export interface ToolContext {
  readonly runId: RunId
  readonly identity: LlmIdentity
  readonly requestId: string
}

/** Identity of several calls; each call adds its own request ID. */
export type ToolSession = Omit<ToolContext, "requestId">

export interface Tool {
  /** `namespace__name`. */
  readonly name: string
  readonly description: string
  readonly effect: ToolEffect
  /** JSON Schema of the arguments: an object. */
  readonly inputSchema: Readonly<Record<string, unknown>>
  /** Describes invalid arguments; `undefined` if they are valid. A call with invalid ones fails with `validation`. */
  readonly check: (input: unknown) => string | undefined
  /** Calls the tool with decoded JSON arguments; the result is JSON. */
  readonly call: (input: unknown, context: ToolContext) => Effect.Effect<unknown, ToolFailed>
}

/** Makes a tool. Throws if model APIs would not accept its name, because no caller could handle that. */
export const make = <I, IE, O, OE>(options: {
  readonly name: string
  readonly description: string
  readonly effect: ToolEffect
  readonly input: Schema.Codec<I, IE>
  readonly output: Schema.Codec<O, OE>
  readonly runtimeSecondsMax?: number | undefined
  readonly resultBytesMax?: number | undefined
  readonly execute: (input: I, context: ToolContext) => Effect.Effect<O, ToolFailed>
}): Tool => {
  const { execute, input, name, output } = options
  const problem = ToolNameProblem.find(name)
  if (problem !== undefined)
    throw new TypeError(`the tool ${JSON.stringify(name.slice(0, 100))} ${problem.detail}. ${problem.remedy}`)
  const runtimeSecondsMax = options.runtimeSecondsMax ?? 10
  const resultBytesMax = options.resultBytesMax ?? 64 * 1024
  const decode = Schema.decodeUnknownResult(input, { errors: "all", onExcessProperty: "error" })
  const encode = Schema.encodeEffect(output)
  return {
    name,
    description: options.description,
    // A caller without types may leave it out.
    effect: ToolAccess.effectOf(options),
    inputSchema: InputSchema.jsonOf(input),
    check: (given) =>
      Result.match(decode(given), { onFailure: InputSchema.describe, onSuccess: () => undefined }),
    call: Effect.fnUntraced(
      function* (given: unknown, context: ToolContext) {
        const decoded = yield* Effect.mapError(Effect.fromResult(decode(given)), (error) =>
          failed("validation", InputSchema.describe(error))
        )
        const result = yield* execute(decoded, context).pipe(
          Effect.timeoutOrElse({
            duration: Duration.seconds(runtimeSecondsMax),
            orElse: () =>
              Effect.fail(
                failed(
                  "timeout",
                  `${name} did not answer within ${runtimeSecondsMax} s. Ask for less, or try again`
                )
              )
          })
        )
        const encoded = yield* Effect.mapError(encode(result), () =>
          failed("execution", `${name} returned a result that does not match its schema`)
        )
        const bytes = Excerpt.bytesOf(JSON.stringify(encoded ?? null))
        if (bytes > resultBytesMax) {
          const detail = `the result of ${name} is ${bytes} bytes, over its limit of ${resultBytesMax}. Ask for less`
          return yield* failed("execution", detail)
        }
        return encoded as unknown
      },
      // The agent learns only that a defect occurred; its cause is in the host's log.
      Effect.catchDefect((defect) =>
        Effect.andThen(
          Effect.logError(`the tool ${name} has a defect`, Cause.die(defect)),
          Effect.fail(failed("execution", `${name} failed internally. The cause is in the log of the host`))
        )
      )
    )
  }
}

/** Converts `shell.exec` to `shell__exec`, because model APIs accept no dots. */
export const wireName = (dotted: string): string => dotted.replaceAll(".", "__")

/** Converts `shell__exec` to `shell.exec`, as used by people and configurations. */
export const dottedName = (wire: string): string => wire.replaceAll("__", ".")

const failed = (code: ToolErrorCode, detail: string) => new ToolFailed({ code, detail })
