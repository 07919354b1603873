/**
 * Pull requests, merge requests and App tokens, request by request, with their failures. The GitHub double validates
 * against GitHub's own API description; the GitLab double is a few lines.
 */
import { assert, it, vi } from "@effect/vitest"
import { type Means, type Purpose, purposes } from "@cogni/sandbox-connections/ConnectionFields"
import * as Forge from "@cogni/sandbox-git-relay/forge/Forge"
import * as GitCredentials from "@cogni/sandbox-git-relay/GitCredentials"
import * as ForgeSources from "@cogni/sandbox-git-relay/forge/ForgeSources"
import * as GitHubAppCredentials from "@cogni/sandbox-git-relay/forge/GitHubAppCredentials"
import { PullRequests } from "@cogni/sandbox-git-relay/forge/PullRequests"
import * as PatchRelay from "../../packages/git-relay/src/PatchRelay.ts"
import * as GitRelay from "@cogni/sandbox-git-relay/GitRelay"
import { BranchName } from "@cogni/sandbox-git-relay/Refs"
import { Context, Deferred, Effect, Fiber, Layer, Redacted } from "effect"
import { generateKeyPairSync, verify } from "node:crypto"
import * as GitHubDouble from "../harness/GitHubDouble.ts"
import * as GitLabDouble from "../harness/GitLabDouble.ts"
import { serve } from "../harness/LocalServer.ts"

const token = "ghs_1234.planted.token-of-a-forge"

interface Stage {
  readonly api: GitHubDouble.GitHubDouble
  readonly server: string
}

/** Applies `trouble` to each request of the GitHub double during the effect. */
const troubled = <A, E, R>(
  { api }: Stage,
  trouble: GitHubDouble.GitHubDouble["trouble"],
  effect: Effect.Effect<A, E, R>
) =>
  Effect.acquireUseRelease(
    Effect.sync(() => {
      api.trouble = trouble
    }),
    () => effect,
    () =>
      Effect.sync(() => {
        api.trouble = () => undefined
      })
  )

class GitHub extends Context.Service<GitHub, Stage>()("test/GitHub") {
  static readonly layer = Layer.effect(
    GitHub,
    Effect.gen(function* () {
      const api = yield* GitHubDouble.make({ prefix: "/api/v3" })
      const url = yield* serve((request, response) => {
        if (!api.handle(request, response)) response.writeHead(404).end()
      })
      return { api, server: url }
    })
  )
}

const tokens = (server: string) =>
  GitCredentials.layerTokens([{ server, username: "x-access-token", token: Redacted.make(token) }])

const layers = Layer.unwrap(
  Effect.map(GitHub, ({ server }) => Layer.provide(Forge.layer(), tokens(server)))
).pipe(Layer.provideMerge(GitHub.layer))

const branch = BranchName.make("sandbox/repair")
const text = { title: "Repair", body: "What was broken", draft: true }

