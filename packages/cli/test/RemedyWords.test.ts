/** Messages of the libraries, in the words of the command's users. */
import { assert, describe, it } from "@effect/vitest"
import { named } from "@cogni/sandbox-core/Remedy"
import { OomKilled, TimedOut } from "@cogni/sandbox-core/SandboxReason"
import { emptyOutput } from "@cogni/sandbox-core/RunResult"
import * as RemedyWords from "../src/RemedyWords.ts"

const partial = { output: emptyOutput, peak: {} }

describe("RemedyWords", () => {
  it("names the variables of a git token, and the commands of the relay", () => {
    assert.strictEqual(
      RemedyWords.inFlags(`Configure a token for https://x (${named("GitCredentials")})`),
      "Configure a token for https://x (GITHUB_TOKEN_FILE with GITHUB_SERVER_URL, or GITLAB_TOKEN with GITLAB_HOST)"
    )
    assert.strictEqual(
      RemedyWords.inFlags(`Try again (${named("GitRelay.reopen")})`),
      "Try again (cogni-sandbox relay retry)"
    )
  })

  it("names the flags of a budget and of a model", () => {
    assert.strictEqual(
      RemedyWords.inFlags("Raise llm.budget. Name a model (llm.model)"),
      "Raise the budget (--max-calls, --max-cost, …). Name a model (--model)"
    )
    assert.strictEqual(RemedyWords.inFlags("llm.budget.callsMax: too many"), "--max-calls: too many")
  })

  it("names keys of the configuration for limits of a chat", () => {
    assert.include(
      RemedyWords.inChat(new TimedOut({ runtimeSecondsMax: 2, partial }).message),
      "Raise sandbox.timeout_seconds or"
    )
    assert.include(
      RemedyWords.inChat(new OomKilled({ memoryBytesMax: 2 ** 20, partial }).message),
      "Raise sandbox.memory_limit;"
    )
    // `chat` has no setting for the disk.
    assert.strictEqual(RemedyWords.inChat("Raise limits.workspaceBytesMax"), "Raise limits.workspaceBytesMax")
  })
})
