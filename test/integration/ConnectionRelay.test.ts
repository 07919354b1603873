/**
 * Two accounts with an installation of one GitHub App each, through the relay: neither sees, uses or causes the other's
 * token. The double of GitHub validates every request, and the origin accepts only tokens that it issued.
 */
import { assert, it } from "@effect/vitest"
import * as ConnectionBroker from "@cogni/sandbox-connections/ConnectionBroker"
import type { ConnectionAuthority } from "@cogni/sandbox-connections/ConnectionDecision"
import * as ConnectionStore from "@cogni/sandbox-connections/ConnectionStore"
import { ConnectionUser } from "@cogni/sandbox-connections/ConnectionUser"
import * as SecretBox from "@cogni/sandbox-connections/SecretBox"
import * as BrokerCredentials from "@cogni/sandbox-git-relay/BrokerCredentials"
import * as Forge from "@cogni/sandbox-git-relay/forge/Forge"
import * as ForgeSources from "@cogni/sandbox-git-relay/forge/ForgeSources"
import { GitRelay } from "@cogni/sandbox-git-relay/GitRelay"
import * as RelayRun from "@cogni/sandbox-git-relay/RelayRun"
import { Context, Effect, Layer, Logger, Redacted } from "effect"
import { inspect } from "node:util"
import * as GitHubOrigin from "../harness/GitHubOrigin.ts"
import * as GitOrigin from "../harness/GitOrigin.ts"
import * as RelayHarness from "../harness/RelayHarness.ts"

interface Stage extends GitHubOrigin.GitHubOrigin {
  readonly logs: Array<string>
}

class GitHub extends Context.Service<GitHub, Stage>()("test/GitHub") {
  static readonly layer = Layer.effect(
    GitHub,
    Effect.map(GitHubOrigin.acquire, (server) => ({ ...server, logs: [] }))
  )
}

const broker = Layer.unwrap(
  Effect.map(GitHub, ({ origin: { url } }) =>
    ConnectionBroker.layer({
      sources: ForgeSources.make({
        gitHubApp: { appId: 12, privateKey: Redacted.make(GitHubOrigin.privateKey), server: url }
      })
    })
  )
).pipe(Layer.provideMerge(Layer.merge(ConnectionStore.layerMemory, SecretBox.layerNone)))

const layers = Layer.unwrap(
  Effect.gen(function* () {
    const { logs } = yield* GitHub
    const context = yield* Layer.build(Layer.provideMerge(BrokerCredentials.layer, broker))
    const built = Layer.succeedContext(context)
    return RelayHarness.layer({}, built, Layer.provide(Forge.layer(), built)).pipe(
      Layer.provideMerge(built),
      Layer.provideMerge(
        Logger.layer([Logger.make(({ message }) => void logs.push(inspect(message, { depth: 9 })))])
      )
    )
  })
).pipe(Layer.provideMerge(GitHub.layer))

/** A grant of an account, for its connection and some repositories. */
const authorityOf = (billingAccountId: string, repositories: ReadonlyArray<string>): ConnectionAuthority => ({
  grantId: `grant-${billingAccountId}`,
  billingAccountId,
  rules: [{ connection: "github", purposes: ["fetch", "push", "pull_request"] }],
  repositories,
  tools: [],
  expiresAt: null,
  revokedAt: null
})

/** Adds an account with an installation. */
const account = Effect.fnUntraced(function* (installationId: number) {
  const { origin } = yield* GitHub
  const store = yield* ConnectionStore.ConnectionStore
  const billingAccountId = `account-${crypto.randomUUID()}`
  const connection = yield* ConnectionStore.draft({
    billingAccountId,
    name: "github",
    server: origin.url,
    means: { kind: "github_app", installationId },
    expiresAt: null
  })
  yield* store.add(connection, undefined)
  return { billingAccountId, store }
})

const asUser = (billingAccountId: string, repositories: ReadonlyArray<string>) =>
  Effect.provideService(ConnectionUser, {
    billingAccountId,
    authority: Effect.succeed(authorityOf(billingAccountId, repositories))
  } satisfies ConnectionUser)

/** A thief's search, and a commit. */
const script =
  "(env; cat /proc/*/environ; git config --list --show-origin; grep -rs ghs_ /workspace /tmp /home || true) | " +
  "tr '\\0' '\\n'; echo change > new; git add --all; git commit -qm change"

const lived = Effect.fnUntraced(function* (url: string, meanwhile: Effect.Effect<unknown> = Effect.void) {
  let output = ""
  const runId = yield* RelayHarness.runId
  const { delivery } = yield* RelayRun.around(
    { runId, url, deliver: "push", createPr: true },
    (clone, began) =>
      Effect.gen(function* () {
        yield* began
        output = yield* RelayHarness.work(clone, script)
        yield* meanwhile
        return { succeeded: true }
      })
  )
  return { delivery, output, runId }
})

