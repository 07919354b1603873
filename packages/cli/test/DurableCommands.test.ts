/** `worker` and `submit` before they reach a server, and their reports. `test/stack/Durable.test.ts` tests the rest. */
import * as NodeServices from "@effect/platform-node/NodeServices"
import type { DurableOutcome, AttemptReport } from "@cogni/sandbox-temporal/DurableRun"
import type { RunScheduleState } from "@cogni/sandbox-temporal/RunSchedule"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Layer } from "effect"
import { TestClock } from "effect/testing"
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as Cli from "../src/Cli.ts"
import * as Output from "../src/Output.ts"
import { render as renderSchedules } from "../src/ScheduleCommand.ts"
import { exitOf, noteIfUntaken, render } from "../src/SubmitCommand.ts"
import * as TemporalPackage from "../src/TemporalPackage.ts"

const cli = (argv: ReadonlyArray<string>, variables: Readonly<Record<string, string>> = {}) =>
  Effect.gen(function* () {
    const memory = Output.makeMemory()
    const environment = { COGNI_STATE_DIR: "/proc/nowhere/at/all", ...variables }
    const code = yield* Cli.main({ argv, environment }).pipe(
      Effect.provide(Layer.merge(NodeServices.layer, memory.layer))
    )
    return { ...memory.said, code }
  })

const file = (text: string, mode: number) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-durable-"))),
      (path) => Effect.sync(() => rmSync(path, { recursive: true }))
    ),
    (directory) => {
      const path = join(directory, "file")
      writeFileSync(path, text)
      chmodSync(path, mode)
      return path
    }
  )

const outcome = (over: Partial<DurableOutcome>): DurableOutcome => ({
  runId: "run-durable",
  status: "succeeded",
  attempts: [],
  ...over
})

describe("worker", () => {
  const worker = (over: ReadonlyArray<string>, token: string) =>
    cli(["worker", "--name", "host-1", "--token-file", token, ...over])

  it.effect("refuses a keeper to which it would send tokens in the clear, and one that is no address", () =>
    Effect.gen(function* () {
      const token = yield* file("cgs_x", 0o600)
      for (const url of ["http://10.0.0.1:8787", "http://keeper.example.com"]) {
        const { code, stderr } = yield* worker(["--keeper", url], token)
        assert.strictEqual(code, 64)
        assert.include(stderr, "in the clear")
      }
      for (const url of ["keeper", "ftp://127.0.0.1", "http://user:secret@127.0.0.1"]) {
        const { code, stderr } = yield* worker(["--keeper", url], token)
        assert.strictEqual(code, 64)
        assert.include(stderr, "is not an address of a server")
      }
    })
  )

  it.effect("refuses a name that could not name a queue, and a token that others can read", () =>
    Effect.gen(function* () {
      const named = yield* worker(["--name", "host 1"], "token")
      assert.strictEqual(named.code, 64)
      const { code, stderr } = yield* worker([], yield* file("cgs_secret", 0o644))
      assert.strictEqual(code, 78)
      assert.include(stderr, "accessible to other users")
      assert.notInclude(stderr, "cgs_secret")
    })
  )

  it.effect("refuses a version without a deployment, and a deployment that Temporal could not name", () =>
    Effect.gen(function* () {
      for (const argv of [
        ["--build-id", "1.0.0"],
        ["--deployment", "a.b"]
      ]) {
        const { code, stderr } = yield* worker(argv, "token")
        assert.strictEqual(code, 64)
        assert.include(stderr, "--deployment")
      }
    })
  )

  it.effect("needs a token", () =>
    Effect.map(cli(["worker", "--name", "host-1"]), ({ code }) => assert.strictEqual(code, 64))
  )
})

describe("serve --durable", () => {
  it.effect("refuses flags about runs, which would have no effect, and says where they belong", () =>
    Effect.gen(function* () {
      for (const flag of [
        ["--demo"],
        ["--share-events"],
        ["--pool", "2"],
        ["--pool-memory", "2g"],
        ["--proxy", "nginx"],
        ["--canaries", "stop"],
        ["--offer-model", "gpt"],
        ["--max-cost", "1"],
        ["--reconcile-every", "0s"]
      ]) {
        const { code, stderr } = yield* cli(["serve", "--durable", "--port", "0", ...flag])
        assert.strictEqual(code, 64, stderr)
        assert.include(stderr, `${flag[0]} has no effect with --durable`)
        assert.include(stderr, "on the hosts")
      }
    })
  )
})

describe("serve without --durable", () => {
  it.effect("refuses flags about Temporal, which would have no effect", () =>
    Effect.gen(function* () {
      for (const flag of [
        ["--temporal", "127.0.0.1:7233"],
        ["--temporal-tls"],
        ["--temporal-ca-file", "ca.pem"],
        ["--namespace", "default"],
        ["--queue", "gpus"],
        ["--time-limit", "1h"],
        ["--placement-limit", "1m"],
        ["--no-search"]
      ]) {
        const { code, stderr } = yield* cli(["serve", "--port", "0", ...flag])
        assert.strictEqual(code, 64, stderr)
        assert.include(stderr, `${flag[0]} has no effect without --durable`)
      }
    })
  )
})

