/** The pattern language of grants, compared with a second implementation, and URLs that no pattern can match. */
import { matches, RepositoryPattern, repositoryText } from "@cogni/sandbox-core/GrantPattern"
import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import * as Pace from "../../../test/harness/Pace.ts"

const isRepositoryPattern = Schema.is(RepositoryPattern)

describe("GrantPattern", () => {
  it.each<[pattern: string, text: string, isMatch: boolean]>([
    ["gpt-5", "gpt-5", true],
    ["gpt-5", "gpt-5-pro", false],
    ["gpt-5", "GPT-5", false],
    ["gpt-*", "gpt-", true],
    ["*", "openai/gpt-5", false],
    ["openai/*", "openai/gpt-5", true],
    ["**", "openai/azure/gpt-5", true],
    ["core__*", "core__metrics_query", true],
    ["core__*", "xcore__metrics_query", false],
    ["gpt.5", "gpt-5", false],
    ["https://github.com/acme/*", "https://github.com/acme/app", true],
    ["https://github.com/acme/*", "https://github.com/acme/group/app", false],
    ["https://github.com/acme/**", "https://github.com/acme/group/app", true],
    ["https://github.com/acme/*", "https://github.com/acme", false],
    ["a***c", "a/b/c", true],
    ["", "a", false]
  ])("matches %s with %s: %s", (pattern, text, isMatch) => {
    assert.strictEqual(matches(pattern, text), isMatch)
  })

  const Letter = Schema.Literals(["a", "b", "/", "*", "."])
  const Word = Schema.Array(Letter).check(Schema.isMaxLength(9))

  it.prop(
    "agrees with a regular expression on any pattern and text",
    [Word, Word],
    ([letters, others]) => {
      const pattern = letters.join("")
      const text = others.join("").replaceAll("*", "c")
      const source = pattern
        .replaceAll(".", "\\.")
        .replaceAll(/\*{2,}|\*/gu, (stars) => (stars === "*" ? "[^/]*" : "[^]*"))
      assert.strictEqual(matches(pattern, text), new RegExp(`^${source}$`, "u").test(text))
    },
    { arbitrary: { runs: 20_000, seed: "patterns-1" } }
  )

  it("matches a pattern full of wildcards in linear time", () => {
    const before = performance.now()
    assert.isFalse(matches(`${"**a".repeat(160)}b`, "a".repeat(2000)))
    assert.isBelow(performance.now() - before, Pace.allowed(5000))
  })

  it.each<[url: string, text: string | undefined]>([
    ["https://GitHub.com:443/acme/app/", "https://github.com/acme/app"],
    ["https://github.com:8443/acme/app", "https://github.com:8443/acme/app"],
    ["https://github.com/acme/app.git", "https://github.com/acme/app.git"],
    ["/srv/repositories/app", "/srv/repositories/app"],
    ["https://github.com/acme/../evil/app", undefined],
    ["https://github.com/acme/%2e%2e/evil", undefined],
    ["https://github.com/acme\\app", undefined],
    ["https://user@github.com/acme/app", undefined],
    ["https://github.com/acme/app?x", undefined],
    ["https://github.com/acme/app#x", undefined],
    ["https://github.com/acme//app", undefined],
    ["https://github.com/acme/a\tb", undefined],
    ["/srv/../etc/app", undefined],
    ["file:///srv/app", undefined],
    ["ssh://git@github.com/acme/app", undefined],
    ["https://github.com", undefined]
  ])("normalizes the repository %s to %s", (url, text) => {
    assert.strictEqual(repositoryText(url), text)
  })

  it("accepts only repository patterns with a literal server", () => {
    for (const pattern of [
      "**",
      "https://github.com/acme/*",
      "https://git.example.com:8443/**",
      "http://127.0.0.1:3000/acme/app",
      "/srv/repositories/**"
    ])
      assert.isTrue(isRepositoryPattern(pattern), pattern)
    for (const pattern of [
      "*",
      "https://**",
      "https://*/acme/app",
      "https://github.com*/acme/app",
      "https://github.com**",
      "https://*.example.com/acme/app",
      "https://GitHub.com/acme/app",
      "https://github.com:443/acme/app",
      "https://github.com/acme/",
      "https://github.com",
      "https://user@github.com/acme/app",
      "http://github.com/acme/app",
      "ssh://github.com/acme/app",
      "https://github.com/acme/app?x",
      ""
    ])
      assert.isFalse(isRepositoryPattern(pattern), pattern)
  })
})
