/** Files that a user names to the command, in and beside the directory that an agent works in. */
import { assert, describe, it } from "@effect/vitest"
import * as Cli from "../src/Cli.ts"
import * as Output from "../src/Output.ts"
import * as UserFiles from "../src/UserFiles.ts"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, Layer } from "effect"
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync
} from "node:fs"
import { homedir } from "node:os"
import { join } from "node:path"

/** A home with a workspace in it, where no other user may write. */
const home = Effect.acquireRelease(
  Effect.sync(() => {
    const path = mkdtempSync(join(homedir(), ".cogni-user-files-test-"))
    mkdirSync(join(path, "workspace"))
    writeFileSync(join(path, ".bashrc"), "before")
    return path
  }),
  (path) => Effect.sync(() => rmSync(path, { recursive: true }))
)

/** Reaches no engine: every refusal comes before the engine is needed. */
const cli = (state: string, ...argv: ReadonlyArray<string>) =>
  Effect.gen(function* () {
    const memory = Output.makeMemory()
    const environment = { COGNI_STATE_DIR: state, DOCKER_HOST: "unix:///proc/nowhere/docker.sock" }
    const code = yield* Cli.main({ argv: [...argv], environment }).pipe(
      Effect.provide(Layer.merge(NodeServices.layer, memory.layer))
    )
    return { code, stderr: memory.said.stderr }
  })

describe("UserFiles", () => {
  it.effect("refuses a patch file in the workspace before it needs an engine", () =>
    Effect.gen(function* () {
      const root = yield* home
      const workspace = join(root, "workspace")
      symlinkSync("../.bashrc", join(workspace, "fix.patch"))
      symlinkSync(".bashrc", join(root, "link.patch"))
      for (const [patch, says] of [
        [join(workspace, "fix.patch"), "lies in the workspace"],
        [join(workspace, "new.patch"), "lies in the workspace"],
        [join(root, "link.patch"), "is a symbolic link"],
        [workspace, "lies in the workspace"],
        [join(root, "missing/fix.patch"), "does not exist"],
        ["/dev/null", "is a device"]
      ] as const) {
        const { code, stderr } = yield* cli(
          join(root, "state"),
          "task",
          "--demo",
          "x",
          "-w",
          workspace,
          "--patch",
          patch
        )
        assert.include([65, 66], code, patch)
        assert.include(stderr, `--patch cannot be used: ${JSON.stringify(patch)}`)
        if (patch !== workspace) assert.include(stderr, says)
      }
      assert.strictEqual(readFileSync(join(root, ".bashrc"), "utf8"), "before")
      assert.deepStrictEqual(readdirSync(root).toSorted(), [".bashrc", "link.patch", "workspace"])
      assert.deepStrictEqual(readdirSync(workspace), ["fix.patch"])
    })
  )

  it.effect("refuses - as a patch file, and names the path of standard output", () =>
    Effect.gen(function* () {
      const root = yield* home
      for (const argv of [
        ["task", "--demo", "x", "-w", join(root, "workspace")],
        ["run", "--repo", root],
        ["relay", "retry", "run-000000000001"]
      ]) {
        const { code, stderr } = yield* cli(join(root, "state"), ...argv, "--patch", "-")
        assert.strictEqual(code, 64, stderr)
        assert.include(stderr, "/dev/stdout for standard output")
      }
    })
  )

  it.effect("leaves no patch file if no sandbox starts", () =>
    Effect.gen(function* () {
      const root = yield* home
      const patch = join(root, "fix.patch")
      const workspace = join(root, "workspace")
      const { code, stderr } = yield* cli(
        join(root, "state"),
        "task",
        "--demo",
        "x",
        "-w",
        workspace,
        "--patch",
        patch
      )
      assert.notStrictEqual(code, 0)
      assert.notInclude(stderr, "--patch")
      assert.deepStrictEqual(readdirSync(root).toSorted(), [".bashrc", "state", "workspace"])
    })
  )

  it.effect("identifies the directory of an agent by device and inode, through links of this user", () =>
    Effect.gen(function* () {
      const root = yield* home
      symlinkSync("workspace", join(root, "shortcut"))
      const [agent] = yield* UserFiles.agentDirectories(join(root, "shortcut"))
      assert.deepStrictEqual([agent!], yield* UserFiles.agentDirectories(join(root, "workspace")))
      assert.deepStrictEqual(yield* UserFiles.agentDirectories(join(root, "missing")), [])
      assert.deepStrictEqual(yield* UserFiles.agentDirectories(undefined), [])
      assert.isFalse(existsSync(join(root, "missing")))
    })
  )
})
