/** Sources against a server of this host: what they ask, what they believe, and what every failure says. */
import { assert, describe, it } from "@effect/vitest"
import * as ConnectionBroker from "@cogni/sandbox-connections/ConnectionBroker"
import type { Means } from "@cogni/sandbox-connections/ConnectionFields"
import * as ConnectionStore from "@cogni/sandbox-connections/ConnectionStore"
import * as CredentialSources from "@cogni/sandbox-connections/CredentialSources"
import * as SecretBox from "@cogni/sandbox-connections/SecretBox"
import { Context, Deferred, Effect, Fiber, Layer, Redacted } from "effect"
import { TestClock } from "effect/testing"
import { inspect } from "node:util"
import { leavingSecondsMax } from "../src/internal/LeaseLimits.ts"
import * as Await from "../../../test/harness/Await.ts"
import { serve } from "../../../test/harness/LocalServer.ts"

const planted = "planted-token"

interface Asked {
  readonly authorization: string | undefined
  readonly body: string
}

interface Reply {
  readonly status?: number
  readonly body?: unknown
  readonly text?: string
  readonly headers?: Record<string, string>
}

/** A server that records its requests, and answers what a test says; `undefined` never answers. */
const issuer = Effect.gen(function* () {
  const asked: Array<Asked> = []
  const came = yield* Deferred.make<void>()
  const empty: () => Reply | undefined = () => ({})
  const made = { url: "", asked, came, answer: empty, held: Promise.resolve() }
  made.url = yield* serve((request, response) => {
    const pieces: Array<Buffer> = []
    request.on("data", (piece: Buffer) => pieces.push(piece))
    request.on("end", () => {
      asked.push({
        authorization: request.headers.authorization,
        body: Buffer.concat(pieces).toString()
      })
      Deferred.doneUnsafe(came, Effect.void)
      const reply = made.answer()
      if (reply === undefined) return
      void made.held.then(() =>
        response
          .writeHead(reply.status ?? 200, { "content-type": "application/json", ...reply.headers })
          .end(reply.text ?? JSON.stringify(reply.body ?? {}))
      )
    })
  })
  return made
})

const tokens = [
  {
    variable: "GITHUB_TOKEN",
    server: "https://github.com",
    username: "x-access-token",
    token: Redacted.make(`${planted}-of-the-host`)
  }
]

const authority = {
  grantId: "grant-1",
  billingAccountId: "account-a",
  rules: [{ connection: "**", purposes: ["fetch" as const] }],
  repositories: ["**"],
  tools: [],
  expiresAt: null,
  revokedAt: null
}

/** A broker with one connection of an account, and its encrypted secret. */
const world = Effect.fnUntraced(function* (means: Means, secret?: Redacted.Redacted<string>) {
  const keys = SecretBox.layerKeys(Effect.succeed(Redacted.make(Buffer.alloc(32, 3).toString("base64"))))
  const context = yield* Layer.build(
    ConnectionBroker.layer({
      sources: CredentialSources.make(tokens),
      hostConnections: CredentialSources.hostConnections(tokens),
      user: { billingAccountId: "account-a", authority: Effect.succeed(authority) }
    }).pipe(
      Layer.provideMerge(Layer.merge(ConnectionStore.layerMemory, Layer.provide(SecretBox.layer, keys)))
    )
  )
  const store = Context.get(context, ConnectionStore.ConnectionStore)
  const box = Context.get(context, SecretBox.SecretBox)
  const broker = Context.get(context, ConnectionBroker.ConnectionBroker)
  const connection = yield* ConnectionStore.draft({
    billingAccountId: "account-a",
    name: "own",
    server: "https://git.example.com",
    means,
    expiresAt: null
  })
  yield* store.add(connection, secret === undefined ? undefined : yield* box.seal(connection, secret))
  const lease = (repository = "https://git.example.com/acme/app") =>
    Effect.scoped(broker.lease({ purpose: "fetch", repository }))
  return {
    lease,
    token: Effect.map(lease(), ({ secret }) => Redacted.value(secret)),
    /** The reason of a failure, which shows no secret. */
    refused: Effect.map(Effect.flip(lease()), (error) => {
      assert.notInclude([inspect(error, { depth: 9 }), JSON.stringify(error), error.message].join(), planted)
      return error.reason
    }),
    sealed: Effect.flatMap(store.secret(connection.id), (sealed) => box.open(connection, sealed!))
  }
})