it.layer(layers, { excludeTestServices: true })("GitHub", (it) => {
  const target = Effect.map(GitHub, ({ server }) => ({
    url: `${server}/acme/app-${crypto.randomUUID().slice(0, 8)}.git`,
    baseBranch: "main",
    branch
  }))

  it.effect("finds no pull request, opens one, finds it, and cannot open a second one", () =>
    Effect.gen(function* () {
      const { api } = yield* GitHub
      const at = yield* target
      const pulls = yield* PullRequests
      const from = api.requests.length
      assert.isUndefined(yield* pulls.find(at))
      const made = yield* pulls.create(at, text)
      assert.deepStrictEqual(yield* pulls.find(at), made)
      const again = yield* Effect.flip(pulls.create(at, text))
      assert.include(again.message, "already exists")
      assert.isFalse(again.isRetryable)
      assert.deepStrictEqual(api.complaints, [])
      assert.deepStrictEqual(
        api.requests.slice(from).map(({ method }) => method),
        ["GET", "POST", "GET", "POST"]
      )
      const [, posted] = api.requests.slice(from)
      assert.deepStrictEqual(posted!.body, {
        title: "Repair",
        body: "What was broken",
        head: "sandbox/repair",
        base: "main",
        draft: true,
        maintainer_can_modify: false
      })
      assert.isTrue(api.requests.every(({ authorization }) => authorization?.endsWith(` ${token}`) === true))
      // Requests carry no trace ID of the host.
      assert.isTrue(api.requests.every(({ headers }) => !("traceparent" in headers || "b3" in headers)))
    })
  )

  it.effect("a lost answer does not open a second pull request", () =>
    Effect.gen(function* () {
      const { api } = yield* GitHub
      const at = yield* target
      const repo = yield* Effect.provide(
        PatchRelay.PatchRelay,
        Layer.provide(
          PatchRelay.layer,
          Layer.merge(GitRelay.layerNoop, Layer.succeed(PullRequests, yield* PullRequests))
        )
      )
      const asked = { repoUrl: at.url, sourceBranch: branch, targetBranch: "main", title: "Repair", body: "" }
      const before = api.pulls.length
      let lost = 0
      api.trouble = ({ method }) => (method === "POST" && lost++ === 0 ? { _tag: "Lost" } : undefined)
      const { prUrl } = yield* repo.openPullRequest(asked)
      api.trouble = () => undefined
      assert.include(prUrl, "/pull/")
      assert.deepStrictEqual(yield* repo.openPullRequest(asked), { prUrl })
      assert.strictEqual(api.pulls.length, before + 1)
    })
  )

  it.effect("opens a regular pull request where the plan does not support drafts", () =>
    Effect.gen(function* () {
      const { api } = yield* GitHub
      const at = yield* target
      api.trouble = ({ body, method }) =>
        method === "POST" && (body as { draft: boolean }).draft
          ? {
              _tag: "Answer",
              status: 422,
              body: { message: "Draft pull requests are not supported in this repository." }
            }
          : undefined
      yield* Effect.flatMap(PullRequests, (pulls) => pulls.create(at, text))
      api.trouble = () => undefined
      assert.isFalse(api.pulls.at(-1)?.draft)
    })
  )

  it.effect("errors name the cause and a remedy, and never contain the token", () =>
    Effect.gen(function* () {
      const { api } = yield* GitHub
      const at = yield* target
      const pulls = yield* PullRequests
      const rows: ReadonlyArray<readonly [number, string, boolean]> = [
        [401, "401", false],
        [403, "403", false],
        [404, "404", false],
        [410, "410", false],
        [422, "422", false],
        [500, "500", true]
      ]
      for (const [status, said, isRetryable] of rows) {
        api.trouble = () => ({
          _tag: "Answer",
          status,
          body: { message: `no \u001b[31m${token} ${Buffer.from(token).toString("base64")}` }
        })
        const from = api.requests.length
        const error = yield* Effect.flip(pulls.find(at))
        // Rejected requests are not retried.
        assert.lengthOf(api.requests.slice(from), isRetryable ? 3 : 1)
        assert.include(error.message, said)
        assert.strictEqual(error.isRetryable, isRetryable, error.message)
        assert.notInclude(error.message, token)
        assert.notInclude(error.message, Buffer.from(token).toString("base64"))
        assert.notInclude(error.message, "\u001b")
      }
      const garbage = ["not JSON", '{"', "[1]", '{"number":1}', '[{"number":"1","html_url":"https://x/1"}]']
      for (const said of [...garbage, '[{"number":1,"html_url":"javascript:alert(1)"}]']) {
        api.trouble = () => ({ _tag: "Answer", status: 200, text: said })
        assert.include((yield* Effect.flip(pulls.find(at))).message, "not what its API says")
      }
      api.trouble = () => ({ _tag: "Answer", status: 200, body: ["x".repeat(9 * 1024 * 1024)] })
      const from = api.requests.length
      const long = yield* Effect.flip(pulls.find(at))
      assert.include(long.message, "longer than")
      assert.isFalse(long.isRetryable)
      assert.lengthOf(api.requests.slice(from), 1)
      api.trouble = () => undefined
      const gone = yield* Effect.scoped(serve(() => undefined))
      const nobody = yield* Effect.flip(pulls.find({ ...at, url: `${gone}/a/b` }))
      assert.isTrue(nobody.isRetryable)
      assert.include(nobody.message, "cannot be reached")
      const plain = yield* Effect.flip(pulls.find({ ...at, url: at.url.replace("http:", "https:") }))
      assert.isFalse(plain.isRetryable)
      assert.include(plain.message, "cannot be trusted (TLS)")
      const deep = yield* Effect.flip(pulls.find({ ...at, url: `${at.url.replace(".git", "")}/deeper` }))
      assert.include(deep.message, "OWNER/NAME")
    })
  )

  it.effect("waits for a short rate limit, and fails with the time to wait for a long one", () =>
    Effect.gen(function* () {
      const stage = yield* GitHub
      const { api } = stage
      const at = yield* target
      const pulls = yield* PullRequests
      const reset = String(Math.ceil(Date.now() / 1000) + 3600)
      const secondary = { message: "You have exceeded a secondary rate limit." }
      const rows: ReadonlyArray<readonly [number, Record<string, string>, object]> = [
        [403, { "x-ratelimit-remaining": "0", "x-ratelimit-reset": reset }, { message: "API limit" }],
        [403, { "retry-after": "3600" }, secondary],
        [403, {}, secondary],
        [429, { "retry-after": "3600" }, { message: "Too many requests" }]
      ]
      for (const [status, headers, body] of rows) {
        const from = api.requests.length
        const error = yield* troubled(
          stage,
          () => ({ _tag: "Answer", status, headers, body }),
          Effect.flip(pulls.find(at))
        )
        assert.isTrue(error.isRetryable, error.message)
        assert.include(error.message, "Wait")
        assert.lengthOf(api.requests.slice(from), 1)
      }
      let limited = 0
      const from = api.requests.length
      const found = yield* troubled(
        stage,
        () =>
          limited++ === 0
            ? { _tag: "Answer", status: 403, headers: { "retry-after": "1" }, body: secondary }
            : undefined,
        pulls.find(at)
      )
      assert.isUndefined(found)
      assert.lengthOf(api.requests.slice(from), 2)
    })
  )

  it.effect("an interrupted request is aborted and not retried", () =>
    Effect.gen(function* () {
      const came = yield* Deferred.make<void>()
      const gone = yield* Deferred.make<void>()
      let asked = 0
      const url = yield* serve((_, response) => {
        asked += 1
        response.once("close", () => Deferred.doneUnsafe(gone, Effect.void))
        Deferred.doneUnsafe(came, Effect.void)
      })
      const fiber = yield* Effect.forkChild(
        Effect.flatMap(PullRequests, (pulls) => pulls.find({ url: `${url}/a/b`, baseBranch: "main", branch }))
      )
      yield* Deferred.await(came)
      yield* Fiber.interrupt(fiber)
      // Well before the request's own timeout.
      yield* Effect.timeout(Deferred.await(gone), "5 minutes")
      assert.strictEqual(asked, 1)
    }).pipe(Effect.scoped)
  )

  it.effect("does not follow a redirect, neither to find nor to open a pull request", () =>
    Effect.gen(function* () {
      const stage = yield* GitHub
      const at = yield* target
      const pulls = yield* PullRequests
      const heard: Array<string | undefined> = []
      const elsewhere = yield* serve((request, response) => {
        heard.push(request.url)
        response.writeHead(200, { "content-type": "application/json" }).end("[]")
      })
      for (const status of [301, 307]) {
        for (const ask of [pulls.find(at), pulls.create(at, text)]) {
          const from = stage.api.requests.length
          const error = yield* troubled(
            stage,
            () => ({ _tag: "Answer", status, headers: { location: `${elsewhere}/?${token}` } }),
            Effect.flip(Effect.asVoid(ask))
          )
          assert.include(error.message, "redirects to")
          assert.include(error.message, "present address")
          assert.notInclude(error.message, token)
          assert.isFalse(error.isRetryable)
          assert.lengthOf(stage.api.requests.slice(from), 1)
        }
      }
      assert.deepStrictEqual(heard, [])
    }).pipe(Effect.scoped)
  )

  it.effect("prints nothing, even if the server announces a deprecation", () =>
    Effect.gen(function* () {
      const stage = yield* GitHub
      const at = yield* target
      const said = (["debug", "info", "log", "warn", "error"] as const).map((name) => vi.spyOn(console, name))
      const headers = { deprecation: "true", sunset: "soon", link: '<https://x>; rel="deprecation"' }
      yield* troubled(
        stage,
        () => ({ _tag: "Answer", status: 200, headers, body: [] }),
        Effect.flatMap(PullRequests, (pulls) => pulls.find(at))
      )
      const printed = said.flatMap(({ mock }) => mock.calls)
      vi.restoreAllMocks()
      assert.deepStrictEqual(printed, [])
    })
  )

  it.effect(
    "an App's token is valid for one repository and one purpose, and is not issued for other servers",
    () =>
      Effect.gen(function* () {
        const { api, server } = yield* GitHub
        const { privateKey, publicKey } = generateKeyPairSync("rsa", {
          modulusLength: 2048,
          publicKeyEncoding: { type: "spki", format: "pem" },
          privateKeyEncoding: { type: "pkcs8", format: "pem" }
        })
        const app = GitHubAppCredentials.make({ appId: 12, privateKey: Redacted.make(privateKey), server })
        const from = api.requests.length
        for (const purpose of ["fetch", "push", "pull_request"] as const) {
          const credential = yield* app.get({ url: `${server}/acme/app.git`, purpose })
          assert.strictEqual(credential?.username, "x-access-token")
        }
        // Each use first looks up the installation of the App, then requests a new token.
        assert.deepStrictEqual(
          api.requests.slice(from).map(({ method, path }) => `${method} ${path}`),
          Array.from({ length: 3 }, () => [
            "GET /repos/acme/app/installation",
            "POST /app/installations/77/access_tokens"
          ]).flat()
        )
        for (const { authorization = "" } of api.requests.slice(from)) {
          const [header = "", claims = "", signature = ""] = authorization.replace("Bearer ", "").split(".")
          const signed = Buffer.from(`${header}.${claims}`)
          assert.isTrue(verify("RSA-SHA256", signed, publicKey, Buffer.from(signature, "base64url")))
          const { exp, iat, iss } = JSON.parse(Buffer.from(claims, "base64url").toString())
          assert.strictEqual(iss, "12")
          // GitHub rejects tokens from the future and tokens that are valid for more than ten minutes.
          assert.isBelow(iat, Date.now() / 1000)
          assert.isAtMost(exp - iat, 600)
        }
        assert.isUndefined(yield* app.get({ url: "https://github.com/acme/app", purpose: "push" }))
        const asked = api.requests.slice(from).filter(({ path }) => path.endsWith("/access_tokens"))
        assert.deepStrictEqual(
          asked.map(({ body }) => body),
          [
            { repositories: ["app"], permissions: { contents: "read" } },
            { repositories: ["app"], permissions: { contents: "write" } },
            { repositories: ["app"], permissions: { contents: "read", pull_requests: "write" } }
          ]
        )
        assert.deepStrictEqual(api.complaints, [])
        const other = app.get({ url: `${server}/acme/other.git`, purpose: "push" })
        for (const [status, remedy] of [
          [401, "id and key"],
          [404, "installed on the repository"],
          [422, "installed on the repository"]
        ] as const) {
          let shown = ""
          const error = yield* troubled(
            yield* GitHub,
            ({ authorization = "" }) => {
              shown = authorization.split(" ")[1] ?? ""
              return { _tag: "Answer", status, body: { message: `no ${authorization}` } }
            },
            Effect.flip(other)
          )
          assert.include(error.message, remedy)
          assert.isFalse(error.isRetryable)
          // The JWT that the App signed for this request.
          assert.isAbove(shown.length, 100)
          for (const secret of ["PRIVATE KEY", shown]) assert.notInclude(error.message, secret)
        }
        const broken = yield* troubled(
          yield* GitHub,
          () => ({ _tag: "Answer", status: 503, body: { message: "later" } }),
          Effect.flip(other)
        )
        assert.isTrue(broken.isRetryable, broken.message)
      })
  )
})

