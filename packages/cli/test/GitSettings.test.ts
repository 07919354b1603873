/** Settings of git servers: each token is for one server, and an invalid configuration is never partly applied. */
import { assert, describe, it } from "@effect/vitest"
import * as GitSettings from "../src/GitSettings.ts"
import * as CommitPolicy from "@cogni/sandbox-git-relay/CommitPolicy"
import { Effect, Redacted } from "effect"
import { chmodSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { inspect } from "node:util"

const token = "ghs_planted.0123456789"
const other = "glpat-planted-0123456789"

const nothing: GitSettings.GitVariables = {
  gitHubToken: undefined,
  gitHubTokenFile: undefined,
  gitHubServer: undefined,
  gitHubApi: undefined,
  gitLabToken: undefined,
  gitLabHost: undefined,
  caFile: undefined,
  proxyUrl: undefined,
  noProxy: undefined,
  forges: undefined,
  policyFile: undefined
}
const made = (found: Partial<GitSettings.GitVariables>) => GitSettings.make({ ...nothing, ...found })
const refusal = (found: Partial<GitSettings.GitVariables>) => Effect.flip(made(found))

const plain = ({ tokens }: GitSettings.GitSettings) =>
  tokens.map((one) => ({ ...one, token: Redacted.value(one.token) }))

/** Writes a file that is removed after the test. */
const file = (content: string, mode = 0o600) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-git-settings-"))),
      (directory) => Effect.sync(() => rmSync(directory, { recursive: true }))
    ),
    (directory) => {
      const path = join(directory, "file")
      writeFileSync(path, content)
      chmodSync(path, mode)
      return path
    }
  )

