/**
 * Rules for a request body that a schema cannot state: which fields the gateway sets, which tools are allowed, and how
 * long the answer may be.
 *
 * No rule changes the body that it receives.
 */
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import { createHash } from "node:crypto"
import type { EndUserField } from "../../UpstreamProfile.ts"
import type { Api } from "./RoutePolicy.ts"
import * as ChatCompletions from "./apis/ChatCompletions.ts"
import * as Embeddings from "./apis/Embeddings.ts"
import * as Messages from "./apis/Messages.ts"
import * as Responses from "./apis/Responses.ts"
import type { BodyFields } from "./BodyFields.ts"
import * as BodyRefusal from "./BodyRefusal.ts"

export type Body = Readonly<Record<string, unknown>>

/** Policy for the bodies of a run's requests. Plain data: it can be sent to another thread. */
export interface BodyPolicy {
  readonly api: Api
  /** The run's model, used when the agent names none. */
  readonly model: string
  /** Maps each model name that the agent may use to the upstream's name. Contains `model`. */
  readonly models: Readonly<Record<string, string>>
  /** Identifier of who pays, and its field: for LiteLLM the account, for others a pseudonym. Absent: none is sent. */
  readonly endUser?: { readonly field: EndUserField; readonly value: string } | undefined
  /** Differs by account, so that no account reads another's prompt cache. */
  readonly cacheScope: string
  /** Further fields that the host has opened for this API. */
  readonly fields?: BodyFields | undefined
  /** Whether unknown fields are removed and recorded, or cause a refusal. */
  readonly unknownFields: "drop" | "refuse"
  /** Maximum output tokens that a call may request. */
  readonly outputTokensMax?: number | undefined
  /** Cap for a call that sets none; defaults to `outputTokensMax`. */
  readonly outputTokensAbsent?: number | undefined
  /** Maximum bytes sent upstream, not counting `ownBytesMax`; defaults to the maximum size of a request. */
  readonly sentBytesMax?: number | undefined
  /** Betas of Anthropic's API that are sent with the request. The API does not understand the fields of other betas. */
  readonly betas?: ReadonlyArray<string> | undefined
}

export interface ApiRules {
  readonly decode: (body: unknown) => Result.Result<unknown, Schema.SchemaError>
  /** Name of the field that holds the conversation. */
  readonly conversation: string
  /** Fields that bound the answer. The first one is set if the request has none of them. */
  readonly caps: ReadonlyArray<string>
  readonly isTool: (type: unknown) => boolean
  /** Returns the fields that replace those of the request. */
  readonly imposed: (policy: BodyPolicy, decoded: Body) => Body
  /** Known fields whose value from an agent is ignored. `imposed` sets them, or they are not sent. */
  readonly overruled: ReadonlyArray<string>
}

/** Sets the field that names the end user, and nothing if the upstream does not learn it. */
const endUser = ({ endUser: said }: BodyPolicy): Body =>
  said === undefined
    ? {}
    : said.field === "metadata.user_id"
      ? { metadata: { user_id: said.value } }
      : { [said.field]: said.value }

/**
 * Binds the agent's prompt cache key to its account. All tenants share the provider's cache, so an unbound key would
 * reveal to one tenant what another has sent. The bound key has 43 characters; OpenAI allows 64.
 */
const cacheKey = ({ cacheScope }: BodyPolicy, { prompt_cache_key: key }: Body): Body =>
  typeof key === "string"
    ? {
        prompt_cache_key: createHash("sha256")
          .update(JSON.stringify(["prompt_cache_key", cacheScope, key]))
          .digest("base64url")
      }
    : {}

const functionOrCustom = (type: unknown) => type === "function" || type === "custom"
const plainTool = (type: unknown) => type === undefined || type === null || type === "custom"

