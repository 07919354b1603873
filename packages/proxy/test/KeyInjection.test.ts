import { assert, describe, it } from "@effect/vitest"
import { Redacted, Result, Schema } from "effect"
import { RunId } from "@cogni/sandbox-core/RunId"
import { LlmIdentity } from "@cogni/sandbox-core/SpecFields"
import * as KeyInjection from "../src/KeyInjection.ts"
import * as UpstreamProfile from "../src/UpstreamProfile.ts"

const runId = RunId.make("run-4f7k2m9q0x1z")
const key = Redacted.make("sk-real")
const identity: LlmIdentity = {
  billingAccountId: "acct-42",
  attempt: 2,
  userId: "user-7",
  graphId: "graph-1"
}

/** Any header name, with more weight on the relevant ones. */
const Name = Schema.Union([
  Schema.Literals([
    "Authorization",
    "authorization",
    "x-api-key",
    "api-key",
    "X-LiteLLM-API-Key",
    "x-litellm-customer-id",
    "X-Litellm-End-User-Id",
    "x-litellm-spend-logs-metadata",
    "x-litellm-call-id",
    "x-litellm-tags",
    "cookie",
    "x-forwarded-for",
    "connection",
    "content-type",
    "accept-encoding",
    "accept",
    "anthropic-version",
    "anthropic-beta",
    "host"
  ]),
  Schema.String
])
const ClientHeaders = Schema.Array(Schema.Tuple([Name, Schema.String])).check(Schema.isMaxLength(20))

/** Text that a header can carry. */
const Sendable = Schema.String.check(
  Schema.isMinLength(1),
  Schema.isMaxLength(200),
  Schema.makeFilter((text) => !/\p{Cc}/u.test(text) && text.trim() === text && text.isWellFormed())
)

const inject = (client: ReadonlyArray<readonly [string, string]>, who = identity, secret = key) =>
  Result.getOrThrow(KeyInjection.inject({ upstreamKey: secret, identity: who, runId, client }))

