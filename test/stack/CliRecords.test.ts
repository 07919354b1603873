/** The commands that show and remove running and ended runs. */
import { assert, layer } from "@effect/vitest"
import * as DemoUpstream from "@cogni/sandbox-proxy/DemoUpstream"
import { Effect } from "effect"
import { existsSync, mkdirSync, utimesSync } from "node:fs"
import { join } from "node:path"
import * as CliProcess from "../harness/CliProcess.ts"
import { complaint, key } from "../harness/CliWorld.ts"
import * as Images from "../harness/Images.ts"

const suite = layer(CliProcess.layer, { excludeTestServices: true })

suite("records of runs", (it) => {
  it.effect(
    "ps, top and logs --follow show a running run, prune does not touch it, and prune --all refuses while it runs",
    () =>
      Effect.gen(function* () {
        const cli = yield* CliProcess.CliProcess
        const started = yield* cli.start([
          "run",
          "-q",
          "--run-id",
          "run-living-one",
          "--",
          "sh",
          "-c",
          "echo up; sleep 60"
        ])
        yield* started.said(/^up$/mu)
        const listed = (yield* cli.run(["ps"])).stdout.toString()
        assert.match(listed, /^RUN +STATUS +STARTED +TOOK +COMMAND\nrun-living-one +running +/u)
        assert.containSubset(JSON.parse((yield* cli.run(["ps", "-o", "json"])).stdout.toString()), [
          { runId: "run-living-one", status: "running" }
        ])
        const printed = yield* cli.run(["logs", "run-living-one"])
        assert.deepStrictEqual([printed.code, printed.stdout.toString()], [0, "up\n"])
        assert.containSubset(
          JSON.parse((yield* cli.run(["top", "--once", "-o", "json"])).stdout.toString()),
          [{ runId: "run-living-one" }]
        )
        const follower = yield* cli.start(["logs", "--follow", "run-living-one"])
        yield* follower.said(/^up$/mu)
        assert.strictEqual((yield* cli.run(["prune"])).code, 0)
        const refused = yield* cli.run(["prune", "--all"])
        assert.strictEqual(refused.code, 65)
        assert.include(complaint(refused.stderr), "run-living-one")
        assert.isNull(started.child.exitCode)
        assert.isAbove((yield* cli.leftovers).length, 0)
        yield* started.kill("SIGTERM")
        yield* started.ended
        const followed = yield* follower.ended
        assert.deepStrictEqual([followed.code, followed.stdout.toString()], [0, "up\n"])
        assert.strictEqual((yield* cli.run(["ps"])).stdout.length, 0)
        assert.include((yield* cli.run(["ps", "--all"])).stdout.toString(), "interrupted")
      })
  )

  it.effect(
    "logs prints a run's output, inspect prints its record, and both refuse an ambiguous prefix of its ID",
    () =>
      Effect.gen(function* () {
        const cli = yield* CliProcess.CliProcess
        yield* cli.run([
          "run",
          "-q",
          "--run-id",
          "run-looked-at-1",
          "--",
          "sh",
          "-c",
          "echo out; echo err >&2; exit 4"
        ])
        yield* cli.run([
          "run",
          "-q",
          "--run-id",
          "run-looked-at-2",
          "--timeout",
          "1s",
          "--",
          "sh",
          "-c",
          "echo half; sleep 30"
        ])
        assert.strictEqual((yield* cli.run(["logs", "run-looked-at-1"])).stdout.toString(), "out\n")
        assert.strictEqual(
          (yield* cli.run(["logs", "run-looked-at-1", "--stderr"])).stdout.toString(),
          "err\n"
        )
        assert.strictEqual((yield* cli.run(["logs", "run-looked-at-2"])).stdout.toString(), "half\n")
        assert.containSubset(
          JSON.parse((yield* cli.run(["inspect", "run-looked-at-1", "-o", "json"])).stdout.toString()),
          {
            runId: "run-looked-at-1",
            outcome: { status: "exited", result: { exitCode: 4 } },
            posture: { interfaces: ["lo"], noNewPrivileges: true }
          }
        )
        assert.containSubset(
          JSON.parse((yield* cli.run(["inspect", "run-looked-at-2", "-o", "json"])).stdout.toString()),
          {
            outcome: { status: "failed", reason: "TimedOut", code: "timeout" }
          }
        )
        const posture = JSON.parse(
          (yield* cli.run(["inspect", "--posture", "run-looked-at-1"])).stdout.toString()
        )
        assert.strictEqual(posture.seccompMode, 2)
        const many = yield* cli.run(["inspect", "run-looked"])
        assert.strictEqual(many.code, 66)
        assert.include(complaint(many.stderr), "several runs begin with run-looked")
        const records = JSON.parse((yield* cli.run(["ps", "--all", "-o", "json"])).stdout.toString())
        assert.containSubset(records, [
          { runId: "run-looked-at-2", status: "failed", reason: "TimedOut" },
          { runId: "run-looked-at-1", exitCode: 4 }
        ])
      })
  )

  it.effect("prune removes the leftovers of a dead process, and deletes records only on request", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const prunedAfter = Effect.fnUntraced(function* (runId: string) {
        const started = yield* cli.start([
          "run",
          "-q",
          "--run-id",
          runId,
          "--",
          "sh",
          "-c",
          "echo up; sleep 60"
        ])
        yield* started.said(/^up$/mu)
        yield* started.kill("SIGKILL")
        yield* started.ended
        const { abandoned, removed } = JSON.parse(
          (yield* cli.run(["prune", "--output", "json"])).stdout.toString()
        )
        assert.include(abandoned, runId)
        assert.deepStrictEqual(yield* cli.leftovers, [])
        return removed.includes(`cogni-${runId}-agent`)
      })
      // A command of another test also removes orphaned resources, and may do so first.
      let isRemoved = false
      for (const runId of ["run-killed-two", "run-killed-three", "run-killed-four", "run-killed-five"])
        isRemoved ||= yield* prunedAfter(runId)
      assert.isTrue(isRemoved)
      assert.include((yield* cli.run(["ps", "--all"])).stdout.toString(), "run-killed-two")
      assert.match(
        (yield* cli.run(["prune", "--records", "--dry-run"])).stdout.toString(),
        /would delete the records of \d+ runs?/u
      )
      assert.include((yield* cli.run(["ps", "--all"])).stdout.toString(), "run-killed-two")
      const session = join(cli.stateDirectory, "sessions", "0".repeat(32))
      mkdirSync(session, { recursive: true })
      // The directory of a process that cannot be checked, older than any run.
      const waited = join(cli.stateDirectory, "waiting", crypto.randomUUID())
      mkdirSync(join(waited, "inputs"), { recursive: true })
      utimesSync(waited, 0, 0)
      const shown = yield* cli.run(["prune", "--sessions", "--dry-run"])
      assert.include(shown.stdout.toString(), `would delete ${session}`)
      assert.include(shown.stdout.toString(), `would delete ${waited}`)
      assert.isTrue(existsSync(session) && existsSync(waited))
      const deleted = (yield* cli.run(["prune", "--sessions"])).stdout.toString()
      for (const path of [session, waited]) {
        assert.include(deleted, `deleted ${path}`)
        assert.isFalse(existsSync(path))
      }
      const packages = join(cli.stateDirectory, "packages")
      mkdirSync(packages, { recursive: true })
      const cached = yield* cli.run(["prune", "--cache", "--dry-run"])
      assert.include(cached.stdout.toString(), `would delete ${packages}`)
      assert.isTrue(existsSync(packages))
      assert.include((yield* cli.run(["prune", "--cache"])).stdout.toString(), `deleted ${packages}`)
      assert.isFalse(existsSync(packages))
      assert.match(
        (yield* cli.run(["prune", "--records"])).stdout.toString(),
        /deleted the records of \d+ runs?/u
      )
      assert.strictEqual((yield* cli.run(["ps", "--all"])).stdout.length, 0)
    })
  )

  it.effect("doctor reports that this machine is ready, or exits with 1 and names what to fix", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const ready = yield* cli.run(["doctor", "--output", "json"])
      const { findings, ok } = JSON.parse(ready.stdout.toString())
      assert.isTrue(ok, ready.stdout.toString())
      assert.strictEqual(ready.code, 0)
      const checks = findings.map((one: { readonly check: string }) => one.check)
      assert.includeMembers(checks, [
        "engine",
        "api version",
        "storage driver",
        "cgroups",
        "image runtime",
        "image proxy",
        "socket",
        "user",
        "disk for records",
        "upstream"
      ])
      const broken = yield* cli.run(["doctor"], {
        env: { COGNI_RUNTIME_IMAGE: Images.absent, COGNI_LLM_URL: "http://127.0.0.1:9" }
      })
      assert.strictEqual(broken.code, 1)
      assert.match(broken.stdout.toString(), /✗ {2}image runtime .*\n {3}→ Build it/u)
      assert.match(broken.stdout.toString(), /✗ {2}upstream .*COGNI_LLM_KEY/u)
      const away = yield* cli.run(["doctor"], { env: { DOCKER_HOST: "unix:///proc/nowhere/docker.sock" } })
      assert.strictEqual(away.code, 1)
      assert.include(away.stdout.toString(), "/proc/nowhere/docker.sock")
    })
  )

  it.effect("doctor asks a configured model API without the key, and gives the key to LiteLLM alone", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const { received, url } = yield* DemoUpstream.acquire({ raw: true })
      const env = { COGNI_LLM_URL: url, COGNI_LLM_KEY: key, COGNI_LLM_MODEL: "m" }
      const other = yield* cli.run(["doctor"], { env: { ...env, COGNI_LLM_PROFILE: "openai" } })
      assert.strictEqual(other.code, 0)
      assert.match(other.stdout.toString(), /✓ {2}upstream .*answers; model m/u)
      assert.deepStrictEqual(
        (yield* received).map(({ target }) => target),
        ["/v1/models"]
      )
      assert.notInclude(JSON.stringify(yield* received), key)
      const liteLlm = yield* cli.run(["doctor"], { env })
      assert.match(liteLlm.stdout.toString(), /! {2}litellm .*version/u)
      const asked = (yield* received).slice(1)
      assert.sameMembers(
        asked.map(({ target }) => target),
        ["/v1/models", "/health/readiness/details"]
      )
      assert.deepStrictEqual(
        asked.filter((request) => JSON.stringify(request).includes(key)).map(({ target }) => target),
        ["/health/readiness/details"]
      )
    })
  )
})