describe("submit", () => {
  const submit = (...argv: ReadonlyArray<string>) => cli(["submit", "--grant", "grant-1", ...argv])

  it.effect("refuses a run without a prompt, with two, and one that is invalid", () =>
    Effect.gen(function* () {
      assert.strictEqual((yield* submit()).code, 64)
      const request = yield* file('{"graphId": "sandbox:agent"}', 0o600)
      assert.strictEqual((yield* submit("Where?", "--request", request)).code, 64)
      const incomplete = yield* submit("--request", request)
      assert.strictEqual(incomplete.code, 65)
      assert.include(incomplete.stderr, "request.messages")
      assert.strictEqual((yield* submit("--request", yield* file("{", 0o600))).code, 65)
      const long = yield* submit("Where?", "--run-id", "r".repeat(48))
      assert.strictEqual(long.code, 65)
      assert.include(long.stderr, "runId")
    })
  )

  it.effect("says once that no worker polls the queue, if that is so after ten seconds", () =>
    Effect.gen(function* () {
      for (const [hasWorkers, expected] of [
        [false, /^· no worker polls queue gpus\. .*--queue/u],
        [true, /^$/u]
      ] as const) {
        const memory = Output.makeMemory()
        const noting = yield* Effect.forkChild(
          noteIfUntaken(Effect.succeed(hasWorkers), "gpus").pipe(Effect.provide(memory.layer))
        )
        yield* TestClock.adjust("9 seconds")
        assert.strictEqual(memory.said.stderr, "")
        yield* TestClock.adjust("1 second")
        yield* Fiber.join(noting)
        assert.match(memory.said.stderr, expected)
      }
    })
  )

  it.effect("refuses a pull request and a branch without a repository", () =>
    Effect.gen(function* () {
      for (const flag of [["--pr"], ["--base", "main"]]) {
        const { code, stderr } = yield* submit("Where?", ...flag)
        assert.strictEqual(code, 64)
        assert.include(stderr, "Name the repository with --repo")
      }
    })
  )

  it("has an exit code for each end", () => {
    const codes: ReadonlyArray<readonly [Partial<DurableOutcome>, string]> = [
      [{}, "success"],
      [{ status: "failed", reason: "OomKilled" }, "oom"],
      [{ status: "failed", reason: "AgentFailed" }, "fault"],
      [{ status: "failed", reason: "toString" }, "fault"],
      [{ status: "failed", reason: "NotDelivered" }, "undelivered"],
      [{ status: "refused", reason: "NoRoom" }, "unavailable"],
      [{ status: "refused", reason: "GrantExpired" }, "input"],
      [{ status: "lost", reason: "HostLost" }, "unavailable"],
      [{ status: "stopped", reason: "Cancelled" }, "interrupted"],
      [{ status: "stopped", reason: "WallClockExceeded" }, "timeout"]
    ]
    for (const [over, name] of codes) assert.strictEqual(exitOf(outcome(over)), name, JSON.stringify(over))
  })

  it("reports each attempt, with its cost and its delivery, in one line", () => {
    const attempt: AttemptReport = {
      runId: "run-durable",
      attempt: 0,
      host: "host-1",
      status: "abandoned",
      spend: { calls: 2, costUsd: 0.25, isFinal: false },
      lastEventId: 3
    }
    const attempts = [
      attempt,
      {
        ...attempt,
        runId: "run-durable-a1",
        status: "succeeded",
        spend: { calls: 0, isFinal: true },
        delivery: "pushed",
        branch: "sandbox/fix"
      }
    ]
    assert.deepStrictEqual(render(outcome({ status: "failed", reason: "Bad\nLine", attempts })), [
      "run-durable failed: Bad Line",
      "  run-durable on host-1: abandoned, cost $0.25 or more",
      "  run-durable-a1 on host-1: succeeded, cost $0, pushed sandbox/fix"
    ])
  })
})

