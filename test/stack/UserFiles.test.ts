/**
 * An attack on `task … -w . --patch fix.patch` and on `--prompt-file`: the agent of an earlier run has left links in
 * the workspace that point to files of the host's user.
 */
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { chmodSync, lstatSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as CliProcess from "../harness/CliProcess.ts"
import * as ScriptedModel from "../harness/ScriptedModel.ts"
import * as TaskHarness from "../harness/TaskHarness.ts"

const secret = "TOPSECRET-of-host\n"

layer(CliProcess.layer, { excludeTestServices: true })("user-named files in a workspace with links", (it) => {
  /** Makes a user's directory, and in it a workspace in which a sealed agent has left links to the directory. */
  const attacked = Effect.gen(function* () {
    const cli = yield* CliProcess.CliProcess
    const home = yield* Effect.acquireRelease(
      Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-test-files-"))),
      (path) => Effect.sync(() => rmSync(path, { recursive: true }))
    )
    chmodSync(home, 0o755)
    const workspace = join(home, "workspace")
    mkdirSync(workspace)
    chmodSync(workspace, 0o777)
    const bashrc = join(home, ".bashrc")
    writeFileSync(bashrc, secret)
    const plants = `ln -s ${bashrc} fix.patch; ln -s ${bashrc} TASK.md; ln -s ${home} docs; mkfifo waits`
    const planted = yield* cli.run(["run", "-q", "--no-model", "-w", workspace, "--", "sh", "-c", plants])
    assert.strictEqual(planted.code, 0, planted.stderr)
    assert.isTrue(lstatSync(join(workspace, "fix.patch")).isSymbolicLink())
    return { bashrc, cli, home, workspace }
  })

  it.effect("refuses to write a patch through a link, and starts no sandbox", () =>
    Effect.gen(function* () {
      const { bashrc, cli, home, workspace } = yield* attacked
      const { url } = yield* ScriptedModel.acquire(() => ({ say: "Done." }))
      const env = { COGNI_LLM_URL: url, COGNI_LLM_KEY: TaskHarness.key, COGNI_LLM_MODEL: "scripted" }
      for (const patch of ["fix.patch", "docs/.bashrc", "new.patch"]) {
        const ended = yield* cli.run(
          ["task", "Change it", "-w", workspace, "--patch", join(workspace, patch)],
          {
            env
          }
        )
        assert.strictEqual(ended.code, 65, ended.stderr)
        assert.include(ended.stderr, "--patch cannot be used")
        assert.notInclude(ended.stderr, "preparing")
      }
      assert.strictEqual(readFileSync(bashrc, "utf8"), secret)
      const beside = join(home, "fix.patch")
      const ended = yield* cli.run(["task", "Change it", "-w", workspace, "--patch", beside], { env })
      assert.strictEqual(ended.code, 0, ended.stderr)
      assert.isTrue(lstatSync(beside).isFile())
    }).pipe(Effect.scoped)
  )

  it.effect("refuses to read a prompt through a link, and does not wait for a FIFO", () =>
    Effect.gen(function* () {
      const { cli, workspace } = yield* attacked
      for (const [prompt, says] of [
        ["TASK.md", "symbolic link"],
        ["docs/.bashrc", "symbolic link"],
        ["waits", "is a FIFO"]
      ] as const) {
        for (const command of ["task", "run"]) {
          const ended = yield* cli.run([
            command,
            "--demo",
            "-w",
            workspace,
            "--prompt-file",
            join(workspace, prompt)
          ])
          assert.strictEqual(ended.code, 65, ended.stderr)
          assert.include(ended.stderr, says)
          assert.notInclude(ended.stdout.toString() + ended.stderr, secret.trim())
        }
      }
    }).pipe(Effect.scoped)
  )
})
