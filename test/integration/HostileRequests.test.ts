/**
 * Hostile requests of an agent, byte by byte, and the part of them that reaches the upstream.
 *
 * Every row is written to the run's socket from inside the sandbox, without an HTTP library. A row that passes must
 * reach the upstream with exactly our headers and exactly its own path. A row that is refused must not reach it at all.
 * The last tests remove the defenses one by one, and check that these assertions then fail.
 */
import { assert, layer } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import * as KeyInjection from "@cogni/sandbox-proxy/KeyInjection"
import * as NginxRun from "../harness/NginxRun.ts"

const chat = "/v1/chat/completions"
const body = '{"model":"m","messages":[]}'

interface Lines {
  readonly method?: string
  readonly target?: string
  readonly version?: string
  readonly headers?: ReadonlyArray<string>
  readonly body?: string
  readonly newline?: string
  /** Omits Host and Content-Length. */
  readonly bare?: boolean
}

/** Builds a request from a request line, unchanged header lines and a body. */
const http = (lines: Lines = {}): string => {
  const { bare = false, method = "POST", newline = "\r\n", target = chat, version = " HTTP/1.1" } = lines
  const payload = lines.body ?? (method === "POST" ? body : "")
  const own = bare
    ? []
    : ["Host: localhost", ...(payload === "" ? [] : [`Content-Length: ${payload.length}`])]
  return [`${method} ${target}${version}`, ...own, ...(lines.headers ?? []), "", payload].join(newline)
}

const withHeaders = (...headers: ReadonlyArray<string>) => http({ headers })
const toPath = (target: string, method = "POST") => http({ method, target })

type Row = readonly [
  name: string,
  bytes: string,
  expected: "passes" | "refused",
  more?: {
    readonly target?: string
    readonly method?: string
    readonly statuses?: ReadonlyArray<number | undefined>
  }
]

const spoofs = [
  "x-litellm-customer-id: evil",
  "X-LiteLLM-Customer-Id: evil",
  "x-litellm-end-user-id: evil",
  "x-litellm-api-key: sk-evil",
  "x-litellm-call-id: evil",
  "x-litellm-tags: evil",
  "x-litellm-num-retries: 99",
  "x-litellm-timeout: 1",
  "x-litellm-model: evil",
  "x-litellm-trace-id: evil",
  "x-litellm-session-id: evil",
  "x-litellm-agent-id: evil",
  "x-litellm-enable-message-redaction: true",
  'x-litellm-spend-logs-metadata: {"run_id":"evil"}',
  "Authorization: Bearer sk-evil",
  "Proxy-Authorization: Basic evil",
  "api-key: sk-evil",
  "x-api-key: sk-evil",
  "x-goog-api-key: sk-evil",
  "Ocp-Apim-Subscription-Key: sk-evil",
  "Cookie: session=evil",
  "X-Forwarded-For: 6.6.6.6",
  "X-Forwarded-Host: evil",
  "X-Real-IP: 6.6.6.6",
  "Forwarded: for=6.6.6.6",
  "traceparent: 00-00000000000000000000000000000001-0000000000000001-01",
  "openai-organization: evil",
  "anthropic-beta: evil",
  "anthropic-version: evil",
  "langfuse_public_key: evil",
  "Cache-Control: no-cache",
  "X-HTTP-Method-Override: DELETE",
  "X-Original-URL: /key/generate",
  "X-Rewrite-URL: /key/generate",
  "X-Accel-Redirect: /key/generate",
  "X-Request-Id: evil",
  "User-Agent: evil",
  "Content-Type: text/evil",
  "Accept: text/evil",
  "Accept-Encoding: gzip",
  "Content-Encoding: gzip",
  "x-litellm-customer-id:evil",
  "x-litellm-customer-id:\t evil",
  "x_litellm_customer_id: evil",
  "x-litellm_customer-id: evil",
  "X-LITELLM-CUSTOMER-ID: evil",
  "x.litellm.customer.id: evil",
  "x-litellm-customer-id\xa0: evil",
  "x-litellm-customer-id: \xff\xfe"
]

