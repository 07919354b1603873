import { assert, describe, it } from "@effect/vitest"
import { Redacted, Result, Schema } from "effect"
import { RunId } from "@cogni/sandbox-core/RunId"
import { LlmIdentity } from "@cogni/sandbox-core/SpecFields"
import * as KeyInjection from "../src/KeyInjection.ts"
import * as NginxConfig from "../src/internal/nginx/NginxConfig.ts"
import * as ProxyAnswers from "../src/internal/policy/ProxyAnswers.ts"
import * as RoutePolicy from "../src/internal/policy/RoutePolicy.ts"
import * as Upstream from "../src/Upstream.ts"
import * as Tokenizer from "./NginxTokenizer.ts"

const runId = RunId.make("run-4f7k2m9q0x1z")
const identity: LlmIdentity = { billingAccountId: "acct-42", attempt: 0 }
const address = (url: string, type: "host" | "container" = "host") =>
  Result.getOrThrow(Upstream.address(type === "host" ? { type, url } : { type, url, networkName: "models" }))

const headersOf = (key: string, who = identity) =>
  Result.getOrThrow(
    KeyInjection.inject({ upstreamKey: Redacted.make(key), identity: who, runId, client: [] })
  )

const render = (options: Partial<NginxConfig.NginxConfig> = {}) =>
  NginxConfig.render({
    address: address("http://127.0.0.1:4000"),
    via: "relay",
    headers: headersOf("sk-real"),
    runtimeSecondsMax: 600,
    ...options
  })

const parts = (text: string) => {
  const root = Tokenizer.parse(text)
  const http = root.find(({ words }) => words[0] === "http")!
  return { root, http, server: Tokenizer.children(http, "server")[0]! }
}

/** Returns all header values that the upstream receives, with literals filled in. */
const sent = (text: string) => {
  const { http, server } = parts(text)
  return new Map(
    Tokenizer.children(server, "proxy_set_header").map(({ words }) => [
      words[1]!,
      Tokenizer.evaluate(words[2]!, http)
    ])
  )
}

/** Returns the names and nesting of all directives, without those that hold data. */
const skeleton = (nodes: ReadonlyArray<Tokenizer.Node>): unknown =>
  nodes
    .filter(({ words }) => words[0] !== "geo")
    .map(({ block, words }) => [words[0], words.length, block === undefined ? undefined : skeleton(block)])

/** Fragments that break templates, and any other text. */
const Fragment = Schema.Union([
  Schema.Literals([
    '"',
    "'",
    "\\",
    "$",
    "${",
    "}",
    "{",
    ";",
    "#",
    "$uri",
    "${host}",
    "$literal_1",
    '\\"',
    "\\n",
    "\\$",
    " ; }",
    "include /etc/passwd;",
    "($a != b)",
    "default",
    "ü",
    "😀",
    "\u2028",
    "~^",
    " ",
    "%24",
    "\\\\"
  ]),
  Schema.String
])
const Hostile = Schema.Array(Fragment).check(Schema.isMaxLength(40))
const sendable = (fragments: ReadonlyArray<string>) =>
  `k${fragments
    .join("")
    .replace(/\p{Cc}/gu, "")
    .toWellFormed()}k`

