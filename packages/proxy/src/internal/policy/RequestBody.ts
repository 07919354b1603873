/**
 * Rebuilds the body of an agent's request for the upstream.
 *
 * A model API's body controls more than the model: fields name who pays, which key and address to use, what to log and
 * what to fetch. So no body is forwarded. It is decoded with the schema of its API and written again from the decoded
 * fields, with the run's model and identity. Everything else is removed and recorded. Pure: bytes in, text out.
 */
import * as JsonSurvey from "@cogni/sandbox-core/JsonSurvey"
import * as Result from "effect/Result"
import type * as Schema from "effect/Schema"
import * as BodyFields from "./BodyFields.ts"
import * as BodyRefusal from "./BodyRefusal.ts"
import * as BodyRules from "./BodyRules.ts"
import type { BodyPolicy } from "./BodyRules.ts"
import * as DroppedPaths from "./DroppedPaths.ts"
import * as InputBound from "./InputBound.ts"
import * as JsonText from "./JsonText.ts"
import { requestBytesMax } from "./RoutePolicy.ts"

export interface Rebuilt {
  readonly body: string
  /** The upstream's name of the model. */
  readonly model: string
  /** The agent's name of the model, if it sent one. */
  readonly modelRequested?: string | undefined
  readonly stream: boolean
  /** The gateway requested the stream's usage, and the agent did not. */
  readonly usageAdded: boolean
  /** The first paths of removed values. */
  readonly dropped: ReadonlyArray<string>
  readonly droppedTotal: number
  /** The cap that is sent, from the agent or the gateway; undefined without one. */
  readonly outputTokensMax?: number | undefined
  /** Maximum input tokens that the call can be billed. */
  readonly inputTokensMax: number
  /** Whether the provider is asked to cache some of the input for an hour. */
  readonly cachesForHour: boolean
}

/** Why a body is refused. Plain data. */
export type BodyRefused = BodyRefusal.BodyRefused

/** Maximum nesting of a body. No real conversation or tool schema is deeper. */
export const depthMax = 100

/** Maximum number of messages, items or tools in a body. */
export const entriesMax = 20_000

/**
 * Maximum memory of a body's parsed values, without their text. `[[]],` takes 25 times the memory of its text, and a
 * parser that exhausts the memory of its thread aborts the whole process. Only bodies of millions of values have more.
 */
export const structureBytesMax = 256 * 1024 * 1024

/** Bytes reserved for what the gateway adds to a body: names, identity, caps. */
export const ownBytesMax = 4096

export const rebuild = (bytes: Uint8Array, policy: BodyPolicy): Result.Result<Rebuilt, BodyRefused> =>
  Result.gen(function* () {
    const rule = BodyRules.rules[policy.api]
    const sentBytesMax = policy.sentBytesMax ?? requestBytesMax
    const given = yield* parse(bytes, sentBytesMax)
    yield* BodyRules.ownContent(given)
    yield* BodyRules.fewEnough(given, rule, entriesMax)
    const { model, modelRequested } = yield* modelOf(given, policy)
    const sifted = BodyRules.sift(given, policy.api, policy)
    const decoded = yield* Result.mapError(decode(rule, sifted.body, policy), (error) =>
      BodyRefusal.ofShape(given, error, sifted.positionOf)
    )
    const capped = BodyRules.cap(decoded, rule, policy)
    const dropped = yield* droppedOf(given, sifted.aligned(decoded), capped, policy)
    const stream = decoded["stream"] === true
    const options = decoded["stream_options"] as { readonly include_usage?: unknown } | null | undefined
    const usageAdded = policy.api === "chat_completions" && stream && options?.include_usage !== true
    const text = JSON.stringify({
      ...capped.body,
      model,
      ...(usageAdded ? { stream_options: { ...options, include_usage: true } } : {}),
      ...rule.imposed(policy, decoded)
    })
    const body = JsonText.wellFormed(text)
    const sentBytes = Buffer.byteLength(body)
    if (sentBytes > sentBytesMax + ownBytesMax) return yield* Result.fail(BodyRefusal.ofSize(sentBytesMax))
    return {
      body,
      model,
      modelRequested,
      stream,
      usageAdded,
      dropped: dropped.kept(),
      droppedTotal: dropped.total(),
      // Embeddings have no output, and so no cap that an agent could choose.
      outputTokensMax: policy.api === "embeddings" ? 0 : capped.outputTokensMax,
      inputTokensMax: InputBound.of(capped.body, rule, sentBytes),
      // Inside a JSON string, these quotes would be escaped.
      cachesForHour: body.includes('"ttl":"1h"')
    }
  })