describe("GitSettings", () => {
  it.effect("has no tokens and the documented defaults if nothing is set", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* made({}), {
        tokens: [],
        gitHubServer: "https://github.com",
        gitHubApi: undefined,
        gitLabServer: "https://gitlab.com",
        forges: [{ host: "github.com" }, { host: "gitlab.com" }],
        policies: CommitPolicy.defaults,
        network: { caFile: undefined, proxyUrl: undefined, noProxy: undefined }
      })
    })
  )

  it.effect("binds each token to the origin of one server", () =>
    Effect.gen(function* () {
      const tokens = { gitHubToken: Redacted.make(token), gitLabToken: Redacted.make(other) }
      assert.deepStrictEqual(plain(yield* made(tokens)), [
        { variable: "GITHUB_TOKEN", server: "https://github.com", username: "x-access-token", token },
        { variable: "GITLAB_TOKEN", server: "https://gitlab.com", username: "oauth2", token: other }
      ])
      const own = {
        gitHubServer: "https://GitHub.Example.com:443/x?y",
        gitLabHost: "gitlab.example.com:8443"
      }
      const settings = yield* made({ ...tokens, ...own, gitHubApi: "https://github.example.com/api/v3" })
      assert.deepStrictEqual(
        plain(settings).map(({ server }) => server),
        ["https://github.example.com", "https://gitlab.example.com:8443"]
      )
      assert.strictEqual(settings.gitHubServer, "https://github.example.com")
      assert.strictEqual(settings.gitLabServer, "https://gitlab.example.com:8443")
      assert.strictEqual(settings.gitHubApi, "https://github.example.com/api/v3")
      const local = yield* made({ ...tokens, gitLabHost: "http://127.0.0.1:3000" })
      assert.strictEqual(local.gitLabServer, "http://127.0.0.1:3000")
      assert.notInclude(inspect(local, { depth: 9 }), "planted")
    })
  )

  it.effect(
    "allows the configured forges, with private addresses only where the configuration allows them",
    () =>
      Effect.gen(function* () {
        const gitLabHost = "git.example.com:8443"
        const { forges } = yield* made({
          forges: " Git.internal=private, github.com=private ,a.b:8443",
          gitLabHost
        })
        assert.deepStrictEqual(forges, [
          { host: "git.internal", allowPrivateAddresses: true },
          { host: "github.com", allowPrivateAddresses: true },
          { host: "a.b:8443" },
          { host: "gitlab.com" },
          { host: "git.example.com:8443" }
        ])
        for (const wrong of [
          "https://git.internal",
          "git.internal/a",
          "*.example.com",
          "a=public",
          "a:999999"
        ]) {
          const { exit, message } = yield* refusal({ forges: wrong })
          assert.strictEqual(exit, "configuration")
          assert.include(message, "COGNI_FORGES")
        }
      })
  )

  it.effect("reads a token from a file that only its owner can read", () =>
    Effect.gen(function* () {
      const settings = yield* made({ gitHubTokenFile: yield* file(`${token}\n`) })
      assert.deepStrictEqual(plain(settings), [
        { variable: "GITHUB_TOKEN", server: "https://github.com", username: "x-access-token", token }
      ])
    })
  )

  it.effect("refuses a token that is set twice, accessible to others or missing, and never shows it", () =>
    Effect.gen(function* () {
      const open = yield* file(token, 0o644)
      const rows: ReadonlyArray<readonly [Partial<GitSettings.GitVariables>, string]> = [
        [{ gitHubToken: Redacted.make(token), gitHubTokenFile: open }, "are both set"],
        [{ gitHubTokenFile: open }, "is accessible to other users (mode 0644)"],
        [{ gitHubTokenFile: "/proc/nowhere/token" }, "GITHUB_TOKEN_FILE /proc/nowhere/token cannot be read"],
        [{ gitHubTokenFile: yield* file("") }, "is empty"]
      ]
      for (const [found, why] of rows) {
        const { exit, message } = yield* refusal(found)
        assert.strictEqual(exit, "configuration")
        assert.include(message, why)
        assert.include(message, "GITHUB_TOKEN")
        assert.notInclude(message, "planted")
      }
    })
  )

  it.effect("refuses a server that is not an http or https URL", () =>
    Effect.gen(function* () {
      for (const gitHubServer of ["github.com", "ssh://git@github.com", "file:///etc", ""]) {
        const { exit, message } = yield* refusal({ gitHubServer })
        assert.strictEqual(exit, "configuration")
        assert.include(message, "GITHUB_SERVER_URL is not a URL")
      }
      assert.include((yield* refusal({ gitLabHost: "ssh://x" })).message, "GITLAB_HOST is not a URL")
      assert.include((yield* refusal({ gitLabHost: "a b" })).message, "GITLAB_HOST is not a URL")
    })
  )

  it.effect("passes on the network settings of the host unchanged", () =>
    Effect.gen(function* () {
      const caFile = yield* file("-----BEGIN CERTIFICATE-----", 0o644)
      const network = { caFile, proxyUrl: "http://proxy:3128", noProxy: "10.0.0.0/8,.example" }
      assert.deepStrictEqual((yield* made(network)).network, network)
    })
  )

  it.effect("refuses a CA file that is missing, a device, or a link in the temporary directory", () =>
    Effect.gen(function* () {
      const link = `${yield* file("-----BEGIN CERTIFICATE-----", 0o644)}-link`
      symlinkSync("file", link)
      for (const [caFile, says] of [
        ["/proc/nowhere/ca.pem", "does not exist"],
        ["/dev/zero", "is a device"],
        [link, "symbolic link"]
      ] as const) {
        assert.include((yield* refusal({ caFile })).message, `GIT_SSL_CAINFO ${caFile} cannot be read`)
        assert.include((yield* refusal({ caFile })).message, says)
      }
    })
  )

  it.effect("reads the commit policy from a file, with the documented defaults", () =>
    Effect.gen(function* () {
      const changes = { "github.com/acme/*": { submodules: "allow" } }
      const text = JSON.stringify({ default: { commitsMax: 3 }, repositories: changes })
      const { policies } = yield* made({ policyFile: yield* file(text, 0o644) })
      assert.deepStrictEqual(policies, {
        default: { ...CommitPolicy.defaultPolicy, commitsMax: 3 },
        repositories: changes
      } as never)
    })
  )

  it.effect("refuses a policy with any unknown or invalid part, instead of using the rest", () =>
    Effect.gen(function* () {
      const rows: ReadonlyArray<readonly [string, string]> = [
        ["{", "is not a valid policy"],
        ["[]", "is not a valid policy"],
        ['{"default":{"protectedPath":["x"]}}', "protectedPath"],
        ['{"defaults":{}}', "defaults"],
        ['{"default":{"commitsMax":0}}', "commitsMax"],
        ['{"repositories":{"a/*":{"secrets":"ignore"}}}', "secrets"]
      ]
      for (const [text, why] of rows) {
        const { exit, message, remedy } = yield* refusal({ policyFile: yield* file(text) })
        assert.strictEqual(exit, "configuration")
        assert.include(message, "COGNI_RELAY_POLICY_FILE")
        assert.include(message, why)
        assert.include(remedy, "docs/guides/git-relay.md")
      }
      const missing = yield* refusal({ policyFile: "/proc/nowhere/policy.json" })
      assert.include(missing.message, "COGNI_RELAY_POLICY_FILE /proc/nowhere/policy.json cannot be read")
    })
  )
})
