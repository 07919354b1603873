/** Runs the examples that need Docker. `test/architecture` runs the others. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { execFile } from "node:child_process"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import * as ScriptedModelApi from "@cogni/sandbox-proxy/ScriptedModelApi"
import { docker } from "../harness/Docker.ts"
import * as Engine from "../harness/Engine.ts"
import * as Images from "../harness/Images.ts"
import * as ScriptedModel from "../harness/ScriptedModel.ts"
import * as Pace from "../harness/Pace.ts"

const run = async (name: string, env: Readonly<Record<string, string>> = {}): Promise<string> => {
  const home = await mkdtemp(join(tmpdir(), "cogni-example-"))
  try {
    const { stdout } = await promisify(execFile)(process.execPath, ["examples/run.ts", name], {
      timeout: Pace.hangMillis / 2,
      env: { COGNI_RUNTIME_IMAGE: Images.runtime, TMPDIR: home, ...Engine.variables, ...env }
    })
    return stdout
  } finally {
    await rm(home, { recursive: true, force: true })
  }
}

describe("examples", () => {
  it("sealed-run-on-docker runs a sealed command", async () => {
    const stdout = await run("sealed-run-on-docker")
    assert.include(stdout, "uid=1000")
    assert.include(stdout, "cannot touch '/etc/x': Read-only file system")
    assert.include(stdout, "isolation confirmed by sandbox, engine, host")
  })

  it.live("own-agent-on-docker answers from an image with one program more than the runtime", () =>
    Effect.gen(function* () {
      const image = `cogni-test/reviewer:${process.pid}`
      yield* Effect.acquireRelease(
        docker("build", "--build-arg", `RUNTIME=${Images.runtime}`, "--tag", image, "examples/reviewer"),
        () => Effect.ignore(docker("image", "rm", image))
      )
      const model = yield* ScriptedModelApi.acquire({
        raw: true,
        script: ({ text }) => ({ say: `reviewed: ${text.includes("main.ts")}` })
      })
      const stdout = yield* Effect.promise(() =>
        run("own-agent-on-docker", {
          COGNI_LLM_URL: model.url,
          COGNI_LLM_KEY: "sk-example",
          COGNI_LLM_MODEL: "m",
          REVIEWER_IMAGE: image
        })
      )
      assert.strictEqual(stdout, "reviewed: true\n")
      assert.deepStrictEqual(yield* model.problems, [])
    }).pipe(Effect.scoped)
  )

  it.live("chat-on-docker answers two messages in one container", () =>
    Effect.gen(function* () {
      const model = yield* ScriptedModel.acquire(({ results, text }) =>
        results.length === 0
          ? {
              call: [
                {
                  name: "shell__exec",
                  args: { command: text.startsWith("Write") ? "echo a date >file" : "cat file" }
                }
              ]
            }
          : { say: `it says ${String(JSON.parse(results.at(-1)!).stdout).trim()}` }
      )
      const env = { COGNI_LLM_URL: model.url, COGNI_LLM_KEY: "sk-example", COGNI_LLM_MODEL: "m" }
      const stdout = yield* Effect.promise(() => run("chat-on-docker", env))
      assert.strictEqual(
        stdout,
        "irc:ana:coder (sandbox): it says \nirc:ana:coder (sandbox): it says a date\n"
      )
    }).pipe(Effect.scoped)
  )
})
