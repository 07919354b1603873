/** An executor for tests of sandbox scripts: runs them on the test machine, in temporary directories. */
import type { Executor } from "@cogni/sandbox-core/Executor"
import { SandboxError } from "@cogni/sandbox-core/SandboxError"
import { FileRefused } from "@cogni/sandbox-core/SandboxReason"
import { Effect } from "effect"
import { execFile, execFileSync } from "node:child_process"
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"

export interface Local {
  readonly executor: Executor
  readonly workspace: string
  /** Directory for temporary files. */
  readonly temporary: string
  readonly write: (path: string, content: string | Uint8Array) => void
  readonly read: (path: string) => string
  /** Runs git in the workspace, or in the given directory. */
  readonly git: (args: ReadonlyArray<string>, directory?: string) => string
}

const identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]

const channel = (text: string) => ({ text, bytes: Buffer.byteLength(text), truncated: false })

const refuse = (path: string) =>
  Effect.fail(
    new SandboxError({
      reason: new FileRefused({ path, problem: "not_found", detail: "does not exist", remedy: "List it" })
    })
  )

export const acquire = Effect.gen(function* () {
  const home = yield* Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-local-"))),
    (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
  )
  const workspace = join(home, "workspace")
  const temporary = join(home, "tmp")
  mkdirSync(workspace)
  mkdirSync(temporary)
  const env = {
    PATH: "/usr/local/bin:/usr/bin:/bin",
    HOME: home,
    TMPDIR: temporary,
    GIT_CONFIG_NOSYSTEM: "1"
  }
  const executor: Executor = {
    workspace,
    exec: (command) =>
      Effect.callback((resume) => {
        const [program, ...args] = typeof command === "string" ? ["/bin/sh", "-c", command] : command
        const options = { cwd: workspace, env, maxBuffer: 64 * 1024 * 1024 }
        execFile(program!, args, options, (error, stdout, stderr) => {
          const exitCode = error === null ? 0 : typeof error.code === "number" ? error.code : 1
          const output = { stdout: channel(stdout), stderr: channel(stderr) }
          resume(Effect.succeed({ exitCode, output, durationMs: 0 }))
        })
      }),
    spawn: () => Effect.die(new Error("spawn is not available here")),
    files: {
      read: (path) =>
        Effect.suspend(() => {
          try {
            return Effect.succeed(new Uint8Array(readFileSync(path)))
          } catch {
            return refuse(path)
          }
        }),
      write: (path, content) => Effect.sync(() => writeFileSync(path, content)),
      list: () => Effect.succeed([]),
      stat: () => Effect.die("no stat"),
      remove: () => Effect.die("no remove")
    }
  }
  return {
    executor,
    workspace,
    temporary,
    write: (path, content) => {
      mkdirSync(dirname(join(workspace, path)), { recursive: true })
      writeFileSync(join(workspace, path), content)
    },
    read: (path) => readFileSync(join(workspace, path), "utf8"),
    git: (args, directory = workspace) =>
      execFileSync("git", [...identity, ...args], { cwd: directory, env, encoding: "utf8", stdio: "pipe" })
  } satisfies Local
})
