/**
 * A complete run on a repository: the command, a sealed agent, git over HTTP with a password, and the API of a forge.
 * The token is never exposed.
 */
import { assert, it } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { chmodSync, existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import * as CliProcess from "../harness/CliProcess.ts"
import * as GitHubDouble from "../harness/GitHubDouble.ts"
import * as GitOrigin from "../harness/GitOrigin.ts"
import * as ProcessSampler from "../harness/ProcessSampler.ts"
import * as RunHarness from "../harness/RunHarness.ts"

const token = "ghs_76_planted.for-the-whole-stack.0123456789abcdef"

interface Stage {
  readonly origin: GitOrigin.GitOrigin
  readonly api: GitHubDouble.GitHubDouble
  readonly env: Readonly<Record<string, string>>
}

/** Origin whose server also has the forge's API, like GitHub Enterprise. */
class Server extends Context.Service<Server, Stage>()("test/Server") {
  static readonly layer = Layer.effect(
    Server,
    Effect.gen(function* () {
      const origin = yield* GitOrigin.acquire({ password: token })
      const api = yield* GitHubDouble.make({ prefix: "/api/v3" })
      origin.extra = api.handle
      const file = join(yield* RunHarness.Directory, "token")
      writeFileSync(file, `${token}\n`)
      chmodSync(file, 0o600)
      return { origin, api, env: { GITHUB_SERVER_URL: origin.url, GITHUB_TOKEN_FILE: file } }
    })
  )
}

const layers = Server.layer.pipe(Layer.provideMerge(CliProcess.layer))

const files = {
  "package.json": '{"name":"app","private":true,"scripts":{"test":"node --test"}}\n',
  "add.js": "exports.add = (a, b) => a - b\n",
  "add.test.js":
    'const { add } = require("./add.js")\nrequire("node:test")("adds", () => require("node:assert").equal(add(1, 2), 3))\n'
}

/** Agent that repairs, tests, and commits half of its changes. */
const repair = `set -e
! node --test >/dev/null
sed -i 's/a - b/a + b/' add.js
node --test
git commit -qam 'Add what is to be added

Fixes #1, says @somebody'
echo repaired > NOTES.md`

const json = (stdout: Buffer) => JSON.parse(stdout.toString("utf8"))

it.layer(layers, { excludeTestServices: true })("a run on a repository", (it) => {
  it.effect("delivers its commits as a branch and a pull request, and a second run changes nothing", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const { api, env, origin } = yield* Server
      const { path, url } = yield* origin.make("acme/app", files)
      const before = yield* GitOrigin.refsOf(path)
      const argv = [
        "run",
        "--repo",
        url,
        "--branch",
        "repair",
        "--pr",
        "-o",
        "json",
        "--",
        "bash",
        "-c",
        repair
      ]
      const first = yield* cli.run(argv, { env })
      assert.strictEqual(first.code, 0, first.stderr)
      const { relay, runId } = json(first.stdout)
      assert.strictEqual(relay.status, "pushed")
      assert.strictEqual(relay.branch, "sandbox/repair")
      assert.strictEqual(yield* GitOrigin.branchAt(path, "sandbox/repair"), relay.tip)
      assert.strictEqual(
        yield* GitOrigin.git(path, "log", "--format=%an %s", "main..sandbox/repair"),
        "Cogni Sandbox Changes that the agent left uncommitted\nCogni Sandbox Add what is to be added"
      )
      assert.strictEqual(
        yield* GitOrigin.git(path, "show", "sandbox/repair:add.js"),
        "exports.add = (a, b) => a + b"
      )
      yield* GitOrigin.git(path, "fsck", "--strict", "--full")

      // The forge received exactly these requests.
      assert.deepStrictEqual(api.complaints, [])
      assert.deepStrictEqual(
        api.requests.map(({ method, path: asked }) => `${method} ${asked}`),
        ["GET /repos/acme/app/pulls", "POST /repos/acme/app/pulls"]
      )
      for (const { authorization } of api.requests) assert.strictEqual(authorization, `Bearer ${token}`)
      assert.deepInclude(api.requests[0]!.query, { head: "acme:sandbox/repair", base: "main", state: "open" })
      const [pull] = api.pulls
      assert.deepInclude(pull, { head: "sandbox/repair", base: "main", draft: true })
      assert.strictEqual(pull!.title, "Add what is to be added")
      assert.include(relay.pullRequestUrl, "/acme/app/pull/1")

      const kept = json((yield* cli.run(["inspect", runId, "-o", "json"])).stdout)
      assert.deepStrictEqual(kept.annotations.relay, relay)
      assert.strictEqual(relay.statement.subject[0].digest.gitCommit, relay.tip)

      const after = yield* GitOrigin.refsOf(path)
      const second = yield* cli.run(argv, { env })
      assert.strictEqual(second.code, 0, second.stderr)
      assert.strictEqual(json(second.stdout).relay.status, "unchanged")
      assert.strictEqual(json(second.stdout).relay.pullRequestUrl, relay.pullRequestUrl)
      assert.strictEqual(yield* GitOrigin.refsOf(path), after)
      assert.lengthOf(api.pulls, 1)
      assert.notStrictEqual(before, after)
      assert.deepStrictEqual(yield* cli.leftovers, [])
      assert.deepStrictEqual(readdirSync(join(cli.stateDirectory, "relays")), [])
    })
  )

  it.effect("exposes the token nowhere during and after the run, except in the caller's own file", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const { env, origin } = yield* Server
      const { path, url } = yield* origin.make("acme/watched", files)
      const planted = [{ name: "the token", secret: token }]
      const forms = ProcessSampler.formsOf(planted)
      const sampler = yield* ProcessSampler.acquire(planted)
      // The agent searches too, and prints what it can see. The test then searches its output.
      const look =
        "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null; git config --list --show-origin; ls -la .git"
      const argv = [
        "run",
        "--repo",
        url,
        "--pr",
        "--log-level",
        "debug",
        "--",
        "bash",
        "-c",
        `${look}; echo x > x`
      ]
      const run = yield* cli.run(argv, {
        env: { ...env, GIT_TRACE: "2", GIT_TRACE_CURL: "2", GIT_CURL_VERBOSE: "1" }
      })
      assert.strictEqual(run.code, 0, run.stderr)
      // Failed runs must not expose it either: one refused by the policy, one by the origin.
      const refused = yield* cli.run(["run", "--repo", url, "--", "bash", "-c", "echo > .gitlab-ci.yml"], {
        env
      })
      assert.strictEqual(refused.code, 77)
      origin.trouble = ({ path: asked }) =>
        asked.includes("receive-pack") ? { _tag: "Status", status: 403 } : undefined
      const shut = yield* cli.run(["run", "--repo", url, "--", "bash", "-c", "echo > y"], { env })
      origin.trouble = () => undefined
      assert.strictEqual(shut.code, 75, shut.stderr)

      const { processes, programs, sightings } = yield* sampler.report
      assert.deepStrictEqual(sightings, [])
      assert.isAbove(processes, 20)
      assert.isTrue(
        programs.some((program) => program.includes("git-remote-http")),
        programs.join(" ")
      )
      assert.deepStrictEqual(
        ProcessSampler.inTexts(forms, {
          stdout: run.stdout,
          stderr: run.stderr + refused.stderr + shut.stderr
        }),
        []
      )
      // Kept workspaces, mirrors, records, and the repository at the origin.
      assert.deepStrictEqual(yield* ProcessSampler.inTree(forms, join(cli.stateDirectory, "relays")), [])
      assert.deepStrictEqual(yield* ProcessSampler.inTree(forms, join(cli.stateDirectory, "mirrors")), [])
      assert.deepStrictEqual(yield* ProcessSampler.inTree(forms, join(cli.stateDirectory, "runs")), [])
      assert.deepStrictEqual(yield* ProcessSampler.inTree(forms, path), [])
      for (const { runId } of json((yield* cli.run(["relay", "list", "-o", "json"])).stdout))
        yield* cli.run(["relay", "drop", runId])
    }).pipe(Effect.scoped)
  )

  it.effect("keeps commits that the policy refuses, reports a remedy, and can retry or drop them", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const { env, origin } = yield* Server
      const { path, url } = yield* origin.make("acme/policy", files)
      const script = "mkdir -p .github/workflows; echo 'on: push' > .github/workflows/x.yml"
      const refused = yield* cli.run(["run", "--repo", url, "--", "bash", "-c", script], { env })
      assert.strictEqual(refused.code, 77, refused.stderr)
      assert.include(refused.stderr, "protected-path")
      assert.include(refused.stderr, ".github/workflows/x.yml")
      const [kept] = json((yield* cli.run(["relay", "list", "-o", "json"])).stdout)
      assert.strictEqual(kept.stage, "collected")
      const again = yield* cli.run(["relay", "retry", kept.runId, "-o", "json"], { env })
      assert.strictEqual(again.code, 77)
      assert.deepInclude(json(again.stdout).error, { code: "refused", reason: "PolicyRefused" })
      assert.strictEqual((yield* cli.run(["relay", "drop", kept.runId])).code, 0)
      for (const verb of ["retry", "drop"]) {
        const nothing = yield* cli.run(["relay", verb, kept.runId])
        assert.strictEqual(nothing.code, 66, nothing.stderr)
        assert.include(nothing.stderr, "are kept")
      }
      assert.notInclude(yield* GitOrigin.refsOf(path), "sandbox/")
    })
  )

  it.effect("keeps the commits of a failed run, and pushes them only on request", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const { env, origin } = yield* Server
      const { path, url } = yield* origin.make("acme/fails", files)
      const script = "echo half > half.txt; exit 3"
      const failed = yield* cli.run(["run", "--repo", url, "--", "bash", "-c", script], { env })
      assert.strictEqual(failed.code, 3)
      assert.notInclude(yield* GitOrigin.refsOf(path), "sandbox/")
      const timedOut = yield* cli.run(
        [
          "run",
          "--repo",
          url,
          "--timeout",
          "1s",
          "--grace",
          "0s",
          "--output",
          "json",
          "--quiet",
          "--",
          "bash",
          "-c",
          "echo late > late.txt; sleep 60"
        ],
        { env }
      )
      assert.strictEqual(timedOut.code, 124)
      const late = json(timedOut.stdout)
      assert.deepInclude(late.error, { reason: "TimedOut" })
      assert.strictEqual(late.relay.status, "kept")
      assert.include(timedOut.stderr, `To deliver them: cogni-sandbox relay retry ${late.runId}`)
      const record = json((yield* cli.run(["inspect", late.runId, "-o", "json"])).stdout)
      assert.deepStrictEqual(record.annotations.relay, late.relay)
      const kept = json((yield* cli.run(["relay", "list", "-o", "json"])).stdout)
      assert.lengthOf(kept, 2)
      for (const { branch, runId } of kept) {
        const retried = yield* cli.run(["relay", "retry", runId], { env })
        assert.strictEqual(retried.code, 0, retried.stderr)
        assert.isDefined(yield* GitOrigin.branchAt(path, branch))
      }
      assert.deepStrictEqual(json((yield* cli.run(["relay", "list", "-o", "json"])).stdout), [])
    })
  )

  it.effect("pushes to a local repository without running its hooks", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const { origin } = yield* Server
      const { path } = yield* origin.make("acme/local", files)
      const marker = join(yield* RunHarness.Directory, "hook-ran")
      for (const hook of ["pre-receive", "update", "post-receive", "reference-transaction", "post-update"])
        yield* GitOrigin.hook(path, hook, `touch ${marker}`)
      const patch = join(yield* RunHarness.Directory, "p.patch")
      const pushed = yield* cli.run([
        "run",
        "--repo",
        path,
        "-o",
        "json",
        "--",
        "bash",
        "-c",
        "echo x > x.txt"
      ])
      assert.strictEqual(pushed.code, 0, pushed.stderr)
      const { relay } = json(pushed.stdout)
      assert.strictEqual(yield* GitOrigin.branchAt(path, relay.branch), relay.tip)
      assert.isFalse(existsSync(marker))
      const written = yield* cli.run([
        "run",
        "--repo",
        path,
        "--patch",
        patch,
        "--",
        "bash",
        "-c",
        "echo y > y.txt"
      ])
      assert.strictEqual(written.code, 0, written.stderr)
      assert.match(readFileSync(patch, "utf8"), /^From [0-9a-f]{40} .*\n.*\n.*\nSubject: Changes that/u)
      assert.deepStrictEqual(readdirSync(join(cli.stateDirectory, "relays")), [])
    })
  )

  it.effect("never pushes a run with --patch, unless a retry names a branch, and replaces an old patch", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const { origin } = yield* Server
      const { path } = yield* origin.make("acme/patch", files)
      const before = yield* GitOrigin.refsOf(path)
      const patch = join(yield* RunHarness.Directory, "kept.patch")
      const run = (...command: ReadonlyArray<string>) =>
        cli.run(["run", "--repo", path, "--patch", patch, "--", ...command])
      const kept = Effect.map(cli.run(["relay", "list", "-o", "json"]), ({ stdout }) => json(stdout))

      writeFileSync(patch, "OLD")
      const idle = yield* run("true")
      assert.strictEqual(idle.code, 0, idle.stderr)
      assert.include(idle.stderr, `nothing was committed: ${patch} is empty`)
      assert.strictEqual(readFileSync(patch, "utf8"), "")

      const failed = yield* run("bash", "-c", "echo half > half.txt; exit 3")
      assert.strictEqual(failed.code, 3, failed.stderr)
      const [{ runId }] = yield* kept
      assert.include(failed.stderr, `cogni-sandbox relay retry ${runId} --patch ${patch}`)
      const pushing = yield* cli.run(["relay", "retry", runId])
      assert.strictEqual(pushing.code, 64, pushing.stderr)
      assert.include(pushing.stderr, `${runId} was started with --patch`)
      assert.lengthOf(yield* kept, 1)
      const retried = yield* cli.run(["relay", "retry", runId, "--patch", patch])
      assert.strictEqual(retried.code, 0, retried.stderr)
      assert.include(readFileSync(patch, "utf8"), "half.txt")

      const refused = yield* run("bash", "-c", "mkdir -p .github/workflows; echo > .github/workflows/x.yml")
      assert.strictEqual(refused.code, 77, refused.stderr)
      const [other] = yield* kept
      assert.include(refused.stderr, `relay retry ${other.runId} --patch ${patch}`)
      assert.strictEqual((yield* cli.run(["relay", "drop", other.runId])).code, 0)
      assert.strictEqual(yield* GitOrigin.refsOf(path), before)

      // A retry that names a branch pushes it.
      yield* run("bash", "-c", "echo half > half.txt; exit 3")
      const [last] = yield* kept
      const named = yield* cli.run(["relay", "retry", last.runId, "--branch", "after-all"])
      assert.strictEqual(named.code, 0, named.stderr)
      assert.isDefined(yield* GitOrigin.branchAt(path, "sandbox/after-all"))
    })
  )
})
