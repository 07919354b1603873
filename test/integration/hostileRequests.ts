/**
 * Hostile requests of an agent, byte by byte. Data only.
 *
 * A request that passes is an ordinary one, whatever it claims in its headers. A request that is refused must not reach
 * the upstream.
 */

export const chat = "/v1/chat/completions"

export interface Lines {
  readonly method?: string
  readonly target?: string
  readonly version?: string
  readonly headers?: ReadonlyArray<string>
  readonly body?: string
  readonly newline?: string
  /** Omits Host and Content-Length. */
  readonly bare?: boolean
}

/**
 * Returns a builder of requests from a request line, unchanged header lines and a body, by default this one. All of
 * them have `always` as a header.
 */
export const builderOf =
  (body: string, ...always: ReadonlyArray<string>) =>
  (lines: Lines = {}): string => {
    const { bare = false, method = "POST", newline = "\r\n", target = chat, version = " HTTP/1.1" } = lines
    const payload = lines.body ?? (method === "POST" ? body : "")
    const own = bare
      ? []
      : ["Host: localhost", ...always, ...(payload === "" ? [] : [`Content-Length: ${payload.length}`])]
    return [`${method} ${target}${version}`, ...own, ...(lines.headers ?? []), "", payload].join(newline)
  }

export type Row = readonly [
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

/** All requests, around one body. */
export const rowsOf = (body: string, ...always: ReadonlyArray<string>): ReadonlyArray<Row> => {
  const http = builderOf(body, ...always)
  const withHeaders = (...headers: ReadonlyArray<string>) => http({ headers })
  const toPath = (target: string, method = "POST") => http({ method, target })
  return [
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
}
