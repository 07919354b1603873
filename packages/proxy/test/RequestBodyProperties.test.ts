import { assert, describe, it } from "@effect/vitest"
import { Arbitrary, Result, Schema } from "effect"
import type { BodyPolicy } from "../src/internal/policy/BodyRules.ts"
import type * as RoutePolicy from "../src/internal/policy/RoutePolicy.ts"
import { violations } from "./AllowedBody.ts"
import { type Fixture, fixtures, type Json, policyFor, policyOf, rebuild } from "./Bodies.ts"

/** Names that affect a proxy, a provider or a bill. */
const dangerous = `
    user User metadata litellm_metadata safety_identifier end_user customer_id tags
    litellm_session_id litellm_trace_id litellm_call_id num_retries timeout fallbacks model_list
    api_key api_base base_url api_version user_config aws_access_key_id aws_sts_endpoint
    vertex_credentials langfuse_public_key langfuse_host mock_response mock_tool_calls no-log cache
    guardrails disable_global_guardrails proxy_server_request headers extra_headers extra_body
    extra_query cache_control_injection_points service_tier custom_llm_provider organization
    input_cost_per_token prompt_id web_search_options mcp_servers file_id file_url video_url
    server_url allowed_callers speed __proto__ constructor
  `
  .trim()
  .split(/\s+/u)

const evils: ReadonlyArray<unknown> = [
  { user: "evil", user_id: "evil", url: "https://evil", include: ["evil"] },
  "https://evil"
]

/** Adds all dangerous names as own properties, including `__proto__`. */
const withAll =
  (evil: unknown) =>
  (object: Json): Json =>
    Object.fromEntries([...Object.entries(object), ...dangerous.map((name) => [name, evil] as const)])

/** Returns the path of each object in a body. */
const objectsIn = (value: unknown, way: ReadonlyArray<string> = []): ReadonlyArray<ReadonlyArray<string>> =>
  typeof value !== "object" || value === null
    ? []
    : [
        ...(Array.isArray(value) ? [] : [way]),
        ...Object.entries(value).flatMap(([name, inner]) => objectsIn(inner, [...way, name]))
      ]

const changedAt = (value: any, way: ReadonlyArray<string>, change: (value: any) => unknown): any => {
  const [name, ...rest] = way
  if (name === undefined) return change(value)
  if (Array.isArray(value))
    return value.map((one, index) => (String(index) === name ? changedAt(one, rest, change) : one))
  return Object.fromEntries(
    Object.entries(value).map(([key, inner]) => [key, key === name ? changedAt(inner, rest, change) : inner])
  )
}

const everywhere = (evil: unknown, value: any): any =>
  Array.isArray(value)
    ? value.map((one) => everywhere(evil, one))
    : typeof value === "object" && value !== null
      ? withAll(evil)(
          Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, everywhere(evil, inner)]))
        )
      : value

/** Spells the same JSON with all characters escaped, extra space, and an evil duplicate before each name. */
const spelled = (value: unknown): string => {
  if (Array.isArray(value)) return `[ ${value.map(spelled).join("\r\n,\t")} ]`
  if (typeof value === "string") return escaped(value)
  if (typeof value !== "object" || value === null) return JSON.stringify(value) ?? "null"
  const entries = Object.entries(value).filter(([, inner]) => inner !== undefined)
  // A duplicate name keeps the position of its first occurrence.
  const members = entries.flatMap(([key, inner]) => [
    `${JSON.stringify(key)}:{"user":"evil"}`,
    `${escaped(key)} : ${spelled(inner)}`
  ])
  return ` { ${members.join(" , ")} } `
}

const escaped = (text: string): string =>
  `"${text.replace(/[^]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`)}"`

/** Asserts that a body is refused, or that the rebuilt body is allowed. Returns which. */
const judge = (body: unknown, policy: BodyPolicy): "refused" | "passed" => {
  const result = rebuild(body, policy)
  if (Result.isFailure(result)) {
    assert.include([400, 404], result.failure.status)
    assert.match(result.failure.code, /^[a-z_]+$/u)
    return "refused"
  }
  const found = violations(policy.api, JSON.parse(result.success.body), Object.values(policy.models))
  assert.deepStrictEqual(found, [])
  assert.strictEqual(Object.getPrototypeOf({}), Object.prototype)
  return "passed"
}

describe("dangerous names in any place", () => {
  for (const one of fixtures)
    it(`are never sent in ${one.name}`, () => {
      const outcomes = evils.flatMap((evil) =>
        objectsIn(one.body).map((way) => judge(changedAt(one.body, way, withAll(evil)), policyFor(one)))
      )
      // Most must be removed, not refused, or this would show little. Addresses and stored files are refused.
      assert.isAbove(outcomes.filter((outcome) => outcome === "passed").length, outcomes.length * 0.9)
      for (const evil of evils) judge(everywhere(evil, one.body), policyFor(one))
    })
})

