/**
 * What goes upstream in the stead of what an agent sent.
 *
 * A model API's body is an interface to more than the model: fields name who pays, which key and which address to use,
 * what to log, what to fetch. So nothing is forwarded. A body is decoded by the schema of its API and written anew from
 * what the schema names, with the run's model and the run's identity; whatever else was in it is left out, and said.
 * Pure: bytes in, bytes out.
 */
import { Result, Schema, SchemaIssue } from "effect"
import * as ChatCompletions from "./internal/apis/ChatCompletions.ts"
import * as Messages from "./internal/apis/Messages.ts"
import * as Responses from "./internal/apis/Responses.ts"
import { remoteExpected } from "./internal/apis/Shapes.ts"
import * as JsonText from "./internal/JsonText.ts"

// -----------------------------------------------------------------------------
// models
// -----------------------------------------------------------------------------

/** @category models */
export type Api = "chat_completions" | "responses" | "messages" | "count_tokens"

/** What holds for a run's requests. Plain data: it may go to another thread. @category models */
export interface BodyPolicy {
  readonly api: Api
  /** The run's own, where the agent names none. */
  readonly model: string
  /** Names the agent may use, and what the upstream calls each. Holds `model`. */
  readonly models: Readonly<Record<string, string>>
  readonly billingAccountId: string
  /** Left out and noted, or refused. */
  readonly unknownFields: "drop" | "refuse"
  /** Of one call. */
  readonly outputTokensMax?: number | undefined
  /** Betas of Anthropic's API that go out with the request: without one, its fields are not understood. */
  readonly betas?: ReadonlyArray<string> | undefined
}

/** @category models */
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
  /** What the call was capped to, where it was. */
  readonly outputTokensMax?: number | undefined
}

/** Why a body does not pass. Plain data. @category errors */
export interface BodyRefused {
  readonly status: 400 | 404
  readonly code: string
  readonly message: string
  /** Path of what is wrong. */
  readonly param?: string | undefined
}

// -----------------------------------------------------------------------------
// constants
// -----------------------------------------------------------------------------

/** Deeper than any conversation or schema of a tool. @category constants */
export const depthMax = 100

/** Of messages, items or tools. @category constants */
export const entriesMax = 20_000

const droppedKeptMax = 100

interface ApiRules {
  readonly decode: (body: unknown) => Result.Result<unknown, Schema.SchemaError>
  /** Where the conversation is. */
  readonly conversation: string
  /** Which field bounds the answer, and which one is set where none is there. */
  readonly caps: ReadonlyArray<string>
  readonly isTool: (type: unknown) => boolean
  /** Written over whatever was there. */
  readonly imposed: (policy: BodyPolicy) => Readonly<Record<string, unknown>>
}

const functionOrCustom = (type: unknown) => type === "function" || type === "custom"
const plainTool = (type: unknown) => type === undefined || type === null || type === "custom"

const rules: Readonly<Record<Api, ApiRules>> = {
  chat_completions: {
    decode: Schema.decodeUnknownResult(ChatCompletions.Body),
    conversation: "messages",
    caps: ["max_completion_tokens", "max_tokens"],
    isTool: functionOrCustom,
    imposed: ({ billingAccountId }) => ({ user: billingAccountId })
  },
  responses: {
    decode: Schema.decodeUnknownResult(Responses.Body),
    conversation: "input",
    caps: ["max_output_tokens"],
    isTool: functionOrCustom,
    imposed: ({ billingAccountId }) => ({ user: billingAccountId, store: false })
  },
  messages: {
    decode: Schema.decodeUnknownResult(Messages.Body),
    conversation: "messages",
    caps: ["max_tokens"],
    isTool: plainTool,
    imposed: ({ billingAccountId }) => ({ metadata: { user_id: billingAccountId } })
  },
  count_tokens: {
    decode: Schema.decodeUnknownResult(Messages.CountBody),
    conversation: "messages",
    caps: [],
    isTool: plainTool,
    imposed: () => ({})
  }
}

/** Things that the provider keeps for the whole account: another run's would do as well as one's own. */
const keptByProvider = ["previous_response_id", "conversation", "prompt"]

/** Fields of Anthropic's API that only mean something with a beta. */
const ofBeta: ReadonlyArray<readonly [field: string, beta: string]> = [
  ["context_management", "context-management-2025-06-27"]
]

// -----------------------------------------------------------------------------
// combinators
// -----------------------------------------------------------------------------