/** Decodes a body with the schema of its API, and the further fields with those of the host. */
const decode = (
  rule: BodyRules.ApiRules,
  body: BodyRules.Body,
  { fields }: BodyPolicy
): Result.Result<BodyRules.Body, Schema.SchemaError> => {
  const decoded = rule.decode(body) as Result.Result<BodyRules.Body, Schema.SchemaError>
  return fields === undefined || Result.isFailure(decoded)
    ? decoded
    : Result.map(BodyFields.decode(fields, body), (further) => ({ ...further, ...decoded.success }))
}

const refuse = (...refusal: Parameters<typeof BodyRefusal.make>) => Result.fail(BodyRefusal.make(...refusal))

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })

/** Parses a body. Never repeats the errors of `JSON.parse`, because they quote the text. */
const parse = (bytes: Uint8Array, sentBytesMax: number): Result.Result<BodyRules.Body, BodyRefused> => {
  const { depth, growthBytes, structureBytes, vastNumbers } = JsonSurvey.survey(bytes)
  if (depth > depthMax)
    return refuse("invalid_json", `The request is nested more than ${depthMax} levels deep. Flatten it.`)
  // Checked before anything larger than the request is allocated.
  if (structureBytes > structureBytesMax) return Result.fail(BodyRefusal.ofComplexity())
  if (bytes.byteLength + growthBytes > sentBytesMax) return Result.fail(BodyRefusal.ofSize(sentBytesMax))
  let text: string
  try {
    text = decoder.decode(bytes)
  } catch {
    return refuse("invalid_json", "The request is not UTF-8. Send JSON in UTF-8.")
  }
  // Both hold the values twice.
  if ((vastNumbers || JsonText.mayBeMended(text)) && 2 * structureBytes > structureBytesMax)
    return Result.fail(BodyRefusal.ofComplexity())
  try {
    const body = JsonText.read(text, vastNumbers)
    return BodyRules.isObject(body)
      ? Result.succeed(body)
      : refuse("invalid_json", "The request is JSON but not an object. Send a JSON object.")
  } catch (thrown) {
    return thrown instanceof JsonText.OutOfRange
      ? refuse("invalid_json", "A number in the request is too large for JSON parsers. Send it as a string.")
      : refuse("invalid_json", `The request's ${bytes.length} bytes are not JSON. Send one complete object.`)
  }
}

const modelOf = (
  body: BodyRules.Body,
  { model, models }: BodyPolicy
): Result.Result<{ readonly model: string; readonly modelRequested: string | undefined }, BodyRefused> => {
  const requested = body["model"] ?? undefined
  if (requested !== undefined && typeof requested !== "string")
    return refuse("invalid_request_body", "The model name is not a string. Send a string.", "model")
  const name = requested ?? model
  return Object.hasOwn(models, name)
    ? Result.succeed({ model: models[name]!, modelRequested: requested })
    : refuse(
        "model_not_found",
        `This sandbox has no model ${JSON.stringify(name.slice(0, 100))}. It has: ${Object.keys(models).join(", ")}.`,
        "model",
        404
      )
}

/** Returns the removed paths, or the refusal if the policy does not allow removal. */
const droppedOf = (
  given: BodyRules.Body,
  decoded: BodyRules.Body,
  { without }: BodyRules.Capped,
  policy: BodyPolicy
): Result.Result<DroppedPaths.DroppedPaths, BodyRefused> => {
  const { imposed, overruled } = BodyRules.rules[policy.api]
  const ours = imposed(policy, decoded)
  const dropped = DroppedPaths.make()
  const heard: Record<string, unknown> = { ...given }
  for (const name of overruled) delete heard[name]
  DroppedPaths.compare(heard, decoded, "", dropped)
  for (const name of without) dropped.add(name)
  if (policy.unknownFields === "refuse" && dropped.total() > 0) {
    const paths = dropped.kept()
    return refuse(
      "unknown_fields",
      `The sandbox's proxy does not allow these fields: ${paths.slice(0, 20).join(", ")}. Remove them.`,
      paths[0]
    )
  }
  // The gateway sets these fields. Every official client knows them, so an agent that sends them makes no mistake.
  for (const name of overruled) overrule(given[name], ours[name], name, dropped)
  return Result.succeed(dropped)
}

const overrule = (said: unknown, ours: unknown, path: string, dropped: DroppedPaths.DroppedPaths): void => {
  if (said === undefined || said === null || said === ours) return
  if (!BodyRules.isObject(said)) return dropped.add(path)
  for (const [key, value] of Object.entries(said))
    if (!BodyRules.isObject(ours) || ours[key] !== value) dropped.add(DroppedPaths.join(path, key))
}
