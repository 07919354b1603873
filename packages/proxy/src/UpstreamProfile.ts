/**
 * Describes a kind of model API: its paths, the header with the key, and what it may learn about who pays.
 *
 * A profile is plain data. Only LiteLLM gets the billing identity, because it bills by it; any other upstream belongs
 * to a third party. A known public API is never taken for LiteLLM. `KeyInjection` and the body rules apply a profile.
 */
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import * as BodyFields from "./internal/policy/BodyFields.ts"
import type { Api } from "./internal/policy/RoutePolicy.ts"

/** Kind of an upstream. */
export const Name = Schema.Literals([
  "litellm",
  "openai",
  "anthropic",
  "openrouter",
  "azure",
  "gemini",
  "bedrock",
  "vertex",
  "vllm"
])

export type Name = typeof Name.Type

/** Header from which an upstream reads the key: as a bearer token in `authorization`, alone in the others. */
export const KeyHeader = Schema.Literals(["authorization", "x-api-key", "api-key"])

export type KeyHeader = typeof KeyHeader.Type

/** Body field in which an API expects an identifier of the end user. */
export type EndUserField = "user" | "safety_identifier" | "metadata.user_id"

/** Client headers that an upstream understands, in addition to `accept`. */
export type ClientHeaderName = "anthropic-version" | "anthropic-beta"

/** JSON Schema of a body field, as draft 2020-12. */
export type FieldSchema = Readonly<Record<string, unknown>>

export interface UpstreamProfile {
  readonly name: Name
  readonly keyHeader: KeyHeader
  /** Part of each path between the URL and the API. The URL may end with it. `{model}` stands for the model's name. */
  readonly pathPrefix: string
  /** Path of each API after the prefix. An API without a path is closed. */
  readonly paths: Readonly<Partial<Record<Api, string>>>
  /** Query of every request, without the question mark; may be empty. */
  readonly query: string
  /** Field for the account (LiteLLM) or for its pseudonym (others). An API without one learns nothing. */
  readonly endUserFields: Readonly<Partial<Record<Api, EndUserField>>>
  /** Header for the host's call ID. */
  readonly callIdHeader?: string | undefined
  /** Header of an answer with the upstream's own ID of the call, which is also the answer's `id`. */
  readonly generationIdHeader?: string | undefined
  /** Further headers of every request. They are not secret. */
  readonly headers: Readonly<Record<string, string>>
  readonly clientHeaders: ReadonlyArray<ClientHeaderName>
  /** Further fields that a body may have, by API. */
  readonly bodyFields: Readonly<Partial<Record<Api, Readonly<Record<string, FieldSchema>>>>>
}

const Path = Schema.String.check(
  Schema.isPattern(/^(?:\/(?:(?!\.{1,2}(?:\/|$))[A-Za-z0-9._~-]+|\{model\}))*$/u, {
    expected: "a path such as /v1beta/openai, of letters, digits, . _ ~ - and {model}"
  })
)

const Query = Schema.String.check(
  Schema.isPattern(/^(?:[A-Za-z0-9._~-]+=[A-Za-z0-9._~-]*(?:&(?!$)|$))*$/u, {
    expected: "a query such as api-version=2024-10-21"
  })
)

const HeaderName = Schema.String.check(
  Schema.isPattern(/^[a-z0-9-]{1,64}$/u, { expected: "a header name in lower case" })
)

const HeaderValue = Schema.String.check(
  Schema.isPattern(/^[\x21-\x7e](?:[\x20-\x7e]{0,1022}[\x21-\x7e])?$/u, {
    expected: "printable ASCII without spaces around it, at most 1024 characters"
  })
)

const Fields = Schema.Record(Schema.String, Schema.Record(Schema.String, Schema.Unknown))

const byApi = <S extends Schema.Top>(value: S) => ({
  chat_completions: Schema.optionalKey(value),
  responses: Schema.optionalKey(value),
  messages: Schema.optionalKey(value),
  count_tokens: Schema.optionalKey(value),
  embeddings: Schema.optionalKey(value)
})

/** An operator's choice about an upstream. Absent keys are as in the profile. */
export const Choice = Schema.Struct({
  /** Default: the kind of a known public API, otherwise `litellm`. */
  name: Schema.optionalKey(Name),
  keyHeader: Schema.optionalKey(KeyHeader),
  /** An empty prefix: the URL is complete, as the base URL of an SDK. */
  pathPrefix: Schema.optionalKey(Path),
  /** Paths after the prefix; `null` closes an API. */
  paths: Schema.optionalKey(Schema.Struct(byApi(Schema.NullOr(Path)))),
  query: Schema.optionalKey(Query),
  /** Version of Azure's older API, in which each deployment has its own path. */
  apiVersion: Schema.optionalKey(
    Schema.String.check(
      Schema.isPattern(/^[A-Za-z0-9.-]{1,40}$/u, { expected: "a version such as 2024-10-21" })
    )
  ),
  headers: Schema.optionalKey(Schema.Record(HeaderName, HeaderValue)),
  /** Opens `POST /v1/embeddings` (default: closed). */
  embeddings: Schema.optionalKey(Schema.Boolean),
  bodyFields: Schema.optionalKey(Schema.Struct(byApi(Fields)))
})