/** @category combinators */
export const rebuild = (bytes: Uint8Array, policy: BodyPolicy): Result.Result<Rebuilt, BodyRefused> =>
  Result.gen(function* () {
    const rule = rules[policy.api]
    const given = yield* parse(bytes)
    yield* ownedByAccount(given)
    const dropped: Array<string> = []
    const { body: allowed, dropped: tools } = withoutOtherTools(given, rule, policy)
    dropped.push(...tools)
    const decoded = (yield* Result.mapError(rule.decode(allowed), (error) => refusedShape(error))) as Body
    yield* fewEnough(decoded, rule)
    collect(allowed, decoded, "", dropped)
    const { model, modelRequested } = yield* modelOf(decoded, policy)
    const { body: bounded, outputTokensMax } = withCaps(decoded, rule, policy, dropped)
    if (policy.unknownFields === "refuse" && dropped.length > 0) {
      return yield* refuse(
        "unknown_fields",
        `The sandbox's proxy does not know, or does not let pass: ${dropped.slice(0, 20).join(", ")}. Leave them out.`,
        dropped[0]
      )
    }
    const stream = decoded["stream"] === true
    const options = decoded["stream_options"] as { readonly include_usage?: unknown } | null | undefined
    const usageAdded = policy.api === "chat_completions" && stream && options?.include_usage !== true
    const text = JSON.stringify({
      ...bounded,
      model,
      ...(usageAdded ? { stream_options: { ...options, include_usage: true } } : {}),
      ...rule.imposed(policy)
    })
    return {
      body: JsonText.wellFormed(text),
      model,
      modelRequested,
      stream,
      usageAdded,
      dropped: dropped.slice(0, droppedKeptMax),
      droppedTotal: dropped.length,
      outputTokensMax
    }
  })

// -----------------------------------------------------------------------------
// reading
// -----------------------------------------------------------------------------

type Body = Readonly<Record<string, unknown>>

const refuse = (code: string, message: string, param?: string, status: 400 | 404 = 400) =>
  Result.fail<BodyRefused>({ status, code, message, param })

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })

const isObject = (value: unknown): value is Body =>
  typeof value === "object" && value !== null && !Array.isArray(value)

const parse = (bytes: Uint8Array): Result.Result<Body, BodyRefused> => {
  if (JsonText.depthOf(bytes) > depthMax)
    return refuse("invalid_json", `The request is nested more than ${depthMax} levels deep. Flatten it.`)
  try {
    const body: unknown = JSON.parse(decoder.decode(bytes))
    return isObject(body) ? Result.succeed(body) : refuse("invalid_json", "The request is not a JSON object.")
  } catch (thrown) {
    return refuse(
      "invalid_json",
      `The request is not JSON in UTF-8: ${thrown instanceof Error ? thrown.message.slice(0, 200) : ""}`
    )
  }
}

const formatIssues = SchemaIssue.makeFormatterStandardSchemaV1()

const refusedShape = ({ issue }: Schema.SchemaError): BodyRefused => {
  const { issues } = formatIssues(issue)
  const remote = issues.find(({ message }) => message.includes(remoteExpected))
  const { message = "", path = [] } = remote ?? issues[0] ?? {}
  const param = pathOf(path.map((key) => (typeof key === "object" ? key.key : key)))
  return remote === undefined
    ? {
        status: 400,
        code: "invalid_request_body",
        message: `The sandbox's proxy does not let this pass at ${param === "" ? "the top" : param}: ${message.slice(0, 400)}`,
        param
      }
    : {
        status: 400,
        code: "remote_url_not_allowed",
        message: `The sandbox's proxy has no model fetch anything. Send what is at ${param} as a data: URI.`,
        param
      }
}

const pathOf = (keys: ReadonlyArray<PropertyKey>): string =>
  keys.reduce<string>(
    (path, key) =>
      typeof key === "number" ? `${path}[${key}]` : path === "" ? String(key) : `${path}.${String(key)}`,
    ""
  )

// -----------------------------------------------------------------------------
// rules
// -----------------------------------------------------------------------------

const ownedByAccount = (body: Body): Result.Result<void, BodyRefused> => {
  const kept = keptByProvider.find((name) => body[name] !== undefined && body[name] !== null)
  if (kept !== undefined) {
    return refuse(
      "state_not_allowed",
      `The sandbox's proxy does not let ${kept} pass: what a provider keeps is shared by all runs of an account. Send the whole conversation instead.`,
      kept
    )
  }
  return body["background"] === true
    ? refuse("state_not_allowed", "A sandbox waits for its answers. Leave background out.", "background")
    : Result.succeed(undefined)
}

