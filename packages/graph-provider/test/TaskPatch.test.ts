/** Patches of tasks: made by real git, in directories of every kind, and applied to a copy of the initial state. */
import type { Executor } from "@cogni/sandbox-core/Executor"
import { SandboxError } from "@cogni/sandbox-core/SandboxError"
import { CommandTimedOut, ContainerFailed } from "@cogni/sandbox-core/SandboxReason"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Result } from "effect"
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync
} from "node:fs"
import { join } from "node:path"
import * as TaskPatch from "../src/internal/TaskPatch.ts"
import * as LocalExecutor from "./LocalExecutor.ts"

const bytesMax = 1024 * 1024

/** Does some work between the beginning and the end of a task, and returns its patch. */
const patched = Effect.fnUntraced(function* (
  local: LocalExecutor.Local,
  work: () => void,
  patchBytesMax = bytesMax
) {
  const base = yield* TaskPatch.begin(local.executor, local.workspace)
  assert(Result.isSuccess(base), Result.isFailure(base) ? base.failure : "")
  const before = join(local.temporary, "before")
  cpSync(local.workspace, before, { recursive: true, verbatimSymlinks: true })
  work()
  const patch = yield* TaskPatch.end(local.executor, local.workspace, base, patchBytesMax)
  return { before, patch }
})

/** Applies a patch to the copy of the initial state. Returns a function that reads its files. */
const applied = (local: LocalExecutor.Local, before: string, text: string) => {
  const file = join(local.temporary, "p.patch")
  writeFileSync(file, text)
  if (text !== "") local.git(["apply", "--whitespace=nowarn", file], before)
  return (path: string) => readFileSync(join(before, path))
}

