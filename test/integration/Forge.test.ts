/**
 * Pull requests at a GitHub that is held to its own description, merge requests at a GitLab of a few lines, tokens of an
 * App: request by request, and with everything that can go wrong.
 */
import { assert, it } from "@effect/vitest"
import * as Forge from "@cogni/sandbox-git-relay/Forge"
import * as GitCredentials from "@cogni/sandbox-git-relay/GitCredentials"
import * as GitHubAppCredentials from "@cogni/sandbox-git-relay/GitHubAppCredentials"
import { PullRequests } from "@cogni/sandbox-git-relay/PullRequests"
import * as RepoPort from "@cogni/sandbox-git-relay/RepoPort"
import * as GitRelay from "@cogni/sandbox-git-relay/GitRelay"
import { BranchName } from "@cogni/sandbox-git-relay/Refs"
import { Context, Effect, Layer, Redacted } from "effect"
import { generateKeyPairSync } from "node:crypto"
import { createServer, type IncomingMessage, type ServerResponse } from "node:http"
import * as GitHubDouble from "../harness/GitHubDouble.ts"

const token = "ghs_1234.planted.token-of-a-forge"

/** A server on this host; its address. */
const serving = (handle: (request: IncomingMessage, response: ServerResponse) => void) =>
  Effect.acquireRelease(
    Effect.callback<{ readonly url: string; readonly close: () => void }>((resume) => {
      const server = createServer(handle).listen(0, "127.0.0.1", () => {
        const address = server.address()
        const close = () => {
          server.closeAllConnections()
          server.close()
        }
        const port = typeof address === "object" ? (address?.port ?? 0) : 0
        resume(Effect.succeed({ url: `http://127.0.0.1:${port}`, close }))
      })
    }),
    ({ close }) => Effect.sync(close)
  )

interface Stage {
  readonly api: GitHubDouble.GitHubDouble
  readonly server: string
}

