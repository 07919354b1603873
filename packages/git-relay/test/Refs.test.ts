/** Names that the relay accepts, and names that it refuses. */
import { assert, describe, it } from "@effect/vitest"
import { RunId } from "@cogni/sandbox-core/RunId"
import {
  BaseBranch,
  BranchName,
  branchOf,
  isLocal,
  OriginUrl,
  repositoryOf,
  serverOf
} from "@cogni/sandbox-git-relay/Refs"
import { Schema } from "effect"

describe("Refs", () => {
  it.each([
    "main",
    "HEAD",
    "sandbox/",
    "sandbox/a..b",
    "sandbox/a.lock",
    "sandbox/$(id)",
    "sandbox/a;b",
    "sandbox/-x",
    "sandbox/a b",
    "sandbox/a/b",
    "refs/heads/sandbox/ab",
    "Sandbox/ab",
    "sandbox/ab\n",
    `sandbox/${"a".repeat(65)}`
  ])("a run never gets the branch %s", (name) => assert.isFalse(Schema.is(BranchName)(name)))

  it.prop("gives every run a valid branch", [RunId], ([runId]) => {
    assert.isTrue(Schema.is(BranchName)(branchOf(runId)))
  })

  it.each(["-x", "a..b", "a b", "/main", "main/", "a//b", "x.lock", "a/.b", "main\n", "a.lock/b", "@{u}"])(
    "refuses %s as a base branch",
    (name) => assert.isFalse(Schema.is(BaseBranch)(name))
  )

  it.each([
    "https://token@git.example.com/a/b",
    "https://git.example.com/a/b?x=1",
    "https://git.example.com/a/b#x",
    "https://git.example.com/",
    "https://git.example.com/../a",
    "https://git.example.com/-a/b",
    "http://git.example.com/a/b",
    "http://127.0.0.1.evil.example/a/b",
    "ext::sh -c id",
    "file:///etc",
    "ssh://git@github.com/a/b",
    "git@github.com:a/b",
    "--upload-pack=id",
    "relative/path",
    "/with\nline",
    ""
  ])("refuses %j as an origin", (url) => assert.isFalse(Schema.is(OriginUrl)(url)))

  it.each([
    "https://github.com/acme/app",
    "https://github.com/acme/app.git",
    "https://git.example.com:8443/group/sub/app.git/",
    "http://127.0.0.1:3000/a/b.git",
    "http://localhost/a/b",
    "/srv/git/app.git",
    "/srv/a project"
  ])("accepts %s as an origin", (url) => assert.isTrue(Schema.is(OriginUrl)(url)))

  it("reads server and repository from the URL", () => {
    assert.isTrue(isLocal("/srv/git/app.git"))
    assert.isFalse(isLocal("https://github.com/a/b"))
    assert.strictEqual(serverOf("https://GitHub.com:443/a/b.git"), "https://github.com")
    assert.strictEqual(repositoryOf("https://git.example.com:8443/group/sub/app.git/"), "group/sub/app")
  })

  it("accepts release/1.2 and main as base branches", () => {
    for (const name of ["release/1.2", "main", "feature/a_b-c.d"])
      assert.isTrue(Schema.is(BaseBranch)(name), name)
  })
})
