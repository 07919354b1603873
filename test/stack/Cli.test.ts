/**
 * The command, as a process of its own, over a real engine: what it prints where, what it ends with, and that nothing
 * of it is left, however it ends.
 */
import { assert, layer } from "@effect/vitest"
import * as DemoUpstream from "@cogni/sandbox-proxy/DemoUpstream"
import { Effect, type Scope } from "effect"
import {
  chmodSync,
  chownSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync
} from "node:fs"
import { createServer, type RequestListener } from "node:http"
import type { AddressInfo } from "node:net"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import * as CliProcess from "../harness/CliProcess.ts"
import * as Images from "../harness/Images.ts"

const key = "sk-planted-2c8f61-quixotic"
// eslint-disable-next-line no-control-regex
const control = /[\0-\x08\x0b-\x1f\x7f]/u

/** The one line that a failure is. */
const complaint = (stderr: string): string => {
  const said = stderr.split("\n").filter((line) => line.startsWith("cogni-sandbox: "))
  assert.lengthOf(said, 1, stderr)
  assert.notInclude(stderr, "    at ")
  return said[0]!
}

/** An upstream that does as it likes. */
const upstream = (listener: RequestListener) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.promise(
        () =>
          new Promise<ReturnType<typeof createServer>>((resolve) => {
            const server = createServer(listener)
            server.listen(0, "127.0.0.1", () => resolve(server))
          })
      ),
      (server) =>
        Effect.promise(() => {
          server.closeAllConnections()
          return new Promise<void>((resolve) => server.close(() => resolve()))
        })
    ),
    (server) => ({
      COGNI_LLM_URL: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
      COGNI_LLM_KEY: key,
      COGNI_LLM_MODEL: "m"
    })
  )

/** Not below the directory of the records: no workspace may be there. */
const directory = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-workspace-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
)

const keyFile = (mode: number) =>
  Effect.map(directory, (parent) => {
    const path = join(parent, "key")
    writeFileSync(path, `${key}\n`)
    chmodSync(path, mode)
    return path
  })

const suite = layer(CliProcess.layer, { excludeTestServices: true })