export const rules: Readonly<Record<Api, ApiRules>> = {
  chat_completions: {
    decode: Schema.decodeUnknownResult(ChatCompletions.Body),
    conversation: "messages",
    caps: ["max_completion_tokens", "max_tokens"],
    isTool: functionOrCustom,
    imposed: (policy, decoded) => ({ ...endUser(policy), ...cacheKey(policy, decoded) }),
    overruled: ["user", "store"]
  },
  responses: {
    decode: Schema.decodeUnknownResult(Responses.Body),
    conversation: "input",
    caps: ["max_output_tokens"],
    isTool: functionOrCustom,
    imposed: (policy, decoded) => ({ ...endUser(policy), store: false, ...cacheKey(policy, decoded) }),
    overruled: ["user", "store"]
  },
  messages: {
    decode: Schema.decodeUnknownResult(Messages.Body),
    conversation: "messages",
    caps: ["max_tokens"],
    isTool: plainTool,
    imposed: endUser,
    overruled: ["metadata"]
  },
  count_tokens: {
    decode: Schema.decodeUnknownResult(Messages.CountBody),
    conversation: "messages",
    caps: [],
    isTool: plainTool,
    imposed: () => ({}),
    overruled: ["metadata"]
  },
  embeddings: {
    decode: Schema.decodeUnknownResult(Embeddings.Body),
    conversation: "input",
    caps: [],
    isTool: functionOrCustom,
    imposed: endUser,
    overruled: ["user"]
  }
}

export const isObject = (value: unknown): value is Body =>
  typeof value === "object" && value !== null && !Array.isArray(value)

/** References to state that the provider keeps for the whole account, so that a run could name another run's state. */
const keptByProvider = ["previous_response_id", "conversation", "prompt", "container"]

export const ownContent = (body: Body): Result.Result<void, BodyRefusal.BodyRefused> => {
  const kept = keptByProvider.find((name) => body[name] !== undefined && body[name] !== null)
  if (kept !== undefined) return Result.fail(BodyRefusal.ofState(kept))
  return body["background"] === true
    ? Result.fail(
        BodyRefusal.make(
          "state_not_allowed",
          "Background responses are not supported in a sandbox. Remove the background field.",
          "background"
        )
      )
    : Result.succeed(undefined)
}

export const fewEnough = (
  body: Body,
  { conversation }: ApiRules,
  entriesMax: number
): Result.Result<void, BodyRefusal.BodyRefused> => {
  const field = [conversation, "tools", "functions"].find((name) => {
    const entries = body[name]
    return Array.isArray(entries) && entries.length > entriesMax
  })
  return field === undefined
    ? Result.succeed(undefined)
    : Result.fail(
        BodyRefusal.make(
          "too_many_entries",
          `${field} has more than ${entriesMax} entries. Shorten it.`,
          field
        )
      )
}

/** Betas that a field requires. Anthropic's API refuses a request with the field and without one of its betas. */
const ofBeta: Readonly<Record<"context_management" | "tools" | "display", ReadonlyArray<string>>> = {
  context_management: ["context-management-2025-06-27"],
  tools: ["advanced-tool-use-2025-11-20"],
  display: ["thinking-display-updates-2026-08-18"]
}

const fieldsOfToolBeta = ["defer_loading", "input_examples"]

interface Sifted {
  readonly body: Body
  readonly positionOf: BodyRefusal.PositionOf
  /** Returns the decoded body with a gap for each removed list entry, so that positions match those of the request. */
  readonly aligned: (decoded: Body) => Body
}

/** Removes ignored fields, tools that the provider itself would run, and fields that it would not understand. */
export const sift = (body: Body, api: Api, policy: BodyPolicy): Sifted => {
  const { isTool, overruled } = rules[api]
  const kept: Record<string, unknown> = { ...body }
  for (const name of overruled) delete kept[name]
  if (isAnthropic(api)) withoutBetas(kept, policy.betas ?? [])

  const positions = new Map<string, ReadonlyArray<number>>()
  keepOnly(kept, "tools", positions, (tool) => !isObject(tool) || isTool(tool["type"]))
  const tools = kept["tools"] as ReadonlyArray<unknown> | undefined
  if (positions.has("tools")) {
    if (tools?.length === 0) delete kept["tools"]
    if (!isChoiceAmong(kept["tool_choice"], tools ?? [])) delete kept["tool_choice"]
  }
  if (api === "responses")
    keepOnly(kept, "include", positions, (name) =>
      (Responses.includes as ReadonlyArray<unknown>).includes(name)
    )
  return {
    body: kept,
    positionOf: (list, index) => positions.get(list)?.[index] ?? index,
    aligned: (decoded) => {
      const aligned: Record<string, unknown> = { ...decoded }
      for (const [name, left] of positions) {
        const entries: Array<unknown> = []
        left.forEach((position, index) => {
          entries[position] = (decoded[name] as ReadonlyArray<unknown>)[index]
        })
        aligned[name] = entries
      }
      return aligned
    }
  }
}

const isAnthropic = (api: Api): boolean => api === "messages" || api === "count_tokens"

