/** Fixtures for tests of the command: directories, key files, an upstream, and the line of a failure. */
import * as ScriptedModelApi from "@cogni/sandbox-proxy/ScriptedModelApi"
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import type { CliProcess } from "./CliProcess.ts"

export const key = "sk-planted-2c8f61-quixotic"

/** Returns the only error line on standard error. */
export const complaint = (stderr: string): string => {
  const said = stderr.split("\n").filter((line) => line.startsWith("cogni-sandbox: "))
  assert.lengthOf(said, 1, stderr)
  assert.notInclude(stderr, "    at ")
  return said[0]!
}

/** Environment for an upstream that answers every request with the same step. */
export const upstream = (step: ScriptedModelApi.Step) =>
  Effect.map(ScriptedModelApi.acquire({ script: () => step }), ({ url }) => ({
    COGNI_LLM_URL: url,
    COGNI_LLM_KEY: key,
    COGNI_LLM_MODEL: "m",
    COGNI_BILLING_ACCOUNT: "acct-tests"
  }))

/** A directory outside of the state directory, where a workspace is allowed. */
export const directory = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-workspace-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
)

export const keyFile = (mode: number) =>
  Effect.map(directory, (parent) => {
    const path = join(parent, "key")
    writeFileSync(path, `${key}\n`)
    chmodSync(path, mode)
    return path
  })

/** Kills a command while its run is active, so that it leaves resources behind. */
export const killed = Effect.fnUntraced(function* (cli: CliProcess["Service"]) {
  const started = yield* cli.start(["run", "-q", "--no-model", "--", "sh", "-c", "echo up; sleep 60"])
  yield* started.said(/^up$/mu)
  yield* started.kill("SIGKILL")
  yield* started.ended
  assert.isAbove((yield* cli.leftovers).length, 0)
})