suite("a sealed command", (it) => {
  it.effect("ends with its own exit code, and each of its streams stays itself", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const { code, stderr, stdout } = yield* cli.run([
        "run",
        "--quiet",
        "--",
        "sh",
        "-c",
        "echo out; echo err >&2; exit 7"
      ])
      assert.deepStrictEqual([code, stdout.toString(), stderr], [7, "out\n", "err\n"])
    })
  )

  it.effect("gets its arguments as they were typed, whatever is in them", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const argv = ["", " a  b ", "$(id)", "`id`", "'", '"', "*", "--output", "json", "--", "é→", "a\nb"]
      const { code, stdout } = yield* cli.run(["run", "-q", "--", "printf", "%s\\0", ...argv])
      assert.strictEqual(code, 0)
      assert.deepStrictEqual(stdout.toString("utf8").split("\0").slice(0, -1), argv)
    })
  )

  it.effect("writes bytes, not text: binary and invalid UTF-8 arrive as they were", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const every = Array.from({ length: 256 }, (_, byte) => `\\${byte.toString(8).padStart(3, "0")}`).join(
        ""
      )
      const { stdout } = yield* cli.run([
        "run",
        "-q",
        "--",
        "sh",
        "-c",
        `printf '${every}'; printf '\\377\\376'`
      ])
      assert.deepStrictEqual([...stdout], [...Array(256).keys(), 255, 254])
    })
  )

  it.effect("is seen while it runs, not after", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const started = yield* cli.start(["run", "-q", "--", "sh", "-c", "echo first; sleep 30"])
      yield* started.said(/^first$/mu)
      assert.isNull(started.child.exitCode)
      yield* started.kill("SIGINT")
      assert.strictEqual((yield* started.ended).code, 130)
    })
  )

  it.effect("is given variables and a workspace, whose changes stay", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const workspace = yield* directory
      chmodSync(workspace, 0o777)
      const { code, stdout } = yield* cli.run([
        "run",
        "-q",
        "-w",
        workspace,
        "-e",
        "GREETING=hello=there",
        "--",
        "sh",
        "-c",
        'echo "$GREETING"; echo made > made'
      ])
      assert.deepStrictEqual([code, stdout.toString()], [0, "hello=there\n"])
      assert.strictEqual(readFileSync(join(workspace, "made"), "utf8"), "made\n")
    })
  )

  it.effect("has no way out where no upstream is configured, and one where it is", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const look = ["--", "sh", "-c", "ls /llm-sock 2>/dev/null; env | grep -c COGNI_LLM_KEY"]
      assert.strictEqual((yield* cli.run(["run", "-q", ...look])).stdout.toString(), "0\n")
      const { url } = yield* DemoUpstream.acquire()
      const env = { COGNI_LLM_URL: url, COGNI_LLM_KEY: key, COGNI_LLM_MODEL: "m" }
      assert.strictEqual((yield* cli.run(["run", "-q", ...look], { env })).stdout.toString(), "llm.sock\n0\n")
      assert.strictEqual(
        (yield* cli.run(["run", "-q", "--no-model", ...look], { env })).stdout.toString(),
        "0\n"
      )
    })
  )

  it.effect("for scripts is one object, with what it wrote in it", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const { code, stdout } = yield* cli.run(["run", "-o", "json", "--", "sh", "-c", "echo out; exit 3"])
      assert.strictEqual(code, 3)
      assert.containSubset(JSON.parse(stdout.toString()), {
        ok: false,
        exitCode: 3,
        output: {
          stdout: { text: "out\n", bytes: 4, truncated: false },
          stderr: { text: "", bytes: 0, truncated: false }
        },
        timings: [
          { phase: "workspace" },
          { phase: "create" },
          { phase: "start" },
          { phase: "entrypoint" },
          { phase: "agent" }
        ]
      })
    })
  )
})

