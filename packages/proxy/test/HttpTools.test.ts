/** HTTP tools against a server of this host: what they send, what they refuse, and what an agent never sees. */
import { assert, describe, it } from "@effect/vitest"
import { ConnectionBroker } from "@cogni/sandbox-connections/ConnectionBroker"
import { ConnectionError } from "@cogni/sandbox-connections/ConnectionError"
import { ConnectionDenied, SourceUnavailable } from "@cogni/sandbox-connections/ConnectionReason"
import * as RunId from "@cogni/sandbox-core/RunId"
import type { Tool } from "@cogni/sandbox-loop/Tool"
import * as HttpTools from "@cogni/sandbox-proxy/tools/HttpTools"
import { LeaseEnded } from "../../connections/src/internal/UseReasons.ts"
import { Deferred, Effect, Fiber, Redacted, Schema } from "effect"
import { TestClock } from "effect/testing"
import type { IncomingMessage, ServerResponse } from "node:http"
import { gzipSync } from "node:zlib"
import { serve } from "../../../test/harness/LocalServer.ts"
import * as GuardedRequest from "../src/internal/tools/GuardedRequest.ts"
import type * as HttpRule from "../src/internal/tools/HttpRule.ts"

const planted = 'planted-token+"of/the=account'

type Handle = (request: IncomingMessage, response: ServerResponse, body: string) => void

/** A server that records what it gets, and a broker that counts its leases. */
const world = Effect.fnUntraced(function* (more: Partial<HttpRule.HttpRule> = {}) {
  const came = yield* Deferred.make<void>()
  const ended = yield* Deferred.make<never, ConnectionError>()
  const made = {
    url: "",
    asked: [] as Array<string>,
    leases: [] as Array<unknown>,
    headers: {} as IncomingMessage["headers"],
    server: undefined as string | undefined,
    refusal: undefined as ConnectionError | undefined,
    answer: ((_request, response) => response.end("fine")) as Handle
  }
  made.url = yield* serve((request, response) => {
    const pieces: Array<Buffer> = []
    request.on("data", (piece: Buffer) => pieces.push(piece))
    request.on("end", () => {
      made.asked.push(`${request.method} ${request.url}`)
      made.headers = request.headers
      Deferred.doneUnsafe(came, Effect.void)
      made.answer(request, response, Buffer.concat(pieces).toString())
    })
  })
  const broker = ConnectionBroker.of({
    lease: (request) =>
      Effect.suspend(() => {
        made.leases.push(request)
        if (made.refusal !== undefined) return Effect.fail(made.refusal)
        return Effect.succeed({
          id: "lease-1",
          username: "x",
          secret: Redacted.make(planted),
          expiresAt: new Date(0),
          ended: Deferred.await(ended),
          permit: {
            billingAccountId: "account-a",
            grantId: "grant-1",
            connectionId: "connection-a",
            connectionName: "api",
            server: made.server ?? made.url,
            purpose: request.purpose,
            repository: undefined,
            toolId: request.toolId,
            expiresAt: new Date(0),
            runId: undefined
          }
        })
      }),
    revokeLease: () => Effect.succeed(false)
  })
  const rule: HttpRule.HttpRule = {
    origin: made.url,
    methods: ["GET", "HEAD", "POST"],
    paths: ["/v1/**"],
    connection: "api",
    allowPrivateAddresses: true,
    ...more
  }
  const tools = yield* HttpTools.make([rule]).pipe(Effect.provideService(ConnectionBroker, broker))
  const call = (name: string, input: unknown) =>
    tools
      .find((tool) => tool.name === name)!
      .call(input, {
        runId: RunId.RunId.make("run-12345678"),
        identity: { billingAccountId: "account-a", attempt: 0 },
        requestId: "request-1"
      })
  const get = (path: string) => call("http__get", { url: made.url + path })
  return { made, tools, call, get, came, ended }
})

const failure = <A>(effect: Effect.Effect<A, { readonly code: string; readonly detail: string }>) =>
  Effect.map(Effect.flip(effect), ({ code, detail }) => {
    assert.notInclude(detail, "planted")
    return [code, detail] as const
  })

const isHttpRules = Schema.is(Schema.toType(HttpTools.HttpRules))