it.layer(layers, { excludeTestServices: true })("two accounts of one GitHub App", (it) => {
  it.effect("work at the same time, and neither sees, uses or causes the other's token", () =>
    Effect.gen(function* () {
      const gitHub = yield* GitHub
      const { api, logs, origin } = gitHub
      const both = yield* Effect.forEach(
        [
          { owner: "acme", installationId: 77 },
          { owner: "beta", installationId: 78 }
        ],
        (one) =>
          Effect.gen(function* () {
            const { url } = yield* origin.make(`${one.owner}/app`, { "README.md": one.owner })
            const { billingAccountId, store } = yield* account(one.installationId)
            return { ...one, url, billingAccountId, store, from: origin.received.length }
          })
      )
      const ended = yield* Effect.forEach(
        both,
        ({ billingAccountId, url }) =>
          Effect.map(lived(url).pipe(asUser(billingAccountId, [`${origin.url}/**`])), (run) => ({
            ...run,
            billingAccountId
          })),
        { concurrency: "unbounded" }
      )
      for (const { delivery, output } of ended) {
        if (delivery._tag !== "Pushed") return assert.fail(inspect(delivery, { depth: 9 }))
        assert.include(delivery.pullRequest?.url, "/pull/")
        assert.notInclude(output, "ghs_")
      }
      for (const { installationId, owner } of both) {
        const used = GitHubOrigin.tokensOfGit(gitHub, owner)
        assert.isNotEmpty(used)
        assert.deepStrictEqual([...new Set(used.map((token) => token.installationId))], [installationId])
        assert.deepStrictEqual([...new Set(used.flatMap((token) => token.repositories))], [`${owner}/app`])
      }
      assert.isTrue(
        api.tokens.every(({ revoked }) => revoked),
        "every token is invalid after its use"
      )
      const audits = yield* Effect.forEach(both, ({ billingAccountId, store }) =>
        store.uses({ billingAccountId })
      )
      for (const [at, uses] of audits.entries()) {
        const of = both[at]!
        assert.isNotEmpty(uses)
        assert.isTrue(uses.every(({ repository }) => repository === of.url))
      }
      assert.deepStrictEqual(api.complaints, [])
      for (const seen of [audits, logs, ended.map(({ delivery }) => delivery)])
        assert.notMatch(inspect(seen, { depth: 12 }) + JSON.stringify(seen), /ghs_|PRIVATE KEY/u)
      assert.notInclude(logs.join("\n"), "could not be made invalid")
    })
  )

  it.effect("causes no token for a repository that the grant does not allow", () =>
    Effect.gen(function* () {
      const { api, origin } = yield* GitHub
      const { url } = yield* origin.make("beta/secret", { "README.md": "beta" })
      const { billingAccountId } = yield* account(77)
      const [issued, received] = [api.requests.length, origin.received.length]
      const error = yield* Effect.flip(lived(url).pipe(asUser(billingAccountId, [`${origin.url}/acme/*`])))
      assert.strictEqual(error.reason._tag, "CredentialsDenied")
      assert.include(error.message, "policy_denied")
      assert.lengthOf(api.requests.slice(issued), 0)
      assert.lengthOf(origin.received.slice(received), 0)
    })
  )

  it.effect("does not use a token for another owner's repository of the same name", () =>
    Effect.gen(function* () {
      const { api, origin } = yield* GitHub
      yield* origin.make("acme/twin", { "README.md": "acme" })
      const { url } = yield* origin.make("beta/twin", { "README.md": "beta" })
      const { billingAccountId, store } = yield* account(77)
      const received = origin.received.length
      const error = yield* Effect.flip(lived(url).pipe(asUser(billingAccountId, ["**"])))
      assert.include(error.message, "is for another repository")
      assert.notMatch(inspect(error, { depth: 12 }), /ghs_/u)
      assert.deepStrictEqual(
        origin.received.slice(received).filter(({ path }) => !path.startsWith("/api/")),
        []
      )
      assert.deepInclude(api.tokens.at(-1), { repositories: ["acme/twin"], revoked: true })
      const [use] = yield* store.uses({ billingAccountId })
      assert.deepInclude(use, { event: "failed", reason: "CredentialMismatch" })
    })
  )

  it.effect("a connection that is removed while a run lives delivers nothing, and the commits are kept", () =>
    Effect.gen(function* () {
      const { api, origin } = yield* GitHub
      const { path, url } = yield* origin.make("acme/removed", { "README.md": "acme" })
      const { billingAccountId, store } = yield* account(77)
      const before = yield* GitOrigin.refsOf(path)
      const { delivery, runId } = yield* lived(
        url,
        Effect.orDie(store.revoke(billingAccountId, "github"))
      ).pipe(asUser(billingAccountId, [`${origin.url}/acme/*`]))
      if (delivery._tag !== "Failed") return assert.fail(inspect(delivery, { depth: 9 }))
      assert.strictEqual(delivery.error.reason._tag, "CredentialsDenied")
      assert.include(delivery.error.message, "was removed")
      assert.strictEqual(yield* GitOrigin.refsOf(path), before)
      const relay = yield* GitRelay
      assert.include(
        (yield* relay.kept).map((kept) => kept.runId),
        runId
      )
      yield* relay.discard(runId)
      assert.isTrue(api.tokens.every(({ revoked }) => revoked))
    })
  )
})