describe("TaskPatch", () => {
  it.live(
    "contains changed, new, removed, executable, linked, binary, empty and oddly named files of a directory",
    () =>
      Effect.gen(function* () {
        const local = yield* LocalExecutor.acquire
        local.write("a.txt", "one\ntwo\n")
        local.write("gone.txt", "x\n")
        local.write("run.sh", "#!/bin/sh\n")
        local.write("was-a-file", "x")
        local.write("was/a/directory", "x")
        const bytes = Uint8Array.from({ length: 3000 }, (_, index) => (index * 7) % 256)
        const { before, patch } = yield* patched(local, () => {
          local.write("a.txt", "one\n2\n")
          rmSync(join(local.workspace, "gone.txt"))
          chmodSync(join(local.workspace, "run.sh"), 0o755)
          rmSync(join(local.workspace, "was-a-file"))
          local.write("was-a-file/now", "y\n")
          rmSync(join(local.workspace, "was"), { recursive: true })
          local.write("was", "y\n")
          local.write("deep/new.txt", "new, without a line break")
          local.write("b.bin", bytes)
          local.write("empty", "")
          local.write('ö d\td\n"name"', "odd\n")
          symlinkSync("a.txt", join(local.workspace, "link"))
        })
        const at = applied(local, before, patch.text ?? "none")
        assert.deepStrictEqual(at("a.txt").toString(), "one\n2\n")
        assert.isFalse(existsSync(join(before, "gone.txt")))
        assert.strictEqual(statSync(join(before, "run.sh")).mode & 0o111, 0o111)
        assert.strictEqual(at("was-a-file/now").toString(), "y\n")
        assert.strictEqual(at("was").toString(), "y\n")
        assert.strictEqual(at("deep/new.txt").toString(), "new, without a line break")
        assert.deepStrictEqual(new Uint8Array(at("b.bin")), bytes)
        assert.strictEqual(at("empty").toString(), "")
        assert.strictEqual(at('ö d\td\n"name"').toString(), "odd\n")
        assert.strictEqual(at("link").toString(), "one\n2\n")
        assert.deepInclude(patch, { files: 12, bytes: Buffer.byteLength(patch.text ?? "") })
        assert.notProperty(patch, "problem")
      })
  )

  it.live("is empty, without a problem, if nothing changed", () =>
    Effect.gen(function* () {
      const local = yield* LocalExecutor.acquire
      const { patch } = yield* patched(local, () => undefined)
      assert.deepStrictEqual(patch, { files: 0, bytes: 0, text: "" })
    })
  )

  it.live(
    "compares with the initial files of a repository, not with its commits, before or after the task",
    () =>
      Effect.gen(function* () {
        const local = yield* LocalExecutor.acquire
        local.git(["init", "-q"])
        local.write(".gitignore", "build/\n*.log\n")
        local.write("a.txt", "committed\n")
        local.write("build/kept.js", "tracked although ignored\n")
        local.git(["add", "-f", "."])
        local.git(["commit", "-qm", "1"])
        local.write("a.txt", "dirty\n")
        const head = local.git(["rev-parse", "HEAD"])
        const { before, patch } = yield* patched(local, () => {
          local.write("a.txt", "fixed\n")
          local.write("build/kept.js", "changed\n")
          local.write("build/made.js", "ignored\n")
          local.write("x.log", "ignored\n")
          local.git(["commit", "-qam", "2"])
        })
        assert.include(patch.text, "-dirty\n+fixed\n")
        assert.notInclude(patch.text, "committed")
        assert.notMatch(patch.text ?? "", /made\.js|x\.log/u)
        assert.strictEqual(patch.files, 2)
        const at = applied(local, before, patch.text ?? "")
        assert.strictEqual(at("a.txt").toString(), "fixed\n")
        assert.strictEqual(at("build/kept.js").toString(), "changed\n")
        // The workspace's own repository is only what the agent made of it.
        assert.notStrictEqual(local.git(["rev-parse", "HEAD"]), head)
        assert.strictEqual(local.git(["status", "--porcelain"]), "")
      })
  )

  it.live("ignores the configuration of the repository, and executes none of it", () =>
    Effect.gen(function* () {
      const local = yield* LocalExecutor.acquire
      const trap = join(local.temporary, "sprung")
      const spring = `sh -c 'touch ${trap}; cat'`
      local.git(["init", "-q"])
      local.write("a.txt", "one\r\n")
      local.write("b.txt", "$Id: mine $\n")
      local.write("c.dat", "text\n")
      local.write(
        ".gitattributes",
        "* text=auto eol=lf filter=evil diff=evil\nb.txt ident\nc.dat binary\na.txt working-tree-encoding=UTF-16\n"
      )
      local.git(["commit", "-q", "--allow-empty", "-m", "1"])
      for (const [name, value] of [
        ["filter.evil.clean", spring],
        ["filter.evil.smudge", spring],
        ["filter.evil.process", spring],
        ["filter.evil.required", "true"],
        ["diff.evil.command", spring],
        ["diff.evil.textconv", spring],
        ["diff.external", spring],
        ["core.fsmonitor", spring],
        ["core.hooksPath", join(local.workspace, "hooks")],
        ["core.autocrlf", "input"],
        ["core.excludesFile", join(local.workspace, "all")],
        ["core.attributesFile", join(local.workspace, ".gitattributes")],
        ["core.worktree", "/nonexistent"],
        ["diff.noprefix", "true"],
        ["color.ui", "always"]
      ] as const) {
        local.git(["config", name, value])
      }
      writeFileSync(join(local.workspace, "all"), "*\n")
      for (const hook of ["post-index-change", "pre-commit", "reference-transaction"]) {
        local.write(`hooks/${hook}`, `#!/bin/sh\ntouch ${trap}\n`)
        chmodSync(join(local.workspace, "hooks", hook), 0o755)
      }
      const { before, patch } = yield* patched(local, () => {
        local.write("a.txt", "two\r\n")
        local.write("b.txt", "$Id: mine $ two\n")
        local.write("c.dat", "text two\n")
      })
      assert.isFalse(existsSync(trap))
      assert.include(patch.text, "-one\r\n+two\r\n")
      assert.include(patch.text, "+text two\n")
      rmSync(join(before, ".git"), { recursive: true })
      rmSync(join(before, ".gitattributes"))
      const at = applied(local, before, patch.text ?? "")
      assert.strictEqual(at("a.txt").toString(), "two\r\n")
      assert.strictEqual(at("b.txt").toString(), "$Id: mine $ two\n")
    })
  )

  it.live("contains bytes that are not UTF-8 as a binary patch", () =>
    Effect.gen(function* () {
      const local = yield* LocalExecutor.acquire
      local.write("latin.txt", Uint8Array.of(0x63, 0x61, 0x66, 0xe9, 0x0a))
      const after = Uint8Array.of(0x74, 0x68, 0xe9, 0x0a)
      const { before, patch } = yield* patched(local, () => local.write("latin.txt", after))
      assert.match(patch.text ?? "", /GIT binary patch/u)
      assert.deepStrictEqual(new Uint8Array(applied(local, before, patch.text ?? "")("latin.txt")), after)
    })
  )

  it.live(
    "works beside repositories inside the workspace, with and without commits, and an unreadable file",
    () =>
      Effect.gen(function* () {
        const local = yield* LocalExecutor.acquire
        local.write("a.txt", "one\n")
        mkdirSync(join(local.workspace, "half"))
        local.git(["init", "-q"], join(local.workspace, "half"))
        const { patch } = yield* patched(local, () => {
          local.write("a.txt", "two\n")
          local.write("half/x.txt", "x\n")
          mkdirSync(join(local.workspace, "whole"))
          local.git(["init", "-q"], join(local.workspace, "whole"))
          local.git(["commit", "-q", "--allow-empty", "-m", "1"], join(local.workspace, "whole"))
          local.write("secret", "x")
          chmodSync(join(local.workspace, "secret"), 0)
          symlinkSync("/nonexistent", join(local.workspace, "dangling"))
        })
        assert.notProperty(patch, "problem")
        assert.include(patch.text, "-one\n+two\n")
        assert.include(patch.text, "dangling")
      })
  )

  it.live("excludes the files that the host placed in the workspace", () =>
    Effect.gen(function* () {
      const local = yield* LocalExecutor.acquire
      const { patch } = yield* patched(local, () => local.write(".cogni/index.json", "{}"))
      assert.deepStrictEqual(patch, { files: 0, bytes: 0, text: "" })
    })
  )

  it.live("counts a patch that is too large, and keeps it in the sandbox", () =>
    Effect.gen(function* () {
      const local = yield* LocalExecutor.acquire
      let told = ""
      const executor: Executor = {
        ...local.executor,
        exec: (command, options) =>
          Effect.tap(local.executor.exec(command, options), ({ output }) =>
            Effect.sync(() => {
              told = output.stdout.text
            })
          )
      }
      const { patch } = yield* patched(
        { ...local, executor },
        () => local.write("a.txt", "line\n".repeat(5000)),
        10_000
      )
      assert.notProperty(patch, "text")
      assert.isAbove(patch.bytes, 25_000)
      assert.match(patch.problem ?? "", /longer than 10000 bytes/u)
      assert.match(told, /^ *1 \d+\n$/u)
    })
  )

  it.live("is not affected by changes of the agent to its configuration", () =>
    Effect.gen(function* () {
      const local = yield* LocalExecutor.acquire
      local.write("a.txt", "one\n")
      const trap = join(local.temporary, "sprung")
      const { before, patch } = yield* patched(local, () => {
        local.write("a.txt", "two\n")
        local.write("hooks/post-index-change", `#!/bin/sh\ntouch ${trap}\n`)
        chmodSync(join(local.workspace, "hooks/post-index-change"), 0o755)
        const repository = join(local.temporary, ".cogni-task/git")
        for (const [name, value] of [
          ["diff.noprefix", "true"],
          ["diff.external", `touch ${trap}; true`],
          ["diff.renames", "copies"],
          ["color.diff", "always"],
          ["core.hooksPath", join(local.workspace, "hooks")],
          ["core.fsmonitor", `touch ${trap}; false`],
          ["core.autocrlf", "true"],
          ["core.excludesFile", join(local.workspace, "a.txt")]
        ] as const) {
          local.git(["--git-dir", repository, "config", name, value])
        }
      })
      assert.isFalse(existsSync(trap))
      assert.strictEqual(patch.files, 2)
      assert.strictEqual(applied(local, before, patch.text ?? "")("a.txt").toString(), "two\n")
    })
  )

  it.live("reports a repository that the agent removed as a problem in one line", () =>
    Effect.gen(function* () {
      const local = yield* LocalExecutor.acquire
      local.write("a.txt", "one\n")
      const { patch } = yield* patched(local, () =>
        rmSync(join(local.temporary, ".cogni-task"), { recursive: true })
      )
      assert.match(patch.problem ?? "", /^the patch could not be made: .*\S$/u)
      assert.notMatch(patch.problem ?? "", /\n/u)
    })
  )

  it.live("removes its files after a failed beginning, so that they use no space of the task", () =>
    Effect.gen(function* () {
      const local = yield* LocalExecutor.acquire
      local.write("a.txt", "one\n")
      const shadow = join(local.temporary, "bin")
      mkdirSync(shadow)
      // A git that creates a repository, and has no space left for a tree.
      const real = local.git(["--exec-path"]).trim()
      writeFileSync(
        join(shadow, "git"),
        `#!/bin/sh\ncase "$*" in *write-tree*) echo "no space left" >&2; exit 128;; esac\nexec ${real}/git "$@"\n`,
        { mode: 0o755 }
      )
      const executor: Executor = {
        ...local.executor,
        exec: (command, options) =>
          local.executor.exec(
            typeof command === "string"
              ? command
              : [command[0], "-c", `export PATH=${shadow}:$PATH\n${command[2]}`, ...command.slice(3)],
            options
          )
      }
      const base = yield* TaskPatch.begin(executor, local.workspace)
      assert(Result.isFailure(base))
      assert.match(base.failure, /^the patch could not be made: no space left$/u)
      assert.isFalse(existsSync(join(local.temporary, ".cogni-task")))
    })
  )

  it.live("works despite a leftover lock", () =>
    Effect.gen(function* () {
      const local = yield* LocalExecutor.acquire
      const { patch } = yield* patched(local, () => {
        local.write("a.txt", "one\n")
        writeFileSync(join(local.temporary, ".cogni-task/git/index.lock"), "")
      })
      assert.strictEqual(patch.files, 1)
    })
  )
})

