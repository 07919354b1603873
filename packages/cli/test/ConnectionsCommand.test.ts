/** Connections on the command line: added, tested, listed without their secrets, removed. No test reaches an engine. */
import { assert, describe, it } from "@effect/vitest"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, Layer } from "effect"
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { serve } from "../../../test/harness/LocalServer.ts"
import * as Cli from "../src/Cli.ts"
import * as ConnectionRuleText from "../src/ConnectionRuleText.ts"
import * as Output from "../src/Output.ts"

const planted = "planted-token-of-an-account"

const place = Effect.gen(function* () {
  const directory = yield* Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-connections-"))),
    (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
  )
  /** GitHub's API, as far as `connections test` asks for it. */
  const api = { status: 200, asked: [] as Array<string> }
  const origin = yield* serve((request, response) => {
    api.asked.push(`${request.headers.authorization} ${request.method} ${request.url}`)
    response.writeHead(api.status).end("{}")
  })
  const file = (name: string, text: string) => {
    const path = join(directory, name)
    writeFileSync(path, text, { mode: 0o600 })
    return path
  }
  const environment = {
    COGNI_STATE_DIR: join(directory, "state"),
    GITHUB_API_URL: origin,
    COGNI_CONNECTIONS_KEY_FILE: file("keys", `${Buffer.alloc(32, 7).toString("base64")}\n`)
  }
  const run = (more: Record<string, string>, ...argv: ReadonlyArray<string>) =>
    Effect.gen(function* () {
      const memory = Output.makeMemory()
      const code = yield* Cli.main({
        argv: ["connections", ...argv],
        environment: { ...environment, ...more }
      }).pipe(Effect.provide(Layer.merge(NodeServices.layer, memory.layer)))
      const { stderr, stdout } = memory.said
      assert.notInclude(stdout + stderr, planted)
      return { code, stdout, stderr }
    })
  return {
    api,
    directory,
    file,
    run,
    connections: (...argv: ReadonlyArray<string>) => run({}, ...argv)
  }
})

const acme = ["--account", "acme"]

