/**
 * Tools for GitHub on behalf of two accounts: each call gets a token of its own, which is for one repository, has the
 * rights of the call, and is revoked afterwards. The double of GitHub validates every request.
 */
import { assert, it } from "@effect/vitest"
import * as ConnectionBroker from "@cogni/sandbox-connections/ConnectionBroker"
import type { ConnectionAuthority } from "@cogni/sandbox-connections/ConnectionDecision"
import * as ConnectionStore from "@cogni/sandbox-connections/ConnectionStore"
import { ConnectionUser } from "@cogni/sandbox-connections/ConnectionUser"
import * as SecretBox from "@cogni/sandbox-connections/SecretBox"
import * as RunId from "@cogni/sandbox-core/RunId"
import * as ForgeSources from "@cogni/sandbox-git-relay/forge/ForgeSources"
import * as GitHubTools from "@cogni/sandbox-git-relay/forge/GitHubTools"
import type { Tool } from "@cogni/sandbox-loop/Tool"
import { Context, Effect, Layer, Redacted } from "effect"
import * as GitHubDouble from "../harness/GitHubDouble.ts"
import * as GitHubOrigin from "../harness/GitHubOrigin.ts"
import { serve } from "../harness/LocalServer.ts"

interface Stage {
  readonly api: GitHubDouble.GitHubDouble
  readonly tools: ReadonlyArray<Tool>
  readonly store: ConnectionStore.ConnectionStore["Service"]
  /** Calls a tool on behalf of an account, as the gateway of its run does. */
  readonly call: (
    account: string,
    tool: string,
    input: object,
    changes?: Partial<ConnectionAuthority>
  ) => ReturnType<Tool["call"]>
}

class GitHub extends Context.Service<GitHub, Stage>()("test/GitHubTools") {
  static readonly layer = Layer.effect(
    GitHub,
    Effect.gen(function* () {
      const api = yield* GitHubDouble.make({ prefix: "/api/v3", installations: GitHubOrigin.installations })
      const server = yield* serve((request, response) => {
        if (!api.handle(request, response)) response.writeHead(404).end()
      })
      const context = yield* Layer.build(
        ConnectionBroker.layer({
          sources: ForgeSources.make({
            gitHubApp: { appId: 12, privateKey: Redacted.make(GitHubOrigin.privateKey), server }
          })
        }).pipe(Layer.provideMerge(Layer.merge(ConnectionStore.layerMemory, SecretBox.layerNone)))
      )
      const tools = yield* Effect.provideContext(GitHubTools.make({ server }), context)
      const store = Context.get(context, ConnectionStore.ConnectionStore)
      for (const [billingAccountId, installationId] of [
        ["acme", 77],
        ["beta", 78]
      ] as const) {
        const connection = yield* ConnectionStore.draft({
          billingAccountId,
          name: "github",
          server,
          means: { kind: "github_app", installationId },
          expiresAt: null
        })
        yield* Effect.orDie(store.add(connection, undefined))
      }
      const authorityOf = (account: string): ConnectionAuthority => ({
        grantId: `grant-${account}`,
        billingAccountId: account,
        rules: [{ connection: "github", purposes: ["tool_read", "tool_write"] }],
        repositories: [`${server}/${account}/*`],
        tools: ["github__*"],
        expiresAt: null,
        revokedAt: null
      })
      return GitHub.of({
        api,
        tools,
        store,
        call: (account, name, input, changes = {}) =>
          tools
            .find((tool) => tool.name === name)!
            .call(input, {
              runId: RunId.RunId.make("run-12345678"),
              identity: { billingAccountId: account, attempt: 0 },
              requestId: "request-1"
            })
            .pipe(
              Effect.provideService(ConnectionUser, {
                billingAccountId: account,
                runId: "run-12345678",
                authority: Effect.succeed({ ...authorityOf(account), ...changes })
              })
            )
      })
    })
  )
}

