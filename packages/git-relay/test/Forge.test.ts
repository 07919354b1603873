/** The kind of forge of a server, and the address of its API. */
import { assert, describe, it } from "@effect/vitest"
import { kindOf } from "@cogni/sandbox-git-relay/forge/Forge"
import { apiUrlOf } from "../src/internal/forge/GitHubPullRequests.ts"

const forges = { "https://code.example.com": "gitlab", "https://gitlab.example.org/": "github" } as const

describe("Forge", () => {
  it.each([
    ["https://github.com/a/b", "github"],
    ["https://gitlab.com/a/b", "gitlab"],
    ["https://gitlab.example.com:8443/a/b", "gitlab"],
    ["https://git.example.com/gitlab.com/b", "github"],
    ["https://notgitlab.example.com/a/b", "github"],
    ["https://code.example.com/a/b", "gitlab"],
    ["https://code.example.com:8443/a/b", "github"],
    ["https://gitlab.example.org/a/b", "github"]
  ] as const)("%s is a %s", (url, kind) => assert.strictEqual(kindOf(url, { forges }), kind))

  it.each([
    ["https://github.com/a/b", undefined, "https://api.github.com"],
    ["https://git.example.com:8443/a/b.git", undefined, "https://git.example.com:8443/api/v3"],
    ["https://github.com.evil.example/a/b", undefined, "https://github.com.evil.example/api/v3"],
    ["https://github.com/a/b", "https://proxy.example.com/api/", "https://proxy.example.com/api"]
  ] as const)("the API of %s, with %s, is at %s", (url, apiUrl, at) =>
    assert.strictEqual(apiUrlOf(url, apiUrl), at)
  )
})