const apis: ReadonlyArray<RoutePolicy.Api> = [
  "chat_completions",
  "responses",
  "messages",
  "count_tokens",
  "embeddings"
]
const natural = Arbitrary.schema(Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 1_000_000 })))
const json = Arbitrary.schema(Schema.Json)
const name = Arbitrary.schema(
  Schema.Union([
    Schema.Literals(dangerous),
    Schema.String,
    Schema.Literals(["type", "role", "content", "text"])
  ])
)
const policyAt = (index: number, api: RoutePolicy.Api = apis[index % apis.length]!) =>
  policyOf(api, {
    unknownFields: index % 3 === 0 ? "refuse" : "drop",
    ...(index % 2 === 0 ? { outputTokensMax: 1 + (index % 5000) } : {})
  })

interface Change {
  readonly at: number
  readonly how: number
  readonly name: string
  readonly value: unknown
}

const change: Arbitrary.Arbitrary<Change> = Arbitrary.all({ at: natural, how: natural, name, value: json })

const applied = (body: Json, { at, how, name: added, value }: Change): Json => {
  const ways = objectsIn(body)
  const way = ways[at % Math.max(1, ways.length)]
  if (way === undefined) return body
  return changedAt(body, way, (object: Json) => {
    const entries = Object.entries(object)
    const [chosen] = entries[at % Math.max(1, entries.length)] ?? ["x"]
    switch (how % 5) {
      case 0:
        return Object.fromEntries([...entries, [added, value]])
      case 1:
        return Object.fromEntries(entries.filter(([key]) => key !== chosen))
      case 2:
        return Object.fromEntries(entries.map(([key, inner]) => [key, key === chosen ? value : inner]))
      case 3:
        return Object.fromEntries(
          entries.map(([key, inner]) => [key, key === chosen ? [inner, value] : inner])
        )
      default:
        return value
    }
  })
}

describe("any request", () => {
  it.prop("any request of any JSON is sent with allowed fields only", [json, natural], ([body, index]) => {
    judge(body, policyAt(index))
  })

  it.prop(
    "with known or dangerous names is sent with allowed fields only",
    [Arbitrary.array(Arbitrary.all([name, json])), natural],
    ([entries, index]) => {
      const conversation = [
        ["messages", [{ role: "user", content: "hi" }]],
        ["input", "hi"]
      ]
      judge(Object.fromEntries([...conversation, ...entries]), policyAt(index))
    }
  )

  it.prop(
    "from an agent, changed anywhere, is sent with allowed fields only",
    [natural, Arbitrary.array(change, { minLength: 1, maxLength: 4 })],
    ([index, changes]) => {
      const one: Fixture = fixtures[index % fixtures.length]!
      const body = changes.reduce(
        (changed, next) => (typeof changed === "object" ? applied(changed, next) : changed),
        one.body
      )
      const { betas, model, models } = policyFor(one)
      judge(body, { ...policyAt(index, one.api), model, models, betas })
    },
    { arbitrary: { runs: 400 } }
  )

  it.prop(
    "that was rebuilt is rebuilt unchanged, even if unknown fields are refused",
    [natural, change],
    ([index, next]) => {
      const one: Fixture = fixtures[index % fixtures.length]!
      const { betas, model, models } = policyFor(one)
      const policy = {
        ...policyAt(index, one.api),
        model,
        models,
        betas,
        unknownFields: "drop" as "drop" | "refuse"
      }
      const body = applied(one.body, next)
      const first = rebuild(body, policy)
      assert.deepStrictEqual(rebuild(body, policy), first, "asked twice")
      if (Result.isFailure(first)) return
      const second = rebuild(first.success.body, { ...policy, unknownFields: "refuse" })
      if (Result.isFailure(second)) return assert.fail(JSON.stringify(second.failure))
      // The key is bound to the account again, which changes it each time.
      const { prompt_cache_key: _first, ...expected } = JSON.parse(first.success.body)
      const { prompt_cache_key: _second, ...found } = JSON.parse(second.success.body)
      assert.deepStrictEqual(found, expected)
      assert.deepStrictEqual(second.success.dropped, [])
    },
    { arbitrary: { runs: 200 } }
  )

  it.prop(
    "is rebuilt the same in any spelling",
    [natural, change],
    ([index, next]) => {
      const one: Fixture = fixtures[index % fixtures.length]!
      const policy = policyFor(one)
      const body = applied(one.body, next)
      const plain = rebuild(JSON.stringify(body), policy)
      assert.deepStrictEqual(rebuild(spelled(body), policy), plain)
    },
    { arbitrary: { runs: 100 } }
  )
})
