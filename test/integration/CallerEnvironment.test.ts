/**
 * Environment variables of the caller that name files in the workspace. They reach the agent's program, and no program
 * of the sandbox itself.
 */
import { assert, layer } from "@effect/vitest"
import { SandboxRunner } from "@cogni/sandbox-core/SandboxRunner"
import { Effect } from "effect"
import { chownSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import * as Images from "../harness/Images.ts"
import * as RunHarness from "../harness/RunHarness.ts"

/** Variables that make an interpreter, loader or library run or read the file that they name. */
const env = {
  BASH_ENV: "/workspace/poison.sh",
  ENV: "/workspace/poison.sh",
  GCONV_PATH: "/workspace/lib",
  GIT_CONFIG_GLOBAL: "/workspace/gitconfig",
  IFS: "o",
  LOCPATH: "/workspace/lib",
  NODE_OPTIONS: "--require /workspace/poison.cjs",
  OPENSSL_CONF: "/workspace/openssl.cnf",
  PERL5LIB: "/workspace/lib",
  PERL5OPT: "-MPoison",
  PYTHONSTARTUP: "/workspace/poison.py",
  RUBYOPT: "-r/workspace/poison.rb",
  TWO_LINES: "first\n  second"
}

const note = 'open my $ran, ">>", "/workspace/ran"; print $ran "$0\\n"; close $ran;'

/** Workspace with hostile Perl modules, named like those that every Perl program of the runtime image uses. */
const poisoned = Effect.gen(function* () {
  const workspace = join(yield* RunHarness.Directory, "poisoned")
  mkdirSync(join(workspace, "lib"), { recursive: true })
  for (const name of ["Poison", "strict", "warnings", "Errno", "Fcntl", "POSIX", "Cwd"]) {
    writeFileSync(join(workspace, "lib", `${name}.pm`), `package ${name}; ${note} 1;\n`)
  }
  writeFileSync(join(workspace, "poison.sh"), 'echo "$0" >> /workspace/ran\n')
  const program = "require('fs').appendFileSync('/workspace/ran', process.argv[1] + '\\n')"
  writeFileSync(join(workspace, "poison.cjs"), program)
  writeFileSync(join(workspace, "gitconfig"), '[core]\n\tfsmonitor = "echo git >> /workspace/ran; false"\n')
  chownSync(workspace, 1000, 1000)
  const ran = join(workspace, "ran")
  return {
    workspace: { type: "directory" as const, path: workspace },
    /** Programs that ran hostile code since the last call. */
    ran: Effect.sync(() => {
      const lines = existsSync(ran) ? readFileSync(ran, "utf8").trim().split("\n") : []
      rmSync(ran, { force: true })
      return lines
    })
  }
})

layer(RunHarness.layer(), { excludeTestServices: true })("environment variables of the caller", (it) => {
  it.effect("reach the program of a run unchanged, and nothing that starts before it", () =>
    Effect.gen(function* () {
      const runner = yield* SandboxRunner
      const { ran, workspace } = yield* poisoned
      const run = (...argv: readonly [string, ...Array<string>]) =>
        runner.run({ image: Images.runtime, argv, env, workspace })
      assert.strictEqual((yield* run("true")).exitCode, 0)
      assert.deepStrictEqual(yield* ran, [], "the first process, the entrypoint and its probe")

      const { output } = yield* run("env", "-0")
      const seen = new Map(
        output.stdout.text
          .split("\0")
          .filter((line) => line !== "")
          .map((line) => [line.slice(0, line.indexOf("=")), line.slice(line.indexOf("=") + 1)] as const)
      )
      for (const [name, value] of Object.entries(env)) assert.strictEqual(seen.get(name), value, name)
      assert.isEmpty([...seen.keys()].filter((name) => name.startsWith("COGNI_")))
      assert.strictEqual(seen.get("HOME"), "/home/agent")

      const first = yield* run("sh", "-c", "cat /proc/1/environ 2>&1")
      assert.match(first.output.stdout.text, /Permission denied/u, "the first process of the container")

      yield* run("perl", "-e", "1")
      assert.include(yield* ran, "-e", "the agent's own Perl program obeys the caller's variables")
    })
  )

  it.effect("reach the commands of an open sandbox, but neither its supervisor nor its file helper", () =>
    Effect.gen(function* () {
      const runner = yield* SandboxRunner
      const { ran, workspace } = yield* poisoned
      const sandbox = yield* runner.open({ image: Images.runtime, env, workspace })
      yield* sandbox.files.write("told.txt", "kept")
      assert.strictEqual(new TextDecoder().decode(yield* sandbox.files.read("told.txt")), "kept")
      yield* sandbox.files.list(".")
      assert.deepStrictEqual(yield* ran, [], "the supervisor and the program for files")

      const show = 'printf "%s|" "$PERL5LIB" "$TWO_LINES" "$OWN" "$HOME"'
      const first = yield* sandbox.exec(["/bin/sh", "-c", show], { env: { OWN: "x", PERL5LIB: "/other" } })
      assert.strictEqual(first.output.stdout.text, "/other|first\n  second|x|/home/agent|")
      const second = yield* sandbox.exec(["/bin/sh", "-c", show])
      assert.strictEqual(second.output.stdout.text, "/workspace/lib|first\n  second||/home/agent|")
      assert.deepStrictEqual(yield* ran, [])

      yield* sandbox.exec(["perl", "-e", "1"])
      assert.include(yield* ran, "-e")
    }).pipe(Effect.scoped)
  )

  it.effect("do not affect the programs that commit an agent's leftover files", () =>
    Effect.gen(function* () {
      const runner = yield* SandboxRunner
      const { ran, workspace } = yield* poisoned
      const repository =
        "git init -q repo && cd repo && git config user.name a && git config user.email a@example.org"
      yield* runner.run({
        image: Images.runtime,
        argv: ["sh", "-c", `${repository} && touch left`],
        workspace
      })
      const bin = join(workspace.path, "bin")
      mkdirSync(bin)
      for (const name of ["git", "find", "head"]) {
        writeFileSync(join(bin, name), `#!/bin/sh\necho ${name} >> /workspace/ran\n`, { mode: 0o755 })
      }
      const { exitCode } = yield* runner.run({
        image: Images.runtime,
        argv: ["cogni-repo", "--commit", "left over"],
        env: { ...env, PATH: "/workspace/bin:/usr/local/bin:/usr/bin:/bin" },
        workspace
      })
      assert.strictEqual(exitCode, 0)
      assert.deepStrictEqual(yield* ran, [])
      const { output } = yield* runner.run({
        image: Images.runtime,
        argv: ["git", "-C", "repo", "log", "--format=%s"],
        workspace
      })
      assert.strictEqual(output.stdout.text, "left over\n")
    })
  )
})
