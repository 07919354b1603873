/** Permissions of a grant beyond its graphs: exactly those that it names, and never more after narrowing. */
import type { LlmBudget } from "@cogni/sandbox-core/SpecFields"
import { matches } from "@cogni/sandbox-core/GrantPattern"
import type * as ToolAccess from "@cogni/sandbox-core/ToolAccess"
import {
  type Asked,
  decide,
  figures,
  type GrantPermissions,
  type HostOffer,
  narrowest,
  safeDefault,
  toolRulesOf
} from "@cogni/sandbox-graph-provider/grants/GrantPermissions"
import { assert, describe, it } from "@effect/vitest"
import { Result, Schema } from "effect"

const offer: HostOffer = { models: ["gpt-5"] }

const verdict = (permissions: GrantPermissions, asked: Partial<Asked>, host: HostOffer = offer): string => {
  const result = decide("grant-1", permissions, { model: "gpt-5", ...asked }, host)
  return Result.isSuccess(result) ? "open" : result.failure._tag
}

const repository = { url: "https://github.com/acme/app" }

describe("GrantPermissions", () => {
  it("allows the host's models, no tool and no repository by default", () => {
    assert.strictEqual(verdict(safeDefault, {}), "open")
    assert.strictEqual(verdict(safeDefault, { toolIds: [] }), "open")
    assert.strictEqual(verdict(safeDefault, { model: "o1-pro-2025-03-19" }), "ModelNotGranted")
    assert.strictEqual(verdict(safeDefault, { toolIds: ["core__get_current_time"] }), "ToolNotGranted")
    assert.strictEqual(verdict(safeDefault, { repository }), "RepositoryNotGranted")
    assert.strictEqual(verdict(safeDefault, {}, { models: [] }), "ModelNotGranted")
  })

  it("allows the models that a grant names, and not the host's", () => {
    assert.strictEqual(verdict({ models: ["claude-*"] }, { model: "claude-5" }), "open")
    assert.strictEqual(verdict({ models: ["claude-*"] }, { model: "gpt-5" }), "ModelNotGranted")
    assert.strictEqual(verdict({ models: [] }, { model: "gpt-5" }), "ModelNotGranted")
  })

  it("requires a permission for every tool", () => {
    const toolIds = ["core__get_current_time", "core__metrics_query"]
    assert.strictEqual(verdict({ tools: ["core__get_current_time"] }, { toolIds }), "ToolNotGranted")
    assert.strictEqual(verdict({ tools: ["core__*"] }, { toolIds }), "open")
  })

  it("opens a tool by a rule, asks, or closes it, the strictest first, and unchanged without rules", () => {
    const toolIds = ["acme__pay"]
    const rule = (access: ToolAccess.Access, effect?: ToolAccess.ToolEffect): ToolAccess.ToolRule => ({
      tool: "acme__*",
      access,
      ...(effect === undefined ? {} : { effect })
    })
    const asks = (tools: ReadonlyArray<string>, toolRules: ReadonlyArray<ToolAccess.ToolRule>) =>
      verdict({ tools, toolRules }, { toolIds })
    assert.strictEqual(asks([], [rule("ask")]), "ToolNotGranted", "a rule that asks only restricts")
    assert.strictEqual(asks(["acme__pay"], [rule("ask")]), "open")
    assert.strictEqual(asks([], [rule("open", "read_only")]), "open", "its effect class decides later")
    assert.strictEqual(asks(["**"], [rule("closed")]), "ToolNotGranted")
    assert.strictEqual(asks(["**"], [rule("closed", "read_only")]), "open")
    assert.strictEqual(asks([], []), "ToolNotGranted")
    assert.isUndefined(toolRulesOf({ tools: ["**"] }))
    assert.deepStrictEqual(toolRulesOf({ tools: ["Acme.*"], toolRules: [rule("ask")] }), [rule("ask")])
    assert.deepStrictEqual(toolRulesOf({ tools: ["**"], toolRules: [rule("ask")] }), [
      { tool: "**", access: "open" },
      rule("ask")
    ])
  })

  it("requires a permission that covers every package of a request", () => {
    const asks = (packages: ReadonlyArray<string>, granted?: ReadonlyArray<string>) =>
      verdict(granted === undefined ? safeDefault : { packages: granted }, { packages })
    assert.strictEqual(asks([]), "open")
    assert.strictEqual(asks(["npm:left-pad"]), "PackageNotGranted")
    assert.strictEqual(asks(["npm:left-pad"], ["npm:left-pad"]), "open")
    assert.strictEqual(asks(["npm:@types/node", "npm:@types/*"], ["npm:@types/*"]), "open")
    assert.strictEqual(asks(["npm:@types/node", "npm:left-pad"], ["npm:@types/*"]), "PackageNotGranted")
    assert.strictEqual(asks(["npm:*"], ["npm:left-*"]), "PackageNotGranted")
    assert.strictEqual(asks(["npm:@*/*"], ["npm:*"]), "PackageNotGranted")
    assert.strictEqual(asks(["pypi:left-pad"], ["npm:*"]), "PackageNotGranted")
  })

  it("repeats neither the model nor the repository of a request in a message", () => {
    for (const asked of [
      { model: "\u001b[2Jsecret" },
      { repository: { url: "https://h/\u001b[2Jsecret" } }
    ]) {
      const result = decide("grant-1", safeDefault, { model: "gpt-5", ...asked }, offer)
      assert.isTrue(Result.isFailure(result))
      if (Result.isFailure(result)) assert.notInclude(result.failure.message, "secret")
    }
  })

  const Tools = Schema.Array(Schema.Literals(["core__*", "core__a", "core__b", "x__a", "**"])).check(
    Schema.isMaxLength(3)
  )
  const Models = Schema.Array(Schema.Literals(["gpt-*", "gpt-5", "openai/*", "**"])).check(
    Schema.isMaxLength(3)
  )
  const Repositories = Schema.Array(
    Schema.Literals(["https://h/a/*", "https://h/a/b", "https://h/**", "/srv/*", "**"])
  ).check(Schema.isMaxLength(3))
  const Figure = Schema.Literals([1, 2, 3])
  const Budget = Schema.Struct({
    callsMax: Schema.optionalKey(Figure),
    outputTokensMax: Schema.optionalKey(Figure),
    costUsdMax: Schema.optionalKey(Figure),
    onExhausted: Schema.Literals(["refuse", "stop"])
  })
  const Permissions = Schema.Struct({
    tools: Schema.optionalKey(Tools),
    models: Schema.optionalKey(Models),
    repositories: Schema.optionalKey(Repositories),
    budget: Schema.optionalKey(Budget)
  })
  const Request = Schema.Struct({
    model: Schema.Literals(["gpt-5", "gpt-4", "openai/gpt-5", "claude"]),
    toolIds: Schema.optionalKey(
      Schema.Array(Schema.Literals(["core__a", "core__b", "x__a"])).check(Schema.isMaxLength(3))
    ),
    repository: Schema.optionalKey(
      Schema.Struct({
        url: Schema.Literals([
          "https://h/a/b",
          "https://H:443/a/b/",
          "https://h/a/../c/d",
          "https://h/a/b/c",
          "https://h.evil/a/b",
          "/srv/app",
          "/srv/../etc"
        ])
      })
    ),
    budget: Schema.optionalKey(Budget)
  })
  const Offer = Schema.Struct({ models: Models, budget: Schema.optionalKey(Budget) })

  it.prop(
    "nothing beyond the grant ever passes, in names or in figures",
    [Permissions, Request, Offer],
    ([permissions, asked, host]) => {
      const result = decide("grant-1", permissions, asked, host)
      if (Result.isFailure(result)) return
      const isNamed = (patterns: ReadonlyArray<string>, text: string) =>
        patterns.some((pattern) => matches(pattern, text))
      assert.isTrue(isNamed(permissions.models ?? host.models, asked.model))
      for (const tool of asked.toolIds ?? []) assert.isTrue(isNamed(permissions.tools ?? [], tool))
      if (asked.repository !== undefined) {
        assert.notInclude(asked.repository.url, "..")
        const plain = asked.repository.url.replace("https://H:443/a/b/", "https://h/a/b")
        assert.isTrue(isNamed(permissions.repositories ?? [], plain))
      }
      assertWithin(result.success.budget, [asked.budget, permissions.budget, host.budget])
    },
    { arbitrary: { runs: 20_000, seed: "permissions-1" } }
  )

  const assertWithin = (
    budget: LlmBudget | undefined,
    ceilings: ReadonlyArray<LlmBudget | undefined>
  ): void => {
    for (const ceiling of ceilings) {
      if (ceiling === undefined) continue
      for (const name of figures) {
        if (ceiling[name] !== undefined) assert.isAtMost(budget?.[name] ?? Infinity, ceiling[name])
      }
      if (ceiling.onExhausted === "stop") assert.strictEqual(budget?.onExhausted, "stop")
    }
  }

  const Cut = Schema.Struct({
    field: Schema.Literals(["tools", "models", "repositories", "budget"]),
    at: Schema.Literals([0, 1, 2])
  })

  const narrowed = (permissions: GrantPermissions, { at, field }: typeof Cut.Type): GrantPermissions => {
    if (field === "budget") {
      const { budget = { onExhausted: "refuse" as const } } = permissions
      const name = figures[at]!
      return { ...permissions, budget: { ...budget, [name]: Math.min(1, budget[name] ?? 1) } }
    }
    const patterns = permissions[field]
    return patterns === undefined ? permissions : { ...permissions, [field]: patterns.toSpliced(at, 1) }
  }

  it.prop(
    "narrowing a grant never allows more",
    [Permissions, Request, Offer, Cut],
    ([permissions, asked, host, cut]) => {
      const wide = decide("grant-1", permissions, asked, host)
      const narrow = decide("grant-1", narrowed(permissions, cut), asked, host)
      if (Result.isFailure(narrow)) return
      assert.isTrue(Result.isSuccess(wide))
      if (Result.isSuccess(wide)) assertWithin(narrow.success.budget, [wide.success.budget])
    },
    { arbitrary: { runs: 20_000, seed: "permissions-2" } }
  )

  it("takes the smallest limit of request, grant and host, field by field", () => {
    assert.deepStrictEqual(
      narrowest([
        { callsMax: 9, outputTokensMax: 10, onExhausted: "refuse" },
        { callsMax: 3, costUsdMax: 2, onExhausted: "refuse" },
        { costUsdMax: 1, onExhausted: "stop" }
      ]),
      { callsMax: 3, outputTokensMax: 10, costUsdMax: 1, onExhausted: "stop" }
    )
    assert.isUndefined(narrowest([undefined, undefined]))
  })
})
