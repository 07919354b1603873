/**
 * What a model may call: an Effect with a schema, a class of effect and budgets. A sealed agent's gateway, a loop on
 * the host and a session take the same.
 *
 * Nothing is allowed by default. A run gets the tools of the host that its spec names, and of those only the ones whose
 * effect the policy lets pass. A tool closes over whatever it needs (credentials too: they stay on the host), and is
 * told in whose name it is called.
 */
import { Cause, Duration, Effect, Result, Schema } from "effect"
import * as Excerpt from "./Excerpt.ts"
import * as InputSchema from "./internal/InputSchema.ts"
import type { RunId } from "@cogni/sandbox-core/RunId"
import type { LlmIdentity } from "@cogni/sandbox-core/SandboxSpec"
import * as Telemetry from "@cogni/sandbox-core/Telemetry"

/** What a call can do to the world. */
export const ToolEffect = Schema.Literals(["read_only", "state_change", "external_side_effect"])

export type ToolEffect = typeof ToolEffect.Type

/** Why a call did not give a result. */
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

/** What the agent hears; the message says what to do and holds nothing of the host. */
export class ToolFailed extends Schema.TaggedError<ToolFailed>()("ToolFailed", {
  code: ToolErrorCode,
  detail: Schema.String,
  /** For the host, and never told: why there is nothing left that the tool could act in. */
  cause: Schema.optionalKey(Schema.Defect())
}) {
  override get message(): string {
    return this.detail
  }
}

/** In whose name a tool is called. */
export interface ToolContext {
  readonly runId: RunId
  readonly identity: LlmIdentity
  readonly requestId: string
}

/** In whose name several calls are made; each has an id of its own. */
export type ToolSession = Omit<ToolContext, "requestId">

export interface Tool {
  /** `namespace__name`. */
  readonly name: string
  readonly description: string
  readonly effect: ToolEffect
  /** JSON Schema of the arguments: an object. */
  readonly inputSchema: Readonly<Record<string, unknown>>
  /** What is wrong with arguments; `undefined` where they fit. A call with such arguments fails as `validation`. */
  readonly check: (input: unknown) => string | undefined
  /** Arguments as they came, JSON decoded; the result is JSON. */
  readonly call: (input: unknown, context: ToolContext) => Effect.Effect<unknown, ToolFailed>
}

/** Which tools a run may call. */
export interface ToolPolicy {
  readonly allowedTools: ReadonlyArray<string>
  readonly allowedEffects: ReadonlyArray<ToolEffect>
}

/** Nothing. */
export const denyAll: ToolPolicy = { allowedTools: [], allowedEffects: [] }

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
  const runtimeSecondsMax = options.runtimeSecondsMax ?? 10
  const resultBytesMax = options.resultBytesMax ?? 64 * 1024
  const decode = Schema.decodeUnknownResult(input, { errors: "all", onExcessProperty: "error" })
  const encode = Schema.encodeEffect(output)
  return {
    name,
    description: options.description,
    effect: options.effect,
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
          failed("execution", `${name} gave a result that is none of its own`)
        )
        const bytes = Excerpt.bytesOf(JSON.stringify(encoded ?? null))
        if (bytes > resultBytesMax) {
          const detail = `the result of ${name} is ${bytes} bytes, over its limit of ${resultBytesMax}. Ask for less`
          return yield* failed("execution", detail)
        }
        return encoded as unknown
      },
      // A defect is the host's business: the agent learns that there was one.
      Effect.catchDefect((defect) =>
        Effect.andThen(
          Effect.logError(`the tool ${name} has a defect`, Cause.die(defect)),
          Effect.fail(failed("execution", `${name} failed inside. Whoever runs this sandbox can see why`))
        )
      )
    )
  }
}

/** What a model hears of a call, whatever carries it. */
export interface ToolAnswer {
  /** The result as JSON; of a call that failed, its code and what to do. */
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

/** A call as a span, named as OpenTelemetry's conventions for generative AI have it. */
export const called = (
  tool: Tool,
  input: unknown,
  context: ToolContext
): Effect.Effect<unknown, ToolFailed> =>
  tool.call(input, context).pipe(
    Effect.tapError(({ code }) => Effect.annotateCurrentSpan(Telemetry.attribute.errorType, code)),
    Effect.withSpan(`execute_tool ${dottedName(tool.name)}`, {
      attributes: {
        [Telemetry.attribute.operation]: "execute_tool",
        [Telemetry.attribute.toolCallId]: context.requestId.slice(0, callIdCharactersMax),
        [Telemetry.attribute.runId]: context.runId,
        [Telemetry.attribute.toolName]: tool.name
      }
    })
  )

/** Whoever calls has made it up. */
const callIdCharactersMax = 200

/** `shell.exec` as models hear it: `shell__exec`; their APIs take no dot. */
export const wireName = (dotted: string): string => dotted.replaceAll(".", "__")

/** `shell__exec` as people and configurations say it: `shell.exec`. */
export const dottedName = (wire: string): string => wire.replaceAll("__", ".")

/**
 * Whether a run may call a tool. One that does not exist and one that is not allowed are answered alike, so that an
 * agent cannot find out what the host has.
 */
export const decide = (policy: ToolPolicy, tools: ReadonlyArray<Tool>, name: string): Tool | ToolFailed => {
  const tool = tools.find((candidate) => candidate.name === name)
  return tool !== undefined &&
    policy.allowedTools.includes(name) &&
    policy.allowedEffects.includes(tool.effect)
    ? tool
    : failed(
        "policy_denied",
        `this sandbox may not call ${JSON.stringify(name.slice(0, 100))}. What it may call: cogni-tool list`
      )
}

const failed = (code: ToolErrorCode, detail: string) => new ToolFailed({ code, detail })
