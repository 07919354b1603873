/**
 * Further fields of request bodies, which a host opens with a JSON Schema: `provider` for OpenRouter,
 * `chat_template_kwargs` for vLLM.
 *
 * Bodies are inspected in other threads, so the schemas are plain data and compiled there. A field can neither replace
 * one that the gateway knows, nor be one that acts on the proxy behind it.
 */
import type * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import * as SchemaRepresentation from "effect/SchemaRepresentation"
import type { Api } from "./RoutePolicy.ts"
import * as ChatCompletions from "./apis/ChatCompletions.ts"
import * as Embeddings from "./apis/Embeddings.ts"
import * as Messages from "./apis/Messages.ts"
import * as Responses from "./apis/Responses.ts"

/** JSON Schemas of further fields, by name. Plain data. */
export type BodyFields = Readonly<Record<string, Readonly<Record<string, unknown>>>>

/** Maximum number of further fields of one API. */
const fieldsMax = 32

const known: Readonly<Record<Api, ReadonlySet<string>>> = {
  chat_completions: new Set(Object.keys(ChatCompletions.Body.fields)),
  responses: new Set(Object.keys(Responses.Body.fields)),
  messages: new Set(Object.keys(Messages.Body.fields)),
  count_tokens: new Set(Object.keys(Messages.CountBody.fields)),
  embeddings: new Set(Object.keys(Embeddings.Body.fields))
}

/**
 * Fields that no host can open: who pays, other keys, addresses and models, callbacks, state that a provider keeps, and
 * tools that a provider runs. Several of them opened LiteLLM to attackers.
 */
const isForbidden = (name: string): boolean =>
  /^(?:user|metadata|safety_identifier|store|background|previous_response_id|conversation|prompt|container|tags|num_retries|timeout|fallbacks|models?|model_list|route|plugins|transforms|cache|guardrails|headers|extra_headers|extra_body|no-log|service_tier|n|best_of|mcp_servers|web_search_options|user_config|disable_global_guardrails|proxy_server_request)$|^(?:litellm_|mock_|api_|base_|aws_|vertex_|azure_|langfuse_|langsmith_|callback|success_callback|failure_callback|__)/u.test(
    name
  )

/** Returns why further fields cannot be opened; `undefined` if they can. */
export const problemOf = (byApi: Readonly<Partial<Record<Api, BodyFields>>>): string | undefined => {
  for (const [api, fields] of Object.entries(byApi) as ReadonlyArray<[Api, BodyFields]>) {
    const names = Object.keys(fields)
    if (names.length > fieldsMax) return `opens more than ${fieldsMax} body fields of ${api}`
    for (const name of names) {
      if (!/^[A-Za-z0-9_-]{1,64}$/u.test(name)) return `opens a body field of ${api} with an invalid name`
      if (known[api].has(name)) return `opens ${api}.${name}, which the gateway already has a rule for`
      if (isForbidden(name))
        return `opens ${api}.${name}, which could change who pays, or what is asked where`
      try {
        compile({ [name]: fields[name]! })
      } catch (thrown) {
        return `has no usable JSON Schema for ${api}.${name}: ${thrown instanceof Error ? thrown.message : "unknown"}`
      }
    }
  }
  return undefined
}

type Decode = (body: unknown) => Result.Result<Readonly<Record<string, unknown>>, Schema.SchemaError>

/** Compiles an object's fields. Objects pass only the properties that their schema names, unless it says otherwise. */
const compile = (fields: BodyFields): Decode => {
  const properties = Object.fromEntries(
    Object.entries(fields).map(([name, { $defs = {}, ...schema }]) => [
      name,
      Schema.optionalKey(
        Schema.NullOr(
          SchemaRepresentation.fromJsonSchemaDocument(
            {
              dialect: "draft-2020-12",
              schema,
              definitions: $defs as Record<string, Record<string, unknown>>
            },
            { patterns: "apply", onEnter: closed }
          )
        )
      )
    ])
  )
  return Schema.decodeUnknownResult(Schema.Struct(properties) as Schema.Struct<{}>) as Decode
}

const closed = (schema: Record<string, unknown>): Record<string, unknown> =>
  "properties" in schema && !("additionalProperties" in schema)
    ? { ...schema, additionalProperties: false }
    : schema

/** A gateway has one profile, so few sets of fields exist in a thread. */
const compiledMax = 16
const compiled = new Map<string, Decode>()

/** Decodes the further fields of a body. Returns only those. */
export const decode = (
  fields: BodyFields,
  body: unknown
): Result.Result<Readonly<Record<string, unknown>>, Schema.SchemaError> => {
  const text = JSON.stringify(fields)
  let decoder = compiled.get(text)
  if (decoder === undefined) {
    if (compiled.size >= compiledMax) compiled.clear()
    decoder = compile(fields)
    compiled.set(text, decoder)
  }
  return decoder(body)
}
