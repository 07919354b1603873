/**
 * What goes upstream in the stead of what an agent sent.
 *
 * A model API's body is an interface to more than the model: fields name who pays, which key and which address to use,
 * what to log, what to fetch. So nothing is forwarded. A body is decoded by the schema of its API and written anew from
 * what the schema names, with the run's model and the run's identity; whatever else was in it is left out, and said.
 * Pure: bytes in, bytes out.
 */
import * as Result from "effect/Result"
import * as BodyRefusal from "./BodyRefusal.ts"
import * as BodyRules from "./BodyRules.ts"
import type { BodyPolicy } from "./BodyRules.ts"
import * as DroppedPaths from "./DroppedPaths.ts"
import * as InputBound from "./InputBound.ts"
import * as JsonText from "./JsonText.ts"
import { requestBytesMax } from "./RoutePolicy.ts"

export interface Rebuilt {
  readonly body: string
  /** As the upstream knows it. */
  readonly model: string
  /** As the agent named it, where it did. */
  readonly modelRequested?: string | undefined
  readonly stream: boolean
  /** A stream was asked for its usage by us and not by the agent. */
  readonly usageAdded: boolean
  /** Paths of what was left out; the first of them. */
  readonly dropped: ReadonlyArray<string>
  readonly droppedTotal: number
  /** The cap that is sent, whether the agent's or ours; undefined where none is. */
  readonly outputTokensMax?: number | undefined
  /** The most input tokens that it can be billed. */
  readonly inputTokensMax: number
  /** The provider is asked to cache some of it for an hour. */
  readonly cachesForHour: boolean
}

/** Why a body does not pass. Plain data. */
export type BodyRefused = BodyRefusal.BodyRefused

/** Deeper than any conversation or schema of a tool. */
export const depthMax = 100

/** Of messages, items or tools. */
export const entriesMax = 20_000

/** What the gateway itself adds to a body: names, identity, caps. */
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
    const decoded = yield* Result.mapError(rule.decode(sifted.body), (error) =>
      BodyRefusal.ofShape(given, error, sifted.positionOf)
    ) as Result.Result<BodyRules.Body, BodyRefused>
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
      outputTokensMax: capped.outputTokensMax,
      inputTokensMax: InputBound.of(capped.body, rule, sentBytes),
      // In a text, its quotes would be escaped.
      cachesForHour: body.includes('"ttl":"1h"')
    }
  })

const refuse = (...refusal: Parameters<typeof BodyRefusal.make>) => Result.fail(BodyRefusal.make(...refusal))

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })

/** What JSON's own errors say holds a piece of the text; none of it is repeated. */
const parse = (bytes: Uint8Array, sentBytesMax: number): Result.Result<BodyRules.Body, BodyRefused> => {
  const { depth, growthBytes, vastNumbers } = JsonText.survey(bytes)
  if (depth > depthMax)
    return refuse("invalid_json", `The request is nested more than ${depthMax} levels deep. Flatten it.`)
  // Before anything is made of it that is larger than it.
  if (bytes.byteLength + growthBytes > sentBytesMax) return Result.fail(BodyRefusal.ofSize(sentBytesMax))
  let text: string
  try {
    text = decoder.decode(bytes)
  } catch {
    return refuse("invalid_json", "The request is not UTF-8. Send JSON in UTF-8.")
  }
  try {
    const body = JsonText.read(text, vastNumbers)
    return BodyRules.isObject(body)
      ? Result.succeed(body)
      : refuse("invalid_json", "The request is JSON, but no object. Send one.")
  } catch (thrown) {
    return thrown instanceof JsonText.OutOfRange
      ? refuse("invalid_json", "A number in the request is too large for any reader. Send it as a text.")
      : refuse("invalid_json", `The request's ${bytes.length} bytes are not JSON. Send one object, whole.`)
  }
}

const modelOf = (
  body: BodyRules.Body,
  { model, models }: BodyPolicy
): Result.Result<{ readonly model: string; readonly modelRequested: string | undefined }, BodyRefused> => {
  const requested = body["model"] ?? undefined
  if (requested !== undefined && typeof requested !== "string")
    return refuse("invalid_request_body", "The model is named by a text.", "model")
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

/** What does not go out; where that is not to be, the refusal. */
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
      `The sandbox's proxy does not know, or does not let pass: ${paths.slice(0, 20).join(", ")}. Leave them out.`,
      paths[0]
    )
  }
  // These are ours to say, whoever says them too: no mistake of an agent's, and known to every official client.
  for (const name of overruled) overrule(given[name], ours[name], name, dropped)
  return Result.succeed(dropped)
}

const overrule = (said: unknown, ours: unknown, path: string, dropped: DroppedPaths.DroppedPaths): void => {
  if (said === undefined || said === null || said === ours) return
  if (!BodyRules.isObject(said)) return dropped.add(path)
  for (const [key, value] of Object.entries(said))
    if (!BodyRules.isObject(ours) || ours[key] !== value) dropped.add(DroppedPaths.join(path, key))
}