describe("connections", () => {
  it.effect(
    "adds a token, tests it, lists it, and removes it; the token is never shown or stored in plain",
    () =>
      Effect.gen(function* () {
        const { api, connections, directory, file } = yield* place
        const token = file("token", planted)
        const added = yield* connections("add", "ci", "--token-file", token, ...acme)
        assert.deepStrictEqual([added.code, added.stdout], [0, ""], added.stderr)
        assert.include(added.stderr, "connections test ci --account acme --repository URL")
        const repository = "https://github.com/acme/app"
        const tested = yield* connections("test", "ci", ...acme, "--repository", repository, "-o", "json")
        assert.strictEqual(tested.code, 0, tested.stderr)
        assert.containSubset(JSON.parse(tested.stdout), {
          ok: true,
          billingAccountId: "acme",
          connection: "ci",
          server: "https://github.com",
          purpose: "fetch",
          repository
        })
        assert.match(
          (yield* connections("list", ...acme)).stdout,
          /^ci +active +token +https:\/\/github\.com/mu
        )
        const other = yield* connections("list", "--account", "other")
        assert.strictEqual(other.stdout, "")
        assert.include(other.stderr, "account other has no connections (--account names another)")
        const uses = JSON.parse((yield* connections("uses", ...acme, "-o", "json")).stdout)
        assert.deepStrictEqual(
          uses.map(({ event, grantId }: { event: string; grantId: string }) => [event, grantId]),
          [
            ["ended", "operator"],
            ["issued", "operator"]
          ]
        )
        assert.deepStrictEqual(api.asked, [`Bearer ${planted} GET /rate_limit`])
        const accepted = yield* connections("test", "ci", ...acme, "--repository", repository)
        assert.include(accepted.stderr, "The server accepts it")
        api.status = 401
        const wrong = yield* connections("test", "ci", ...acme, "--repository", repository)
        assert.notStrictEqual(wrong.code, 0)
        assert.include(wrong.stderr, "the server refuses the credential of ci (401")
        const elsewhere = ["--repository", repository, "--url", "https://evil.example/"]
        assert.strictEqual((yield* connections("test", "ci", ...acme, ...elsewhere)).code, 64)
        assert.lengthOf(api.asked, 3)
        const { leaseId } = uses[0]
        assert.strictEqual((yield* connections("revoke", leaseId, ...acme)).code, 0)
        assert.strictEqual((yield* connections("revoke", leaseId, "--account", "other")).code, 66)
        assert.match((yield* connections("uses", ...acme)).stdout, / revoked +ci +fetch /u)
        const state = join(directory, "state")
        const kept = readdirSync(state).map((name) => readFileSync(join(state, name), "latin1"))
        assert.notInclude(kept.join(""), planted)
        assert.strictEqual((yield* connections("remove", "ci", ...acme)).code, 0)
        assert.strictEqual((yield* connections("remove", "ci", ...acme)).code, 66)
        const gone = yield* connections("test", "ci", ...acme, "--repository", repository)
        assert.notStrictEqual(gone.code, 0)
        assert.include(gone.stderr, "was removed")
      })
  )

  it.effect("refuses another server, another account and a use that the connection does not allow", () =>
    Effect.gen(function* () {
      const { connections, file } = yield* place
      const token = file("token", planted)
      yield* connections("add", "ci", "--token-file", token, ...acme, "--use", "fetch")
      for (const [flags, said] of [
        [[...acme, "--repository", "https://gitlab.com/acme/app"], "no connection to this server"],
        [
          ["--account", "other", "--repository", "https://github.com/acme/app"],
          "no connection to this server"
        ],
        [[...acme, "--repository", "https://github.com/acme/app", "--use", "push"], "does not allow this use"]
      ] as const) {
        const refused = yield* connections("test", "ci", ...flags)
        assert.notStrictEqual(refused.code, 0)
        assert.include(refused.stderr, said)
        assert.include(refused.stderr, "policy_denied")
      }
    })
  )

  it.effect("names the flag that is missing, unnecessary or invalid, and never a secret", () =>
    Effect.gen(function* () {
      const { connections, file, run } = yield* place
      const token = file("token", planted)
      const broad = file("broad", planted)
      for (const [flags, said] of [
        [[], "nothing says where the credentials come from"],
        [["--token-file", token, "--github-app", "7"], "more than one flag"],
        [
          ["--github-app", "7", "--refresh-token-file", token],
          "--refresh-token-file needs --oauth-token-url"
        ],
        [["--oauth-token-url", "https://gitlab.com/oauth/token"], "--oauth-client-id is missing"],
        [["--broker", "https://broker.example/"], "--broker-token-file is missing"],
        [["--github-app", "0"], "installationId"],
        [["--token-file", token, "--server", "http://github.com"], "Expected https://HOST"],
        [["--token-file", `${token}-missing`], "--token-file"]
      ] as const) {
        const refused = yield* connections("add", "x", ...flags)
        assert.notStrictEqual(refused.code, 0)
        assert.include(refused.stderr, said)
      }
      const named = yield* connections("add", "Not A Name", "--token-file", broad)
      assert.include(named.stderr, "lower-case letters")
      const [half] = [
        yield* run({ COGNI_GITHUB_APP_ID: "12" }, "test", "x", "--repository", "https://github.com/a/b")
      ]
      assert.include(half.stderr, "COGNI_GITHUB_APP_KEY_FILE")
      yield* connections("add", "twice", "--token-file", token)
      assert.include((yield* connections("add", "twice", "--token-file", token)).stderr, "already")
    })
  )

  it.effect("lists and removes a connection also without the key that encrypted its secret", () =>
    Effect.gen(function* () {
      const { connections, directory, file, run } = yield* place
      yield* connections("add", "ci", "--token-file", file("token", planted), ...acme)
      const broken = {
        COGNI_CONNECTIONS_KEY_FILE: join(directory, "missing"),
        COGNI_GITHUB_APP_ID: "12"
      }
      assert.match((yield* run(broken, "list", ...acme)).stdout, /^ci +active/mu)
      assert.strictEqual((yield* run(broken, "uses", ...acme)).code, 0)
      const removed = yield* run(broken, "remove", "ci", ...acme)
      assert.strictEqual(removed.code, 0, removed.stderr)
      assert.match((yield* run(broken, "list", ...acme)).stdout, /^ci +removed/mu)
    })
  )

  it.effect("refuses a file that is no token, and names the account that it adds to", () =>
    Effect.gen(function* () {
      const { connections, file } = yield* place
      for (const text of [`${planted} \n`, `${planted}\nsecond`, `${planted}’`]) {
        const refused = yield* connections("add", "ci", "--token-file", file("odd", text))
        assert.notStrictEqual(refused.code, 0)
        assert.include(refused.stderr, "is not a token")
      }
      const added = yield* connections("add", "ci", "--token-file", file("token", planted))
      assert.include(added.stderr, "ci is added to account local")
    })
  )

  it.effect("stores no secret without a key, and says how to make one", () =>
    Effect.gen(function* () {
      const { file, run } = yield* place
      const none = yield* run(
        { COGNI_CONNECTIONS_KEY_FILE: "" },
        "add",
        "ci",
        "--token-file",
        file("token", planted)
      )
      assert.notStrictEqual(none.code, 0)
      assert.include(none.stderr, "COGNI_CONNECTIONS_KEY_FILE")
      const wrong = yield* run(
        { COGNI_CONNECTIONS_KEY_FILE: file("wrong", planted) },
        "add",
        "ci",
        "--token-file",
        file("token", planted)
      )
      assert.include(wrong.stderr, "openssl rand -base64 32")
    })
  )

  it.effect("encrypts all secrets with the first key, so that the earlier key can be deleted", () =>
    Effect.gen(function* () {
      const { connections, file, run } = yield* place
      const token = file("token", planted)
      yield* connections("add", "ci", "--token-file", token, ...acme)
      yield* connections("add", "ci", "--token-file", token, "--account", "beta")
      const line = (fill: number) => `${Buffer.alloc(32, fill).toString("base64")}\n`
      const both = { COGNI_CONNECTIONS_KEY_FILE: file("both", line(8) + line(7)) }
      const onlyNew = { COGNI_CONNECTIONS_KEY_FILE: file("new", line(8)) }
      const early = yield* run(onlyNew, "reencrypt")
      assert.strictEqual(early.code, 1)
      assert.match(early.stderr, /account acme, .*a key that this host does not have/u)
      const done = yield* run(both, "reencrypt", "-o", "json")
      assert.deepStrictEqual([done.code, JSON.parse(done.stdout)], [0, { ok: true, count: 2, failed: [] }])
      const repository = ["--repository", "https://github.com/acme/app"]
      assert.strictEqual((yield* run(onlyNew, "test", "ci", ...acme, ...repository)).code, 0)
      assert.notStrictEqual((yield* connections("test", "ci", ...acme, ...repository)).code, 0)
    })
  )

  it.effect("offers the tokens of the environment to every account, by the names of their variables", () =>
    Effect.gen(function* () {
      const { run } = yield* place
      const tokens = { GITHUB_TOKEN: planted, GITLAB_TOKEN: planted }
      const { stdout } = yield* run(tokens, "list", ...acme)
      assert.match(stdout, /^host\/github-token +active +environment +https:\/\/github\.com/mu)
      assert.match(stdout, /^host\/gitlab-token +active +environment +https:\/\/gitlab\.com/mu)
    })
  )
})

describe("ConnectionRuleText", () => {
  it("reads a name alone as the uses of git, and refuses other texts", () => {
    const parsed = (text: string) => {
      const rule = ConnectionRuleText.parse(text)
      return rule._tag === "Success" ? ConnectionRuleText.format(rule.success) : "refused"
    }
    assert.deepStrictEqual(
      ["github", "git*=fetch", "host/*=fetch,push", "", "=fetch", "github=", "github=all"].map(parsed),
      [
        "github=fetch,push,pull_request",
        "git*=fetch",
        "host/*=fetch,push",
        "refused",
        "refused",
        "refused",
        "refused"
      ]
    )
  })
})