suite("an agent", (it) => {
  it.effect("its answer alone is on standard output; progress is lines on standard error", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const { code, stderr, stdout } = yield* cli.run(["run", "--demo", "What is the capital of Peru?"])
      assert.strictEqual(code, 0, stderr)
      assert.match(stdout.toString(), /^This is the demo upstream; [^\n]+ What is the capital of Peru\?\n$/u)
      assert.notMatch(stderr, control)
      assert.match(stderr, /^(?:· [^\n]+\n)+$/u)
      assert.include(stderr, "1 model call")
      assert.strictEqual((yield* cli.run(["run", "--demo", "--quiet", "hi"])).stderr, "")
    })
  )

  it.effect("takes a prompt from standard input and from a file, with everything in it", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const prompt = 'a "quoted" $(prompt) with `ticks` → é'
      const file = join(yield* directory, "prompt.txt")
      writeFileSync(file, prompt)
      for (const ended of [
        yield* cli.run(["run", "-q", "--demo", "-"], { stdin: prompt }),
        yield* cli.run(["run", "-q", "--demo", "--prompt-file", file])
      ]) {
        assert.strictEqual(ended.code, 0, ended.stderr)
        assert.include(ended.stdout.toString(), prompt)
      }
    })
  )

  it.effect("for scripts is one object with the answer", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const { code, stdout } = yield* cli.run(["run", "--demo", "--output", "json", "hello"])
      assert.strictEqual(code, 0)
      const json = JSON.parse(stdout.toString())
      assert.containSubset(json, {
        ok: true,
        demo: true,
        agent: "agent",
        exitCode: 0,
        llm: { proxy: "gateway (host directory)", calls: [{ status: 200 }] }
      })
      assert.include(json.answer, "hello")
      assert.isAbove(json.usage.inputTokens, 0)
    })
  )

  it.effect("asks the configured upstream with the key, which is nowhere else", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const { received, url } = yield* DemoUpstream.acquire({ raw: true })
      const env = {
        COGNI_LLM_URL: url,
        COGNI_LLM_KEY: key,
        COGNI_LLM_MODEL: "m1",
        COGNI_BILLING_ACCOUNT: "acct-7"
      }
      const { code, stderr, stdout } = yield* cli.run(
        ["run", "--output", "json", "--log-level", "debug", "hello"],
        { env }
      )
      assert.strictEqual(code, 0, stderr)
      const headers = new Map((yield* received).at(-1)?.headers)
      assert.strictEqual(headers.get("authorization"), `Bearer ${key}`)
      assert.strictEqual(headers.get("x-litellm-customer-id"), "acct-7")
      const { runId } = JSON.parse(stdout.toString())
      const record = readFileSync(join(cli.stateDirectory, "runs", runId, "record.json"), "utf8")
      assert.notInclude(stdout.toString() + stderr + record, key)
    })
  )

  it.effect(
    "takes the key out of a file too, and then the kernel does not show it for as long as it runs",
    () =>
      Effect.gen(function* () {
        const cli = yield* CliProcess.CliProcess
        const { received, url } = yield* DemoUpstream.acquire({ raw: true })
        const argv = [
          "run",
          "-q",
          "--",
          "sh",
          "-c",
          `node -e 'fetch("http://localhost:8080/v1/chat/completions", { method: "POST", body: "{\\"messages\\":[]}", headers: { "content-type": "application/json" } })' && echo up && sleep 60`
        ]
        for (const [env, shown] of [
          [{ COGNI_LLM_KEY_FILE: yield* keyFile(0o600) }, false],
          [{ COGNI_LLM_KEY: key }, true]
        ] as const) {
          const started = yield* cli.start(argv, {
            env: { ...env, COGNI_LLM_URL: url, COGNI_LLM_MODEL: "m" }
          })
          yield* started.said(/^up$/mu)
          const environment = readFileSync(`/proc/${started.child.pid}/environ`, "latin1")
          assert.strictEqual(environment.includes(key), shown)
          assert.notInclude(readFileSync(`/proc/${started.child.pid}/cmdline`, "latin1"), key)
          yield* started.kill("SIGTERM")
          yield* started.ended
          assert.strictEqual(new Map((yield* received).at(-1)?.headers).get("authorization"), `Bearer ${key}`)
        }
      })
  )
})

const limits: ReadonlyArray<
  readonly [what: string, argv: ReadonlyArray<string>, code: number, reason: string, flag: string]
> = [
  ["time", ["--timeout", "1s", "--", "sleep", "60"], 124, "TimedOut", "--timeout"],
  [
    "time, for one that ignores SIGTERM",
    ["--timeout", "1s", "--grace", "1s", "--", "sh", "-c", 'trap "" TERM; while :; do sleep 1; done'],
    124,
    "TimedOut",
    "--timeout"
  ],
  [
    "memory",
    ["--memory", "32m", "--", "sh", "-c", "head -c 400m /dev/zero | tail"],
    137,
    "OomKilled",
    "--memory"
  ],
  [
    "processes",
    [
      "--processes",
      "16",
      "--timeout",
      "20s",
      "--",
      // It tries again for a while when it is refused a process; sh gives up at once.
      "bash",
      "-c",
      "for i in $(seq 100); do sleep 5 & done; wait"
    ],
    121,
    "PidsExhausted",
    "--processes"
  ],
  ["output", ["--output-limit", "64k", "--", "yes"], 122, "OutputLimitExceeded", "--output-limit"],
  [
    "disk",
    [
      "--disk",
      "1m",
      "--",
      "sh",
      "-c",
      "for i in 1 2 3 4; do head -c 900k /dev/zero > /workspace/$i; done; sleep 30"
    ],
    123,
    "DiskFull",
    "--disk"
  ]
]