describe("TaskPatch and the output of a sandbox", () => {
  const says = (stdout: string, truncated = false, exitCode = 0): Executor => ({
    workspace: "/workspace",
    exec: () =>
      Effect.succeed({
        exitCode,
        durationMs: 0,
        output: {
          stdout: { text: stdout, bytes: stdout.length, truncated },
          stderr: { text: "", bytes: 0, truncated: false }
        }
      }),
    spawn: () => Effect.die(new Error("spawn is not available here")),
    files: {
      read: () => Effect.never,
      write: () => Effect.never,
      list: () => Effect.never,
      stat: () => Effect.never,
      remove: () => Effect.never
    }
  })
  const fails = (error: SandboxError): Executor => ({ ...says(""), exec: () => Effect.fail(error) })
  const tree = Result.succeed("0".repeat(40))

  it.effect.each([
    "",
    "1",
    "-1 3\nYWJj",
    "1 3",
    "1 4\nYWJj",
    "1 3\nYWJj\nmore",
    "1 3\nY W J j",
    "1 3\nYWJ",
    "99999999999 3\nYWJj",
    "\u001B[31m1 3\nYWJj"
  ])("rejects invalid output: %j", (stdout) =>
    Effect.gen(function* () {
      const patch = yield* TaskPatch.end(says(stdout), "/workspace", tree, bytesMax)
      assert.notProperty(patch, "text")
      assert.match(patch.problem ?? "", /could not be made/u)
    })
  )

  it.effect("accepts valid output, and rejects truncated output and failed commands", () =>
    Effect.gen(function* () {
      const end = (stdout: string, truncated = false) =>
        TaskPatch.end(says(stdout, truncated), "/workspace", tree, bytesMax)
      assert.deepStrictEqual(yield* end("1 3\nYWJj"), { files: 1, bytes: 3, text: "abc" })
      assert.deepStrictEqual(yield* end("       1 3\nYWJj"), { files: 1, bytes: 3, text: "abc" })
      assert.notProperty(yield* end("1 3\nYWJj", true), "text")
      const failed = yield* TaskPatch.end(says("1 3\nYWJj", false, 1), "/workspace", tree, bytesMax)
      assert.deepStrictEqual(failed, {
        files: 0,
        bytes: 0,
        problem: "the patch could not be made: exit code 1"
      })
      // Not text, even as a binary patch: there is no third attempt.
      assert.deepStrictEqual(yield* end("1 1\n/w=="), {
        files: 1,
        bytes: 1,
        problem: "the patch is not text"
      })
    })
  )

  it.effect("reports a failed beginning as a missing patch, and does not fail the task", () =>
    Effect.gen(function* () {
      for (const stdout of ["", "fatal: no", `${"0".repeat(40)}; rm -rf /`]) {
        const base = yield* TaskPatch.begin(says(stdout), "/workspace")
        assert.isTrue(Result.isFailure(base), stdout)
        assert.property(yield* TaskPatch.end(says("1 3\nYWJj"), "/workspace", base, bytesMax), "problem")
      }
    })
  )

  it.effect("states what to exclude if the beginning failed", () =>
    Effect.gen(function* () {
      const base = yield* TaskPatch.begin(says("", false, 128), "/workspace")
      const { problem } = yield* TaskPatch.end(says("1 3\nYWJj"), "/workspace", base, bytesMax)
      assert.match(problem ?? "", /could not be made: exit code 128\. Exclude .*\.gitignore/u)
    })
  )

  it.effect("reports a patch that a timeout or the end of the sandbox prevents", () =>
    Effect.gen(function* () {
      const partial = {
        output: {
          stdout: { text: "", bytes: 0, truncated: false },
          stderr: { text: "", bytes: 0, truncated: false }
        },
        peak: {}
      }
      const late = new SandboxError({ reason: new CommandTimedOut({ timeoutSecondsMax: 60, partial }) })
      assert.property(yield* TaskPatch.end(fails(late), "/workspace", tree, bytesMax), "problem")
      const over = new SandboxError({
        reason: new ContainerFailed({ operation: "exec", detail: "is over", remedy: "Open another" })
      })
      assert.deepStrictEqual(yield* TaskPatch.end(fails(over), "/workspace", tree, bytesMax), {
        files: 0,
        bytes: 0,
        problem: "the patch could not be made: the sandbox has ended (ContainerFailed)"
      })
      assert.strictEqual(yield* Effect.flip(TaskPatch.begin(fails(over), "/workspace")), over)
    })
  )
})