it.layer(GitHub.layer, { excludeTestServices: true })("GitHubTools", (it) => {
  it.effect(
    "lists, reads and comments, each with a token for one repository and one use, revoked afterwards",
    () =>
      Effect.gen(function* () {
        const { api, call, store } = yield* GitHub
        const listed = yield* call("acme", "github__list_issues", { repository: "acme/app", state: "all" })
        assert.containSubset(listed, {
          hasMore: false,
          issues: [
            { number: 1, title: "acme/app 1", author: "octocat", isPullRequest: false },
            { number: 2, isPullRequest: true }
          ]
        })
        const issue = yield* call("acme", "github__read_issue", { repository: "acme/app", number: 1 })
        assert.containSubset(issue, {
          pullRequest: null,
          body: "I'm having a problem with this.",
          commentsOfPage: [{ author: "octocat", body: "Me too" }]
        })
        const pull = yield* call("acme", "github__read_issue", { repository: "acme/app", number: 2 })
        assert.containSubset(pull, {
          pullRequest: { baseBranch: "master", branch: "new-topic", merged: false }
        })
        const written = yield* call("acme", "github__comment", {
          repository: "acme/app",
          number: 1,
          body: "done"
        })
        assert.containSubset(written, {
          url: "https://github.com/octocat/Hello-World/issues/1347#issuecomment-1"
        })
        assert.containSubset(api.comments, [{ repository: "acme/app", number: 1, body: "done" }])
        const read = { issues: "read", pull_requests: "read" }
        assert.deepStrictEqual(
          api.tokens.map(({ permissions, repositories, revoked }) => [repositories, permissions, revoked]),
          [read, read, read, { issues: "write", pull_requests: "write" }].map((rights) => [
            ["acme/app"],
            rights,
            true
          ])
        )
        const seen = JSON.stringify([listed, issue, pull, written])
        const uses = JSON.stringify(yield* store.uses({ billingAccountId: "acme" }))
        for (const { token } of api.tokens) assert.notInclude(seen + uses, token)
        assert.deepStrictEqual(api.complaints, [])
      })
  )

  it.effect("denies what the grant does not allow before any token is issued, and other accounts", () =>
    Effect.gen(function* () {
      const { api, call } = yield* GitHub
      const issued = api.tokens.length
      const asked = api.requests.length
      const comment = { repository: "acme/app", number: 1, body: "x" }
      for (const [account, tool, input, changes] of [
        ["beta", "github__list_issues", { repository: "acme/app" }, {}],
        ["acme", "github__list_issues", { repository: "beta/app" }, {}],
        ["acme", "github__comment", comment, { rules: [{ connection: "github", purposes: ["tool_read"] }] }],
        ["acme", "github__comment", comment, { tools: ["github__list_issues"] }],
        ["acme", "github__comment", comment, { revokedAt: new Date(0) }],
        ["acme", "github__comment", comment, { repositories: [] }]
      ] as const) {
        const { code } = yield* Effect.flip(call(account, tool, input, changes))
        assert.strictEqual(code, "policy_denied", JSON.stringify([account, tool, changes]))
      }
      for (const repository of [
        "acme",
        "acme/..",
        "acme/app/../../beta/app",
        "https://github.com/acme/app",
        "a b/c"
      ]) {
        const { code } = yield* Effect.flip(call("acme", "github__list_issues", { repository }))
        assert.strictEqual(code, "validation", repository)
      }
      assert.deepStrictEqual([api.tokens.length, api.requests.length], [issued, asked])
    })
  )

  it.effect("does not write a comment twice when the answer is lost, and says that it may be there", () =>
    Effect.gen(function* () {
      const { api, call } = yield* GitHub
      const before = api.comments.length
      api.trouble = ({ method, path }) =>
        method === "POST" && path.endsWith("/comments") ? { _tag: "Lost" } : undefined
      const error = yield* Effect.flip(
        call("acme", "github__comment", { repository: "acme/app", number: 1, body: "once" })
      )
      api.trouble = () => undefined
      assert.strictEqual(error.code, "unavailable")
      assert.include(error.detail, "may be there")
      assert.lengthOf(api.comments, before + 1)
    })
  )

  it.effect("says why GitHub refused, without the token", () =>
    Effect.gen(function* () {
      const { api, call } = yield* GitHub
      api.trouble = ({ authorization, path }) =>
        path.endsWith("/issues")
          ? { _tag: "Answer", status: 410, body: { message: `Issues are disabled. ${authorization}` } }
          : undefined
      const error = yield* Effect.flip(call("beta", "github__list_issues", { repository: "beta/app" }))
      api.trouble = () => undefined
      assert.strictEqual(error.code, "execution")
      assert.include(error.detail, "Issues are disabled")
      for (const { token } of api.tokens) assert.notInclude(error.detail, token)
    })
  )
})