describe("the connection to Temporal", () => {
  const submit = (argv: ReadonlyArray<string>, variables?: Readonly<Record<string, string>>) =>
    cli(["submit", "Where?", "--grant", "grant-1", ...argv], variables)

  it.effect("is refused without TLS to another machine, by a flag and by a variable", () =>
    Effect.gen(function* () {
      const remote = "10.0.0.1:7233"
      for (const { code, stderr } of [
        yield* submit(["--temporal", remote]),
        yield* submit([], { COGNI_TEMPORAL_ADDRESS: remote })
      ]) {
        assert.strictEqual(code, 64)
        assert.include(stderr, "--temporal-insecure")
      }
      const unknown = yield* submit(["--temporal", "https://10.0.0.1"])
      assert.strictEqual(unknown.code, 64)
      assert.include(unknown.stderr, "is not an address")
    })
  )

  it.effect("refuses TLS flags together with --temporal-insecure, and a certificate without its key", () =>
    Effect.gen(function* () {
      const both = yield* submit(["--temporal-insecure"], {
        COGNI_TEMPORAL_SERVER_NAME: "temporal.example.com"
      })
      assert.strictEqual(both.code, 64)
      assert.include(both.stderr, "--temporal-insecure")
      for (const variable of ["COGNI_TEMPORAL_CERT_FILE", "COGNI_TEMPORAL_KEY_FILE"]) {
        const half = yield* submit([], { [variable]: "/proc/nowhere/at/all" })
        assert.strictEqual(half.code, 64)
        assert.include(half.stderr, "Name both")
      }
    })
  )

  it.effect("refuses a key that others can read, and never shows one", () =>
    Effect.gen(function* () {
      const open = yield* file("tmprl_secret", 0o644)
      const apiKey = yield* submit(["--temporal-api-key-file", open])
      assert.strictEqual(apiKey.code, 78)
      assert.include(apiKey.stderr, "accessible to other users")
      const broken = yield* submit([], {
        COGNI_TEMPORAL_API_KEY_FILE: yield* file("tmprl_secret\nof two lines", 0o600)
      })
      assert.strictEqual(broken.code, 78)
      const certificate = ["--temporal-cert-file", open]
      const openKey = yield* submit([...certificate, "--temporal-key-file", open])
      assert.strictEqual(openKey.code, 78)
      assert.include(openKey.stderr, "accessible to other users")
      const malformed = yield* submit([
        ...certificate,
        "--temporal-key-file",
        yield* file("tmprl_secret", 0o600)
      ])
      assert.strictEqual(malformed.code, 78)
      for (const { stderr, stdout } of [apiKey, broken, openKey, malformed])
        assert.notInclude(stderr + stdout, "tmprl_secret")
      const missing = yield* submit(["--temporal-ca-file", "/proc/nowhere/at/all"])
      assert.strictEqual(missing.code, 66)
    })
  )
})

describe("schedule", () => {
  const add = (name: string, ...argv: ReadonlyArray<string>) =>
    cli(["schedule", "add", name, "Where?", "--grant", "grant-1", ...argv])

  it.effect("refuses times that are missing or contradict each other, and an invalid name", () =>
    Effect.gen(function* () {
      for (const argv of [
        [],
        ["--cron", "0 3 * * *", "--every", "1h"],
        ["--every", "1h", "--time-zone", "Europe/Berlin"]
      ]) {
        const { code, stderr } = yield* add("nightly", ...argv)
        assert.strictEqual(code, 64)
        assert.include(stderr, "--cron")
      }
      const named = yield* add("Nightly", "--every", "1h")
      assert.strictEqual(named.code, 65)
      assert.include(named.stderr, "name")
      assert.strictEqual((yield* add("nightly", "--every", "1h", "--catch-up", "5s")).code, 65)
    })
  )

  it("is listed with its next time and its last run", () => {
    const state: RunScheduleState = {
      name: "nightly",
      grantId: "grant-1",
      graphId: "sandbox:agent",
      times: "0 3 * * * (UTC)",
      isPaused: false,
      nextAt: [new Date("2026-11-28T03:00:00Z")],
      recent: [{ runId: "nightly-20261127t030000z", startedAt: new Date("2026-11-27T03:00:01Z") }]
    }
    const [, first, second] = renderSchedules([
      state,
      { ...state, name: "weekly", isPaused: true, recent: [] }
    ])
    assert.match(first!, /^nightly .* 2026-11-28T03:00:00\.000Z +nightly-20261127t030000z$/u)
    assert.match(second!, /^weekly .* paused +none$/u)
  })
})

describe("the package for Temporal", () => {
  const missing = Object.assign(new Error("not found"), { code: "ERR_MODULE_NOT_FOUND" })

  it.effect("is named, with its installation, if it is missing", () =>
    Effect.gen(function* () {
      const refused = yield* Effect.flip(TemporalPackage.load(() => Promise.reject(missing)))
      assert.deepInclude(refused, { exit: "configuration", reason: "TemporalMissing" })
      assert.include(refused.remedy, "npm install @cogni/sandbox-temporal")
    })
  )

  it.effect("does not hide a fault of its own", () =>
    Effect.gen(function* () {
      const exit = yield* Effect.exit(TemporalPackage.load(() => Promise.reject(new TypeError("a fault"))))
      assert.isTrue(exit._tag === "Failure" && exit.cause.reasons.some(({ _tag }) => _tag === "Die"))
    })
  )
})