class GitHub extends Context.Service<GitHub, Stage>()("test/GitHub") {
  static readonly layer = Layer.effect(
    GitHub,
    Effect.gen(function* () {
      const api = yield* GitHubDouble.make({ prefix: "/api/v3" })
      const { url } = yield* serving((request, response) => {
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

it.layer(layers, { excludeTestServices: true, timeout: "2 minutes" })("GitHub", (it) => {
  const target = Effect.map(GitHub, ({ server }) => ({
    url: `${server}/acme/app-${crypto.randomUUID().slice(0, 8)}.git`,
    baseBranch: "main",
    branch
  }))

  it.effect("finds none, opens one, finds it; a second one is refused", () =>
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
    })
  )

  it.effect("an answer that was lost opens no second one", () =>
    Effect.gen(function* () {
      const { api } = yield* GitHub
      const at = yield* target
      const repo = yield* Effect.provide(
        RepoPort.RepoPort,
        Layer.provide(
          RepoPort.layer,
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

  it.effect("a plan without drafts gets one that is none", () =>
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

  it.effect("what goes wrong says so, with what to do, and never the token", () =>
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
        [500, "the forge", true]
      ]
      for (const [status, said, isRetryable] of rows) {
        api.trouble = () => ({
          _tag: "Answer",
          status,
          body: { message: `no \u001b[31m${token} ${Buffer.from(token).toString("base64")}` }
        })
        const error = yield* Effect.flip(pulls.find(at))
        assert.include(error.message, said)
        assert.strictEqual(error.isRetryable, isRetryable, error.message)
        assert.notInclude(error.message, token)
        assert.notInclude(error.message, Buffer.from(token).toString("base64"))
        assert.notInclude(error.message, "\u001b")
      }
      for (const body of ["text", { number: 1 }, [{ number: "1", html_url: "javascript:alert(1)" }]]) {
        api.trouble = () => ({ _tag: "Answer", status: 200, body })
        assert.include((yield* Effect.flip(pulls.find(at))).message, "not what its API says")
      }
      api.trouble = () => ({ _tag: "Answer", status: 200, body: ["x".repeat(9 * 1024 * 1024)] })
      assert.include((yield* Effect.flip(pulls.find(at))).message, "longer than")
      api.trouble = () => undefined
      const nobody = yield* Effect.flip(pulls.find({ ...at, url: "http://127.0.0.1:9/a/b" }))
      assert.isTrue(nobody.isRetryable)
      const deep = yield* Effect.flip(pulls.find({ ...at, url: `${at.url.replace(".git", "")}/deeper` }))
      assert.include(deep.message, "OWNER/NAME")
    })
  )

  it.effect("a redirect is not followed", () =>
    Effect.gen(function* () {
      const { api } = yield* GitHub
      const heard: Array<string | undefined> = []
      const elsewhere = yield* serving((request, response) => {
        heard.push(request.headers.authorization)
        response.writeHead(200, { "content-type": "application/json" }).end("[]")
      })
      api.trouble = () => ({ _tag: "Answer", status: 302, headers: { location: elsewhere.url } })
      const error = yield* Effect.flip(
        Effect.flatMap(PullRequests, (pulls) => Effect.flatMap(target, pulls.find))
      )
      api.trouble = () => undefined
      assert.include(error.message, "redirects")
      assert.deepStrictEqual(heard, [])
    }).pipe(Effect.scoped)
  )

  it.effect("an App's token is for one repository and one use, and for no other server", () =>
    Effect.gen(function* () {
      const { api, server } = yield* GitHub
      const { privateKey } = generateKeyPairSync("rsa", {
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
      api.trouble = () => ({ _tag: "Answer", status: 404, body: { message: "Not Found" } })
      const error = yield* Effect.flip(app.get({ url: `${server}/acme/other.git`, purpose: "push" }))
      api.trouble = () => undefined
      assert.include(error.message, "installed on the repository")
      assert.notInclude(error.message, "PRIVATE KEY")
    })
  )
})

it.layer(Layer.empty, { excludeTestServices: true })("GitLab", (it) => {
  it.effect("finds none, opens one, finds it; a redirect carries no token elsewhere", () =>
    Effect.gen(function* () {
      const asked: Array<string> = []
      const opened: Array<object> = []
      const heard: Array<string | undefined> = []
      const elsewhere = yield* serving((request, response) => {
        heard.push(request.headers.authorization, request.headers["private-token"]?.toString())
        response.writeHead(200, { "content-type": "application/json" }).end("[]")
      })
      let redirecting = false
      const { url } = yield* serving((request, response) => {
        asked.push(`${request.method} ${request.url?.split("?")[0]} ${request.headers.authorization}`)
        if (redirecting) return void response.writeHead(302, { location: `${elsewhere.url}/x` }).end()
        request.resume().once("end", () => {
          if (request.method === "POST")
            opened.push({ iid: 7, web_url: "https://gitlab.example/acme/app/-/7" })
          response
            .writeHead(request.method === "POST" ? 201 : 200, { "content-type": "application/json" })
            .end(JSON.stringify(request.method === "POST" ? opened[0] : opened))
        })
      })
      const at = { url: `${url}/group/sub/app.git`, baseBranch: "main", branch }
      yield* Effect.gen(function* () {
        const pulls = yield* PullRequests
        assert.isUndefined(yield* pulls.find(at))
        const made = yield* pulls.create(at, text)
        assert.deepStrictEqual(made, { number: 7, url: "https://gitlab.example/acme/app/-/7" })
        assert.deepStrictEqual(yield* pulls.find(at), made)
        redirecting = true
        yield* Effect.exit(pulls.find(at))
      }).pipe(Effect.provide(Layer.provide(Forge.layer({ forges: { [url]: "gitlab" } }), tokens(url))))
      assert.deepStrictEqual(asked.slice(0, 2), [
        `GET /api/v4/projects/group%2Fsub%2Fapp/merge_requests Bearer ${token}`,
        `POST /api/v4/projects/group%2Fsub%2Fapp/merge_requests Bearer ${token}`
      ])
      assert.isTrue(
        heard.every((one) => one === undefined),
        JSON.stringify(heard)
      )
    }).pipe(Effect.scoped)
  )
})
