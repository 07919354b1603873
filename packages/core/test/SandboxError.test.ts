import { assert, describe, it } from "@effect/vitest"
import { RunId, RunResult, SandboxError } from "@cogni/sandbox-core"
import * as SandboxReason from "@cogni/sandbox-core/SandboxReason"
import { describeExhaustion } from "@cogni/sandbox-core/BudgetWords"
import { problemOf } from "@cogni/sandbox-core/HostFault"
import { Effect, Schema } from "effect"
import { inspect } from "node:util"

const runId = RunId.RunId.make("run-error0000001")
const secret = "sk-live-0123456789"
const partial: SandboxReason.Partial = {
  exitCode: 137,
  output: { ...RunResult.emptyOutput, stdout: { text: secret, bytes: secret.length, truncated: false } },
  peak: { memoryBytes: 64 * 1024 ** 2, workspaceBytes: 3 * 1024 ** 3 }
}

/** One of every reason: its code, whether it is retryable, and words of its remedy. */
const reasons: ReadonlyArray<
  readonly [SandboxError.Reason, code: SandboxReason.ErrorCode, isRetryable: boolean, remedy: string]
> = [
  [
    new SandboxReason.TimedOut({ runtimeSecondsMax: 60, partial }),
    "timeout",
    false,
    "Raise limits.runtimeSecondsMax"
  ],
  [
    new SandboxReason.OomKilled({ memoryBytesMax: 64 * 1024 ** 2, partial }),
    "oom_killed",
    false,
    "Raise limits.memoryBytesMax"
  ],
  [
    new SandboxReason.PidsExhausted({ processesMax: 16, partial }),
    "container_failed",
    false,
    "Raise limits.processesMax"
  ],
  [
    new SandboxReason.OutputLimitExceeded({ outputBytesMax: 1024, partial }),
    "container_failed",
    false,
    "raise limits.outputBytesMax"
  ],
  [
    new SandboxReason.DiskFull({ workspaceBytesMax: 1024 ** 3, partial }),
    "container_failed",
    false,
    "Raise limits.workspaceBytesMax"
  ],
  [
    new SandboxReason.BudgetExceeded({ budget: "calls", limit: 20, used: 20, partial }),
    "container_failed",
    false,
    "budget of 20 calls is spent (20 used). Raise llm.budget"
  ],
  [
    new SandboxReason.ExfiltrationSuspected({
      evidence: {
        at: "2026-01-01T00:00:00.000Z",
        canary: "aws_secret_access_key",
        encoding: "base64",
        channel: "tool_call"
      },
      partial
    }),
    "container_failed",
    false,
    "aws_secret_access_key (base64) in its tool call, and was stopped. Read the run's audit"
  ],
  [
    new SandboxReason.InvalidSpec({ problems: ["argv: Missing key"] }),
    "invalid_request",
    false,
    "argv: Missing key"
  ],
  [new SandboxReason.RunIdInUse({ runId }), "invalid_request", false, "leave it out"],
  [
    new SandboxReason.StoreUnavailable({ detail: "does not answer", remedy: "Look at COGNI_DATABASE_URL" }),
    "internal",
    true,
    "Look at COGNI_DATABASE_URL"
  ],
  [
    new SandboxReason.InsufficientCredits({
      billingAccountId: "acct",
      detail: "its limit is 1 US dollars a day",
      remedy: "Raise the limit",
      retrySeconds: 60
    }),
    "insufficient_credits",
    false,
    "Raise the limit"
  ],
  [
    new SandboxReason.AccountBusy({
      billingAccountId: "acct",
      detail: "it has 2 open runs",
      remedy: "Wait until one ends"
    }),
    "rate_limit",
    true,
    "Wait until one ends"
  ],
  [
    new SandboxReason.RuntimeUnavailable({ detail: "does not answer", remedy: "Start it" }),
    "internal",
    true,
    "Start it"
  ],
  [new SandboxReason.ImageNotFound({ image: "agent:1" }), "container_failed", false, "Build it"],
  [
    new SandboxReason.ContainerFailed({ operation: "create", detail: "no", remedy: "Use a fresh run id" }),
    "container_failed",
    false,
    "Use a fresh run id"
  ],
  [
    new SandboxReason.ProxyFailed({ detail: "ended", remedy: "Look at its log" }),
    "internal",
    true,
    "Look at its log"
  ],
  [
    new SandboxReason.PostureMismatch({ mismatches: ["seccomp mode is 0, not 2 (filter)"] }),
    "container_failed",
    false,
    "DockerDoctor"
  ],
  [
    new SandboxReason.HostFailed({
      path: "/state",
      problem: "no_space",
      detail: "cannot be used",
      remedy: "Free disk space"
    }),
    "internal",
    false,
    "Free disk space"
  ],
  [
    new SandboxReason.Misconfigured({
      option: "GatewayLlmProxy.url",
      detail: "is not a URL",
      remedy: "Write it as http://127.0.0.1:4000"
    }),
    "internal",
    false,
    "GatewayLlmProxy.url is not a URL. Write it as"
  ],
  [
    new SandboxReason.WorkspaceFailed({ path: "/project", detail: "does not exist", remedy: "Make it" }),
    "invalid_request",
    false,
    "Make it"
  ],
  [
    new SandboxReason.CommandTimedOut({ timeoutSecondsMax: 5, partial }),
    "timeout",
    false,
    "as a background process"
  ],
  [
    new SandboxReason.CommandRefused({ detail: "there is no directory x", remedy: "Make it" }),
    "invalid_request",
    false,
    "Make it"
  ],
  [
    new SandboxReason.CommandInputFailed({
      detail: "failed (Error: no)",
      remedy: "Let it end",
      partial
    }),
    "invalid_request",
    false,
    "Let it end"
  ],
  [
    new SandboxReason.FileRefused({
      path: "a",
      problem: "not_found",
      detail: "does not exist",
      remedy: "List its directory"
    }),
    "invalid_request",
    false,
    "List its directory"
  ]
]