describe("NginxConfig", () => {
  it.prop(
    "embeds any key unchanged, without changing a directive",
    [Hostile],
    ([fragments]) => {
      const key = sendable(fragments)
      const text = render({ headers: headersOf(key) })
      assert.strictEqual(sent(text).get("authorization"), `Bearer ${key}`)
      assert.deepStrictEqual(skeleton(parts(text).root), skeleton(parts(render()).root))
    },
    { arbitrary: { runs: 300 } }
  )

  it.prop(
    "embeds any identity unchanged, without changing a directive",
    [Hostile, LlmIdentity, Hostile],
    ([account, who, user]) => {
      const whole = { ...who, billingAccountId: sendable(account), userId: user.join("") }
      const text = render({ headers: headersOf("sk-real", whole) })
      const headers = sent(text)
      assert.strictEqual(headers.get("x-litellm-customer-id"), whole.billingAccountId)
      assert.strictEqual(headers.get("x-litellm-end-user-id"), whole.billingAccountId)
      assert.strictEqual(
        headers.get("x-litellm-spend-logs-metadata"),
        KeyInjection.spendMetadata(runId, whole)
      )
      assert.deepStrictEqual(skeleton(parts(text).root), skeleton(parts(render()).root))
    },
    { arbitrary: { runs: 300 } }
  )

  it("keeps every token smaller than nginx's buffer, even for the longest identity", () => {
    const long = '😀"\\'.repeat(50)
    const who = {
      attempt: 0,
      billingAccountId: long,
      userId: long,
      graphId: long,
      existingTraceId: long,
      sessionId: long,
      traceUserId: long
    }
    const text = render({ headers: headersOf("k".repeat(8000), who) })
    for (const line of text.split("\n")) assert.isBelow(Buffer.byteLength(line), 4096)
    assert.strictEqual(
      sent(text).get("x-litellm-spend-logs-metadata"),
      KeyInjection.spendMetadata(runId, who)
    )
  })

  it("contains the key exactly once", () => {
    assert.strictEqual(render().split("sk-real").length, 2)
  })

  it("passes no client header on, and sets exactly the listed ones", () => {
    const { http, server } = parts(render())
    assert.deepStrictEqual(Tokenizer.children(http, "proxy_pass_request_headers")[0]!.words[1], "off")
    assert.deepStrictEqual(
      Tokenizer.children(server, "proxy_set_header").map(({ words }) => words[1]),
      [
        "host",
        "authorization",
        "x-litellm-customer-id",
        "x-litellm-end-user-id",
        "x-litellm-spend-logs-metadata",
        "accept-encoding",
        "content-type",
        "accept",
        "anthropic-version",
        "connection",
        "x-request-id"
      ]
    )
    // A location with its own `proxy_set_header` would inherit none of these.
    for (const location of Tokenizer.children(server, "location")) {
      assert.deepStrictEqual(Tokenizer.children(location, "proxy_set_header"), [])
    }
  })

  it("has one exact location for each route, and refuses the rest", () => {
    const { server } = parts(render())
    const locations = Tokenizer.children(server, "location").filter(
      ({ words }) => !words[2]?.startsWith("/-/")
    )
    assert.deepStrictEqual(
      locations.map(({ words }) => words.slice(1).join(" ")),
      ["= /health", ...RoutePolicy.routes.map(({ path }) => `= ${path}`), "/"]
    )
    assert.deepStrictEqual(
      locations.at(-1)!.block!.map(({ words }) => words),
      [["deny", "all"]]
    )
  })

  it("asks an upstream of another kind only at its own paths, and without the identity", () => {
    const { address: at, profile } = Result.getOrThrow(
      Upstream.resolve(
        { type: "host", url: "https://acme.openai.azure.com" },
        { profile: { query: "api-version=preview", headers: { "x-title": "Acme" } } }
      )
    )
    const headers = Result.getOrThrow(
      KeyInjection.inject({ profile, upstreamKey: Redacted.make("sk-real"), identity, runId, client: [] })
    )
    const text = render({ address: at, profile, headers })
    const { server } = parts(text)
    assert.deepStrictEqual(
      Tokenizer.children(server, "proxy_set_header").map(({ words }) => words[1]),
      [
        "host",
        "api-key",
        "x-title",
        "accept-encoding",
        "content-type",
        "accept",
        "connection",
        "x-request-id"
      ]
    )
    assert.notInclude(text, identity.billingAccountId)
    const passages = Tokenizer.children(server, "location").filter(({ words }) =>
      words[2]?.startsWith("/-/pass")
    )
    assert.deepStrictEqual(
      passages.map((passage) => [
        Tokenizer.children(passage, "set")[0]!.words[2],
        Tokenizer.children(passage, "proxy_pass")[0]!.words[1]
      ]),
      ["chat/completions", "responses", "models"].map((path) => [
        "api-version=preview",
        `http://unix:/upstream/upstream.sock:/openai/v1/${path}$is_args$args`
      ])
    )
  })

  it("connects through the relay, or by name through the engine's resolver", () => {
    const relayed = parts(render({ address: address("https://models.example.com:8443/litellm/v1/") }))
    assert.deepStrictEqual(Tokenizer.children(relayed.http, "resolver"), [])
    assert.include(
      render({ address: address("https://models.example.com:8443/litellm/v1/") }),
      "proxy_pass http://unix:/upstream/upstream.sock:/litellm/v1/chat/completions$is_args$args;"
    )
    assert.strictEqual(
      sent(render({ address: address("https://models.example.com:8443/x") })).get("host"),
      "models.example.com:8443"
    )
    const named = render({ via: "network", address: address("http://litellm:4000", "container") })
    assert.include(named, "resolver 127.0.0.11 valid=10s ipv6=off;")
    assert.include(named, "set $upstream_authority litellm:4000;")
    assert.include(named, "proxy_pass http://$upstream_authority/v1/messages$is_args$args;")
  })

  it("drops a request whose head or body stalls for 15 s", () => {
    const { http } = parts(render({ runtimeSecondsMax: 7200 }))
    for (const name of ["client_header_timeout", "client_body_timeout"])
      assert.strictEqual(Tokenizer.children(http, name)[0]!.words[1], "15s", name)
  })

  it("does not time out a silent upstream before the run's own limit", () => {
    const { http } = parts(render({ runtimeSecondsMax: 7200 }))
    for (const name of ["proxy_read_timeout", "proxy_send_timeout", "send_timeout", "keepalive_timeout"]) {
      assert.strictEqual(Tokenizer.children(http, name)[0]!.words[1], "7200s", name)
    }
  })

  it("answers its own errors in OpenAI's format", () => {
    const { http, server } = parts(render())
    const pages = Tokenizer.children(server, "location").filter(
      (location) => location.words[2]?.startsWith("/-/") && Tokenizer.children(location, "return").length > 0
    )
    assert.isAbove(pages.length, 6)
    for (const page of pages) {
      const body = JSON.parse(Tokenizer.evaluate(Tokenizer.children(page, "return")[0]!.words[2]!, http))
      assert.hasAllKeys(body.error, ["message", "type", "param", "code"])
      assert.strictEqual(`/-/${body.error.code}`, page.words[2])
    }
  })

  it("hides headers that reveal the upstream", () => {
    const { http } = parts(render())
    assert.deepStrictEqual(
      Tokenizer.children(http, "proxy_hide_header").map(({ words }) => words[1]),
      [...ProxyAnswers.hiddenHeaders]
    )
    assert.include(Tokenizer.children(http, "proxy_ignore_headers")[0]!.words, "X-Accel-Redirect")
  })
})
