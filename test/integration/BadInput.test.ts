/**
 * Bad input, on real Docker. Each kind fails with its own error, which names the fix and carries the partial result.
 * Nothing is left behind.
 */
import { assert, describe, layer } from "@effect/vitest"
import { ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import * as SandboxPool from "@cogni/sandbox-core/SandboxPool"
import * as RunId from "@cogni/sandbox-core/RunId"
import type { Reason } from "@cogni/sandbox-core/SandboxError"
import { SandboxRunner } from "@cogni/sandbox-core/SandboxRunner"
import { type SandboxSpecInput } from "@cogni/sandbox-core/SandboxSpec"
import { argumentBytesMax, argumentsBytesMax, inputBytesMax } from "@cogni/sandbox-core/SpecFields"
import { Effect } from "effect"
import { chmodSync, chownSync, existsSync, mkdirSync, readdirSync, symlinkSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import * as Await from "../harness/Await.ts"
import * as ChangedImage from "../harness/ChangedImage.ts"
import { docker } from "../harness/Docker.ts"
import * as Images from "../harness/Images.ts"
import * as LeakCheck from "../harness/LeakCheck.ts"
import * as RunHarness from "../harness/RunHarness.ts"
import * as Pace from "../harness/Pace.ts"

const MiB = 1024 ** 2

/** Spec that runs a shell line in the runtime image. */
const shell = (script: string, limits: SandboxSpecInput["limits"] = {}): SandboxSpecInput => ({
  image: Images.runtime,
  argv: ["sh", "-c", script],
  limits: { runtimeSecondsMax: Pace.runSecondsMax, memoryBytesMax: 128 * MiB, processesMax: 64, ...limits }
})

const run = (spec: SandboxSpecInput) => SandboxRunner.use((runner) => runner.run(spec))

const assertNothingLeft = Effect.fnUntraced(function* (runId: RunId.RunId) {
  const left = yield* ContainerRuntime.use((runtime) => runtime.leftovers(runId))
  assert.deepStrictEqual([...left, ...LeakCheck.directories(yield* RunHarness.Directory)], [], "left behind")
})

/** Runs a spec that must fail, and returns its reason. `fix` matches the remedy in the message. */
const refused = Effect.fnUntraced(function* <T extends Reason["_tag"]>(
  spec: SandboxSpecInput,
  tag: T,
  fix: RegExp
) {
  const runId = yield* RunId.generate
  const error = yield* Effect.flip(run({ runId, ...spec }))
  assert.strictEqual(error.reason._tag, tag, error.message)
  assert.match(error.message, fix)
  yield* assertNothingLeft(runId)
  return error.reason as Extract<Reason, { readonly _tag: T }>
})

/** Creates a host directory owned by uid 1000 and applies `change`. Returns the path from `change`, or its own. */
const directory = (change: (path: string) => string | void) =>
  Effect.map(RunHarness.Directory, (parent) => {
    const path = join(parent, `workspace-${next++}`)
    mkdirSync(path)
    chownSync(path, 1000, 1000)
    return change(path) ?? path
  })

let next = 0

const inDirectory = (path: string): SandboxSpecInput => ({
  ...shell("true"),
  workspace: { type: "directory", path }
})

const options = { excludeTestServices: true } as const

interface Row {
  readonly name: string
  readonly spec: object
  readonly fix: RegExp
}

const specs: ReadonlyArray<Row> = [
  {
    name: "rejects a malformed run ID",
    spec: { runId: "../etc" },
    fix: /runId.*8 to 48 lower-case letters/su
  },
  {
    name: "rejects memory below the engine's minimum",
    spec: { limits: { memoryBytesMax: 4 * MiB } },
    fix: /memoryBytesMax.*6291456/su
  },
  {
    name: "rejects a run time of 0 seconds",
    spec: { limits: { runtimeSecondsMax: 0 } },
    fix: /runtimeSecondsMax.*from 1/su
  },
  {
    name: "rejects negative memory",
    spec: { limits: { memoryBytesMax: -1 } },
    fix: /memoryBytesMax.*6 MiB/su
  },
  { name: "rejects 0 processes", spec: { limits: { processesMax: 0 } }, fix: /processesMax.*from 4/su },
  {
    name: "rejects a negative number of processes",
    spec: { limits: { processesMax: -1 } },
    fix: /processesMax.*from 4/su
  },
  { name: "rejects 0 CPUs", spec: { limits: { cpusMax: 0 } }, fix: /cpusMax.*from 0\.01/su },
  {
    name: "rejects a limit that is not a number",
    spec: { limits: { cpusMax: Number.NaN } },
    fix: /cpusMax/u
  },
  {
    name: "rejects 0 bytes of output",
    spec: { limits: { outputBytesMax: 0 } },
    fix: /outputBytesMax.*from 1/su
  },
  { name: "rejects an unknown limit", spec: { limits: { memory: 1 } }, fix: /limits\.memory/u },
  { name: "rejects an empty argv", spec: { argv: [] }, fix: /argv.*program to run/su },
  {
    name: "rejects an argument longer than the kernel allows",
    spec: { argv: ["true", "a".repeat(argumentBytesMax + 1)] },
    fix: /argv\.1.*131071 bytes.*inputs or the workspace/su
  },
  {
    name: "rejects an argv longer than the kernel allows",
    spec: { argv: ["true", ...Array.from({ length: 16 }, () => "a".repeat(100_000))] },
    fix: /1572864 bytes together.*inputs or the workspace/su
  },
  { name: "rejects an argument that contains NUL", spec: { argv: ["true", "\0"] }, fix: /without NUL/u },
  {
    name: "rejects a prompt of 5 MiB",
    spec: { inputs: [{ name: "prompt.txt", content: "p".repeat(5 * MiB) }] },
    fix: /inputs\.0\.content.*4194304 bytes.*workspace/su
  },
  {
    name: "rejects a workspace path that is not absolute",
    spec: { workspace: { type: "directory", path: "here" } },
    fix: /workspace.*absolute path/su
  }
]

layer(RunHarness.layer(), options)("invalid specs", (it) => {
  for (const { fix, name, spec } of specs) {
    it.effect(name, () =>
      Effect.gen(function* () {
        const error = yield* Effect.flip(run({ ...shell("true"), ...spec } as SandboxSpecInput))
        assert.strictEqual(error.reason._tag, "InvalidSpec", error.message)
        assert.match(error.message, fix)
        assert.isBelow(error.message.length, 2000, "the message repeats the input")
        const parent = join(yield* RunHarness.Directory, "runs")
        assert.deepStrictEqual(existsSync(parent) ? readdirSync(parent) : [], [])
      })
    )
  }

  it.effect(
    "the kernel accepts one argument, and an argv, of the maximum length that the schema allows",
    () =>
      Effect.gen(function* () {
        const argument = "a".repeat(argumentBytesMax)
        const argv = [
          "true",
          ...Array.from(
            { length: Math.floor((argumentsBytesMax - 5) / (argumentBytesMax + 1)) },
            () => argument
          )
        ]
        assert.strictEqual((yield* run({ ...shell("true"), argv: argv as ["true"] })).exitCode, 0)
      })
  )

  it.effect("a prompt of the maximum length arrives complete", () =>
    Effect.gen(function* () {
      const inputs = [{ name: "prompt.txt", content: "p".repeat(inputBytesMax) }]
      const result = yield* run({
        ...shell("cat /cogni/prompt.txt /workspace/.cogni/prompt.txt | wc -c"),
        inputs
      })
      assert.strictEqual(result.output.stdout.text, `${2 * inputBytesMax}\n`)
    })
  )
})

const machine = { x64: 62, arm64: 183 }[process.arch as "x64" | "arm64"]
const otherMachine = machine === 62 ? 183 : 62

/** The first bytes of a program for a machine. */
const begin = (of: number) => {
  const header = Buffer.alloc(64)
  header.set([0x7f, 0x45, 0x4c, 0x46, 2, 1, 1])
  header.writeUInt16LE(of, 18)
  return header
}

const report = SandboxPool.SandboxPool.use((pool) => pool.report)

/** Runs a spec in a sandbox that has waited. */
const warm = Effect.fnUntraced(function* (spec: SandboxSpecInput) {
  yield* Await.until(
    "a sandbox waits",
    Effect.map(report, ({ waiting }) => waiting.some(({ shape }) => !/ 400\d /u.test(shape)))
  )
  const { hits } = yield* report
  const result = yield* run(spec)
  assert.strictEqual((yield* report).hits - hits, 1)
  return result
})

/** Starts a program as in a container whose run begins at once. Its input must not end, and the program has none. */
const atOnce = 'mkfifo /tmp/input; exec cogni-init 0 3600 "$@" <>/tmp/input'

const formatError = /exec: .\/program: Exec format/u

layer(RunHarness.layer(undefined, { keep: [{ image: Images.runtime, count: 1 }] }), {
  ...options,
  timeout: "3 minutes"
})("programs", (it) => {
  it.effect.each([
    ["a script without an interpreter", 'echo "<$1> <$2> $#"', "./program", 0, "<a b> <> 2\n", /^$/u],
    ["a program of another architecture", begin(otherMachine), "./program", 126, "", formatError],
    ["a program that was cut off", begin(machine), "./program", 126, "", formatError],
    ["a file that is no program", "echo \0\r\u00ff>made\n", "./program", 126, "", formatError],
    [
      "a program whose name ends with a newline",
      "",
      "absent\n",
      127,
      "",
      /^[^\n]*exec: absent\n: not found\n$/u
    ],
    ["a script whose interpreter is missing", "#!/absent\n", "./program", 127, "", /program: not found/u],
    ["a file that is not executable", "", "/etc/passwd", 126, "", /exec: \/etc\/passwd: Permission denied/u],
    ["a program below a file", "", "/etc/passwd/absent", 127, "", /exec: \/etc\/passwd\/absent: not found/u],
    ["a program without a name", "", "", 126, "", /exec: : Permission denied/u],
    ["a program that does not exist", "", "absent", 127, "", /exec: absent: not found/u]
  ] as const)("starts %s as a shell does, in each kind of sandbox", ([, content, program, ...expected]) =>
    Effect.gen(function* () {
      const path = yield* directory((made) => writeFileSync(join(made, "program"), content, { mode: 0o755 }))
      const of = (argv: SandboxSpecInput["argv"]) => ({ ...inDirectory(path), argv })
      const argv = [program, "a b", ""] as const
      const results = [
        yield* warm(of(argv)),
        // A shape of its own, of which none waits.
        yield* run({ ...of(argv), limits: { filesOpenMax: 4000 } }),
        yield* run(of(["sh", "-c", 'exec "$@"', "sh", ...argv]))
      ]
      const workspace = { type: "directory", path } as const
      const limits = { filesOpenMax: 4001 }
      const opened = yield* SandboxRunner.use((runner) =>
        runner.open({ image: Images.runtime, workspace, limits })
      )
      const [exitCode, stdout, stderr] = expected
      for (const { exitCode: found, output } of [
        ...results,
        yield* opened.exec(argv),
        yield* run(of(["sh", "-c", atOnce, "sh", ...argv]))
      ]) {
        assert.deepStrictEqual([found, output.stdout.text], [exitCode, stdout])
        assert.match(output.stderr.text, stderr)
      }
      const [one, other] = results.map(({ output }) => output.stderr.text)
      assert.strictEqual(one, other)
    })
  )
})

layer(RunHarness.layer(), options)("programs of images", (it) => {
  it.effect.each([
    ["has another entrypoint in Perl", "use constant ENOENT => 2; sub now { die }\n", "ENV A=B"],
    ["lets Perl decode what it reads", "# Loaded by cogni-init.\n", "ENV PERL_UNICODE=SDA"],
    ["lets Perl decode all streams", "# Loaded by cogni-init.\n", "ENV PERLIO=:utf8"]
  ] as const)("starts a program in an image that %s", ([, line, instruction]) =>
    Effect.gen(function* () {
      const mark = "# Loaded by cogni-init.\n"
      const image = yield* ChangedImage.acquire("cogni-entrypoint", mark, line, instruction)
      const { output } = yield* run({ ...shell("echo Ж"), image })
      assert.deepStrictEqual([output.stdout.text, output.stderr.text], ["Ж\n", ""])
      const sandbox = yield* SandboxRunner.use((runner) => runner.open({ image }))
      const bytes = Uint8Array.of(0, 0xff, 0xd0, 0x96, 0x0d, 0x0a)
      yield* sandbox.files.write("Ж", bytes)
      assert.deepStrictEqual(yield* sandbox.files.read("Ж"), bytes)
      assert.deepStrictEqual(
        (yield* sandbox.files.list(".")).map(({ name }) => name),
        [".cogni", "Ж"]
      )
      const copied = yield* sandbox.exec('echo Ж >&2; cat; printf %s "$A"', { stdin: bytes, env: { A: "Ж" } })
      assert.deepStrictEqual(
        [copied.output.stdout.text, copied.output.stderr.text],
        ["\0\ufffdЖ\r\nЖ", "Ж\n"]
      )
    })
  )

  it.effect("starts no health check of an image", () =>
    Effect.gen(function* () {
      const mark = "# Loaded by cogni-init.\n"
      const check = "HEALTHCHECK --interval=1ms CMD touch /workspace/checked"
      const image = yield* ChangedImage.acquire("cogni-entrypoint", mark, `${mark}\n`, check)
      const path = yield* directory(() => undefined)
      const { exitCode } = yield* run({ ...inDirectory(path), image, argv: ["sleep", "1"] })
      assert.deepStrictEqual([exitCode, existsSync(join(path, "checked"))], [0, false])
    })
  )

  it.effect("says what to change in an image whose programs write before the report", () =>
    Effect.gen(function* () {
      const mark = "# Loaded by cogni-init.\n"
      const instruction = "ENV LD_PRELOAD=/absent.so"
      const image = yield* ChangedImage.acquire("cogni-entrypoint", mark, `${mark}\n`, instruction)
      const words =
        /'\/absent\.so' from LD_PRELOAD cannot be preloaded.*Remove LD_PRELOAD from the ENV of the image/u
      yield* refused({ ...shell("true"), image }, "PostureMismatch", words)
    })
  )

  it.effect("refuses a volume of an image, also if its entrypoint does not report it", () =>
    Effect.gen(function* () {
      const probe = "eval { Cogni::Probe::report($$) }"
      const hidden = `grep { !m{/data} } ${probe}`
      const image = yield* ChangedImage.acquire("cogni-entrypoint", probe, hidden, "VOLUME /data")
      yield* refused({ ...shell("true"), image }, "PostureMismatch", /volume at "\/data".*remove the VOLUME/u)
    })
  )

  it.effect("reports the posture of a process without a parent", () =>
    Effect.gen(function* () {
      const options = ["--rm", "--network=none", "--entrypoint=cogni-probe"]
      assert.match(yield* docker("run", ...options, Images.runtime), /^status Uid:\t1000\t.*^ns net:/msu)
    })
  )

  it.effect("starts the scripts of a project that pins another version of pnpm", () =>
    Effect.gen(function* () {
      const path = yield* directory((made) =>
        writeFileSync(
          join(made, "package.json"),
          JSON.stringify({ packageManager: "pnpm@9.1.0", scripts: { test: "echo ran" } })
        )
      )
      const { exitCode, output } = yield* run({ ...inDirectory(path), argv: ["pnpm", "--silent", "test"] })
      assert.deepStrictEqual([exitCode, output.stdout.text], [0, "ran\n"], output.stderr.text)
    })
  )

  it.effect("gives an agent no descriptor but those of its input and output", () =>
    Effect.gen(function* () {
      const { output } = yield* run({ ...shell(""), argv: ["ls", "/proc/self/fd"] })
      // The last is that of the directory.
      assert.strictEqual(output.stdout.text, "0\n1\n2\n3\n")
    })
  )
})

layer(RunHarness.layer(), options)("invalid host resources", (it) => {
  it.effect("fails if the image does not exist", () =>
    refused(
      { ...shell("true"), image: Images.absent },
      "ImageNotFound",
      /no image cogni-sandbox\/absent:none.*npx @cogni\/sandbox-images --only absent/su
    )
  )

  it.effect("fails if the image lacks our entrypoint", () =>
    Effect.gen(function* () {
      const image = `cogni-sandbox-test/no-entrypoint:${process.pid}`
      const parent = yield* RunHarness.Directory
      writeFileSync(join(parent, "rootfs.tar"), new Uint8Array(10_240))
      yield* Effect.acquireRelease(docker("import", join(parent, "rootfs.tar"), image), () =>
        docker("image", "rm", image)
      )
      yield* refused({ ...shell("true"), image }, "ContainerFailed", /entrypoint.*FROM the runtime image/su)
    })
  )

  const workspaces: ReadonlyArray<
    readonly [name: string, change: (path: string) => string | void, fix: RegExp]
  > = [
    ["fails if the workspace does not exist", (path) => join(path, "none"), /does not exist.*Create it/su],
    [
      "fails if a parent of the workspace is not a directory",
      (path) => (writeFileSync(join(path, "file"), ""), join(path, "file", "inner")),
      /not a directory.*Use a directory/su
    ],
    [
      "fails if the workspace is not a directory",
      (path) => (writeFileSync(join(path, "file"), ""), join(path, "file")),
      /is not a directory.*Use a directory/su
    ],
    [
      "fails if the workspace is a symbolic link",
      (path) => (symlinkSync("/etc", join(path, "link")), join(path, "link")),
      /is a symbolic link(?!.*etc).*Name the path that it should lead to/su
    ],
    [
      "fails if the workspace is a dangling symbolic link",
      (path) => (symlinkSync("/none", join(path, "link")), join(path, "link")),
      /is a symbolic link and is not followed/u
    ],
    [
      "fails if the agent's uid cannot read the workspace",
      (path) => (chownSync(path, 0, 0), chmodSync(path, 0o700)),
      /uid 1000.*chown -R 1000:1000/su
    ],
    [
      "fails if the workspace contains the engine's socket",
      () => "/run",
      /docker\.sock to the agent.*project directory/su
    ],
    ["fails if the workspace is the root of the host", () => "/", /to the agent.*project directory/su],
    [
      "fails if .cogni is a symbolic link",
      (path) => symlinkSync("/etc", join(path, ".cogni")),
      /\.cogni that is not a directory.*remove it/su
    ],
    [
      "fails if .cogni is a file",
      (path) => writeFileSync(join(path, ".cogni"), "mine"),
      /\.cogni that is not a directory.*remove it/su
    ]
  ]
  for (const [name, change, fix] of workspaces) {
    it.effect(name, () =>
      Effect.flatMap(directory(change), (path) => refused(inDirectory(path), "WorkspaceFailed", fix))
    )
  }

  it.effect("fails if the run ID is in use or was used before", () =>
    Effect.gen(function* () {
      const runId = yield* RunId.generate
      yield* run({ ...shell("true"), runId })
      const reason = yield* refused({ ...shell("true"), runId }, "RunIdInUse", /is taken.*leave it out/su)
      assert.strictEqual(reason.runId, runId)
      const twice = yield* RunId.generate
      const [one, other] = yield* Effect.all(
        [
          Effect.exit(run({ ...shell("true"), runId: twice })),
          Effect.exit(run({ ...shell("true"), runId: twice }))
        ],
        { concurrency: "unbounded" }
      )
      assert.sameMembers([one._tag, other._tag], ["Success", "Failure"])
    })
  )
})

layer(RunHarness.layer(), options)("a misbehaving agent", (it) => {
  describe("time", () => {
    it.effect("a process that ignores SIGTERM is killed after the grace period", () =>
      Effect.gen(function* () {
        const before = performance.now()
        const reason = yield* refused(
          shell("trap '' TERM; echo here; while :; do sleep 0.1; done", {
            runtimeSecondsMax: 1,
            stopGraceSecondsMax: 1
          }),
          "TimedOut",
          /after 1 s.*runtimeSecondsMax/su
        )
        assert.strictEqual(reason.partial.output.stdout.text, "here\n")
        assert.strictEqual(reason.partial.exitCode, 137)
        assert.isBelow(performance.now() - before, Pace.allowed(8000))
      })
    )

    it.effect("a process that handles SIGTERM ends by itself within the grace period", () =>
      Effect.gen(function* () {
        const reason = yield* refused(
          shell("trap 'echo bye; exit 3' TERM; echo here; while :; do sleep 0.05; done", {
            runtimeSecondsMax: 1
          }),
          "TimedOut",
          /runtimeSecondsMax/u
        )
        assert.strictEqual(reason.partial.output.stdout.text, "here\nbye\n")
        assert.strictEqual(reason.partial.exitCode, 3)
      })
    )
  })

  describe("processes and memory", () => {
    const forks = /refused.*processesMax.*fork bomb/su

    it.effect("a fork bomb fails with PidsExhausted", () =>
      Effect.gen(function* () {
        // Sleeps, because a busy host may miss the counters of a container that ends at once.
        const bomb = "echo here; bomb() { bomb & bomb; }; (bomb) 2>/dev/null; exec sleep 2"
        const reason = yield* refused(shell(bomb, { processesMax: 48 }), "PidsExhausted", forks)
        assert.strictEqual(reason.processesMax, 48)
        assert.strictEqual(reason.partial.peak.processes, 48)
        assert.strictEqual(reason.partial.output.stdout.text, "here\n")
      })
    )

    it.effect("an agent that continues after a refused fork fails with PidsExhausted", () =>
      Effect.gen(function* () {
        const script = "i=0; while [ $i -lt 60 ]; do i=$((i+1)); sleep 1 & done 2>/dev/null; echo over"
        const argv = ["bash", "-c", script] as const
        const reason = yield* refused({ ...shell("", { processesMax: 16 }), argv }, "PidsExhausted", forks)
        assert.strictEqual(reason.processesMax, 16)
      })
    )

    const memory = /memory limit of 32 MiB.*memoryBytesMax/su

    it.effect("an out-of-memory kill of the agent is OomKilled", () =>
      Effect.gen(function* () {
        const reason = yield* refused(
          {
            ...shell("", { memoryBytesMax: 32 * MiB }),
            argv: ["sh", "-c", "echo here; exec tail /dev/zero"]
          },
          "OomKilled",
          memory
        )
        assert.match(reason.message, /killed the agent/u)
        assert.strictEqual(reason.partial.exitCode, 137)
        assert.strictEqual(reason.partial.output.stdout.text, "here\n")
        assert.strictEqual(reason.partial.peak.memoryBytes, 32 * MiB)
      })
    )

    it.effect("an out-of-memory kill of a child is OomKilled, even if the agent exits with 0", () =>
      Effect.gen(function* () {
        const reason = yield* refused(
          shell("tail /dev/zero; echo still here; exit 0", { memoryBytesMax: 32 * MiB }),
          "OomKilled",
          memory
        )
        assert.match(reason.message, /killed a process of the agent/u)
        assert.strictEqual(reason.partial.exitCode, 0)
        assert.strictEqual(reason.partial.output.stdout.text, "still here\n")
      })
    )
  })

  describe("disk", () => {
    it.effect("a workspace over its limit fails with DiskFull", () =>
      Effect.gen(function* () {
        const many =
          "echo here; i=0; while :; do i=$((i+1)); head -c 524288 /dev/zero > file$i; sleep 0.02; done"
        const reason = yield* refused(
          shell(many, { workspaceBytesMax: 4 * MiB }),
          "DiskFull",
          /over its limit of 4 MiB.*workspaceBytesMax/su
        )
        assert.isAbove(reason.partial.peak.workspaceBytes!, 4 * MiB)
        assert.strictEqual(reason.partial.output.stdout.text, "here\n")
      })
    )

    it.effect("empty files count towards the workspace limit", () =>
      Effect.gen(function* () {
        const name = "n".repeat(200)
        const empty = `i=0; while [ $i -lt 3000 ]; do i=$((i+1)); : > ${name}$i; done`
        const reason = yield* refused(
          shell(empty, { workspaceBytesMax: MiB }),
          "DiskFull",
          /over its limit of 1 MiB/su
        )
        assert.isAbove(reason.partial.peak.workspaceBytes!, MiB)
      })
    )

    it.effect("a full /tmp is an error for the agent and does not end the run", () =>
      Effect.gen(function* () {
        const result = yield* run(
          shell("head -c 8388608 /dev/zero > /tmp/file || echo full; echo over", { temporaryBytesMax: MiB })
        )
        assert.strictEqual(result.exitCode, 0)
        assert.strictEqual(result.output.stdout.text, "full\nover\n")
        assert.match(result.output.stderr.text, /No space left on device/u)
      })
    )

    const oneFile = "head -c 8388608 /dev/zero > file || echo refused"

    it.effect(
      "a write over the limit is an error for the agent, which can remove the file and continue",
      () =>
        Effect.gen(function* () {
          // The file is sparse, so that no measurement finds the workspace over its limit meanwhile.
          const beyond = "dd if=/dev/zero of=file bs=1 count=1 seek=8388608 || echo refused"
          const result = yield* run(shell(`${beyond}; rm file; echo over`, { workspaceBytesMax: 4 * MiB }))
          assert.strictEqual(result.exitCode, 0)
          assert.strictEqual(result.output.stdout.text, "refused\nover\n")
          assert.match(result.output.stderr.text, /File size limit exceeded|File too large/u)
        })
    )

    it.effect("a tree too deep to measure ends the run, and is still removed", () =>
      Effect.gen(function* () {
        const { reason } = yield* Effect.flip(
          run(shell("for i in $(seq 600); do mkdir d; cd d || exit; done; echo x > bottom"))
        )
        if (reason._tag !== "WorkspaceFailed") return assert.fail(reason.message)
        assert.match(reason.message, /its size cannot be measured/u)
      })
    )

    it.effect("a file that reached the limit and remains is DiskFull, whatever the exit code", () =>
      Effect.gen(function* () {
        const { reason } = yield* Effect.flip(run(shell(oneFile, { workspaceBytesMax: 4 * MiB })))
        if (reason._tag !== "DiskFull") return assert.fail(reason.message)
        assert.strictEqual(reason.partial.exitCode, 0)
        assert.isAbove(reason.partial.peak.workspaceBytes ?? 0, 4 * MiB)
      })
    )
  })
})