describe("tokens of the host and stored tokens", () => {
  it.effect("hand out the token of the connection's server", () =>
    Effect.gen(function* () {
      const { lease, token } = yield* world({ kind: "token" }, Redacted.make(`${planted}-own`))
      assert.strictEqual(yield* token, `${planted}-own`)
      const ofHost = yield* lease("https://github.com/acme/app")
      assert.deepStrictEqual(
        [ofHost.permit.connectionName, Redacted.value(ofHost.secret)],
        ["host/github-token", `${planted}-of-the-host`]
      )
    })
  )

  it.effect("say that a secret is missing", () =>
    Effect.gen(function* () {
      const { refused } = yield* world({ kind: "token" })
      assert.strictEqual((yield* refused)._tag, "SecretUnreadable")
    })
  )
})

describe("an HTTP service", () => {
  const good = {
    billingAccountId: "account-a",
    connection: "own",
    server: "https://git.example.com",
    repository: "https://git.example.com/acme/app",
    username: "robot",
    token: `${planted}-issued`,
    expiresAt: "2036-01-01T00:00:00Z"
  }

  const brokered = Effect.gen(function* () {
    const service = yield* issuer
    const means = { kind: "broker", url: `${service.url}/credentials` } as const
    return { service, ...(yield* world(means, Redacted.make(`${planted}-of-this-host`))) }
  })

  it.effect("asks for one use, and shows the service the token of this host", () =>
    Effect.gen(function* () {
      const { lease, service } = yield* brokered
      service.answer = () => ({ body: good })
      const { secret, username } = yield* lease()
      assert.deepStrictEqual([username, Redacted.value(secret)], ["robot", `${planted}-issued`])
      const [asked] = service.asked
      assert.strictEqual(asked?.authorization, `Bearer ${planted}-of-this-host`)
      assert.deepStrictEqual(JSON.parse(asked?.body ?? ""), {
        billingAccountId: "account-a",
        connection: "own",
        server: "https://git.example.com",
        purpose: "fetch",
        repository: "https://git.example.com/acme/app",
        lifetimeSeconds: 3600
      })
    })
  )

  it.effect.each<[string, Reply]>([
    ["CredentialMismatch", { body: { ...good, billingAccountId: "account-b" } }],
    ["CredentialMismatch", { body: { ...good, connection: "other" } }],
    ["CredentialMismatch", { body: { ...good, repository: "https://git.example.com/acme/other" } }],
    ["CredentialMismatch", { body: { ...good, repository: undefined } }],
    ["CredentialMismatch", { body: { ...good, server: "https://evil.example" } }],
    ["CredentialMismatch", { body: { ...good, expiresAt: "1969-01-01T00:00:00Z" } }],
    ["CredentialMismatch", { body: { ...good, token: "planted-token\nusername=evil" } }],
    ["SourceRefused", { body: { ...good, billingAccountId: undefined } }],
    ["SourceRefused", { body: { ...good, token: "" } }],
    ["SourceRefused", { text: "not JSON planted-token" }],
    ["SourceRefused", { text: `"${"x".repeat(200_000)}"` }],
    ["SourceRefused", { status: 302, headers: { location: "https://evil.example/?planted-token" } }],
    ["SourceRefused", { status: 401, body: { error: "planted-token" } }],
    ["SourceUnavailable", { status: 429 }],
    ["SourceUnavailable", { status: 503, text: "planted-token" }]
  ])("fails with %s for an answer that is not as asked: %#", ([tag, reply]) =>
    Effect.gen(function* () {
      const { refused, service } = yield* brokered
      service.answer = () => reply
      assert.strictEqual((yield* refused)._tag, tag)
      assert.lengthOf(service.asked, 1)
    })
  )

  it.effect("does not wait for a slow service, and says so", () =>
    Effect.gen(function* () {
      const { refused, service } = yield* brokered
      service.answer = () => undefined
      const waiting = yield* Effect.forkChild(refused)
      yield* Deferred.await(service.came)
      yield* TestClock.adjust("20 seconds")
      const reason = yield* Fiber.join(waiting)
      assert.strictEqual(reason._tag, "SourceUnavailable")
      assert.include(reason.message, "within 20 s")
    })
  )

  it.effect("says that a service cannot be reached", () =>
    Effect.gen(function* () {
      const url = yield* Effect.scoped(serve(() => undefined))
      const { refused } = yield* world({ kind: "broker", url }, Redacted.make(planted))
      const reason = yield* refused
      assert.strictEqual(reason._tag, "SourceUnavailable")
      assert.include(reason.message, "cannot be reached")
    })
  )
})

