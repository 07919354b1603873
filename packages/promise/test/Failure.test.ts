/** Meaning of a sandbox's errors for adapters. */
import { emptyOutput } from "@cogni/sandbox-core/RunResult"
import { type Reason, SandboxError } from "@cogni/sandbox-core/SandboxError"
import {
  CommandInputFailed,
  CommandRefused,
  CommandTimedOut,
  ContainerFailed,
  FileRefused,
  InvalidSpec,
  OomKilled,
  OutputLimitExceeded,
  PidsExhausted
} from "@cogni/sandbox-core/SandboxReason"
import { assert, describe, it } from "@effect/vitest"
import { Closed } from "../src/Closed.ts"
import * as Failure from "../src/Failure.ts"

const errorOf = (reason: Reason) => new SandboxError({ reason })
const told = { detail: "is odd", remedy: "Use another" }
const nothing = { output: emptyOutput, peak: {} }
const ended = { ...nothing, exitCode: 9 }

describe("commandFailureOf", () => {
  it.each<readonly [Reason, number | undefined, boolean]>([
    [new CommandRefused(told), 126, false],
    [new InvalidSpec({ problems: ["command: Expected less"] }), 126, false],
    [new CommandTimedOut({ timeoutSecondsMax: 1, partial: nothing }), 124, true],
    [new OutputLimitExceeded({ outputBytesMax: 1, partial: nothing }), undefined, true],
    [new CommandInputFailed({ ...told, partial: nothing }), undefined, true],
    [new OomKilled({ memoryBytesMax: 1, partial: ended }), 9, true],
    [new PidsExhausted({ processesMax: 1, partial: ended }), 9, true]
  ])("$0._tag is a result of the command", (reason, exitCode, wasStarted) => {
    assert.deepStrictEqual(Failure.commandFailureOf(errorOf(reason)), {
      exitCode,
      wasStarted,
      message: reason.message,
      output: emptyOutput
    })
  })

  it("is undefined when the sandbox is over, or the error is about something else", () => {
    for (const error of [
      errorOf(new OomKilled({ memoryBytesMax: 1, partial: nothing })),
      errorOf(new PidsExhausted({ processesMax: 1, partial: nothing })),
      errorOf(new ContainerFailed({ operation: "exec", ...told })),
      errorOf(new FileRefused({ path: "a", problem: "not_found", ...told })),
      new Closed({ what: "sandbox" }),
      new Error("other"),
      undefined
    ]) {
      assert.isUndefined(Failure.commandFailureOf(error), String(error))
    }
  })
})

describe("fileProblemOf", () => {
  it("names the problem of a refused file, and of nothing else", () => {
    const refused = errorOf(new FileRefused({ path: "a", problem: "too_large", ...told }))
    assert.strictEqual(Failure.fileProblemOf(refused), "too_large")
    assert.isUndefined(Failure.fileProblemOf(errorOf(new CommandRefused(told))))
    assert.isUndefined(Failure.fileProblemOf(new Error("other")))
  })
})
