/** The flags for a repository, and the request to the relay that they become. */
import { assert, describe, it } from "@effect/vitest"
import * as RunId from "@cogni/sandbox-core/RunId"
import * as RepoPlan from "../src/RepoPlan.ts"
import { Result } from "effect"

const runId = RunId.RunId.make("run-000000000001")
const of = (flags: Parameters<typeof RepoPlan.make>[0]) => RepoPlan.make(flags, runId)
const planned = (flags: Parameters<typeof of>[0]) => {
  const plan = of(flags)
  return Result.isSuccess(plan) ? plan.success?.request : assert.fail(plan.failure.message)
}
const url = "https://github.com/acme/app"

describe("RepoPlan", () => {
  it("does not exist without --repo", () => {
    assert.deepStrictEqual(of({}), Result.succeed(undefined) as never)
  })

  it("pushes, and commits leftovers, by default", () => {
    assert.deepStrictEqual(planned({ repo: url }) as unknown, {
      runId,
      url,
      deliver: "push",
      uncommittedMessage: "Changes that the agent left uncommitted"
    })
    assert.deepStrictEqual(
      planned({ repo: url, base: "release/1", branch: "fix", depth: 3, pr: true, noCommit: true }) as unknown,
      {
        runId,
        url,
        baseBranch: "release/1",
        branch: "sandbox/fix",
        depth: 3,
        createPr: true,
        deliver: "push",
        uncommittedMessage: undefined
      }
    )
    assert.strictEqual(planned({ repo: url, patch: "/tmp/x" })?.deliver, "patch")
    assert.strictEqual(planned({ repo: url, branch: "sandbox/fix" })?.branch, "sandbox/fix")
    assert.strictEqual(planned({ repo: url, commitMessage: "left" })?.uncommittedMessage, "left")
  })

  it("resolves a path on this host to an absolute path", () => {
    assert.strictEqual(planned({ repo: "." })?.url, process.cwd())
    assert.strictEqual(planned({ repo: "/srv/app.git" })?.url, "/srv/app.git")
    assert.strictEqual(planned({ repo: "./a:b" })?.url, `${process.cwd()}/a:b`)
  })

  const refusals: ReadonlyArray<readonly [Parameters<typeof of>[0], string]> = [
    [{ base: "main" }, "--base has no effect without --repo"],
    [{ push: true }, "--push has no effect"],
    [{ pr: true }, "--pr has no effect"],
    [{ noCommit: true }, "--no-commit has no effect"],
    [{ repo: url, workspace: "/w" }, "--workspace"],
    [{ repo: url, patch: "/p", pr: true }, "--patch excludes --pr"],
    [{ repo: url, patch: "/p", push: true }, "--patch excludes --push"],
    [{ repo: url, noCommit: true, commitMessage: "x" }, "--no-commit excludes"],
    [{ repo: "git@github.com:acme/app" }, "ssh"],
    [{ repo: "ssh://git@github.com/acme/app" }, "not a plain https URL"],
    [{ repo: "https://token@github.com/acme/app" }, "not a plain https URL"],
    [{ repo: "file:///srv/app.git" }, "or name the path of a repository of this host"],
    [{ repo: "ext::sh -c id" }, "ssh"],
    [{ repo: "/srv/app", pr: true }, "no pull requests"],
    [{ repo: url, base: "-x" }, "not a plain branch name"],
    [{ repo: url, branch: "../main" }, "not a branch name that runs may use"],
    [{ repo: url, branch: "sandbox/a;b" }, "not a branch name that runs may use"]
  ]
  it.each(refusals)("%j is refused", (flags, why) => {
    const plan = of(flags)
    assert.isTrue(Result.isFailure(plan))
    if (Result.isFailure(plan)) {
      assert.include(plan.failure.message, why)
      assert.strictEqual(plan.failure.exit, "usage")
      assert.isNotEmpty(plan.failure.remedy)
    }
  })
})