const gitLab = Effect.gen(function* () {
  const api = yield* GitLabDouble.acquire
  const pulls = yield* Effect.provide(
    PullRequests,
    Layer.provide(Forge.layer({ forges: { [api.url]: "gitlab" } }), tokens(api.url))
  )
  return { api, pulls, at: { url: `${api.url}/group/sub/app.git`, baseBranch: "main", branch } }
})

it.layer(Layer.empty, { excludeTestServices: true })("GitLab", (it) => {
  it.effect("finds no merge request, opens one, finds it, and cannot open a second one", () =>
    Effect.gen(function* () {
      const { api, at, pulls } = yield* gitLab
      assert.isUndefined(yield* pulls.find(at))
      const made = yield* pulls.create(at, text)
      assert.deepStrictEqual(made, { number: 1, url: "https://gitlab.example/acme/app/-/merge_requests/1" })
      assert.deepStrictEqual(yield* pulls.find(at), made)
      const again = yield* Effect.flip(pulls.create(at, { ...text, draft: false }))
      assert.include(again.message, "already exists")
      assert.isFalse(again.isRetryable)
      const [first, second, , last] = api.requests.map(({ authorization, body, method, path, query }) => ({
        method,
        path,
        query,
        authorization,
        body
      }))
      const asked = {
        path: "/api/v4/projects/group%2Fsub%2Fapp/merge_requests",
        authorization: `Bearer ${token}`
      }
      assert.deepStrictEqual(first, {
        ...asked,
        method: "GET",
        query: { source_branch: branch, target_branch: "main", state: "opened", per_page: "100" },
        body: undefined
      })
      const body = { source_branch: branch, target_branch: "main", description: "What was broken" }
      assert.deepStrictEqual(second, {
        ...asked,
        method: "POST",
        query: {},
        body: { ...body, title: "Draft: Repair" }
      })
      assert.deepStrictEqual(last?.body, { ...body, title: "Repair" })
    }).pipe(Effect.scoped)
  )

  it.effect("ignores a merge request from a fork's branch of the same name", () =>
    Effect.gen(function* () {
      const { api, at, pulls } = yield* gitLab
      const branches = { source_branch: branch, target_branch: "main" }
      const theirs = {
        iid: 9,
        web_url: "https://x/9",
        source_project_id: 6,
        target_project_id: 5,
        ...branches
      }
      api.opened.push(theirs)
      assert.isUndefined(yield* pulls.find(at))
      const made = yield* pulls.create(at, text)
      assert.deepStrictEqual(yield* pulls.find(at), made)
    }).pipe(Effect.scoped)
  )

  it.effect("errors name the cause and never contain the token; redirects are not followed", () =>
    Effect.gen(function* () {
      const { api, at, pulls } = yield* gitLab
      const heard: Array<string | undefined> = []
      const elsewhere = yield* serve((request, response) => {
        heard.push(request.url)
        response.writeHead(200, { "content-type": "application/json" }).end("[]")
      })
      const message = JSON.stringify({ message: `no ${token}` })
      const rows: ReadonlyArray<readonly [GitLabDouble.ApiTrouble, string, boolean, number]> = [
        [{ status: 401, text: message }, "valid", false, 1],
        [{ status: 403, text: message }, "the right", false, 1],
        [{ status: 404, text: message }, "address", false, 1],
        [{ status: 429, text: message }, "Wait", true, 1],
        [{ status: 502, text: `<html>${token}` }, "answers 502", true, 3],
        [{ status: 307, headers: { location: `${elsewhere}/${token}` } }, "redirects to", false, 1],
        [{ status: 200, text: `["${"x".repeat(9 * 1024 * 1024)}"]` }, "longer than", false, 1],
        [{ status: 200, text: "not JSON" }, "not what its API says", false, 1],
        [{ status: 200, text: "{}" }, "not what its API says", false, 1],
        [{ status: 200, text: '[{"iid":1,"web_url":"data:x"}]' }, "not what its API says", false, 1]
      ]
      for (const [trouble, said, isRetryable, requests] of rows) {
        const from = api.requests.length
        api.trouble = () => trouble
        const error = yield* Effect.flip(pulls.find(at))
        assert.include(error.message, said)
        assert.notInclude(error.message, token)
        assert.strictEqual(error.isRetryable, isRetryable, error.message)
        assert.lengthOf(api.requests.slice(from), requests)
      }
      assert.deepStrictEqual(heard, [])
      const without = yield* Effect.flip(pulls.find({ ...at, url: "https://gitlab.com/a/b" }))
      assert.include(without.message, "token")
    }).pipe(Effect.scoped)
  )
})