suite("a limit", (it) => {
  for (const [what, argv, code, reason, flag] of limits) {
    it.effect(`${what}: ${reason} is exit code ${code}, says ${flag}, and leaves nothing`, () =>
      Effect.gen(function* () {
        const cli = yield* CliProcess.CliProcess
        const ended = yield* cli.run(["run", "--output", "json", "--quiet", ...argv])
        assert.strictEqual(ended.code, code, ended.stderr)
        assert.include(complaint(ended.stderr), flag)
        const json = JSON.parse(ended.stdout.toString())
        assert.containSubset(json, { ok: false, exitCode: code, error: { reason } })
        assert.hasAllKeys(json.partial.output, ["stdout", "stderr"])
        assert.deepStrictEqual(yield* cli.leftovers, [])
      })
    )
  }
})

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
      options: { env: { DOCKER_HOST: "unix:///nowhere/docker.sock" } },
      code: 69,
      says: "there is no socket at"
    })
  ),
  refuses(
    "an engine's address that is none",
    Effect.succeed({
      argv: ["run", "--", "true"],
      options: { env: { DOCKER_HOST: "ssh://nowhere" } },
      code: 69,
      says: "DOCKER_HOST"
    })
  ),
  refuses(
    "an image that is not there",
    Effect.succeed({
      argv: ["run", "--image", Images.absent, "--", "true"],
      code: 69,
      says: Images.absent
    })
  ),
  refuses(
    "an image's name that is none",
    Effect.succeed({
      argv: ["run", "--image", "-x;id", "--", "true"],
      code: 64,
      says: "--image"
    })
  ),
  refuses("a workspace that is not there", Effect.succeed(inWorkspace("/nowhere/at/all", "does not exist"))),
  refuses(
    "a workspace that is a file",
    Effect.map(
      place("file", (path) => writeFileSync(path, "")),
      (path) => inWorkspace(path, "not a directory")
    )
  ),
  refuses(
    "a workspace that is a link to elsewhere",
    Effect.map(
      place("link", (path) => symlinkSync("/etc", path)),
      (path) => inWorkspace(path, "symbolic link")
    )
  ),
  refuses(
    "a workspace the agent could not use",
    Effect.map(
      place("roots", (path) => {
        mkdirSync(path, { mode: 0o700 })
        if (process.getuid?.() === 0) chownSync(path, 0, 0)
        else chmodSync(path, 0)
      }),
      (path) => inWorkspace(path, "cannot be read and written")
    )
  ),
  refuses("a workspace that holds the host", Effect.succeed(inWorkspace("/", "would hand"))),
  refuses(
    "a workspace that holds the engine's socket",
    Effect.map(directory, (path) => {
      const socket = join(path, "docker.sock")
      symlinkSync("/var/run/docker.sock", socket)
      return {
        ...inWorkspace(path, `(${socket}) to the agent`),
        options: { env: { DOCKER_HOST: `unix://${socket}` } }
      }
    })
  ),
  refuses(
    "a workspace that holds the file of the key",
    Effect.map(keyFile(0o600), (path) => ({
      ...inWorkspace(dirname(path), `(${path}) to the agent`),
      options: { env: { COGNI_LLM_KEY_FILE: path, COGNI_LLM_URL: "http://127.0.0.1:9" } }
    }))
  ),
  refuses(
    "a file of the key that others can read",
    Effect.map(keyFile(0o644), (path) => ({
      argv: ["run", "hello"],
      options: { env: { COGNI_LLM_KEY_FILE: path, COGNI_LLM_URL: "http://127.0.0.1:9" } },
      code: 78,
      says: `chmod 600 ${path}`
    }))
  ),
  refuses(
    "a run id that is none",
    Effect.succeed({ argv: ["run", "--run-id", "../../etc", "--", "true"], code: 65, says: "--run-id" })
  ),
  refuses(
    "less memory than an engine gives",
    Effect.succeed({ argv: ["run", "--memory", "4m", "--", "true"], code: 65, says: "--memory" })
  ),
  refuses(
    "no processors",
    Effect.succeed({ argv: ["run", "--cpus", "0", "--", "true"], code: 65, says: "--cpus" })
  ),
  refuses(
    "a negative number of processes",
    Effect.succeed({ argv: ["run", "--processes=-1", "--", "true"], code: 65, says: "--processes" })
  ),
  refuses(
    "a time of nothing",
    Effect.succeed({ argv: ["run", "--timeout", "0s", "--", "true"], code: 64, says: "--timeout" })
  ),
  refuses("a command of nothing", Effect.succeed({ argv: ["run", "--"], code: 64, says: "no command" })),
  refuses(
    "more arguments than the kernel takes",
    Effect.succeed({
      argv: ["run", "--", "true", ...Array.from({ length: 16 }, () => "x".repeat(100_000))],
      code: 65,
      says: "bytes together"
    })
  ),
  refuses(
    "a variable's name that is none",
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
  refuses("a prompt of nothing", Effect.succeed({ argv: ["run", "--demo", "-"], code: 65, says: "empty" })),
  refuses(
    "an agent, and no upstream",
    Effect.succeed({ argv: ["run", "hello"], code: 78, says: "COGNI_LLM_URL" })
  ),
  refuses(
    "a proxy image that is not there",
    Effect.succeed({
      argv: ["run", "--demo", "--proxy", "nginx", "hello"],
      options: { env: { COGNI_PROXY_IMAGE: Images.absent } },
      code: 69,
      says: Images.absent
    })
  ),
  refuses(
    "a directory for records that cannot be one",
    Effect.map(
      place("file", (path) => writeFileSync(path, "")),
      (path) => ({
        argv: ["run", "--", "true"],
        options: { env: { COGNI_STATE_DIR: path } },
        code: 65,
        says: "COGNI_STATE_DIR"
      })
    )
  )
]