describe("HttpTools", () => {
  it.effect("adds the credential of the connection, and removes it from an answer that repeats it", () =>
    Effect.gen(function* () {
      const { get, made } = yield* world()
      made.answer = (request, response) => {
        response.setHeader("location", `/?token=${encodeURIComponent(planted)}`)
        response.end(JSON.stringify({ seen: request.headers.authorization, plain: planted }) + planted)
      }
      const answer = yield* get("/v1/things?a=b")
      assert.strictEqual(made.headers.authorization, `Bearer ${planted}`)
      assert.notMatch(JSON.stringify(answer), /planted|of.{1,3}the/u)
      assert.containSubset(answer, { status: 200, location: "/?token=[key]" })
      assert.deepStrictEqual(made.asked, ["GET /v1/things?a=b"])
      assert.deepStrictEqual(made.leases, [
        {
          toolId: "http__get",
          purpose: "tool_read",
          connection: "api",
          server: made.url,
          target: `GET ${made.url}/v1/things`
        }
      ])
    })
  )

  const escaped = (escape: (character: string) => string) => planted.replaceAll(/[^a-z]/gu, escape)
  const hexOf = (character: string) => character.codePointAt(0)!.toString(16).padStart(2, "0")

  it.effect.each<[string, string]>([
    ["slashes of JSON", JSON.stringify(planted).replaceAll("/", "\\/")],
    ["Unicode escapes", escaped((one) => `\\u00${hexOf(one)}`)],
    ["Unicode escapes within JSON", JSON.stringify(escaped((one) => `\\u00${hexOf(one)}`))],
    ["decimal entities", escaped((one) => `&#${one.codePointAt(0)};`)],
    ["hexadecimal entities", escaped((one) => `&#x${hexOf(one)};`)],
    ["percent escapes in lower case", escaped((one) => `%${hexOf(one)}`)],
    ["Base64", Buffer.from(planted).toString("base64")],
    ["Base64 of Basic", Buffer.from(`user:${planted}`).toString("base64")],
    ["Base64 for URLs", Buffer.from(`ab${planted}`).toString("base64url")],
    ["hexadecimal", Buffer.from(planted).toString("hex").toUpperCase()],
    ["UTF-16", Buffer.from(planted, "utf16le").toString("latin1")]
  ])("refuses an answer that repeats the credential in %s", ([, text]) =>
    Effect.gen(function* () {
      const { get, made } = yield* world()
      made.answer = (_request, response) => response.end(`<p>your header was ${text}</p>`)
      assert.strictEqual((yield* failure(get("/v1/x")))[0], "redaction_failed")
    })
  )

  it.effect("sends a body with a lease for writing, and the credential in the header of the rule", () =>
    Effect.gen(function* () {
      const { call, made } = yield* world({ header: "private-token" })
      made.answer = (_request, response, body) => response.writeHead(201).end(body)
      const answer = yield* call("http__send", {
        url: `${made.url}/v1/things`,
        method: "POST",
        body: '{"a":"ä"}'
      })
      assert.containSubset(answer, { status: 201, body: '{"a":"ä"}' })
      assert.containSubset(made.headers, {
        "private-token": planted,
        "content-type": "application/json",
        "user-agent": "cogni-sandbox"
      })
      assert.isUndefined(made.headers.authorization)
      assert.containSubset(made.leases, [{ purpose: "tool_write" }])
    })
  )

  it.effect("sends no credential for a rule without a connection", () =>
    Effect.gen(function* () {
      const { made, tools } = yield* world()
      const open = yield* HttpTools.make([
        { origin: made.url, methods: ["GET"], allowPrivateAddresses: true }
      ]).pipe(
        Effect.provideService(
          ConnectionBroker,
          ConnectionBroker.of({ lease: () => Effect.die("asked"), revokeLease: () => Effect.die("asked") })
        )
      )
      assert.deepStrictEqual(
        [tools, open].map((all) => all.map(({ effect, name }) => [name, effect])),
        [
          [
            ["http__get", "read_only"],
            ["http__send", "external_side_effect"]
          ],
          [["http__get", "read_only"]]
        ]
      )
      const answer = yield* open[0]!.call({ url: `${made.url}/any` }, {} as Parameters<Tool["call"]>[1])
      assert.containSubset(answer, { status: 200, body: "fine" })
      assert.isUndefined(made.headers.authorization)
    })
  )

  it.effect.each([
    "/v2/things",
    "/v1/../v2/things",
    "/v1/%2e%2e/v2",
    "/v1/..%2fv2",
    "/v1/%2e%2e%2fv2",
    "/v1/..%5cv2",
    "/v1/%252e%252e/v2",
    "/v1//v2",
    "/v1/..;/v2",
    "/v1/..;a=b/v2",
    "/v1/..%3b/v2",
    "/v1/x%00/v2",
    "/v1/%c0%ae%c0%ae/v2",
    "/v1/%EF%BC%8E%EF%BC%8E/v2",
    "/v1/%EF%BC%8Fv2",
    "/v1/%u002e%u002e/v2",
    "/v1/.%09./v2",
    "/v1/..%20/v2",
    "/v1/.%C2%AD./v2"
  ])("denies a path that no rule allows, before any lease and any request: %s", (path) =>
    Effect.gen(function* () {
      const { get, made } = yield* world()
      const [code, detail] = yield* failure(get(path))
      assert.strictEqual(code, "policy_denied")
      assert.include(detail, "/v1/**")
      assert.deepStrictEqual([made.asked, made.leases], [[], []])
    })
  )

  it.effect("denies other origins, methods and users, and arguments beyond its own", () =>
    Effect.gen(function* () {
      const { call, made } = yield* world()
      const url = `${made.url}/v1/x`
      const at = (changed: (url: URL) => void) => {
        const copy = new URL(url)
        changed(copy)
        return copy.href
      }
      for (const [name, input, code] of [
        ["http__get", { url: at((one) => (one.port = "1")) }, "policy_denied"],
        ["http__get", { url: at((one) => (one.hostname = "localhost")) }, "policy_denied"],
        ["http__get", { url: at((one) => (one.username = "a")) }, "policy_denied"],
        ["http__get", { url: "/v1/x" }, "policy_denied"],
        // Each is requested as another text than the one that a person would approve.
        ["http__get", { url: `${made.url}/v1/y/%2e%2e/x` }, "policy_denied"],
        ["http__get", { url: `${made.url}/v1/y/../x` }, "policy_denied"],
        ["http__get", { url: `${made.url}\\v1\\x` }, "policy_denied"],
        ["http__get", { url: `${made.url}/v1\n/x` }, "policy_denied"],
        ["http__get", { url: `${url}#fragment` }, "policy_denied"],
        ["http__get", { url: "file:///etc/passwd" }, "policy_denied"],
        ["http__send", { url, method: "DELETE" }, "policy_denied"],
        ["http__get", { url, method: "POST" }, "validation"],
        ["http__get", { url, headers: { authorization: "x" } }, "validation"],
        ["http__get", { url, accept: "a\r\nx: y" }, "validation"],
        ["http__send", { url, method: "POST", contentType: "a\nb" }, "validation"]
      ] as const) {
        assert.strictEqual((yield* failure(call(name, input)))[0], code)
      }
      assert.deepStrictEqual([made.asked, made.leases], [[], []])
    })
  )

  it.effect("asks for no approval of a request that no rule allows, or that is sent as another text", () =>
    Effect.gen(function* () {
      const { made, tools } = yield* world()
      const { check } = tools.find(({ name }) => name === "http__send")!
      assert.isUndefined(check({ url: `${made.url}/v1/x`, method: "POST" }))
      assert.include(check({ url: `${made.url}/v1/x` }) ?? "", "method")
      assert.include(check({ url: "https://evil.example/x", method: "POST" }) ?? "", "does not allow POST")
      assert.include(
        check({ url: `${made.url}/v1/y/%2e%2e/x`, method: "POST" }) ?? "",
        `write the URL as it is requested: ${made.url}/v1/x`
      )
    })
  )

  it.effect("does not send a credential to a server that is not its own", () =>
    Effect.gen(function* () {
      const { get, made } = yield* world()
      made.server = "https://api.example.com"
      assert.strictEqual((yield* failure(get("/v1/x")))[0], "policy_denied")
      assert.isEmpty(made.asked)
    })
  )

  it.effect("says that the grant denies a call, and tells an agent nothing about a broker's fault", () =>
    Effect.gen(function* () {
      const { get, made } = yield* world()
      made.refusal = new ConnectionError({
        reason: new ConnectionDenied({
          grantId: "grant-1",
          purpose: "tool_read",
          reason: "connection_not_granted"
        })
      })
      const [code, detail] = yield* failure(get("/v1/x"))
      assert.strictEqual(code, "policy_denied")
      assert.include(detail, "the grant does not open this connection")
      made.refusal = new ConnectionError({
        reason: new SourceUnavailable({ connection: "api", detail: "planted detail", remedy: "planted" })
      })
      assert.strictEqual((yield* failure(get("/v1/x")))[0], "unavailable")
      assert.isEmpty(made.asked)
    })
  )

  it.effect("ends a call whose lease ends", () =>
    Effect.gen(function* () {
      const { came, ended, get, made } = yield* world()
      made.answer = () => undefined
      const calling = yield* Effect.forkChild(failure(get("/v1/x")))
      yield* Deferred.await(came)
      yield* Deferred.fail(
        ended,
        new ConnectionError({
          reason: new ConnectionDenied({
            grantId: "grant-1",
            purpose: "tool_read",
            reason: "connection_revoked"
          })
        })
      )
      assert.strictEqual((yield* Fiber.join(calling))[0], "policy_denied")
    })
  )

  it.effect("does not let an agent repeat a request that may have had its effect", () =>
    Effect.gen(function* () {
      const { call, made } = yield* world()
      made.answer = (_request, response) => response.socket?.destroy()
      const input = { url: `${made.url}/v1/x`, method: "POST" }
      const [code, detail] = yield* failure(call("http__send", input))
      assert.strictEqual(code, "execution")
      assert.include(detail, "check before you repeat it")
      const again = yield* world()
      again.made.answer = () => undefined
      const calling = yield* Effect.forkChild(
        failure(again.call("http__send", { ...input, url: `${again.made.url}/v1/x` }))
      )
      yield* Deferred.await(again.came)
      yield* Deferred.fail(
        again.ended,
        new ConnectionError({ reason: new LeaseEnded({ connection: "api", why: "expired" }) })
      )
      assert.strictEqual((yield* Fiber.join(calling))[0], "execution")
    })
  )

  it.effect("does not wait for a slow server", () =>
    Effect.gen(function* () {
      const { came, get, made } = yield* world()
      made.answer = () => undefined
      const calling = yield* Effect.forkChild(failure(get("/v1/x")))
      yield* Deferred.await(came)
      yield* TestClock.adjust("30 seconds")
      assert.deepStrictEqual(yield* Fiber.join(calling), [
        "unavailable",
        "the server did not answer within 30 s"
      ])
    })
  )

  it.effect.each<[string, Handle]>([
    ["longer than", (_request, response) => response.end("x".repeat(200_000))],
    ["not text", (_request, response) => response.end(Buffer.from([0xff, 0xfe, 0]))],
    [
      "an encoding",
      (_request, response) => response.setHeader("content-encoding", "gzip").end(gzipSync("x"))
    ],
    [
      "broke off",
      (_request, response) =>
        response.socket?.end("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n")
    ],
    [
      "broke off",
      (_request, response) => {
        response.writeHead(200, { "content-length": "10" }).write("x")
        response.socket?.destroy()
      }
    ]
  ])("refuses an answer that is %s", ([said, answer]) =>
    Effect.gen(function* () {
      const { get, made } = yield* world()
      made.answer = answer
      assert.include((yield* failure(get("/v1/x")))[1], said)
    })
  )

  it.effect("does not follow a redirect", () =>
    Effect.gen(function* () {
      const { get, made } = yield* world()
      made.answer = (_request, response) => response.writeHead(302, { location: "/v1/else" }).end()
      assert.containSubset(yield* get("/v1/x"), { status: 302, location: "/v1/else" })
      assert.lengthOf(made.asked, 1)
    })
  )
})