/** A permitted use of a connection, for a source. */
const useOf = (server: string, purpose: Purpose, means: Means) => ({
  permit: {
    billingAccountId: "account-a",
    grantId: "grant-1",
    connectionId: "connection-a",
    connectionName: "own",
    server,
    purpose,
    repository: `${server}/acme/app.git`,
    toolId: undefined,
    expiresAt: new Date("2030-01-01T00:00:00Z"),
    runId: undefined
  },
  connection: {
    id: "connection-a",
    billingAccountId: "account-a",
    name: "own",
    server,
    username: "x-access-token",
    means,
    scope: {},
    lifetimeSecondsMax: 3600,
    createdAt: new Date(0),
    expiresAt: null,
    revokedAt: null
  },
  secret: Effect.succeed(Redacted.make(token)),
  rotated: () => Effect.die("not used")
})

it.layer(GitHub.layer, { excludeTestServices: true })("ForgeSources of GitHub Apps", (it) => {
  const { privateKey } = generateKeyPairSync("rsa", {
    modulusLength: 2048,
    publicKeyEncoding: { type: "spki", format: "pem" },
    privateKeyEncoding: { type: "pkcs8", format: "pem" }
  })
  const app = { kind: "github_app", installationId: 77 } as const
  const sourceOf = (server: string) =>
    ForgeSources.make({
      gitHubApp: { appId: 12, privateKey: Redacted.make(privateKey), server }
    }).find(({ kind }) => kind === "github_app")!
  /** No use may change workflows. */
  const rights: Record<Purpose, Record<string, string>> = {
    fetch: { contents: "read" },
    push: { contents: "write" },
    pull_request: { contents: "read", pull_requests: "write" },
    tool_read: { issues: "read", pull_requests: "read" },
    tool_write: { issues: "write", pull_requests: "write" }
  }

  it.effect("asks for exactly the rights of each use, and makes the token invalid afterwards", () =>
    Effect.gen(function* () {
      const { api, server } = yield* GitHub
      const source = sourceOf(server)
      for (const purpose of purposes) {
        const issued = yield* source.issue(useOf(server, purpose, app))
        assert.deepStrictEqual(issued.claims, { repository: [`${server}/acme/app`] })
        assert.deepStrictEqual(api.tokens.at(-1)?.permissions, rights[purpose])
        yield* issued.revoke!
        assert.isTrue(api.tokens.at(-1)?.revoked)
      }
      assert.deepStrictEqual(api.complaints, [])
    })
  )

  it.effect(
    "refuses a token with other rights, another server, and an installation that does not exist",
    () =>
      Effect.gen(function* () {
        const stage = yield* GitHub
        const { server } = stage
        const source = sourceOf(server)
        const use = useOf(server, "fetch", app)
        const body = {
          token: "ghs_planted",
          expires_at: "2036-01-01T00:00:00Z",
          repositories: [{ full_name: "acme/app" }]
        }
        const rights = [{ contents: "write" }, {}, { contents: "read", administration: "write" }]
        for (const permissions of rights) {
          const error = yield* troubled(
            stage,
            ({ method }) =>
              method === "POST" ? { _tag: "Answer", status: 201, body: { ...body, permissions } } : undefined,
            Effect.flip(source.issue(use))
          )
          assert.deepInclude(error, { _tag: "CredentialMismatch", claim: "rights" })
          assert.strictEqual(stage.api.requests.at(-1)?.method, "DELETE")
        }
        const elsewhere = yield* Effect.flip(source.issue(useOf("https://github.com", "fetch", app)))
        assert.strictEqual(elsewhere._tag, "SourceRefused")
        const none = yield* Effect.flip(source.issue(useOf(server, "fetch", { ...app, installationId: 99 })))
        assert.strictEqual(none._tag, "SourceRefused")
        assert.include(none.message, "installed on the repository")
      })
  )
})