suite("bad input", (it) => {
  for (const [what, arrange] of bad) {
    it.effect(`${what}: one line that says what to do, and nothing left`, () =>
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

  it.effect("a run id that was used before: refused for ever", () =>
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

suite("an upstream that", (it) => {
  const failing: ReadonlyArray<readonly [what: string, listener: RequestListener, says: RegExp]> = [
    [
      "refuses",
      (_, response) =>
        void response
          .writeHead(401, { "content-type": "application/json" })
          .end('{"error":{"message":"bad key"}}'),
      /502: .*does not accept the sandbox's key/u
    ],
    [
      "answers with HTML",
      (_, response) => void response.writeHead(200, { "content-type": "text/html" }).end("<h1>hello</h1>"),
      /not JSON/u
    ],
    [
      "breaks off in the middle",
      (_, response) => {
        response.writeHead(200, { "content-type": "text/event-stream" })
        response.write('data: {"choices":[{"delta":{"content":"half"}}]}\n\n', () => response.destroy())
      },
      /lost|ended before/u
    ]
  ]
  for (const [what, listener, says] of failing) {
    it.effect(`${what} gives no answer, a reason, and the agent's own exit code`, () =>
      Effect.gen(function* () {
        const cli = yield* CliProcess.CliProcess
        const ended = yield* cli.run(["run", "-q", "hello"], { env: yield* upstream(listener) })
        assert.strictEqual(ended.code, 1, ended.stderr)
        assert.strictEqual(ended.stdout.length, 0)
        assert.match(complaint(ended.stderr), says)
        assert.notInclude(ended.stderr, key)
        assert.deepStrictEqual(yield* cli.leftovers, [])
      })
    )
  }

  it.effect("is not there gives no answer and a reason", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const env = { COGNI_LLM_URL: "http://127.0.0.1:9", COGNI_LLM_KEY: key, COGNI_LLM_MODEL: "m" }
      const ended = yield* cli.run(["run", "-q", "hello"], { env })
      assert.notStrictEqual(ended.code, 0)
      assert.strictEqual(ended.stdout.length, 0)
      assert.include(complaint(ended.stderr), "502")
    })
  )

  it.effect("hangs ends with the run's own time", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const ended = yield* cli.run(["run", "-q", "--timeout", "2s", "hello"], {
        env: yield* upstream(() => undefined)
      })
      assert.strictEqual(ended.code, 124, ended.stderr)
      assert.deepStrictEqual(yield* cli.leftovers, [])
    })
  )
})

suite("an end from outside", (it) => {
  for (const [signal, code] of [
    ["SIGINT", 130],
    ["SIGTERM", 143],
    ["SIGHUP", 129]
  ] as const) {
    it.effect(`${signal} ends the run, leaves nothing, and is exit code ${code}`, () =>
      Effect.gen(function* () {
        const cli = yield* CliProcess.CliProcess
        const started = yield* cli.start(["run", "--demo", "--", "sh", "-c", "echo up; sleep 60"])
        yield* started.said(/^up$/mu)
        assert.isAbove((yield* cli.leftovers).length, 0, "it runs")
        yield* started.kill(signal)
        const ended = yield* started.ended
        assert.strictEqual(ended.code, code, ended.stderr)
        assert.include(complaint(ended.stderr), `ended by ${signal}`)
        assert.deepStrictEqual(yield* cli.leftovers, [])
      })
    )
  }

  it.effect("Ctrl-C is an object too, where a script reads", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const started = yield* cli.start([
        "run",
        "-o",
        "json",
        "--run-id",
        "run-for-a-script",
        "--",
        "sleep",
        "60"
      ])
      yield* Effect.repeat(cli.leftovers, { until: (found) => found.length > 0 })
      yield* started.kill("SIGINT")
      const ended = yield* started.ended
      assert.strictEqual(ended.code, 130)
      assert.containSubset(JSON.parse(ended.stdout.toString()), {
        ok: false,
        exitCode: 130,
        error: { code: "interrupted", reason: "SIGINT" }
      })
      assert.deepStrictEqual(yield* cli.leftovers, [])
    })
  )

  it.effect("a second Ctrl-C does not keep the first from leaving nothing", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const started = yield* cli.start(["run", "-q", "--", "sh", "-c", "echo up; sleep 60"])
      yield* started.said(/^up$/mu)
      yield* started.kill("SIGINT")
      yield* started.kill("SIGINT")
      assert.strictEqual((yield* started.ended).code, 130)
      assert.deepStrictEqual(yield* cli.leftovers, [])
    })
  )

  it.effect("Ctrl-C before the sandbox stands leaves nothing either", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      for (const delay of [150, 300, 450, 600]) {
        const started = yield* cli.start(["run", "-q", "--demo", "--", "sleep", "60"])
        yield* Effect.sleep(delay)
        yield* started.kill("SIGINT")
        assert.strictEqual((yield* started.ended).code, 130)
        assert.deepStrictEqual(yield* cli.leftovers, [], `after ${delay} ms`)
      }
    })
  )

  it.effect("a reader who goes ends the run: no error, no leftover", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const started = yield* cli.start(["run", "-q", "--", "yes"])
      yield* started.said(/^y$/mu)
      started.child.stdout?.destroy()
      const ended = yield* started.ended
      assert.deepStrictEqual([ended.code, ended.stderr], [141, ""])
      assert.deepStrictEqual(yield* cli.leftovers, [])
    })
  )

  it.effect("what a killed command left, the next one removes", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const started = yield* cli.start([
        "run",
        "-q",
        "--run-id",
        "run-killed-one",
        "--demo",
        "--",
        "sh",
        "-c",
        "echo up; sleep 60"
      ])
      yield* started.said(/^up$/mu)
      yield* started.kill("SIGKILL")
      assert.strictEqual((yield* started.ended).code, 137)
      assert.isAbove((yield* cli.leftovers).length, 1)
      assert.include((yield* cli.run(["ps", "--all"])).stdout.toString(), "abandoned")
      assert.strictEqual((yield* cli.run(["run", "-q", "--", "true"])).code, 0)
      assert.deepStrictEqual(yield* cli.leftovers, [])
    })
  )
})

