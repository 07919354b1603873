/** Proposed changes of the configuration over HTTP: who may, what is refused before a repository is touched. */
import * as ConfigurationProposals from "@cogni/sandbox-server/ConfigurationProposals"
import { ConnectionUser } from "@cogni/sandbox-connections/ConnectionUser"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { serve } from "./ServerWorld.ts"

const repository = "https://github.com/acme/configuration"

const permissions = { propose: true, repositories: ["https://github.com/acme/*"] }

const poet = { name: "poet", model: "gpt", instructions: "Answer in verse." }

/** A server whose repository answers with a value or a refusal, and notes the changes and their users. */
const world = (
  answer: Effect.Effect<
    ConfigurationProposals.ProposedChange,
    ConfigurationProposals.ChangeRefused
  > = Effect.succeed({
    status: "proposed",
    path: "personalities/poet.md",
    baseBranch: "main",
    branch: "sandbox/personality-poet-0",
    pullRequestUrl: `${repository}/pull/1`,
    existing: false
  })
) =>
  Effect.gen(function* () {
    const changes: Array<ConfigurationProposals.ConfigurationChange> = []
    const accounts: Array<string | undefined> = []
    const served = yield* serve({
      limits: { proposalsPerMinutePerGrantMax: 30 },
      proposals: Layer.succeed(ConfigurationProposals.ConfigurationProposals, {
        repository,
        propose: (change) =>
          Effect.gen(function* () {
            changes.push(change)
            accounts.push((yield* ConnectionUser)?.billingAccountId)
            return yield* answer
          })
      })
    })
    return { ...served, changes, accounts }
  })

describe("a proposed change", () => {
  it.effect("goes to the repository of the configuration, on behalf of the grant's account", () =>
    Effect.gen(function* () {
      const { accounts, caller, changes } = yield* world()
      const { send } = yield* caller({ permissions })
      const { body, status } = yield* send("/api/v1/personalities", poet)
      assert.deepStrictEqual(
        [status, body.status, body.pullRequestUrl],
        [200, "proposed", `${repository}/pull/1`]
      )
      const skill = { name: "rhyme", description: "Use it.", instructions: "Rhyme." }
      assert.strictEqual((yield* send("/api/v1/skills", skill)).status, 200)
      const { name, ...content } = poet
      const { name: skillName, ...skillContent } = skill
      assert.deepStrictEqual(changes, [
        { _tag: "CreatePersonality", name, content },
        { _tag: "CreateSkill", name: skillName, content: skillContent }
      ])
      assert.deepStrictEqual(accounts, ["acct", "acct"])
    })
  )

  it.effect("needs a grant with the right to propose, and for this repository", () =>
    Effect.gen(function* () {
      const { caller, changes } = yield* world()
      for (const [given, reason] of [
        [{ repositories: ["**"] }, "ProposalNotGranted"],
        [{ propose: false, repositories: ["**"] }, "ProposalNotGranted"],
        [{ propose: true }, "RepositoryNotGranted"],
        [{ propose: true, repositories: ["https://github.com/beta/*"] }, "RepositoryNotGranted"]
      ] as const) {
        const { send } = yield* caller({ permissions: given })
        for (const path of ["/api/v1/personalities", "/api/v1/skills"]) {
          const { body, status } = yield* send(path, { broken: true })
          assert.deepStrictEqual([status, body.error.reason], [403, reason])
        }
      }
      assert.deepStrictEqual(changes, [])
    })
  )

  it.effect("is refused before the repository is touched if a name or a text is invalid", () =>
    Effect.gen(function* () {
      const { caller, changes } = yield* world()
      const { send } = yield* caller({ permissions })
      for (const over of [
        { name: "../../etc/passwd" },
        { name: "/etc/passwd" },
        { name: "сoder" },
        { name: "x".repeat(65) },
        { name: "poet\u0000" },
        { model: "a\nb: c" },
        { skills: ["../x"] },
        { skills: Array.from({ length: 17 }, (_, at) => `s${at}`) },
        { instructions: "" },
        { instructions: "see\u202ethis" },
        { instructions: "x".repeat(33_000) },
        { description: "a\n---\nb" },
        { repository: "https://github.com/beta/other" },
        { __proto__x: 1 }
      ]) {
        const { body, status } = yield* send("/api/v1/personalities", { ...poet, ...over })
        assert.deepStrictEqual(
          [JSON.stringify(over).slice(0, 60), status],
          [JSON.stringify(over).slice(0, 60), 400]
        )
        assert.strictEqual(body.error.reason, "BodyInvalid")
      }
      const { status } = yield* send("/api/v1/personalities", { ...poet, instructions: "x".repeat(600_000) })
      assert.strictEqual(status, 413)
      assert.deepStrictEqual(changes, [])
    })
  )

  it.effect.each([
    ["conflict", 409],
    ["not_found", 404],
    ["invalid", 400],
    ["denied", 403],
    ["unavailable", 503]
  ] as const)("that the repository refuses as %s is answered with %i", ([code, expected]) =>
    Effect.gen(function* () {
      const { caller } = yield* world(
        Effect.fail(
          new ConfigurationProposals.ChangeRefused({
            code,
            reason: "SomeReason",
            detail: "git.internal said no",
            remedy: "Ask it",
            isRetryable: true
          })
        )
      )
      const { body, status } = yield* (yield* caller({ permissions })).send("/api/v1/personalities", poet)
      assert.deepStrictEqual([status, body.error.reason], [expected, "SomeReason"])
      // The address of an unreachable repository is the operator's own business.
      assert.strictEqual(JSON.stringify(body).includes("git.internal"), code !== "unavailable")
    })
  )

  it.effect("is paced per grant", () =>
    Effect.gen(function* () {
      const { caller } = yield* world()
      const { send } = yield* caller({ permissions })
      const statuses: Array<number> = []
      for (let index = 0; index < 31; index++)
        statuses.push((yield* send("/api/v1/personalities", poet)).status)
      assert.deepStrictEqual([statuses[29], statuses[30]], [200, 429])
    })
  )

  it.effect("is not possible on a server without a repository of its configuration", () =>
    Effect.gen(function* () {
      const { caller } = yield* serve({})
      const { body, status } = yield* (yield* caller({ permissions })).send("/api/v1/personalities", poet)
      assert.deepStrictEqual([status, body.error.reason], [404, "RepositoryNotConfigured"])
    })
  )
})
