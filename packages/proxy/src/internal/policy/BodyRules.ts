/**
 * What no schema says of a request: what is ours to say in it, which tools may be in it, how long its answer may be.
 *
 * Every rule takes a body and gives one; none changes it in place.
 */
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import { createHash } from "node:crypto"
import type { Api } from "./RoutePolicy.ts"
import * as ChatCompletions from "./apis/ChatCompletions.ts"
import * as Messages from "./apis/Messages.ts"
import * as Responses from "./apis/Responses.ts"
import * as BodyRefusal from "./BodyRefusal.ts"

export type Body = Readonly<Record<string, unknown>>

/** What holds for a run's requests. Plain data: it may go to another thread. */
export interface BodyPolicy {
  readonly api: Api
  /** The run's own, where the agent names none. */
  readonly model: string
  /** Names the agent may use, and what the upstream calls each. Holds `model`. */
  readonly models: Readonly<Record<string, string>>
  readonly billingAccountId: string
  /** Left out and noted, or refused. */
  readonly unknownFields: "drop" | "refuse"
  /** The most output tokens that a call may ask for. */
  readonly outputTokensMax?: number | undefined
  /** Put into a call that names no cap; left out, such a call is given `outputTokensMax`. */
  readonly outputTokensAbsent?: number | undefined
  /** The most bytes of what is sent, beside `ownBytesMax`; left out, as large as a request may be. */
  readonly sentBytesMax?: number | undefined
  /** Betas of Anthropic's API that go out with the request: without one, its fields are not understood. */
  readonly betas?: ReadonlyArray<string> | undefined
}

export interface ApiRules {
  readonly decode: (body: unknown) => Result.Result<unknown, Schema.SchemaError>
  /** Where the conversation is. */
  readonly conversation: string
  /** Which fields bound the answer; the first is the one that is set where none is there. */
  readonly caps: ReadonlyArray<string>
  readonly isTool: (type: unknown) => boolean
  /** Written over whatever was there. */
  readonly imposed: (policy: BodyPolicy, decoded: Body) => Body
  /** What an agent may say here is known, and never heard: `imposed` has it, or nobody. */
  readonly overruled: ReadonlyArray<string>
}

/**
 * The key by which a provider finds a prompt that it has cached, made the account's own: all tenants share the
 * provider's cache, and the same key would tell one of them what another has sent. 43 characters; OpenAI takes 64.
 */
const cacheKey = (billingAccountId: string, { prompt_cache_key: key }: Body): Body =>
  typeof key === "string"
    ? {
        prompt_cache_key: createHash("sha256")
          .update(JSON.stringify(["prompt_cache_key", billingAccountId, key]))
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
    imposed: ({ billingAccountId }, decoded) => ({
      user: billingAccountId,
      ...cacheKey(billingAccountId, decoded)
    }),
    overruled: ["user", "store"]
  },
  responses: {
    decode: Schema.decodeUnknownResult(Responses.Body),
    conversation: "input",
    caps: ["max_output_tokens"],
    isTool: functionOrCustom,
    imposed: ({ billingAccountId }, decoded) => ({
      user: billingAccountId,
      store: false,
      ...cacheKey(billingAccountId, decoded)
    }),
    overruled: ["user", "store"]
  },
  messages: {
    decode: Schema.decodeUnknownResult(Messages.Body),
    conversation: "messages",
    caps: ["max_tokens"],
    isTool: plainTool,
    imposed: ({ billingAccountId }) => ({ metadata: { user_id: billingAccountId } }),
    overruled: ["metadata"]
  },
  count_tokens: {
    decode: Schema.decodeUnknownResult(Messages.CountBody),
    conversation: "messages",
    caps: [],
    isTool: plainTool,
    imposed: () => ({}),
    overruled: ["metadata"]
  }
}

export const isObject = (value: unknown): value is Body =>
  typeof value === "object" && value !== null && !Array.isArray(value)

/** Things that the provider keeps for the whole account: another run's would do as well as one's own. */
const keptByProvider = ["previous_response_id", "conversation", "prompt", "container"]

export const ownContent = (body: Body): Result.Result<void, BodyRefusal.BodyRefused> => {
  const kept = keptByProvider.find((name) => body[name] !== undefined && body[name] !== null)
  if (kept !== undefined) return Result.fail(BodyRefusal.ofState(kept))
  return body["background"] === true
    ? Result.fail(
        BodyRefusal.make(
          "state_not_allowed",
          "A sandbox waits for its answers. Leave background out.",
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

/** Without one of these betas, Anthropic's API refuses a request with the field. */
const ofBeta: Readonly<Record<"context_management" | "tools" | "display", ReadonlyArray<string>>> = {
  context_management: ["context-management-2025-06-27"],
  tools: ["advanced-tool-use-2025-11-20"],
  display: ["thinking-display-updates-2026-08-18"]
}

const fieldsOfToolBeta = ["defer_loading", "input_examples"]

export interface Sifted {
  readonly body: Body
  readonly positionOf: BodyRefusal.PositionOf
  /** What was decoded, with a gap where an entry of a list was left out: as long as what was given. */
  readonly aligned: (decoded: Body) => Body
}

/** Without what the provider would do by itself, and without what it would not understand. */
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

/** Leaves entries of a list out, and remembers where those that stay were. */
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

/** Whether a choice still means something with these tools. */
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

/** Anthropic's API thinks so much or not at all. */
const thinkingTokensMin = 1024

export interface Capped {
  readonly body: Body
  /** The cap of the answer as it is sent; undefined where none is. */
  readonly outputTokensMax: number | undefined
  /** What went with it. */
  readonly without: ReadonlyArray<string>
}

/** One answer, no longer than it may be. A cap of 0 is raised to 1: to some upstreams 0 means that there is no cap. */
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
  // Which of two an upstream goes by is its own affair.
  const bound = Math.max(...bounds)
  if (isPutIn || outputTokensMax !== undefined) capThoughts(kept, bound, without)
  return { body: kept, outputTokensMax: bound, without }
}

/** What is thought counts as answer, and must be less than all of it. */
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