const codec = Schema.toCodecJson(SandboxError.SandboxError)

describe("SandboxError", () => {
  it("this table has every reason", () => {
    assert.sameMembers(
      reasons.map(([reason]) => reason._tag),
      SandboxError.Reason.members.map((member) => member.identifier)
    )
  })

  it.prop(
    "names at most 20 mismatches of at most 1000 characters, and how many more there are",
    [Schema.String, Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 50 }))],
    ([text, count]) => {
      const found = Array.from({ length: count }, (_, index) => `${index}${text}`.repeat(1 + 50 * index))
      const { mismatches } = SandboxReason.PostureMismatch.of(found)
      assert.strictEqual(mismatches.length, Math.min(count, 21))
      for (const [index, sentence] of mismatches.slice(0, 20).entries()) {
        assert.isAtMost(sentence.length, 1050)
        assert.strictEqual(sentence.toWellFormed().slice(0, 900), found[index]!.toWellFormed().slice(0, 900))
      }
      if (count > 20) assert.strictEqual(mismatches[20], `and ${count - 20} more`)
    }
  )

  it.each(reasons.map((row) => [row[0]._tag, ...row] as const))(
    "%s has a code, whether to retry, and what to do",
    (_tag, reason, code, isRetryable, remedy) => {
      const error = new SandboxError.SandboxError({ runId, reason })
      assert.strictEqual(error.code, code)
      // OpenTelemetry takes an own field of that name as `exception.type`, which must be the class.
      assert.notInclude(Object.keys(reason), "code")
      assert.strictEqual(error.isRetryable, isRetryable)
      assert.strictEqual(error.message, `${runId}: ${reason.message}`)
      assert.include(error.message, remedy)
      assert.deepStrictEqual(error.partial, "partial" in reason ? partial : undefined)
    }
  )

  it.effect.each(reasons.map(([reason]) => reason))("$_tag survives its JSON form", (reason) =>
    Effect.gen(function* () {
      const error = new SandboxError.SandboxError({ runId, reason })
      const wire = JSON.parse(JSON.stringify(yield* Schema.encodeEffect(codec)(error)))
      const back = yield* Schema.decodeUnknownEffect(codec)(wire)
      assert.instanceOf(back, SandboxError.SandboxError)
      assert.strictEqual(back.reason._tag, reason._tag)
      assert.strictEqual(back.message, error.message)
      assert.strictEqual(back.code, error.code)
      assert.strictEqual(back.isRetryable, error.isRetryable)
      assert.deepStrictEqual(back.partial, error.partial)
    })
  )

  it.each(reasons.map(([reason]) => reason))(
    "the message of $_tag contains nothing of the output",
    (reason) => {
      const error = new SandboxError.SandboxError({ runId, reason })
      assert.notInclude(error.message, secret)
      assert.notInclude(String(error), secret)
      assert.notInclude(error.stack ?? "", secret)
    }
  )

  it("an engine that a retry cannot reach is not retryable", () => {
    const told = { detail: "has an invalid address", remedy: "Correct it" }
    assert.isTrue(new SandboxReason.RuntimeUnavailable(told).isRetryable)
    assert.isFalse(new SandboxReason.RuntimeUnavailable({ ...told, isPermanent: true }).isRetryable)
  })

  it.each([
    ["ENOSPC", "no_space"],
    ["EDQUOT", "no_space"],
    ["EACCES", "permission_denied"],
    ["EROFS", "permission_denied"],
    ["ENOTDIR", "unusable"]
  ] as const)("a file operation that fails with %s has the problem %s", (code, problem) => {
    const thrown = Object.assign(new Error(`${code}: open`), { code })
    assert.strictEqual(problemOf(thrown), problem)
    assert.strictEqual(problemOf(new Error("wrapped", { cause: thrown })), problem)
    const { message } = SandboxReason.HostFailed.of("/state", "cannot be used", thrown, "Set another")
    assert.strictEqual(
      message,
      `this host failed: /state cannot be used: ${code}: open. ${problem === "no_space" ? "Free disk space for it. " : ""}Set another`
    )
  })

  it("no message names a flag, a variable or a command of a program that uses the library", () => {
    for (const [reason] of reasons.filter(([{ _tag }]) => _tag !== "StoreUnavailable")) {
      assert.notMatch(reason.message, / --[a-z]|COGNI_|\.\/dev|cogni-sandbox /u, reason._tag)
    }
  })

  it("console.log shows the message, the reason and the place, and nothing of the output", () => {
    const error = new SandboxError.SandboxError({
      runId,
      reason: new SandboxReason.TimedOut({ runtimeSecondsMax: 60, partial })
    })
    const shown = inspect(error)
    assert.include(shown, `SandboxError: ${error.message}`)
    assert.include(shown, "{ reason: 'TimedOut', code: 'timeout', isRetryable: false }")
    assert.match(shown, /\n\s+at .*SandboxError\.test/u)
    assert.notInclude(shown, secret)
    assert.include(inspect({ error }), error.message, "also inside another value")
  })

  it.each([
    [1, "1 call is", "1 US dollar is"],
    [2, "2 calls is", "2 US dollars is"],
    [0.5, "0.5 calls is", "0.5 US dollars is"]
  ])("a budget of %s is described in the right number", (limit, calls, dollars) => {
    const described = (budget: "calls" | "cost_usd") => describeExhaustion({ budget, limit, used: limit })
    assert.include(described("calls"), calls)
    assert.include(described("cost_usd"), dollars)
  })

  it("an error without a run has no run ID", () => {
    const error = new SandboxError.SandboxError({
      reason: new SandboxReason.InvalidSpec({ problems: ["image: Missing key"] })
    })
    assert.isUndefined(error.runId)
    assert.strictEqual(error.message, "the spec is refused: image: Missing key")
  })

  it("formats sizes for people", () => {
    const oom = (memoryBytesMax: number) => new SandboxReason.OomKilled({ memoryBytesMax, partial }).message
    assert.include(oom(64 * 1024 ** 2), "64 MiB")
    assert.include(oom(1024 ** 3), "1 GiB")
    assert.include(oom(1000), "1000 B")
  })

  it.effect("recovers from one reason by name", () =>
    Effect.gen(function* () {
      const [reason] = reasons[0]!
      const recovered = yield* Effect.fail(new SandboxError.SandboxError({ runId, reason })).pipe(
        Effect.catchReason("SandboxError", "TimedOut", ({ runtimeSecondsMax }) =>
          Effect.succeed(runtimeSecondsMax)
        )
      )
      assert.strictEqual(recovered, 60)
    })
  )
})
