/**
 * Bad input, on real Docker: each has its own clear error that names the fix, brings what there was so far, and leaves
 * nothing behind.
 */
import { assert, describe, layer } from "@effect/vitest"
import { ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import * as RunId from "@cogni/sandbox-core/RunId"
import type { Reason } from "@cogni/sandbox-core/SandboxError"
import { SandboxRunner } from "@cogni/sandbox-core/SandboxRunner"
import {
  argumentBytesMax,
  argumentsBytesMax,
  inputBytesMax,
  type SandboxSpecInput
} from "@cogni/sandbox-core/SandboxSpec"
import { Effect } from "effect"
import { chmodSync, chownSync, existsSync, mkdirSync, readdirSync, symlinkSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { docker } from "../harness/Docker.ts"
import * as Images from "../harness/Images.ts"
import * as LeakCheck from "../harness/LeakCheck.ts"
import * as RunHarness from "../harness/RunHarness.ts"
import * as Pace from "../harness/Pace.ts"

const MiB = 1024 ** 2

/** A shell line in the real image. */
const shell = (script: string, limits: SandboxSpecInput["limits"] = {}): SandboxSpecInput => ({
  image: Images.runtime,
  argv: ["sh", "-c", script],
  limits: { runtimeSecondsMax: 30, memoryBytesMax: 128 * MiB, processesMax: 64, ...limits }
})

const run = (spec: SandboxSpecInput) => SandboxRunner.use((runner) => runner.run(spec))

const assertNothingLeft = Effect.fnUntraced(function* (runId: RunId.RunId) {
  const left = yield* ContainerRuntime.use((runtime) => runtime.leftovers(runId))
  assert.deepStrictEqual([...left, ...LeakCheck.directories(yield* RunHarness.Directory)], [], "left behind")
})

/** The error of a run that must fail with this reason, and a message that says what to do. */
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

/** A fresh directory of the host that user 1000 owns, and a change of it. */
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
  { name: "run id malformed", spec: { runId: "../etc" }, fix: /runId.*8 to 48 lower-case letters/su },
  {
    name: "memory below the engine's minimum",
    spec: { limits: { memoryBytesMax: 4 * MiB } },
    fix: /memoryBytesMax.*6291456/su
  },
  { name: "no time", spec: { limits: { runtimeSecondsMax: 0 } }, fix: /runtimeSecondsMax.*from 1/su },
  { name: "negative memory", spec: { limits: { memoryBytesMax: -1 } }, fix: /memoryBytesMax.*6 MiB/su },
  { name: "no processes", spec: { limits: { processesMax: 0 } }, fix: /processesMax.*from 4/su },
  { name: "negative processes", spec: { limits: { processesMax: -1 } }, fix: /processesMax.*from 4/su },
  { name: "no processors", spec: { limits: { cpusMax: 0 } }, fix: /cpusMax.*from 0\.01/su },
  { name: "a limit that is no number", spec: { limits: { cpusMax: Number.NaN } }, fix: /cpusMax/u },
  { name: "no output", spec: { limits: { outputBytesMax: 0 } }, fix: /outputBytesMax.*from 1/su },
  { name: "a limit that does not exist", spec: { limits: { memory: 1 } }, fix: /limits\.memory/u },
  { name: "argv empty", spec: { argv: [] }, fix: /argv.*program to run/su },
  {
    name: "an argument over the kernel's cap",
    spec: { argv: ["true", "a".repeat(argumentBytesMax + 1)] },
    fix: /argv\.1.*131071 bytes.*inputs or the workspace/su
  },
  {
    name: "argv over the kernel's cap",
    spec: { argv: ["true", ...Array.from({ length: 16 }, () => "a".repeat(100_000))] },
    fix: /1572864 bytes together.*inputs or the workspace/su
  },
  { name: "an argument with NUL", spec: { argv: ["true", "\0"] }, fix: /without NUL/u },
  {
    name: "a prompt of 5 MiB",
    spec: { inputs: [{ name: "prompt.txt", content: "p".repeat(5 * MiB) }] },
    fix: /inputs\.0\.content.*4194304 bytes.*workspace/su
  },
  {
    name: "a workspace that is no absolute path",
    spec: { workspace: { type: "directory", path: "here" } },
    fix: /workspace.*absolute path/su
  }
]

layer(RunHarness.layer(), options)("a spec that is none", (it) => {
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
    "what the schema allows, the kernel takes: one argument, and all of them, of the greatest length",
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

  it.effect("a prompt of the greatest length arrives whole", () =>
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

layer(RunHarness.layer(), options)("what the host does not have", (it) => {
  it.effect("image missing", () =>
    refused(
      { ...shell("true"), image: Images.absent },
      "ImageNotFound",
      /no image cogni-sandbox\/absent:none.*\.\/dev images/su
    )
  )

  it.effect("image without our entrypoint", () =>
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
    ["workspace missing", (path) => join(path, "none"), /does not exist.*Make it/su],
    [
      "below something that is no directory",
      (path) => (writeFileSync(join(path, "file"), ""), join(path, "file", "inner")),
      /not a directory.*Name a directory/su
    ],
    [
      "not a directory",
      (path) => (writeFileSync(join(path, "file"), ""), join(path, "file")),
      /is not a directory.*Name a directory/su
    ],
    [
      "a symbolic link elsewhere",
      (path) => (symlinkSync("/etc", join(path, "link")), join(path, "link")),
      /is a symbolic link(?!.*etc).*Name the path that it should lead to/su
    ],
    [
      "a symbolic link to nowhere",
      (path) => (symlinkSync("/none", join(path, "link")), join(path, "link")),
      /is a symbolic link and is not followed/u
    ],
    [
      "unreadable for the agent's uid",
      (path) => (chownSync(path, 0, 0), chmodSync(path, 0o700)),
      /uid 1000.*chown -R 1000:1000/su
    ],
    ["holding the engine's socket", () => "/run", /docker\.sock to the agent.*directory of a project/su],
    ["the whole host", () => "/", /to the agent.*directory of a project/su],
    [
      ".cogni a symbolic link",
      (path) => symlinkSync("/etc", join(path, ".cogni")),
      /\.cogni that is not a directory.*remove it/su
    ],
    [
      ".cogni a file",
      (path) => writeFileSync(join(path, ".cogni"), "mine"),
      /\.cogni that is not a directory.*remove it/su
    ]
  ]
  for (const [name, change, fix] of workspaces) {
    it.effect(name, () =>
      Effect.flatMap(directory(change), (path) => refused(inDirectory(path), "WorkspaceFailed", fix))
    )
  }

  it.effect("run id in use, now or before", () =>
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

/** What our own process holds, after a collection where there can be one. */
const residentMiB = () => process.memoryUsage().rss / MiB

layer(RunHarness.layer(), options)("an agent that does not behave", (it) => {
  describe("output", () => {
    it.effect(
      "1 GiB on stdout is stopped at its limit; the beginning is kept, and our memory stays flat",
      () =>
        Effect.gen(function* () {
          const before = residentMiB()
          const reason = yield* refused(
            shell("echo begin; head -c 1073741824 /dev/zero", {
              outputBytesMax: 64 * MiB,
              outputRetainedBytesMax: MiB
            }),
            "OutputLimitExceeded",
            /more than 64 MiB.*outputBytesMax/su
          )
          const { stdout } = reason.partial.output
          assert.isAbove(stdout.bytes, 64 * MiB)
          assert.isBelow(stdout.bytes, 256 * MiB, "it was let go on")
          assert.strictEqual(stdout.text.length, MiB)
          assert.isTrue(stdout.truncated)
          assert.isTrue(stdout.text.startsWith("begin\n"))
          assert.isBelow(residentMiB() - before, 100)
        })
    )

    it.effect("1 GiB that is allowed is counted to its last byte", () =>
      Effect.gen(function* () {
        const before = residentMiB()
        const result = yield* run(
          shell("head -c 1073741824 /dev/zero; echo end >&2", {
            outputBytesMax: 2048 * MiB,
            outputRetainedBytesMax: MiB
          })
        )
        assert.strictEqual(result.output.stdout.bytes, 1024 * MiB)
        assert.strictEqual(result.output.stderr.text, "end\n")
        assert.isBelow(residentMiB() - before, 100)
      })
    )

    it.effect("bytes that are no text are counted, and shown as such", () =>
      Effect.gen(function* () {
        const { output } = yield* run(
          shell(String.raw`printf '\377\376\000ok\303'; printf '\360\237\230\200' >&2`)
        )
        assert.deepStrictEqual(output.stdout, {
          text: "\u{fffd}\u{fffd}\0ok\u{fffd}",
          bytes: 6,
          truncated: false
        })
        assert.strictEqual(output.stderr.text, "😀")
      })
    )
  })

  describe("time", () => {
    it.effect("a process that ignores SIGTERM is killed after its grace", () =>
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

    it.effect("one that obeys ends by itself, within its grace", () =>
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

    it.effect("a fork bomb", () =>
      Effect.gen(function* () {
        // It stays for a moment: a busy host may not look before a container that ends at once is gone.
        const bomb = "echo here; bomb() { bomb & bomb; }; (bomb) 2>/dev/null; exec sleep 2"
        const reason = yield* refused(shell(bomb, { processesMax: 48 }), "PidsExhausted", forks)
        assert.strictEqual(reason.processesMax, 48)
        assert.strictEqual(reason.partial.peak.processes, 48)
        assert.strictEqual(reason.partial.output.stdout.text, "here\n")
      })
    )

    it.effect("one that goes on after it was refused a process", () =>
      Effect.gen(function* () {
        const script = "i=0; while [ $i -lt 60 ]; do i=$((i+1)); sleep 1 & done 2>/dev/null; echo over"
        const argv = ["bash", "-c", script] as const
        const reason = yield* refused({ ...shell("", { processesMax: 16 }), argv }, "PidsExhausted", forks)
        assert.strictEqual(reason.processesMax, 16)
      })
    )

    const memory = /memory limit of 32 MiB.*memoryBytesMax/su

    it.effect("out of memory, the agent itself", () =>
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

    it.effect("out of memory, a child, with the agent living on and ending well", () =>
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
    it.effect("a workspace over its limit", () =>
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

    it.effect("a workspace full of empty files is over its limit too", () =>
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

    it.effect("a full /tmp is told to the agent and does not end the run", () =>
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

    it.effect("one file over the limit is told to the agent, which may tidy up", () =>
      Effect.gen(function* () {
        // With a hole in it, so that no measure finds it full meanwhile.
        const beyond = "dd if=/dev/zero of=file bs=1 count=1 seek=8388608 || echo refused"
        const result = yield* run(shell(`${beyond}; rm file; echo over`, { workspaceBytesMax: 4 * MiB }))
        assert.strictEqual(result.exitCode, 0)
        assert.strictEqual(result.output.stdout.text, "refused\nover\n")
        assert.match(result.output.stderr.text, /File size limit exceeded|File too large/u)
      })
    )

    it.effect("a tree too deep to be measured ends the run, and is removed all the same", () =>
      Effect.gen(function* () {
        const { reason } = yield* Effect.flip(
          run(shell("for i in $(seq 600); do mkdir d; cd d || exit; done; echo x > bottom"))
        )
        if (reason._tag !== "WorkspaceFailed") return assert.fail(reason.message)
        assert.match(reason.message, /its size cannot be watched/u)
      })
    )

    it.effect("one file left over the limit is DiskFull, whatever the exit code", () =>
      Effect.gen(function* () {
        const { reason } = yield* Effect.flip(run(shell(oneFile, { workspaceBytesMax: 4 * MiB })))
        if (reason._tag !== "DiskFull") return assert.fail(reason.message)
        assert.strictEqual(reason.partial.exitCode, 0)
        assert.isAbove(reason.partial.peak.workspaceBytes ?? 0, 4 * MiB)
      })
    )
  })
})