const rows: ReadonlyArray<Row> = [
  ["only the necessary headers", http(), "passes"],
  ...spoofs.map((line): Row => [`header ${JSON.stringify(line)}`, withHeaders(line), "passes"]),
  ["a header twice", withHeaders("x-litellm-customer-id: a", "x-litellm-customer-id: b"), "passes"],
  [
    "authorization twice",
    withHeaders("Authorization: Bearer a", "Authorization: Bearer b"),
    "passes",
    { statuses: [200, 400] }
  ],
  [
    "200 headers",
    withHeaders(...Array.from({ length: 200 }, (_, index) => `x-litellm-customer-${index}: evil`)),
    "passes"
  ],
  [
    "Connection names an identity header",
    withHeaders("Connection: x-litellm-customer-id, authorization"),
    "passes"
  ],
  ["Connection: close and keep-alive", withHeaders("Connection: close", "Keep-Alive: timeout=1"), "passes"],
  ["Proxy-Connection", withHeaders("Proxy-Connection: keep-alive"), "passes"],
  [
    "Upgrade to a websocket",
    withHeaders("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: x"),
    "passes"
  ],
  [
    "Upgrade to h2c",
    withHeaders("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"),
    "passes"
  ],
  ["Expect: 100-continue", withHeaders("Expect: 100-continue"), "passes"],
  ["TE: trailers", withHeaders("TE: trailers"), "passes"],
  ["Trailer that announces an identity header", withHeaders("Trailer: x-litellm-customer-id"), "passes"],
  ["Range", withHeaders("Range: bytes=0-0", "If-Range: x"), "passes"],
  ["two spaces in a value", withHeaders("X-Evil:   a  b "), "passes"],
  ["an empty value", withHeaders("x-litellm-customer-id:"), "passes"],
  ["bare line feeds", http({ newline: "\n", headers: ["x-litellm-customer-id: evil"] }), "passes"],
  [
    "chunked, with extensions and a trailer",
    `${http({ bare: true, body: "", headers: ["Host: localhost", "Transfer-Encoding: chunked"] })}${body.length.toString(16)};x=x-litellm-customer-id\r\n${body}\r\n0\r\nx-litellm-customer-id: evil\r\nAuthorization: Bearer evil\r\n\r\n`,
    "passes"
  ],
  ["HTTP/1.0", http({ version: " HTTP/1.0" }), "passes"],
  [
    "HTTP/1.0 without Host",
    http({ version: " HTTP/1.0", bare: true, headers: [`Content-Length: ${body.length}`] }),
    "passes"
  ],
  ["HTTP/0.9", "GET /v1/models\r\n\r\n", "passes", { method: "GET", target: "/v1/models" }],
  [
    "Host of another server",
    http({ bare: true, headers: ["Host: evil.example", `Content-Length: ${body.length}`] }),
    "passes"
  ],
  ["absolute form", toPath(`http://evil.example${chat}`), "passes", { statuses: [200, 403] }],
  ["a query", toPath(`${chat}?key=evil&user=evil`), "passes"],
  ["a query that is allowed on another path", toPath(`${chat}?beta=true`), "passes"],
  ["beta=true", toPath("/v1/messages?beta=true"), "passes", { target: "/v1/messages?beta=true" }],
  ["beta=true and more", toPath("/v1/messages?beta=true&key=evil"), "passes", { target: "/v1/messages" }],
  ["beta=true twice", toPath("/v1/messages?beta=true?beta=true"), "passes", { target: "/v1/messages" }],
  ["beta=TRUE", toPath("/v1/messages?beta=TRUE"), "passes", { target: "/v1/messages" }],
  [
    "a query with a line break",
    toPath("/v1/messages?beta=true%0d%0aX-Evil:%201"),
    "passes",
    { target: "/v1/messages" }
  ],
  ["count_tokens", toPath("/v1/messages/count_tokens"), "passes", { target: "/v1/messages/count_tokens" }],
  ["responses", toPath("/v1/responses"), "passes", { target: "/v1/responses" }],
  ["models", toPath("/v1/models?team_id=evil", "GET"), "passes", { method: "GET", target: "/v1/models" }],

  ["space before the colon", withHeaders("x-litellm-customer-id : evil"), "refused"],
  ["a folded header", withHeaders("X-Fold: a", " x-litellm-customer-id: evil"), "refused"],
  ["a header without a name", withHeaders(": evil"), "refused", { statuses: [400, 200] }],
  ["NUL in a value", withHeaders("X-Evil: a\0b"), "refused"],
  ["NUL in a name", withHeaders("X-Ev\0il: a"), "refused"],
  ["a bare carriage return", withHeaders("X-Evil: a\rx-litellm-customer-id: evil"), "refused"],
  ["length and chunked", withHeaders("Transfer-Encoding: chunked"), "refused"],
  [
    "chunked and length",
    http({ bare: true, headers: ["Host: a", "Transfer-Encoding: chunked", "Content-Length: 3"] }),
    "refused"
  ],
  ["two lengths", withHeaders("Content-Length: 3"), "refused"],
  ["a negative length", http({ bare: true, headers: ["Host: a", "Content-Length: -1"] }), "refused"],
  [
    "chunked, misspelled",
    http({ bare: true, headers: ["Host: a", "Transfer-Encoding: xchunked"] }),
    "refused"
  ],
  [
    "chunked twice",
    http({ bare: true, headers: ["Host: a", "Transfer-Encoding: chunked", "Transfer-Encoding: chunked"] }),
    "refused"
  ],
  ["two hosts", withHeaders("Host: evil"), "refused"],
  ["no host", http({ bare: true, headers: [`Content-Length: ${body.length}`] }), "refused"],
  ["one header of 40 KiB", withHeaders(`X-Evil: ${"a".repeat(40_960)}`), "refused"],
  [
    "40 KiB of headers",
    withHeaders(...Array.from({ length: 40 }, (_, index) => `X-${index}: ${"a".repeat(1000)}`)),
    "refused"
  ],
  ["a target of 40 KiB", toPath(`${chat}?${"a".repeat(40_960)}`), "refused"],
  [
    "a body over the limit",
    http({ bare: true, headers: ["Host: a", "Content-Length: 33554433"] }),
    "refused",
    { statuses: [413] }
  ],
  ["HTTP/2 by prior knowledge", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "refused"],
  ["HTTP/3.0", http({ version: " HTTP/3.0" }), "refused"],
  ["TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "refused"],
  ["CONNECT", "CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example\r\n\r\n", "refused"],
  ["OPTIONS *", http({ method: "OPTIONS", target: "*" }), "refused"],
  ...["GET", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "post"].map((method): Row => [
    `${method} on a POST path`,
    http({ method, body: "" }),
    "refused",
    { statuses: [405, 400] }
  ]),
  ["an internal page of the proxy", toPath("/-/path_not_allowed"), "refused", { statuses: [404] }],
  ["POST on a GET path", toPath("/v1/models"), "refused", { statuses: [405] }],
  ["HEAD on a GET path", toPath("/v1/models", "HEAD"), "refused", { statuses: [405] }],
  ...[
    "/",
    "/key/generate",
    "/key/info",
    "/user/new",
    "/spend/logs",
    "/config/update",
    "/v1",
    "/v1/",
    "/v1/files",
    "/v1/batches",
    "/v1/embeddings",
    "/v1/images/generations",
    "/v1/model/info",
    "/v1/mcp/tools",
    "/v1/realtime",
    "/openai/v1/chat/completions",
    "/anthropic/v1/messages",
    "/bedrock/model/x/invoke",
    "/chat/completions",
    "/engines/m/chat/completions",
    "/v1/chat/completions/",
    "/v1/chat/completions/x",
    "/v1/chat/completionsx",
    "/v1/chat/completions;x",
    "/v1/chat/completions%00",
    "/v1/chat/completions%2f..%2f..%2fkey%2fgenerate",
    "/V1/chat/completions",
    "/key/../v1/chat/completions",
    "/v1/chat/completions/../../key/generate",
    "/v1/x/../chat/completions",
    "/v1/./chat/completions",
    "/v1/%2e%2e/v1/chat/completions",
    "/v1/%252e%252e/key/generate",
    "/v1/..%5ckey/generate",
    "/v1/..\\key\\generate",
    "/v1/%63hat/completions",
    "//v1/chat/completions",
    "/v1//chat/completions",
    "/v1/chat/completions#/key/generate",
    "/v1/messages/count_tokens/../../../key/generate",
    "/health/../key/generate",
    "http://upstream/key/generate",
    "../key/generate",
    "\\key\\generate"
  ].map((target): Row => [`path ${target}`, toPath(target), "refused", { statuses: [403, 400] }])
]

/** Headers that the upstream must receive: exactly these, each name once. */
const expectedHeaders = [
  "accept",
  "accept-encoding",
  "authorization",
  "connection",
  "content-type",
  "host",
  "x-litellm-customer-id",
  "x-litellm-end-user-id",
  "x-litellm-spend-logs-metadata",
  "x-request-id"
]

/** Headers for the length of a body. nginx chooses one, depending on how much of the body it has received. */
const framing = new Set(["content-length", "transfer-encoding"])

interface Outcome {
  readonly run: NginxRun.NginxRun["Service"]
  readonly answer: NginxRun.Answer
  readonly received: ReadonlyArray<Received>
}

type Received = Effect.Success<NginxRun.NginxRun["Service"]["upstream"]["received"]>[number]

const requestIdOf = ({ headers }: Received) =>
  headers.find(([name]) => name.toLowerCase() === "x-request-id")?.[1]

/**
 * Sends the rows, and returns the upstream requests of each. A request that matches no answer counts for every row.
 */
const sendRows = (all: ReadonlyArray<Row>, options?: NginxRun.SendOptions) =>
  Effect.gen(function* () {
    const run = yield* NginxRun.NginxRun
    const before = (yield* run.upstream.received).length
    const answers = yield* run.sendAll(
      all.map(([, bytes]) => bytes),
      options
    )
    const received = (yield* run.upstream.received).slice(before)
    const idsOf = answers.map(({ text }) => /^X-Request-Id: (\S+)/mu.exec(text)?.[1])
    return answers.map((answer, index): Outcome => ({
      run,
      answer,
      received: received.filter((request) => {
        const id = requestIdOf(request)
        return id === idsOf[index] || !idsOf.includes(id)
      })
    }))
  })

const checkRow = ([, , expected, more = {}]: Row, { answer, received, run }: Outcome) => {
  const refused =
    expected === "refused" || (more.statuses !== undefined && answer.status !== 200 && received.length === 0)
  if (refused) {
    assert.deepStrictEqual(received, [])
    if (more.statuses !== undefined) assert.include(more.statuses, answer.status)
    else assert.isTrue(answer.status === undefined || answer.status >= 400, `answered ${answer.status}`)
    // The error has OpenAI's shape. It is not a page of nginx.
    if (answer.status !== undefined) assert.notInclude(answer.text, "<html>")
    return
  }
  assert.strictEqual(received.length, 1, answer.text)
  const [{ headers, method, target }] = received as [(typeof received)[0]]
  assert.strictEqual(method, more.method ?? "POST")
  assert.strictEqual(target, more.target ?? chat)
  const names = headers.map(([name]) => name.toLowerCase())
  assert.deepStrictEqual(names.filter((name) => !framing.has(name)).toSorted(), expectedHeaders)
  assert.strictEqual(names.filter((name) => framing.has(name)).length, method === "GET" ? 0 : 1)
  const values = new Map(
    headers.map(([name, value]) => [name.toLowerCase(), Buffer.from(value, "latin1").toString("utf8")])
  )
  assert.strictEqual(values.get("authorization"), `Bearer ${NginxRun.key}`)
  assert.strictEqual(values.get("x-litellm-customer-id"), NginxRun.identity.billingAccountId)
  assert.strictEqual(values.get("x-litellm-end-user-id"), NginxRun.identity.billingAccountId)
  assert.strictEqual(
    values.get("x-litellm-spend-logs-metadata"),
    KeyInjection.spendMetadata(run.runId, NginxRun.identity)
  )
  assert.strictEqual(values.get("host"), new URL(run.upstream.url).host)
  assert.strictEqual(values.get("accept"), "*/*")
  assert.strictEqual(values.get("accept-encoding"), "identity")
  assert.strictEqual(values.get("connection"), "close")
  assert.strictEqual(values.get("content-type"), "application/json")
  assert.match(values.get("x-request-id") ?? "", /^[0-9a-f]{32}$/u)
}

/** Reports whether the answer has headers to identify it by. HTTP/0.9 has none. */
const isNamed = ([, bytes]: Row) => !bytes.startsWith("GET /v1/models\r\n")

/** Sends all rows at once, because entering the sandbox is slow. */
const Outcomes = Context.Service<"Outcomes", ReadonlyMap<Row, Outcome>>("test/Outcomes")

const outcomes = Layer.effect(
  Outcomes,
  Effect.gen(function* () {
    const named = rows.filter(isNamed)
    const found = yield* sendRows(named)
    const rest = rows.filter((row) => !isNamed(row))
    const others = yield* Effect.forEach(rest, (row) => Effect.map(sendRows([row]), ([outcome]) => outcome!))
    return new Map([...named, ...rest].map((row, index) => [row, [...found, ...others][index]!]))
  })
).pipe(Layer.provideMerge(NginxRun.layer()))

layer(outcomes, { excludeTestServices: true })("Hostile requests", (it) => {
  for (const row of rows) {
    it.effect(`${row[2] === "passes" ? "harmless" : "refused"}: ${row[0].replaceAll(/[^ -~]/gu, "?")}`, () =>
      Effect.map(Outcomes, (all) => checkRow(row, all.get(row)!))
    )
  }

  it.effect("a request hidden in the body of another is not executed", () =>
    Effect.gen(function* () {
      const run = yield* NginxRun.NginxRun
      const before = (yield* run.upstream.received).length
      yield* run.send(http({ body: http({ target: "/key/generate" }) }))
      const received = (yield* run.upstream.received).slice(before)
      assert.deepStrictEqual(
        received.map(({ target }) => target),
        [chat]
      )
    })
  )

  it.effect("requests on one connection are checked separately", () =>
    Effect.gen(function* () {
      const run = yield* NginxRun.NginxRun
      const before = (yield* run.upstream.received).length
      const answer = yield* run.send(
        `${http()}${toPath("/key/generate")}${http({ headers: ["x-litellm-customer-id: evil"] })}`,
        { answers: 3 }
      )
      const received = (yield* run.upstream.received).slice(before)
      assert.deepStrictEqual(
        received.map(({ target }) => target),
        [chat, chat]
      )
      assert.notInclude(JSON.stringify(received), "evil")
      assert.match(answer.text, /200 OK[\s\S]*403 Forbidden[\s\S]*200 OK/u)
    })
  )

  it.effect("forwards only the accept header and the API version of a client", () =>
    Effect.gen(function* () {
      const run = yield* NginxRun.NginxRun
      yield* run.send(
        http({
          target: "/v1/messages",
          headers: ["Accept: text/event-stream", "anthropic-version: 2023-06-01"]
        })
      )
      const headers = new Map((yield* run.upstream.received).at(-1)!.headers)
      assert.strictEqual(headers.get("accept"), "text/event-stream")
      assert.strictEqual(headers.get("anthropic-version"), "2023-06-01")
    })
  )
})

/** Defenses, each with the row that must fail without it. */
const defences: ReadonlyArray<readonly [defence: string, tamper: (config: string) => string, row: string]> = [
  [
    "proxy_pass_request_headers off",
    (config) => config.replace("proxy_pass_request_headers off;", "proxy_pass_request_headers on;"),
    'header "Cookie: session=evil"'
  ],
  [
    "our own customer header",
    (config) =>
      config
        .replace("proxy_pass_request_headers off;", "proxy_pass_request_headers on;")
        .replace(/proxy_set_header x-litellm-customer-id [^;]*;/u, ""),
    'header "x-litellm-customer-id: evil"'
  ],
  [
    "exact locations",
    (config) =>
      config.replace(/location \/ \{[^}]*/u, "location / { proxy_pass http://unix:/upstream/upstream.sock;"),
    "path /key/generate"
  ],
  [
    "the check of the raw path",
    (config) => config.replaceAll(/if \(\$target_path[^}]*\}/gu, ""),
    "path /v1/%63hat/completions"
  ],
  [
    "the check of the method",
    (config) => config.replaceAll(/if \(\$request_method[^}]*\}/gu, ""),
    "DELETE on a POST path"
  ],
  ["the removal of queries", (config) => config.replaceAll(/set \$args [^;]*;/gu, ""), "a query"],
  [
    "the limit on bodies",
    (config) => config.replace(/client_max_body_size \d+;/u, "client_max_body_size 0;"),
    "a body over the limit"
  ]
]

for (const [defence, tamper, name] of defences) {
  layer(NginxRun.layer({ tamper }), { excludeTestServices: true })(`Without ${defence}`, (it) => {
    it.effect(`the row ${JSON.stringify(name)} fails`, () =>
      Effect.gen(function* () {
        const row = rows.find(([candidate]) => candidate === name)
        assert.isDefined(row)
        // An answer may never arrive without the defense, so the request is cut.
        const [outcome] = yield* sendRows([row!], { cut: true, idleMillis: 500 })
        assert.throws(() => checkRow(row!, outcome!))
      })
    )
  })
}