suite("what is kept of runs", (it) => {
  it.effect("ps shows what runs; prune leaves it alone, and --all refuses while it lives", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const started = yield* cli.start([
        "run",
        "-q",
        "--run-id",
        "run-living-one",
        "--",
        "sh",
        "-c",
        "echo up; sleep 60"
      ])
      yield* started.said(/^up$/mu)
      const listed = (yield* cli.run(["ps"])).stdout.toString()
      assert.match(listed, /^RUN +STATUS +STARTED +TOOK +COMMAND\nrun-living-one +running +/u)
      assert.containSubset(JSON.parse((yield* cli.run(["ps", "-o", "json"])).stdout.toString()), [
        { runId: "run-living-one", status: "running" }
      ])
      assert.strictEqual((yield* cli.run(["logs", "run-living-one"])).code, 66)
      assert.strictEqual((yield* cli.run(["prune"])).code, 0)
      const refused = yield* cli.run(["prune", "--all"])
      assert.strictEqual(refused.code, 65)
      assert.include(complaint(refused.stderr), "run-living-one")
      assert.isNull(started.child.exitCode)
      assert.isAbove((yield* cli.leftovers).length, 0)
      yield* started.kill("SIGTERM")
      yield* started.ended
      assert.strictEqual((yield* cli.run(["ps"])).stdout.length, 0)
      assert.include((yield* cli.run(["ps", "--all"])).stdout.toString(), "interrupted")
    })
  )

  it.effect(
    "logs are what the run wrote, inspect is all that is known of it, by an unmistakable beginning of its id",
    () =>
      Effect.gen(function* () {
        const cli = yield* CliProcess.CliProcess
        yield* cli.run([
          "run",
          "-q",
          "--run-id",
          "run-looked-at-1",
          "--",
          "sh",
          "-c",
          "echo out; echo err >&2; exit 4"
        ])
        yield* cli.run([
          "run",
          "-q",
          "--run-id",
          "run-looked-at-2",
          "--timeout",
          "1s",
          "--",
          "sh",
          "-c",
          "echo half; sleep 30"
        ])
        assert.strictEqual((yield* cli.run(["logs", "run-looked-at-1"])).stdout.toString(), "out\n")
        assert.strictEqual(
          (yield* cli.run(["logs", "run-looked-at-1", "--stderr"])).stdout.toString(),
          "err\n"
        )
        assert.strictEqual((yield* cli.run(["logs", "run-looked-at-2"])).stdout.toString(), "half\n")
        assert.containSubset(JSON.parse((yield* cli.run(["inspect", "run-looked-at-1"])).stdout.toString()), {
          runId: "run-looked-at-1",
          outcome: { status: "exited", result: { exitCode: 4 } },
          posture: { interfaces: ["lo"], noNewPrivileges: true }
        })
        assert.containSubset(JSON.parse((yield* cli.run(["inspect", "run-looked-at-2"])).stdout.toString()), {
          outcome: { status: "failed", reason: "TimedOut", code: "timeout" }
        })
        const posture = JSON.parse(
          (yield* cli.run(["inspect", "--posture", "run-looked-at-1"])).stdout.toString()
        )
        assert.strictEqual(posture.seccompMode, 2)
        const many = yield* cli.run(["inspect", "run-looked"])
        assert.strictEqual(many.code, 66)
        assert.include(complaint(many.stderr), "several runs begin with run-looked")
        const records = JSON.parse((yield* cli.run(["ps", "--all", "-o", "json"])).stdout.toString())
        assert.containSubset(records, [
          { runId: "run-looked-at-2", status: "failed", reason: "TimedOut" },
          { runId: "run-looked-at-1", exitCode: 4 }
        ])
      })
  )

  it.effect("prune removes what a dead process left, and forgets records only when asked", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const prunedAfter = Effect.fnUntraced(function* (runId: string) {
        const started = yield* cli.start([
          "run",
          "-q",
          "--run-id",
          runId,
          "--",
          "sh",
          "-c",
          "echo up; sleep 60"
        ])
        yield* started.said(/^up$/mu)
        yield* started.kill("SIGKILL")
        yield* started.ended
        const { abandoned, removed } = JSON.parse(
          (yield* cli.run(["prune", "--output", "json"])).stdout.toString()
        )
        assert.include(abandoned, runId)
        assert.deepStrictEqual(yield* cli.leftovers, [])
        return removed.includes(`cogni-${runId}-agent`)
      })
      // A command of another test removes what dead processes left as well, and may come first.
      let isRemoved = false
      for (const runId of ["run-killed-two", "run-killed-three", "run-killed-four", "run-killed-five"])
        isRemoved ||= yield* prunedAfter(runId)
      assert.isTrue(isRemoved)
      assert.include((yield* cli.run(["ps", "--all"])).stdout.toString(), "run-killed-two")
      assert.match((yield* cli.run(["prune", "--records"])).stdout.toString(), /forgot \d+ runs?/u)
      assert.strictEqual((yield* cli.run(["ps", "--all"])).stdout.length, 0)
    })
  )

  it.effect(
    "doctor says that this machine is ready, or what to fix, and ends with 1 when something must be",
    () =>
      Effect.gen(function* () {
        const cli = yield* CliProcess.CliProcess
        const ready = yield* cli.run(["doctor", "--output", "json"])
        const { findings, ok } = JSON.parse(ready.stdout.toString())
        assert.isTrue(ok, ready.stdout.toString())
        assert.strictEqual(ready.code, 0)
        const checks = findings.map((one: { readonly check: string }) => one.check)
        assert.includeMembers(checks, [
          "engine",
          "api version",
          "storage driver",
          "cgroups",
          "image runtime",
          "image proxy",
          "socket",
          "user",
          "disk for records",
          "upstream"
        ])
        const broken = yield* cli.run(["doctor"], {
          env: { COGNI_RUNTIME_IMAGE: Images.absent, COGNI_LLM_URL: "http://127.0.0.1:9" }
        })
        assert.strictEqual(broken.code, 1)
        assert.match(broken.stdout.toString(), /✗ {2}image runtime .*\n {3}→ Build it/u)
        assert.match(broken.stdout.toString(), /✗ {2}upstream .*COGNI_LLM_KEY/u)
        const away = yield* cli.run(["doctor"], { env: { DOCKER_HOST: "unix:///nowhere/docker.sock" } })
        assert.strictEqual(away.code, 1)
        assert.include(away.stdout.toString(), "/nowhere/docker.sock")
      })
  )

  it.effect("doctor asks a configured upstream, without the key", () =>
    Effect.gen(function* () {
      const cli = yield* CliProcess.CliProcess
      const { received, url } = yield* DemoUpstream.acquire({ raw: true })
      const env = { COGNI_LLM_URL: url, COGNI_LLM_KEY: key, COGNI_LLM_MODEL: "m" }
      const { code, stdout } = yield* cli.run(["doctor"], { env })
      assert.strictEqual(code, 0)
      assert.match(stdout.toString(), /✓ {2}upstream .*answers; model m/u)
      assert.notInclude(JSON.stringify(yield* received), key)
      assert.strictEqual((yield* received).length, 1)
    })
  )
})