it.layer(Layer.empty, { excludeTestServices: true })("ForgeSources of GitLab", (it) => {
  it.effect("hands out an active token with the scope of the use, until the day on which it expires", () =>
    Effect.gen(function* () {
      const double = yield* GitLabDouble.acquire
      const issue = (purpose: Purpose) =>
        ForgeSources.make()
          .find(({ kind }) => kind === "gitlab")!
          .issue(useOf(double.url, purpose, { kind: "gitlab" }))
      double.token = { active: true, scopes: ["read_repository"], expires_at: "2031-02-03" }
      const issued = yield* issue("fetch")
      assert.strictEqual(Redacted.value(issued.secret), token)
      assert.deepStrictEqual(issued.expiresAt, new Date("2031-02-03T00:00:00Z"))
      assert.strictEqual(double.requests.at(-1)?.authorization, `Bearer ${token}`)
      const failures: Array<unknown> = []
      for (const purpose of ["push", "pull_request", "tool_read", "tool_write"] as const) {
        const error = yield* Effect.flip(issue(purpose))
        assert.deepInclude(error, { _tag: "CredentialMismatch", claim: "rights" })
        failures.push(error)
      }
      double.token = { active: false, scopes: ["api"], expires_at: null }
      const inactive = yield* Effect.flip(issue("push"))
      assert.strictEqual(inactive._tag, "SourceRefused")
      double.trouble = () => ({ status: 401, text: `{"message":"401 ${token}"}` })
      const unauthorized = yield* Effect.flip(issue("push"))
      assert.strictEqual(unauthorized._tag, "SourceRefused")
      assert.include(unauthorized.message, "valid token")
      assert.notInclude(JSON.stringify([failures, inactive, unauthorized]) + unauthorized.message, token)
    })
  )
})