describe("OAuth refresh tokens", () => {
  const refreshed = Effect.gen(function* () {
    const service = yield* issuer
    const means = { kind: "oauth", tokenUrl: `${service.url}/token`, clientId: "client-1" } as const
    const secret = yield* CredentialSources.oauthSecret({
      refreshToken: Redacted.make("planted-token-refresh-0"),
      clientSecret: Redacted.make("planted-token-client")
    })
    let count = 0
    service.answer = () => ({
      body: {
        access_token: `planted-token-access-${(count += 1)}`,
        token_type: "Bearer",
        expires_in: 7200,
        refresh_token: `planted-token-refresh-${count}`
      }
    })
    return { service, ...(yield* world(means, secret)) }
  })

  it.effect(
    "exchanges the refresh token once for uses at the same time, and stores the next one encrypted",
    () =>
      Effect.gen(function* () {
        const { sealed, service, token } = yield* refreshed
        const uses = yield* Effect.forEach([1, 2, 3], () => Effect.forkChild(token))
        // The server answers in real time, so the clock stands still until then.
        yield* Effect.raceAll(uses.map((use) => Fiber.join(use)))
        // Those that wait for the refresh try again after a while.
        yield* Await.until(
          "all uses have a token",
          Effect.map(TestClock.adjust("10 millis"), () => uses.every((use) => use.pollUnsafe() !== undefined))
        )
        const given = yield* Effect.forEach(uses, (use) => Fiber.join(use))
        assert.deepStrictEqual(
          given,
          Array.from({ length: 3 }, () => "planted-token-access-1")
        )
        assert.deepStrictEqual(
          service.asked.map(({ body }) => Object.fromEntries(new URLSearchParams(body))),
          [
            {
              grant_type: "refresh_token",
              refresh_token: "planted-token-refresh-0",
              client_id: "client-1",
              client_secret: "planted-token-client"
            }
          ]
        )
        assert.include(Redacted.value(yield* sealed), "planted-token-refresh-1")
      })
  )

  it.effect("uses an access token until shortly before its end, and then the next refresh token", () =>
    Effect.gen(function* () {
      const { service, token } = yield* refreshed
      assert.strictEqual(yield* token, "planted-token-access-1")
      yield* TestClock.adjust("6800 seconds")
      assert.strictEqual(yield* token, "planted-token-access-1")
      yield* TestClock.adjust("200 seconds")
      assert.strictEqual(yield* token, "planted-token-access-2")
      assert.include(service.asked[1]?.body, "refresh_token=planted-token-refresh-1")
    })
  )

  it.effect("uses an access token with a short life for the first half of it", () =>
    Effect.gen(function* () {
      const { service, token } = yield* refreshed
      service.answer = () => ({ body: { access_token: "planted-token-short", expires_in: 240 } })
      yield* token
      yield* TestClock.adjust("119 seconds")
      yield* token
      assert.lengthOf(service.asked, 1)
      yield* TestClock.adjust("2 seconds")
      yield* token
      assert.lengthOf(service.asked, 2)
    })
  )

  it.effect("does not use a token again of which the server names no end", () =>
    Effect.gen(function* () {
      const { service, token } = yield* refreshed
      service.answer = () => ({ body: { access_token: "planted-token-once" } })
      yield* token
      yield* token
      assert.lengthOf(service.asked, 2)
    })
  )

  it.effect("keeps the refresh token when the server refuses or is down, and says what to do", () =>
    Effect.gen(function* () {
      const { refused, sealed, service, token } = yield* refreshed
      const answer = service.answer
      service.answer = () => ({ status: 400, body: { error: "invalid_grant planted-token" } })
      const reason = yield* refused
      assert.strictEqual(reason._tag, "SourceRefused")
      assert.include(reason.message, "add it again")
      service.answer = () => ({ status: 500 })
      assert.strictEqual((yield* refused)._tag, "SourceUnavailable")
      service.answer = () => ({ body: { access_token: planted, token_type: "mac" } })
      assert.strictEqual((yield* refused)._tag, "SourceRefused")
      assert.include(Redacted.value(yield* sealed), "planted-token-refresh-0")
      service.answer = answer
      yield* token
    })
  )

  it.effect("stores the next refresh token also if the use ends before the server answers", () =>
    Effect.gen(function* () {
      const { sealed, service, token } = yield* refreshed
      const { promise, resolve } = Promise.withResolvers<void>()
      service.held = promise
      const using = yield* Effect.forkChild(token)
      yield* Deferred.await(service.came)
      const leaving = yield* Effect.forkChild(Fiber.interrupt(using))
      yield* TestClock.adjust(`${leavingSecondsMax} seconds`)
      yield* Fiber.join(leaving)
      resolve()
      yield* Await.until(
        "the next refresh token is stored",
        Effect.map(sealed, (secret) => Redacted.value(secret).includes("planted-token-refresh-1"))
      )
      assert.strictEqual(yield* token, "planted-token-access-1")
      assert.lengthOf(service.asked, 1)
    })
  )

  it.effect("refuses a stored secret that is not one of OAuth", () =>
    Effect.gen(function* () {
      const means = { kind: "oauth", tokenUrl: "https://git.example.com/token", clientId: "c" } as const
      const { refused } = yield* world(means, Redacted.make(planted))
      assert.strictEqual((yield* refused)._tag, "SecretUnreadable")
    })
  )
})
