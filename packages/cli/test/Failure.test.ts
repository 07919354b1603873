/** Every failure is one line with a remedy, and one exit code. */
import { assert, describe, it } from "@effect/vitest"
import * as Failure from "../src/Failure.ts"
import * as Invocation from "../src/Invocation.ts"
import { emptyOutput } from "@cogni/sandbox-core/RunResult"
import * as SandboxError from "@cogni/sandbox-core/SandboxError"
import * as SandboxReason from "@cogni/sandbox-core/SandboxReason"
import type { Clone } from "@cogni/sandbox-git-relay/RelaySteps"
import { BranchName, CommitId } from "@cogni/sandbox-git-relay/Refs"
import { Cause } from "effect"
import { runId } from "./RunResults.ts"

const of = (error: unknown) => Failure.fromCause(Cause.fail(error))
const partial = { output: emptyOutput, peak: {} }
const run = (reason: SandboxError.Reason) => of(new SandboxError.SandboxError({ runId, reason }))

describe("Failure", () => {
  it("a run's error keeps its run, its reason and its partial result", () => {
    const failure = run(new SandboxReason.TimedOut({ runtimeSecondsMax: 2, partial }))
    assert.strictEqual(failure.exitCode, 124)
    assert.strictEqual(failure.name, "timeout")
    assert.strictEqual(failure.reason, "TimedOut")
    assert.strictEqual(failure.runId, runId)
    assert.deepStrictEqual(Failure.toJson(failure), {
      ok: false,
      runId,
      exitCode: 124,
      error: { code: "timeout", reason: "TimedOut", message: failure.message, isRetryable: false },
      partial
    })
  })

  it("the error of a run on a repository says what became of its commits", () => {
    const clone = {
      request: { runId, url: "https://git.example/acme/app", deliver: "push" },
      baseBranch: "main",
      branch: BranchName.make("sandbox/repair"),
      baseCommit: CommitId.make("a".repeat(40)),
      objectFormat: "sha1",
      workspacePath: "/state/relays/x/workspace",
      directory: "/state/relays/x"
    } satisfies Clone
    const error = new SandboxError.SandboxError({
      runId,
      reason: new SandboxReason.TimedOut({ runtimeSecondsMax: 2, partial })
    })
    const delivery = { _tag: "Kept", clone, tip: CommitId.make("b".repeat(40)) } as const
    const failure = of(new Failure.RunFailed({ error, delivery, textSoFar: "half an answer" }))
    assert.deepStrictEqual([failure.exitCode, failure.reason, failure.runId], [124, "TimedOut", runId])
    assert.containSubset(Failure.toJson(failure), {
      runId,
      partial,
      textSoFar: "half an answer",
      relay: { status: "kept", branch: "sandbox/repair", keptAt: "/state/relays/x" }
    })
  })

  it("the error of a command has no text of an agent", () => {
    const reason = new SandboxReason.TimedOut({ runtimeSecondsMax: 2, partial })
    const error = new SandboxError.SandboxError({ runId, reason })
    const json = Failure.toJson(of(new Failure.RunFailed({ error, textSoFar: "" })))
    assert.deepStrictEqual(json, Failure.toJson(run(reason)))
  })

  it("names flags instead of fields", () => {
    assert.include(
      run(new SandboxReason.TimedOut({ runtimeSecondsMax: 2, partial })).message,
      "Raise --timeout or"
    )
    assert.include(
      run(new SandboxReason.OomKilled({ memoryBytesMax: 2 ** 20, partial })).message,
      "Raise --memory;"
    )
    assert.include(
      run(new SandboxReason.PidsExhausted({ processesMax: 9, partial })).message,
      "Raise --processes"
    )
    assert.include(
      run(new SandboxReason.OutputLimitExceeded({ outputBytesMax: 9, partial })).message,
      "raise --output-limit"
    )
    assert.include(run(new SandboxReason.DiskFull({ workspaceBytesMax: 9, partial })).message, "Raise --disk")
    assert.strictEqual(
      of(new SandboxReason.InvalidSpec({ problems: ["limits.memoryBytesMax: too little", "runId: bad"] }))
        .message,
      "the spec is refused: --memory: too little; --run-id: bad"
    )
    assert.strictEqual(
      of(new SandboxReason.InvalidSpec({ problems: ["image: bad"] })).message,
      "the spec is refused: --image: bad"
    )
  })

  it("names variables and commands instead of options of the libraries", () => {
    const remedy = "Set FileRunStore.directory to another directory, or free space (DockerReaper)"
    const host = run(
      new SandboxReason.HostFailed({ path: "/state", problem: "no_space", detail: "is full", remedy })
    )
    assert.deepStrictEqual([host.exitCode, host.isRetryable], [69, false])
    assert.include(
      host.message,
      "Set COGNI_STATE_DIR to another directory, or free space (cogni-sandbox prune)"
    )
    const option = of(
      new SandboxReason.Misconfigured({
        option: "GatewayLlmProxy.url",
        detail: "has a query or a fragment",
        remedy: "Remove everything after the path"
      })
    )
    assert.deepStrictEqual([option.exitCode, option.isRetryable], [78, false])
    assert.strictEqual(
      option.message,
      "COGNI_LLM_URL has a query or a fragment. Remove everything after the path"
    )
  })

  it("an ordinary word that is also the name of a field is unchanged", () => {
    assert.strictEqual(
      of(new SandboxReason.ImageNotFound({ image: "nobody/none:1" })).message,
      "there is no image nobody/none:1 on this engine. Build it or pull it first; a run pulls no image by default"
    )
  })

  it("a reason without a run has the same exit code", () => {
    const failure = of(new SandboxReason.RuntimeUnavailable({ detail: "is away", remedy: "Start it" }))
    assert.strictEqual(failure.exitCode, 69)
    assert.strictEqual(failure.message, "the container engine is away. Start it")
    assert.isTrue(failure.isRetryable)
  })

  it("nothing from a sandbox can add a line, or a control character", () => {
    const detail = "x\n\u001b[2Jcogni-sandbox: all is well\r\n\u202eevil"
    const { message } = run(new SandboxReason.ContainerFailed({ operation: "start", detail, remedy: "Look" }))
    assert.notMatch(message, /[\n\r\u001b\u202e]/u)
  })

  it("a defect is reported as a fault, without a stack trace", () => {
    const failure = Failure.fromCause(Cause.die(new TypeError("x is undefined")))
    assert.strictEqual(failure.exitCode, 70)
    assert.include(failure.message, "x is undefined")
    assert.notInclude(failure.message, "at ")
  })

  it("a signal has its exit code and its name", () => {
    assert.containSubset(of(Failure.ofSignal("SIGTERM")), {
      exitCode: 143,
      reason: "SIGTERM",
      message: "ended by SIGTERM. No resources are left"
    })
    assert.strictEqual(of(Failure.ofSignal()).exitCode, 130)
  })

  it("a signal during a run on a repository names the commands for kept commits", () => {
    for (const argv of [
      ["run", "--repo", "."],
      ["run", "--repo=."],
      ["relay", "retry", "run-1"]
    ]) {
      const { message } = of(Failure.ofSignal("SIGTERM", Invocation.make([...argv, "--", "true"])))
      assert.include(message, "cogni-sandbox relay list")
      assert.include(message, "relay retry")
      assert.notInclude(message, "No resources are left")
    }
    const plain = of(Failure.ofSignal("SIGTERM", Invocation.make(["run", "--", "echo", "--repo"])))
    assert.include(plain.message, "No resources are left")
  })

  it("a refusal has its own exit code and remedy", () => {
    const failure = of(new Failure.Refusal({ exit: "configuration", detail: "no model", remedy: "Name one" }))
    assert.strictEqual(failure.exitCode, 78)
    assert.strictEqual(failure.message, "no model. Name one")
  })
})
