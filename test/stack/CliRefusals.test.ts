/** Refusals of the command, and faulty upstreams. Each prints one line with a remedy, and leaves nothing. */
import { assert, layer } from "@effect/vitest"
import type * as ScriptedModelApi from "@cogni/sandbox-proxy/ScriptedModelApi"
import { Effect, type Scope } from "effect"
import { chmodSync, chownSync, mkdirSync, symlinkSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import * as CliProcess from "../harness/CliProcess.ts"
import { complaint, directory, key, keyFile, upstream } from "../harness/CliWorld.ts"
import * as Engine from "../harness/Engine.ts"
import * as Images from "../harness/Images.ts"

const suite = layer(CliProcess.layer, { excludeTestServices: true })

interface Refused {
  readonly argv: ReadonlyArray<string>
  readonly options?: CliProcess.Options
  readonly code: number
  readonly says: string
}

const refuses = (what: string, arrange: Effect.Effect<Refused, never, Scope.Scope>) =>
  [what, arrange] as const

const place = (name: string, make: (path: string) => void) =>
  Effect.map(directory, (parent) => {
    const path = join(parent, name)
    make(path)
    return path
  })

const inWorkspace = (path: string, says: string): Refused => ({
  argv: ["run", "-w", path, "--", "true"],
  code: 65,
  says
})

const bad = [
  refuses(
    "no engine",
    Effect.succeed({
      argv: ["run", "--", "true"],
      options: { env: { DOCKER_HOST: "unix:///proc/nowhere/docker.sock" } },
      code: 69,
      says: "there is no socket at"
    })
  ),
  refuses(
    "an invalid engine address",
    Effect.succeed({
      argv: ["run", "--", "true"],
      options: { env: { DOCKER_HOST: "ssh://nowhere" } },
      code: 69,
      says: "DOCKER_HOST"
    })
  ),
  refuses(
    "a missing image",
    Effect.succeed({
      argv: ["run", "--image", Images.absent, "--", "true"],
      code: 69,
      says: Images.absent
    })
  ),
  refuses(
    "an invalid image name",
    Effect.succeed({
      argv: ["run", "--image", "-x;id", "--", "true"],
      code: 64,
      says: "--image"
    })
  ),
  refuses("a missing workspace", Effect.succeed(inWorkspace("/proc/nowhere/at/all", "does not exist"))),
  refuses(
    "a workspace that is a file",
    Effect.map(
      place("file", (path) => writeFileSync(path, "")),
      (path) => inWorkspace(path, "not a directory")
    )
  ),
  refuses(
    "a workspace that is a symbolic link",
    Effect.map(
      place("link", (path) => symlinkSync("/etc", path)),
      (path) => inWorkspace(path, "symbolic link")
    )
  ),
  refuses(
    "a workspace that the agent cannot use",
    Effect.map(
      place("roots", (path) => {
        mkdirSync(path, { mode: 0o700 })
        if (process.getuid?.() === 0) chownSync(path, 0, 0)
        else chmodSync(path, 0)
      }),
      (path) => inWorkspace(path, "cannot be read and written")
    )
  ),
  refuses("a workspace that is the root of the host", Effect.succeed(inWorkspace("/", "would hand"))),
  refuses(
    "a workspace that contains the engine's socket",
    Effect.map(directory, (path) => {
      const socket = join(path, "docker.sock")
      symlinkSync(
        Engine.variables["DOCKER_HOST"]?.replace(/^unix:\/\//u, "") ?? "/var/run/docker.sock",
        socket
      )
      return {
        ...inWorkspace(path, `(${socket}) to the agent`),
        options: { env: { DOCKER_HOST: `unix://${socket}` } }
      }
    })
  ),
  refuses(
    "a workspace that contains the key file",
    Effect.map(keyFile(0o600), (path) => ({
      ...inWorkspace(dirname(path), `(${path}) to the agent`),
      options: { env: { COGNI_LLM_KEY_FILE: path, COGNI_LLM_URL: "http://127.0.0.1:9" } }
    }))
  ),
  refuses(
    "a key file that other users can read",
    Effect.map(keyFile(0o644), (path) => ({
      argv: ["run", "hello"],
      options: { env: { COGNI_LLM_KEY_FILE: path, COGNI_LLM_URL: "http://127.0.0.1:9" } },
      code: 78,
      says: `chmod 600 ${path}`
    }))
  ),
  refuses(
    "an invalid run ID",
    Effect.succeed({ argv: ["run", "--run-id", "../../etc", "--", "true"], code: 65, says: "--run-id" })
  ),
  refuses(
    "less memory than the engine's minimum",
    Effect.succeed({ argv: ["run", "--memory", "4m", "--", "true"], code: 65, says: "--memory" })
  ),
  refuses("0 CPUs", Effect.succeed({ argv: ["run", "--cpus", "0", "--", "true"], code: 65, says: "--cpus" })),
  refuses(
    "a negative number of processes",
    Effect.succeed({ argv: ["run", "--processes=-1", "--", "true"], code: 65, says: "--processes" })
  ),
  refuses(
    "a timeout of 0",
    Effect.succeed({ argv: ["run", "--timeout", "0s", "--", "true"], code: 64, says: "--timeout" })
  ),
  refuses("an empty command", Effect.succeed({ argv: ["run", "--"], code: 64, says: "no command" })),
  refuses(
    "more arguments than the kernel allows",
    Effect.succeed({
      argv: ["run", "--", "true", ...Array.from({ length: 16 }, () => "x".repeat(100_000))],
      code: 65,
      says: "bytes together"
    })
  ),
  refuses(
    "an invalid variable name",
    Effect.succeed({ argv: ["run", "-e", "1-A=x", "--", "true"], code: 65, says: "env" })
  ),
  refuses(
    "a prompt of 5 MiB",
    Effect.succeed({
      argv: ["run", "--demo", "-"],
      options: { stdin: "a".repeat(5 * 2 ** 20) },
      code: 65,
      says: "longer than 4 MiB"
    })
  ),
  refuses("an empty prompt", Effect.succeed({ argv: ["run", "--demo", "-"], code: 65, says: "empty" })),
  refuses(
    "an agent without an upstream",
    Effect.succeed({ argv: ["run", "hello"], code: 78, says: "COGNI_LLM_URL" })
  ),
  refuses(
    "a missing proxy image",
    Effect.succeed({
      argv: ["run", "--demo", "--proxy", "nginx", "hello"],
      options: { env: { COGNI_PROXY_IMAGE: Images.absent } },
      code: 69,
      says: Images.absent
    })
  ),
  refuses(
    "a state directory that is a file",
    Effect.map(
      place("file", (path) => writeFileSync(path, "")),
      (path) => ({
        argv: ["run", "--", "true"],
        options: { env: { COGNI_STATE_DIR: path } },
        code: 69,
        says: "COGNI_STATE_DIR"
      })
    )
  )
]

suite("bad input", (it) => {
  for (const [what, arrange] of bad) {
    it.effect(`${what}: prints one line with a remedy, and leaves nothing`, () =>
      Effect.gen(function* () {
        const cli = yield* CliProcess.CliProcess
        const { argv, code, options, says } = yield* arrange
        const ended = yield* cli.run(argv, options)
        assert.strictEqual(ended.code, code, ended.stderr)
        assert.include(complaint(ended.stderr), says)
        assert.strictEqual(ended.stdout.length, 0)
        assert.deepStrictEqual(yield* cli.leftovers, [])
      })
    )
  }

  it.effect("a used run ID: is refused permanently", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const argv = ["run", "-q", "--run-id", "run-used-once", "--", "true"]
      assert.strictEqual((yield* cli.run(argv)).code, 0)
      const again = yield* cli.run(argv)
      assert.strictEqual(again.code, 65)
      assert.include(complaint(again.stderr), "run-used-once is taken")
    })
  )
})