export type Choice = typeof Choice.Type

/** A profile cannot be used. */
export class ProfileRefused extends Schema.TaggedError<ProfileRefused>()("ProfileRefused", {
  problem: Schema.String,
  remedy: Schema.String
}) {
  /** The problem without its remedy. */
  get detail(): string {
    return `the upstream's profile ${this.problem}`
  }
  override get message(): string {
    return `${this.detail}. ${this.remedy}`
  }
}

const refuse = (problem: string, remedy: string) => Result.fail(new ProfileRefused({ problem, remedy }))

const openAi = { chat_completions: "/chat/completions", responses: "/responses" } as const
const anthropic = { messages: "/messages", count_tokens: "/messages/count_tokens" } as const

const base = {
  keyHeader: "authorization",
  pathPrefix: "/v1",
  query: "",
  endUserFields: {},
  headers: {},
  clientHeaders: [],
  bodyFields: {}
} as const

/** The profile of each kind, without changes. */
export const profiles: Readonly<Record<Name, UpstreamProfile>> = {
  litellm: {
    ...base,
    name: "litellm",
    paths: { ...openAi, ...anthropic },
    endUserFields: {
      chat_completions: "user",
      responses: "user",
      messages: "metadata.user_id",
      embeddings: "user"
    },
    callIdHeader: "x-litellm-call-id",
    clientHeaders: ["anthropic-version", "anthropic-beta"]
  },
  // `safety_identifier` replaces `user`: platform.openai.com/docs/guides/safety-best-practices.
  openai: {
    ...base,
    name: "openai",
    paths: openAi,
    endUserFields: {
      chat_completions: "safety_identifier",
      responses: "safety_identifier",
      embeddings: "user"
    },
    callIdHeader: "x-client-request-id"
  },
  // Its chat completions are for clients of OpenAI: platform.claude.com/docs/en/api/openai-sdk.
  anthropic: {
    ...base,
    name: "anthropic",
    keyHeader: "x-api-key",
    paths: { chat_completions: openAi.chat_completions, ...anthropic },
    endUserFields: { messages: "metadata.user_id" },
    clientHeaders: ["anthropic-version", "anthropic-beta"]
  },
  openrouter: {
    ...base,
    name: "openrouter",
    paths: { ...openAi, messages: anthropic.messages },
    endUserFields: {
      chat_completions: "user",
      responses: "user",
      messages: "metadata.user_id",
      embeddings: "user"
    },
    generationIdHeader: "x-generation-id",
    clientHeaders: ["anthropic-version", "anthropic-beta"]
  },
  azure: {
    ...base,
    name: "azure",
    keyHeader: "api-key",
    pathPrefix: "/openai/v1",
    paths: openAi,
    endUserFields: { chat_completions: "user", responses: "user", embeddings: "user" }
  },
  gemini: {
    ...base,
    name: "gemini",
    pathPrefix: "/v1beta/openai",
    paths: { chat_completions: openAi.chat_completions }
  },
  bedrock: {
    ...base,
    name: "bedrock",
    pathPrefix: "/openai/v1",
    paths: { chat_completions: openAi.chat_completions }
  },
  // The URL names project and location, and ends with `/endpoints/openapi`.
  vertex: {
    ...base,
    name: "vertex",
    pathPrefix: "",
    paths: { chat_completions: openAi.chat_completions }
  },
  vllm: {
    ...base,
    name: "vllm",
    paths: { ...openAi, messages: anthropic.messages },
    endUserFields: { chat_completions: "user", responses: "user", embeddings: "user" },
    clientHeaders: ["anthropic-version"]
  }
}

/** Path of the embeddings API after the prefix, in every profile. */
const embeddingsPath = "/embeddings"

/** Headers that the gateway or its connection sets itself, or that act on LiteLLM. */
const isReserved = (name: string): boolean =>
  /^(?:authorization|proxy-|x-api-key$|api-key$|cookie|host$|connection$|keep-alive$|te$|trailer|transfer-|upgrade|expect|content-|accept|x-litellm-|x-client-request-id$|anthropic-(?:version|beta)$)/u.test(
    name
  )

const decodeChoice = Schema.decodeUnknownResult(Choice, { onExcessProperty: "error" })