/** Tools that the provider would run itself reach further than the sandbox may. */
const withoutOtherTools = (
  body: Body,
  { isTool }: ApiRules,
  { betas = [] }: BodyPolicy
): { readonly body: Body; readonly dropped: ReadonlyArray<string> } => {
  const dropped: Array<string> = []
  const kept: Record<string, unknown> = { ...body }
  for (const [field, beta] of ofBeta) {
    if (Object.hasOwn(kept, field) && !betas.includes(beta)) {
      dropped.push(field)
      delete kept[field]
    }
  }
  const { tools } = body
  if (!Array.isArray(tools)) return { body: kept, dropped }
  const others = tools.filter(
    (tool: unknown) => isObject(tool) && !isTool(tool["type"])
  ) as ReadonlyArray<Body>
  if (others.length === 0) return { body: kept, dropped }
  tools.forEach((tool: unknown, index) => {
    if (others.includes(tool as Body)) dropped.push(`tools[${index}]`)
  })
  const left = tools.filter((tool: unknown) => !others.includes(tool as Body))
  if (left.length === 0) delete kept["tools"]
  else kept["tools"] = left
  if (left.length === 0 ? kept["tool_choice"] !== undefined : namesOther(kept["tool_choice"], left)) {
    dropped.push("tool_choice")
    delete kept["tool_choice"]
  }
  return { body: kept, dropped }
}

/** A choice that names a tool which is not among these. */
const namesOther = (choice: unknown, tools: ReadonlyArray<unknown>): boolean => {
  const name = nameOf(choice)
  if (!isObject(choice)) return false
  if (name === undefined)
    return choice["type"] !== "auto" && choice["type"] !== "any" && choice["type"] !== "none"
  return !tools.some((tool) => nameOf(tool) === name)
}

const nameOf = (value: unknown): unknown => {
  if (!isObject(value)) return undefined
  const inner = value["function"] ?? value["custom"]
  return isObject(inner) ? inner["name"] : value["name"]
}

const fewEnough = (body: Body, { conversation }: ApiRules): Result.Result<void, BodyRefused> => {
  const field = [conversation, "tools"].find((name) => {
    const entries = body[name]
    return Array.isArray(entries) && entries.length > entriesMax
  })
  return field === undefined
    ? Result.succeed(undefined)
    : refuse("too_many_entries", `${field} has more than ${entriesMax} entries. Shorten it.`, field)
}

const modelOf = (
  body: Body,
  { model, models }: BodyPolicy
): Result.Result<{ readonly model: string; readonly modelRequested: string | undefined }, BodyRefused> => {
  const requested = body["model"]
  const name = typeof requested === "string" ? requested : model
  return Object.hasOwn(models, name)
    ? Result.succeed({
        model: models[name]!,
        modelRequested: typeof requested === "string" ? requested : undefined
      })
    : refuse(
        "model_not_found",
        `This sandbox has no model ${JSON.stringify(name.slice(0, 100))}. It has: ${Object.keys(models).join(", ")}.`,
        "model",
        404
      )
}

/** One answer, no longer than it may be. */
const withCaps = (
  body: Body,
  { caps }: ApiRules,
  { outputTokensMax }: BodyPolicy,
  dropped: Array<string>
): { readonly body: Body; readonly outputTokensMax: number | undefined } => {
  const kept: Record<string, unknown> = { ...body }
  if (typeof kept["n"] === "number" && kept["n"] !== 1) {
    dropped.push("n")
    delete kept["n"]
  }
  if (outputTokensMax === undefined || caps.length === 0) return { body: kept, outputTokensMax: undefined }
  for (const name of caps) {
    if (typeof kept[name] === "number") kept[name] = Math.min(kept[name], outputTokensMax)
  }
  if (!caps.some((name) => typeof kept[name] === "number")) kept[caps[0]!] = outputTokensMax
  const { thinking } = kept
  if (isObject(thinking) && typeof thinking["budget_tokens"] === "number") {
    // What is thought counts as answer, and must be less than all of it.
    kept["thinking"] = {
      ...thinking,
      budget_tokens: Math.min(thinking["budget_tokens"], outputTokensMax - 1)
    }
  }
  const asked = caps.map((name) => kept[name]).filter((cap) => typeof cap === "number")
  return { body: kept, outputTokensMax: Math.min(...asked) }
}

// -----------------------------------------------------------------------------
// writing
// -----------------------------------------------------------------------------

/** Paths of what is in the one and not in the other. */
const collect = (given: unknown, kept: unknown, path: string, dropped: Array<string>): void => {
  // What passes as it is, is the same.
  if (given === kept) return
  if (Array.isArray(given) && Array.isArray(kept)) {
    given.forEach((value, index) => collect(value, kept[index], `${path}[${index}]`, dropped))
  } else if (isObject(given) && isObject(kept)) {
    for (const key of Object.keys(given)) {
      const inner = path === "" ? key.slice(0, 100) : `${path}.${key.slice(0, 100)}`
      if (Object.hasOwn(kept, key)) collect(given[key], kept[key], inner, dropped)
      else dropped.push(inner)
    }
  }
}