describe("KeyInjection", () => {
  it("writes exactly these headers", () => {
    assert.deepStrictEqual(inject([["Anthropic-Version", "2023-06-01"]]), [
      ["authorization", "Bearer sk-real"],
      ["x-litellm-customer-id", "acct-42"],
      ["x-litellm-end-user-id", "acct-42"],
      [
        "x-litellm-spend-logs-metadata",
        '{"run_id":"run-4f7k2m9q0x1z","attempt":2,"user_id":"user-7","graph_id":"graph-1","existing_trace_id":null,"session_id":null,"trace_user_id":null}'
      ],
      ["accept-encoding", "identity"],
      ["content-type", "application/json"],
      ["accept", "*/*"],
      ["anthropic-version", "2023-06-01"]
    ])
  })

  it.prop(
    "sets the credential and the identity itself, each once, whatever the client sends",
    [ClientHeaders],
    ([client]) => {
      const headers = inject(client)
      const ours = inject([])
      const names = headers.map(([name]) => name)
      assert.strictEqual(new Set(names).size, names.length)
      for (const [name, value] of ours.filter(([name]) => name !== "accept")) {
        assert.deepStrictEqual(
          headers.filter(([candidate]) => candidate === name),
          [[name, value]]
        )
      }
      const allowed = new Set([...ours.map(([name]) => name), "anthropic-version"])
      for (const name of names) assert.isTrue(allowed.has(name), name)
    }
  )

  it.prop(
    "sends one credential, under the configured header, and the host's call ID for any client headers",
    [ClientHeaders, Schema.Literals(["authorization", "x-api-key", "api-key"])],
    ([client, keyHeader]) => {
      const profile = { ...UpstreamProfile.profiles.litellm, keyHeader }
      const headers = Result.getOrThrow(
        KeyInjection.inject({ upstreamKey: key, identity, runId, client, profile, callId: "call-1" })
      )
      const credentials = headers.filter(
        ([name, value]) => /authorization|api.?key|cookie|token/iu.test(name) || value.includes("sk-real")
      )
      assert.deepStrictEqual(credentials, [
        [keyHeader, keyHeader === "authorization" ? "Bearer sk-real" : "sk-real"]
      ])
      assert.deepStrictEqual(
        headers.filter(([name]) => name === "x-litellm-call-id"),
        [["x-litellm-call-id", "call-1"]]
      )
      // A run's record names exactly these headers, and the header of the call ID.
      assert.deepStrictEqual(
        headers.slice(0, 4).map(([name]) => name),
        [...KeyInjection.injectedHeaderNames(profile)]
      )
    }
  )

  it("writes exactly these headers for each profile, and the identity only for LiteLLM", () => {
    const ours = (profile: UpstreamProfile.UpstreamProfile) =>
      Result.getOrThrow(
        KeyInjection.inject({
          profile,
          upstreamKey: key,
          identity,
          runId,
          client: [["anthropic-version", "2023-06-01"]],
          callId: "call-1"
        })
      )
    const tail = [
      ["accept-encoding", "identity"],
      ["content-type", "application/json"],
      ["accept", "*/*"]
    ]
    const version = ["anthropic-version", "2023-06-01"]
    const bearer = ["authorization", "Bearer sk-real"]
    assert.deepStrictEqual(
      Object.fromEntries(
        Object.entries(UpstreamProfile.profiles).map(([name, profile]) => [name, ours(profile)])
      ) as object,
      {
        litellm: [
          bearer,
          ["x-litellm-customer-id", "acct-42"],
          ["x-litellm-end-user-id", "acct-42"],
          ["x-litellm-spend-logs-metadata", KeyInjection.spendMetadata(runId, identity)],
          ["x-litellm-call-id", "call-1"],
          ...tail,
          version
        ],
        openai: [bearer, ["x-client-request-id", "call-1"], ...tail],
        anthropic: [["x-api-key", "sk-real"], ...tail, version],
        openrouter: [bearer, ...tail, version],
        azure: [["api-key", "sk-real"], ...tail],
        gemini: [bearer, ...tail],
        bedrock: [bearer, ...tail],
        vertex: [bearer, ...tail],
        vllm: [bearer, ...tail, version]
      }
    )
  })

  it.prop(
    "sends one credential and nothing about the account to any upstream but LiteLLM, for any client headers",
    [ClientHeaders, UpstreamProfile.Name, LlmIdentity],
    ([client, name, who]) => {
      const profile = UpstreamProfile.profiles[name]
      const secretive = { ...who, billingAccountId: "acct-secret", userId: "user-secret" }
      const headers = Result.getOrThrow(
        KeyInjection.inject({
          profile,
          upstreamKey: key,
          identity: secretive,
          runId,
          client,
          callId: "call-1"
        })
      )
      const names = headers.map(([header]) => header)
      assert.strictEqual(new Set(names).size, names.length)
      const credentials = headers.filter(
        ([header, value]) => /authorization|api.?key|cookie|token/iu.test(header) || value.includes("sk-real")
      )
      assert.deepStrictEqual(
        credentials.map(([header]) => header),
        [profile.keyHeader]
      )
      if (name === "litellm") return
      assert.notInclude(JSON.stringify(headers), "-secret")
      assert.notInclude(JSON.stringify(headers), runId)
      assert.isFalse(names.some((header) => header.startsWith("x-litellm-")))
    }
  )

  it("derives a pseudonym that differs by account, purpose and secret, and contains no account", () => {
    const secret = Redacted.make("0123456789abcdef")
    const one = KeyInjection.pseudonym(secret, "end-user", "acct-42")
    assert.strictEqual(one, "a3blCI00WhNheF96RX3M7SITfuxGh1ZDBfV4694FTXQ")
    const others = [
      KeyInjection.pseudonym(secret, "end-user", "acct-43"),
      KeyInjection.pseudonym(secret, "cache", "acct-42"),
      KeyInjection.pseudonym(Redacted.make("another secret!!"), "end-user", "acct-42")
    ]
    for (const other of [one, ...others]) assert.match(other, /^[\w-]{43}$/u)
    assert.strictEqual(new Set([one, ...others]).size, 4)
  })

  it.prop(
    "writes the account into both identity headers, and the identity into the metadata",
    [Sendable, LlmIdentity],
    ([account, who]) => {
      const headers = new Map(inject([], { ...who, billingAccountId: account }))
      assert.strictEqual(headers.get("x-litellm-customer-id"), account)
      assert.strictEqual(headers.get("x-litellm-end-user-id"), account)
      assert.deepStrictEqual(JSON.parse(headers.get("x-litellm-spend-logs-metadata")!), {
        run_id: runId,
        attempt: who.attempt,
        user_id: who.userId ?? null,
        graph_id: who.graphId ?? null,
        existing_trace_id: who.existingTraceId ?? null,
        session_id: who.sessionId ?? null,
        trace_user_id: who.traceUserId ?? null
      })
    }
  )

  it.prop("writes the metadata as printable ASCII", [LlmIdentity], ([who]) => {
    assert.match(KeyInjection.spendMetadata(runId, who), /^[\x20-\x7e]+$/u)
  })

  it("preserves a line break, an umlaut, an emoji and a lone surrogate in the metadata", () => {
    const userId = 'a\n"ü😀\ud800\u007f'
    const text = KeyInjection.spendMetadata(runId, { ...identity, userId })
    assert.include(text, String.raw`"a\n\"\u00fc\ud83d\ude00\ud800\u007f"`)
    assert.strictEqual(JSON.parse(text).user_id, userId)
  })

  it("refuses a key that no header can carry, with a reason and a remedy, and never shows it", () => {
    const secret = "sk-very-secret"
    for (const [bad, problem] of [
      ["", "is empty"],
      [`${secret}\n`, "contains a line break"],
      [`${secret}\r\nx-litellm-customer-id: other`, "contains a line break"],
      [`${secret}\0`, "contains a control character"],
      [`${secret}\t`, "contains a control character"],
      [` ${secret}`, "begins or ends with a space"],
      [`${secret}\ud800`, "is not well-formed Unicode"],
      [secret.repeat(2000), "is longer than 16384 bytes"]
    ] as const) {
      const refused = KeyInjection.inject({ upstreamKey: Redacted.make(bad), identity, runId, client: [] })
      assert.isTrue(Result.isFailure(refused))
      if (!Result.isFailure(refused)) continue
      assert.strictEqual(refused.failure.message, `the key ${problem}, so no header can carry it`)
      assert.include(refused.failure.remedy, "on one line")
      for (const text of [
        String(refused.failure),
        JSON.stringify(refused.failure),
        refused.failure.stack ?? ""
      ]) {
        assert.notInclude(text, secret)
      }
    }
  })

  it("refuses a billing account that a header cannot carry unchanged", () => {
    for (const account of ["a\nb", " a", "a ", "a\u0000b", "\ud800"]) {
      const refused = KeyInjection.inject({
        upstreamKey: key,
        identity: { ...identity, billingAccountId: account },
        runId,
        client: []
      })
      assert.isTrue(Result.isFailure(refused), JSON.stringify(account))
    }
  })

  it.prop("scrubs a key from a text in any quoting", [Sendable, Schema.String], ([secret, around]) => {
    const redacted = Redacted.make(secret)
    for (const spelling of [secret, JSON.stringify(secret), encodeURIComponent(secret)]) {
      const text = KeyInjection.scrub(`<${spelling}>`, redacted)
      assert.notInclude(text.replaceAll("[key]", ""), secret)
    }
    if (!around.includes(secret)) assert.isString(KeyInjection.scrub(around, redacted))
  })

  it("redacts a key that is printed", () => {
    assert.notInclude(`${key} ${JSON.stringify({ key })}`, "sk-real")
  })
})