/** Applies a choice to the profile of its kind. */
const make = (name: Name, choice: Choice): Result.Result<UpstreamProfile, ProfileRefused> => {
  const own = profiles[name]
  const decoded = decodeChoice(choice)
  if (Result.isFailure(decoded)) return refuse(`is invalid: ${decoded.failure.message}`, "Correct this value")
  const {
    apiVersion,
    bodyFields = {},
    embeddings,
    headers = {},
    keyHeader,
    paths = {},
    query
  } = decoded.success
  if (apiVersion !== undefined && name !== "azure")
    return refuse("has an apiVersion, which only azure reads", "Remove apiVersion, or write it as query")
  if (apiVersion !== undefined && query !== undefined)
    return refuse("has both apiVersion and query", "Write the version once, as apiVersion")
  const reserved = Object.keys(headers).find(isReserved)
  if (reserved !== undefined)
    return refuse(`sets the header ${reserved}, which the proxy sets or removes itself`, "Remove it")
  const problem = BodyFields.problemOf(bodyFields)
  if (problem !== undefined) return refuse(problem, "Correct or remove this field")
  const deployed =
    apiVersion === undefined
      ? {}
      : {
          pathPrefix: "/openai/deployments/{model}",
          paths: { chat_completions: openAi.chat_completions },
          query: `api-version=${apiVersion}`
        }
  const before = { ...own, ...deployed }
  const opened = embeddings === true ? { embeddings: embeddingsPath } : {}
  const all = Object.entries({ ...before.paths, ...opened, ...paths }).filter(
    (entry): entry is [Api, string] => entry[1] !== null
  )
  if (all.length === 0) return refuse("closes every API", "Give at least one API a path")
  return Result.succeed({
    ...before,
    paths: Object.fromEntries(all),
    headers,
    bodyFields,
    ...(keyHeader === undefined ? {} : { keyHeader }),
    ...(decoded.success.pathPrefix === undefined ? {} : { pathPrefix: decoded.success.pathPrefix }),
    ...(query === undefined ? {} : { query })
  })
}

/** Public APIs by host name, with the profile that fits. None of them is LiteLLM. */
const publicApis: ReadonlyArray<readonly [host: RegExp, name: Name]> = [
  [/(?:^|\.)openai\.com$/u, "openai"],
  [/(?:^|\.)anthropic\.com$/u, "anthropic"],
  [/(?:^|\.)openrouter\.ai$/u, "openrouter"],
  [/\.(?:openai|services\.ai|cognitiveservices)\.azure\.(?:com|us|cn)$/u, "azure"],
  [/^generativelanguage\.googleapis\.com$/u, "gemini"],
  [/^(?:[a-z0-9-]+-)?aiplatform\.googleapis\.com$/u, "vertex"],
  [/^bedrock(?:-[a-z]+)*\.[a-z0-9-]+\.(?:amazonaws\.com(?:\.cn)?|api\.aws)$/u, "bedrock"],
  // Compatible with OpenAI's API, with the paths that their URL gives.
  [
    /(?:^|\.)(?:ai21\.com|api\.x\.ai|cerebras\.ai|cohere\.(?:ai|com)|deepinfra\.com|deepseek\.com|fireworks\.ai|groq\.com|huggingface\.co|hyperbolic\.xyz|minimax\.io|mistral\.ai|moonshot\.(?:ai|cn)|nebius\.com|novita\.ai|api\.nvidia\.com|perplexity\.ai|sambanova\.ai|together\.(?:ai|xyz)|aliyuncs\.com|volces\.com|bigmodel\.cn|z\.ai)$/u,
    "openai"
  ]
]

/** Returns the profile that fits a known public API; `undefined` for any other host. */
export const ofPublicHost = (host: string): Name | undefined => {
  const name = host.toLowerCase().replace(/\.+$/u, "")
  return publicApis.find(([known]) => known.test(name))?.[1]
}

/**
 * Returns the profile for an upstream on this host. Without a choice, it is the one of a known public API, otherwise
 * LiteLLM's. LiteLLM's profile is refused for a public API, which would get the identity of the paying account.
 */
export const select = (
  host: string,
  chosen: Name | Choice = {}
): Result.Result<UpstreamProfile, ProfileRefused> => {
  const known = ofPublicHost(host)
  const choice = typeof chosen === "string" ? { name: chosen } : chosen
  const name = choice.name ?? known ?? "litellm"
  return name === "litellm" && known !== undefined
    ? refuse(
        `is litellm, but ${host} is a public API, which must not learn who pays`,
        `Choose the profile ${known}, or leave the choice out`
      )
    : make(name, choice)
}

/** Returns whether the upstream offers an API. */
export const isOpen = ({ paths }: Pick<UpstreamProfile, "paths">, api: Api): boolean =>
  paths[api] !== undefined

/** Returns the path and query of a call, after the path of the URL. The API must be open. */
export const targetOf = (
  { pathPrefix, paths, query: own }: Pick<UpstreamProfile, "pathPrefix" | "paths" | "query">,
  {
    api,
    model,
    query = ""
  }: { readonly api: Api; readonly model: string; readonly query?: string | undefined }
): string => {
  const path = `${pathPrefix}${paths[api] ?? ""}`.replaceAll("{model}", () => encodeURIComponent(model))
  const queries = [own, query].filter((part) => part !== "").join("&")
  return queries === "" ? path : `${path}?${queries}`
}

/** Returns whether the paths contain the name of the model. */
export const namesModel = ({ pathPrefix, paths }: Pick<UpstreamProfile, "pathPrefix" | "paths">): boolean =>
  [pathPrefix, ...Object.values(paths)].some((path) => path.includes("{model}"))

/** Returns whether a name of a model can be part of a path. */
export const isPathModel = (model: string): boolean => /^(?!\.+$)[A-Za-z0-9._:@-]{1,200}$/u.test(model)