suite("a faulty upstream that", (it) => {
  const failing: ReadonlyArray<readonly [what: string, step: ScriptedModelApi.Step, says: RegExp]> = [
    [
      "refuses",
      { _tag: "Error", status: 401, body: '{"error":{"message":"bad key"}}' },
      /502: .*refused the sandbox's key/u
    ],
    ["answers with HTML", { _tag: "Html", status: 200 }, /not JSON/u],
    ["breaks off in the middle", { _tag: "ResetMidStream", events: 1 }, /lost|ended before/u]
  ]
  for (const [what, step, says] of failing) {
    it.effect(`${what}: prints a reason instead of an answer, and exits with the agent's code`, () =>
      Effect.gen(function* () {
        const cli = yield* CliProcess.CliProcess
        const ended = yield* cli.run(["run", "-q", "hello"], { env: yield* upstream(step) })
        assert.strictEqual(ended.code, 1, ended.stderr)
        assert.strictEqual(ended.stdout.length, 0)
        assert.match(complaint(ended.stderr), says)
        assert.notInclude(ended.stderr, key)
        assert.deepStrictEqual(yield* cli.leftovers, [])
      })
    )
  }

  it.effect("does not exist: prints a reason instead of an answer", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const env = { COGNI_LLM_URL: "http://127.0.0.1:9", COGNI_LLM_KEY: key, COGNI_LLM_MODEL: "m" }
      const ended = yield* cli.run(["run", "-q", "hello"], { env })
      assert.notStrictEqual(ended.code, 0)
      assert.strictEqual(ended.stdout.length, 0)
      assert.include(complaint(ended.stderr), "502")
    })
  )

  it.effect("hangs: the run times out", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const ended = yield* cli.run(["run", "-q", "--timeout", "2s", "hello"], {
        env: yield* upstream({ _tag: "Hang" })
      })
      assert.strictEqual(ended.code, 124, ended.stderr)
      assert.deepStrictEqual(yield* cli.leftovers, [])
    })
  )
})
