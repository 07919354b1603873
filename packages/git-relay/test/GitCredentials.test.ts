/** A credential goes to its own server only. */
import { assert, describe, it } from "@effect/vitest"
import * as CredentialUse from "../src/internal/git/CredentialUse.ts"
import * as GitCredentials from "@cogni/sandbox-git-relay/GitCredentials"
import * as GitHubAppCredentials from "@cogni/sandbox-git-relay/forge/GitHubAppCredentials"
import * as GitHubPermissions from "../src/internal/forge/GitHubPermissions.ts"
import { Effect, Redacted } from "effect"
import { inspect } from "node:util"

const token = "planted-token.of-a-forge"

const purposes = ["fetch", "push", "pull_request"] as const

const layer = GitCredentials.layerTokens([
  { server: "https://github.com", username: "x-access-token", token: Redacted.make(token) },
  { server: "https://git.example.com:8443/", username: "oauth2", token: Redacted.make("another") }
])

const given = (url: string) =>
  Effect.flatMap(GitCredentials.GitCredentials, (credentials) =>
    Effect.forEach(purposes, (purpose) => credentials.get({ url, purpose }))
  )

describe("GitCredentials", () => {
  it.effect("layerNone provides no credential", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* given("https://github.com/a/b"), [undefined, undefined, undefined])
    }).pipe(Effect.provide(GitCredentials.layerNone))
  )

  it.effect.each([
    ["https://github.com/acme/app.git", "x-access-token"],
    ["https://github.com:443/acme/app", "x-access-token"],
    ["https://GitHub.com/acme/app", "x-access-token"],
    ["https://git.example.com:8443/team/app.git", "oauth2"]
  ] as const)("provides the credential of its server for %s", ([url, username]) =>
    Effect.gen(function* () {
      for (const credential of yield* given(url)) assert.strictEqual(credential?.username, username)
    }).pipe(Effect.provide(layer))
  )

  it.effect.each([
    "http://github.com/acme/app",
    "https://github.com:8443/acme/app",
    "https://api.github.com/acme/app",
    "https://github.com.evil.example/acme/app",
    "https://github.com@evil.example/acme/app",
    "https://evil.example/github.com/acme/app",
    "https://git.example.com/team/app",
    "https://xn--gthub-n4a.com/acme/app"
  ])("provides no credential for another server: %s", (url) =>
    Effect.gen(function* () {
      for (const credential of yield* given(url)) assert.isUndefined(credential)
    }).pipe(Effect.provide(layer))
  )

  it.effect("does not reveal a credential that is printed", () =>
    Effect.gen(function* () {
      const [credential] = yield* given("https://github.com/acme/app")
      for (const text of [JSON.stringify(credential), inspect(credential, { depth: 9 }), String(credential)])
        assert.notInclude(text, token)
      assert.strictEqual(CredentialUse.apiToken(credential!), token)
    }).pipe(Effect.provide(layer))
  )
})

describe("GitHubAppCredentials", () => {
  const app = GitHubAppCredentials.make({ appId: 12, privateKey: Redacted.make("no key at all") })

  it("grants each use the rights that it needs, and never the right to change workflows", () => {
    assert.deepStrictEqual(GitHubPermissions.permissions, {
      fetch: { contents: "read" },
      push: { contents: "write" },
      pull_request: { contents: "read", pull_requests: "write" }
    })
  })

  it.effect("provides no credential for another server, and does not contact it", () =>
    Effect.gen(function* () {
      for (const purpose of purposes)
        assert.isUndefined(yield* app.get({ url: "https://git.example.com/a/b", purpose }))
    })
  )

  it.effect.each(["https://github.com/a", "https://github.com/a/b/c"])("rejects %s as a repository", (url) =>
    Effect.gen(function* () {
      const error = yield* Effect.flip(app.get({ url, purpose: "push" }))
      assert.strictEqual(error._tag, "CredentialsUnavailable")
      assert.include(error.message, "OWNER/NAME")
      assert.isFalse(error.isRetryable)
    })
  )

  it.effect("reports an invalid key without showing it", () =>
    Effect.gen(function* () {
      const error = yield* Effect.flip(app.get({ url: "https://github.com/a/b", purpose: "push" }))
      assert.isFalse(error.isRetryable, error.message)
      assert.include(error.message, "key")
      assert.notInclude(error.message, "no key at all")
    })
  )
})