describe("GuardedRequest", () => {
  const guarded = (url: string, ...addresses: ReadonlyArray<string>) => {
    let lookups = 0
    return GuardedRequest.send(
      {
        url: new URL(url),
        method: "GET",
        headers: {},
        body: undefined,
        allowPrivateAddresses: false,
        answerBytesMax: 1000
      },
      (_hostname, answer) => {
        lookups += 1
        answer(
          null,
          addresses.map((address) => ({ address, family: address.includes(":") ? 6 : 4 }))
        )
      }
    ).pipe(
      Effect.flip,
      Effect.map((problem) => [problem, lookups])
    )
  }

  it.effect.each([
    ["127.0.0.1"],
    ["10.0.0.7"],
    ["169.254.169.254"],
    ["::1"],
    ["fe80::1"],
    ["::ffff:127.0.0.1"],
    ["8.8.8.8", "192.168.0.1"],
    []
  ])("connects to no name with a private address: %j", (addresses) =>
    Effect.gen(function* () {
      const found = yield* guarded("https://rebinding.example/", ...addresses)
      assert.deepStrictEqual(found, ["private_address", 1])
    })
  )

  it.effect.each([
    "http://127.0.0.1/",
    "https://[::1]/",
    "https://169.254.169.254/latest",
    "https://0x7f.1/"
  ])("connects to no private address that a URL names: %s", (url) =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* guarded(url), ["private_address", 0])
    })
  )
})

describe("HttpRules", () => {
  it("refuse an origin that is not one, http to public servers, and unknown methods and headers", () => {
    const rule = { origin: "https://api.example.com", methods: ["GET"] }
    assert.isTrue(isHttpRules([rule, { ...rule, paths: ["/v1/*"], connection: "api", header: "x-api-key" }]))
    for (const changed of [
      { origin: "https://api.example.com/" },
      { origin: "https://API.example.com" },
      { origin: "https://user@api.example.com" },
      { origin: "https://api.example.com:443" },
      { origin: "http://api.example.com" },
      { origin: "ftp://api.example.com", allowPrivateAddresses: true },
      { methods: [] },
      { methods: ["CONNECT"] },
      { paths: ["v1"] },
      { paths: [] },
      { header: "x-api-key" },
      { connection: "api", header: "host" },
      { connection: "api", header: "cookie" }
    ]) {
      assert.isFalse(isHttpRules([{ ...rule, ...changed }]), JSON.stringify(changed))
    }
  })
})