const withoutBetas = (kept: Record<string, unknown>, betas: ReadonlyArray<string>): void => {
  const without = (feature: keyof typeof ofBeta) => !ofBeta[feature].some((beta) => betas.includes(beta))
  const { thinking, tools } = kept
  if (without("context_management")) delete kept["context_management"]
  if (without("display") && isObject(thinking) && thinking["display"] === "updates") {
    const { display: _, ...rest } = thinking
    kept["thinking"] = rest
  }
  if (!without("tools") || !Array.isArray(tools)) return
  kept["tools"] = tools.map((tool: unknown) =>
    isObject(tool) && fieldsOfToolBeta.some((name) => Object.hasOwn(tool, name))
      ? Object.fromEntries(Object.entries(tool).filter(([name]) => !fieldsOfToolBeta.includes(name)))
      : tool
  )
}

/** Removes entries from a list and records the original positions of the others. */
const keepOnly = (
  body: Record<string, unknown>,
  name: string,
  positions: Map<string, ReadonlyArray<number>>,
  isKept: (entry: unknown) => boolean
): void => {
  const entries: unknown = body[name]
  if (!Array.isArray(entries)) return
  const left = entries.flatMap((entry: unknown, position) => (isKept(entry) ? [position] : []))
  if (left.length === entries.length) return
  positions.set(name, left)
  body[name] = left.map((position) => entries[position] as unknown)
}

/** Returns whether a tool choice is still valid with these tools. */
const isChoiceAmong = (choice: unknown, tools: ReadonlyArray<unknown>): boolean => {
  if (tools.length === 0) return false
  if (!isObject(choice)) return true
  const name = nameOf(choice)
  return name === undefined
    ? choice["type"] === "auto" || choice["type"] === "any" || choice["type"] === "none"
    : tools.some((tool) => nameOf(tool) === name)
}

const nameOf = (value: unknown): unknown => {
  if (!isObject(value)) return undefined
  const inner = value["function"] ?? value["custom"]
  return isObject(inner) ? inner["name"] : value["name"]
}

/** Minimum thinking budget of Anthropic's API, in tokens. */
const thinkingTokensMin = 1024

export interface Capped {
  readonly body: Body
  /** Cap of the answer that is sent; undefined without one. */
  readonly outputTokensMax: number | undefined
  /** Fields that were removed. */
  readonly without: ReadonlyArray<string>
}

/** Limits a request to one answer within its cap. Raises a cap of 0 to 1, because some upstreams read 0 as no cap. */
export const cap = (
  body: Body,
  { caps }: ApiRules,
  { outputTokensAbsent, outputTokensMax }: BodyPolicy
): Capped => {
  const kept: Record<string, unknown> = { ...body }
  const without: Array<string> = []
  if (typeof kept["n"] === "number" && kept["n"] !== 1) {
    without.push("n")
    delete kept["n"]
  }
  const absent = outputTokensAbsent ?? outputTokensMax
  const isPutIn =
    caps.length > 0 && absent !== undefined && !caps.some((name) => typeof kept[name] === "number")
  if (isPutIn) kept[caps[0]!] = Math.min(absent, outputTokensMax ?? absent)
  const bounds = caps.flatMap((name) => {
    const asked = kept[name]
    if (typeof asked !== "number") return []
    const bound = Math.max(1, Math.min(asked, outputTokensMax ?? asked))
    kept[name] = bound
    return [bound]
  })
  if (bounds.length === 0) return { body: kept, outputTokensMax: undefined, without }
  // An upstream may apply either of two caps, so the larger one counts.
  const bound = Math.max(...bounds)
  if (isPutIn || outputTokensMax !== undefined) capThoughts(kept, bound, without)
  return { body: kept, outputTokensMax: bound, without }
}

/** Limits the thinking budget, which counts as output and must be less than the cap of the answer. */
const capThoughts = (kept: Record<string, unknown>, bound: number, without: Array<string>): void => {
  const { reasoning, thinking } = kept
  if (isObject(reasoning) && typeof reasoning["max_tokens"] === "number")
    kept["reasoning"] = {
      ...reasoning,
      max_tokens: Math.min(reasoning["max_tokens"], Math.max(1, bound - 1))
    }
  if (!isObject(thinking) || typeof thinking["budget_tokens"] !== "number") return
  if (bound > thinkingTokensMin)
    kept["thinking"] = { ...thinking, budget_tokens: Math.min(thinking["budget_tokens"], bound - 1) }
  else {
    without.push("thinking")
    delete kept["thinking"]
  }
}
