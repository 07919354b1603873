/**
 * Programs that load their code in a sandbox that waits, on real Docker: each becomes the program of its run, knows
 * nothing of a run before that, and can do nothing that the host takes for something else.
 */
import { assert, layer } from "@effect/vitest"
import * as RunId from "@cogni/sandbox-core/RunId"
import type { RunResult } from "@cogni/sandbox-core/RunResult"
import type { SandboxError } from "@cogni/sandbox-core/SandboxError"
import * as SandboxPool from "@cogni/sandbox-core/SandboxPool"
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import type { SandboxSpecInput } from "@cogni/sandbox-core/SandboxSpec"
import { Context, Effect, Layer } from "effect"
import { execFileSync } from "node:child_process"
import { chownSync, mkdirSync } from "node:fs"
import { join } from "node:path"
import * as Await from "../harness/Await.ts"
import * as ChangedImage from "../harness/ChangedImage.ts"
import { docker } from "../harness/Docker.ts"
import * as Images from "../harness/Images.ts"
import * as Pace from "../harness/Pace.ts"
import * as RunHarness from "../harness/RunHarness.ts"

type Preload = NonNullable<SandboxSpecInput["preload"]>

/** A program that does something while it loads, and something with its run. */
const loading = (before: string, then = ""): Preload => [
  "node",
  "--input-type=module",
  "-e",
  `import fs from "node:fs"; import { spawn } from "node:child_process"; import { createServer } from "node:net";
   import { becomeProgram, receiveRun } from "/usr/local/lib/cogni/preload.mjs"; ${before}; ${then}`
]

/** Reads all that a program can see of a run. */
const look = `
  const read = (path) => { try { return fs.readFileSync(path, "utf8") } catch (error) { return error.code } };
  const texts = (id) => read("/proc/" + id + "/cmdline") + read("/proc/" + id + "/environ");
  const places = ["/workspace", "/cogni", "/llm-sock", "/tmp", "/home/agent", "/dev/shm"];
  const see = () => ({
    argv: process.argv, env: { ...process.env }, cwd: process.cwd(), pid: process.pid, parent: process.ppid,
    processes: fs.readdirSync("/proc").filter((name) => /^\\d+$/.test(name)).map(texts),
    writable: fs.readdirSync("/proc").filter((id) => {
      if (!/^\\d+$/.test(id) || id === String(process.pid)) return false;
      try { fs.closeSync(fs.openSync("/proc/" + id + "/mem", "r+")); return true } catch { return false } }),
    first: ["environ", "mem", "maps", "fd/0"].flatMap((name) =>
      [1, process.ppid].map((id) => name + " " + read("/proc/" + id + "/" + name))),
    files: places.flatMap((path) => fs.readdirSync(path)) });
  const before = see()`

/** Runs the first argument of its run in its own process. */
const evaluates = loading(
  look,
  "const run = receiveRun(); await new (Object.getPrototypeOf(async () => {}).constructor)('run', 'see', 'before', 'fs', run.argv[1])(run, see, before, fs)"
)

/** Waits until the process that told the run has ended. Meanwhile, its memory can be opened, and has no content. */
const untilAdopted = "while (process.ppid !== 1) await new Promise((resolve) => setTimeout(resolve, 5))"

/** Starts its run as if it had loaded nothing. */
const plain = loading("", "becomeProgram(receiveRun())")

const run = (spec: Partial<SandboxSpecInput> & Pick<SandboxSpecInput, "argv" | "preload">) =>
  SandboxRunner.SandboxRunner.use((runner) => runner.run({ image: Images.runtime, ...spec }))

const evaluated = (code: string, more: Partial<SandboxSpecInput> = {}) =>
  run({ ...more, preload: evaluates, argv: ["agent", code] })

const report = Effect.flatMap(SandboxPool.SandboxPool, (pool) => pool.report)

/** Waits until sandboxes with this program are ready. */
const ready = (preload: Preload, count = 1) =>
  Await.until(
    `${count} sandboxes wait with their program`,
    Effect.map(
      report,
      ({ waiting }) => waiting.filter(({ shape }) => shape.endsWith(JSON.stringify(preload))).length >= count
    )
  )

/** Runs an effect whose run must get a waiting sandbox. */
const pooled = <A, E, R>(preload: Preload, effect: Effect.Effect<A, E, R>) =>
  Effect.gen(function* () {
    yield* ready(preload)
    const before = (yield* report).hits
    const value = yield* effect
    assert.strictEqual((yield* report).hits, before + 1)
    return value
  })

const textOf = ({ output }: RunResult) => output.stdout.text

/** Returns the output of a run that has reached its time limit. */
const timedOutTextOf = ({ message, reason }: SandboxError) =>
  reason._tag === "TimedOut" ? reason.partial.output.stdout.text : assert.fail(message)

const keep = [
  { image: Images.runtime, preload: evaluates, count: 1 },
  { image: Images.runtime, preload: plain, count: 1 }
]

layer(RunHarness.layer(undefined, { keep }), { excludeTestServices: true, timeout: "3 minutes" })(
  "a program that has loaded before its run",
  (it) => {
    it.effect("becomes the program of its run, with its arguments, variables, directory and exit code", () =>
      Effect.gen(function* () {
        const odd = 'it\'s\n"one" \\n \t\u0001 ☃'
        const result = yield* pooled(
          evaluates,
          run({
            preload: evaluates,
            argv: [
              "agent",
              "console.log(JSON.stringify(see())); fs.writeSync(2, 'x'.repeat(300_000)); process.exitCode = 7",
              odd
            ],
            env: { GREETING: odd },
            inputs: [{ name: "prompt.txt", content: "hello" }]
          })
        )
        assert.strictEqual(result.exitCode, 7)
        assert.strictEqual(result.output.stderr.bytes, 300_000)
        const seen = JSON.parse(textOf(result))
        assert.strictEqual(seen.argv.at(-1), odd)
        assert.strictEqual(seen.env.GREETING, odd)
        assert.strictEqual(seen.cwd, "/workspace")
        assert.include(seen.files, "prompt.txt")
        assert.strictEqual(
          JSON.stringify(Object.keys(seen.env).filter((name) => name.startsWith("COGNI_"))),
          "[]"
        )
      })
    )

    it.effect("knew nothing of any run before its own, and could read neither process that will", () =>
      Effect.gen(function* () {
        const outputs: Array<string> = []
        const names = ["alpha", "bravo"]
        for (const name of names) {
          const result = yield* pooled(
            evaluates,
            evaluated(
              `${untilAdopted}; console.log(JSON.stringify({ before, now: see() })); for (const path of ["/tmp", "/workspace", "/dev/shm"]) fs.writeFileSync(path + "/left-by-${name}", "")`,
              {
                runId: RunId.RunId.make(`run-of-${name}-${crypto.randomUUID().slice(0, 8)}`),
                env: { SECRET: `secret-of-${name}` },
                inputs: [{ name: `prompt-of-${name}.txt`, content: "hello" }]
              }
            )
          )
          outputs.push(textOf(result))
        }
        for (const [index, text] of outputs.entries()) {
          const { before, now } = JSON.parse(text)
          assert.notMatch(JSON.stringify(before), /-of-|left-by|COGNI_/u)
          assert.include(JSON.stringify(now), `secret-of-${names[index]}`)
          const other = names[1 - index]!
          assert.notMatch(text, new RegExp(`(secret|run|prompt)-of-${other}|left-by-${other}`, "u"))
          for (const line of [...before.first, ...now.first]) assert.match(line, / (EACCES|EPERM)$/u)
          assert.deepStrictEqual(before.writable, [])
          assert.deepStrictEqual(before.files, [".cogni"])
          // cogni-init has it as its child, as it has any program.
          assert.deepStrictEqual([now.pid, now.parent], [before.pid, 1])
        }
      })
    )

    it.effect("is stopped while it waits, and counted with the memory that it uses", () =>
      Effect.gen(function* () {
        yield* ready(evaluates)
        const { waiting } = yield* report
        for (const { memoryBytes = 0 } of waiting) assert.isAbove(memoryBytes, 8 * 1024 ** 2)
        const ids = (yield* docker("ps", "--quiet", "--filter", "name=waiting-")).split("\n").filter(Boolean)
        const states: Array<string> = []
        for (const id of ids)
          // Those of other tests may be gone.
          states.push(
            yield* Effect.catchCause(docker("top", id, "-eo", "pid,stat,args"), () => Effect.succeed(""))
          )
        // Others may still load.
        const stopped = states.join("\n").match(/^\d+\s+T\S*\s+node .*receiveRun/gmu) ?? []
        assert.isAtLeast(stopped.length, waiting.length)
      })
    )

    it.effect("looks to its run like a sandbox in which it was not, if it replaces itself", () =>
      Effect.gen(function* () {
        const survey = [
          "env | sort | sed 's/^HOSTNAME=.*/HOSTNAME=…/'",
          "ls -lan --time-style=+ /workspace /cogni /tmp /home/agent /dev/shm | sed 's/^total .*//'",
          'names=$(for p in /proc/[0-9]*; do cat $p/comm; done); echo "$names" | sort',
          "tail -n +2 /proc/net/tcp; ulimit -a; grep -E 'Cap|Seccomp|NoNew|Uid|Gid|Groups|Sig[PBIC]|Shd' /proc/self/status",
          "cat /proc/self/stat | cut -d ' ' -f 3,5- | cut -d ' ' -f 1-4 | wc -w; id; pwd; umask; ls -la /proc/self/fd | wc -l"
        ].join("; echo; ")
        const argv: SandboxSpecInput["argv"] = [
          "/usr/local/bin/cogni-stdin",
          "/cogni/prompt.txt",
          "sh",
          "-c",
          `cat; ${survey}`
        ]
        const asked = { argv, inputs: [{ name: "prompt.txt", content: "the prompt\n" }], env: { A: "1" } }
        const warm = yield* pooled(plain, run({ ...asked, preload: plain }))
        const cold = yield* run({ ...asked, preload: plain, limits: { filesOpenMax: 4001 } })
        const seen = (result: RunResult) => textOf(result).replace(/^(nofiles .*) 4\d{3}$/mu, "$1")
        assert.include(textOf(warm), "the prompt\n")
        assert.strictEqual(
          seen(warm)
            .split("\n")
            .filter((line) => !/llm-sock/u.test(line))
            .join("\n"),
          seen(cold)
        )
      })
    )

    it.effect("gets the signals of its run, and no more time and memory than that has", () =>
      Effect.gen(function* () {
        // Long enough for the program to say that it hears the signal.
        const limits = { runtimeSecondsMax: Math.ceil(Pace.allowed(2000) / 1000), stopGraceSecondsMax: 2 }
        const polite = yield* pooled(
          evaluates,
          Effect.flip(
            evaluated(
              "process.on('SIGTERM', () => { console.log('asked to end'); process.exit(3) }); console.log('hears'); setInterval(() => {}, 1000)",
              { limits }
            )
          )
        )
        assert.strictEqual(timedOutTextOf(polite), "hears\nasked to end\n")
        const deaf = yield* pooled(
          evaluates,
          Effect.flip(
            evaluated("process.on('SIGTERM', () => {}); console.log('deaf'); setInterval(() => {}, 1000)", {
              limits
            })
          )
        )
        assert.strictEqual(timedOutTextOf(deaf), "deaf\n")
        const large = yield* pooled(
          evaluates,
          Effect.flip(
            evaluated("const kept = []; for (;;) kept.push(Buffer.alloc(2 ** 22, 1))", {
              limits: { memoryBytesMax: 128 * 1024 ** 2 }
            })
          )
        )
        assert.strictEqual(large.reason._tag, "OomKilled", large.message)
        const killed = yield* pooled(evaluates, evaluated("process.kill(process.pid, 'SIGSEGV')"))
        assert.strictEqual(killed.exitCode, 139)
      })
    )

    it.effect("has no process and no memory of its run left when that has ended", () =>
      Effect.gen(function* () {
        const result = yield* pooled(
          plain,
          run({ preload: plain, argv: ["sh", "-c", "sleep 600 & echo left behind; exit 5"] })
        )
        assert.deepStrictEqual([textOf(result), result.exitCode], ["left behind\n", 5])
      })
    )
  }
)

/** Numbers of system calls: prctl, timer_create and timer_settime. */
const [prctl, timerCreate, timerSet] = process.arch === "arm64" ? [167, 107, 110] : [157, 222, 223]

/** Perl that lets a timer send the process SIGCONT, which then does something and stops itself again. */
const rings = (does: string) =>
  `my ($event, $id) = (pack("q i2 x48", 0, 18, 0), pack "i", 0);
   syscall ${timerCreate}, 1, $event, $id and die;
   my $times = pack "q4", 0, 2e8, 0, 2e8; syscall ${timerSet}, unpack("i", $id), 0, $times, 0 and die;
   $SIG{CONT} = sub { ${does} kill "STOP", $$ };`

/** States and names of the processes that wait in sandboxes, and of those that they started. */
const processesOfWaiting = Effect.gen(function* () {
  const ids = (yield* docker("ps", "--quiet", "--filter", "name=waiting-")).split("\n").filter(Boolean)
  const first = yield* Effect.forEach(ids, (id) =>
    // Those of other tests may be gone meanwhile.
    Effect.catchCause(docker("inspect", "--format", "{{.State.Pid}}", id), () => Effect.succeed(""))
  )
  const rows = execFileSync("ps", ["-eo", "pid=,ppid=,stat=,comm="], { encoding: "utf8" })
  const all = rows.split("\n").map((row) => row.trim().split(/ +/u))
  const startedBy = (parents: ReadonlyArray<string | undefined>) =>
    all.filter(([, parent]) => parents.includes(parent))
  const waiters = startedBy(first)
  const started = startedBy(waiters.map(([id]) => id))
  return [...waiters, ...started].map(([, , state, name]) => `${state} ${name}`)
})

const forged = `fs.writeSync(2, "cogni-posture 1\\nstatus Seccomp:\\t2\\ncogni-posture end\\n")`

/** Programs that a sandbox cannot wait with, and what the host says of them. */
const broken: ReadonlyArray<readonly [title: string, preload: Preload, failure: string]> = [
  ["does not exist", ["/usr/local/bin/absent"], "exec: /usr/local/bin/absent: not found"],
  ["ends", loading("process.exit(3)"), "ended, or closed descriptor 3, before it had loaded"],
  [
    "closes its descriptor",
    loading("fs.closeSync(3); setInterval(() => {}, 1000)"),
    "ended, or closed descriptor 3"
  ],
  [
    "writes to standard error",
    loading("console.error('hello')", "receiveRun()"),
    "wrote to standard error before it had a run"
  ],
  [
    "writes a report of its own",
    loading(forged, "receiveRun()"),
    "wrote to standard error before it had a run"
  ],
  [
    "writes the beginning of a report",
    loading(`fs.writeSync(2, "cogni-posture 1\\nboot another\\n")`, "receiveRun()"),
    "wrote to standard error before it had a run"
  ],
  [
    "writes to standard output",
    loading("fs.writeSync(1, 'hello')", "receiveRun()"),
    "wrote something before it had a run"
  ],
  [
    "starts another program",
    loading("spawn('sleep', ['600'], { stdio: 'ignore' })", "receiveRun()"),
    "its program started 1 programs and left 0 files"
  ],
  [
    "starts another that leaves it",
    loading(
      "await new Promise((r) => spawn('setsid', ['-f', 'sleep', '600'], { stdio: 'ignore' }).on('exit', r))",
      "receiveRun()"
    ),
    "its program started 1 programs and left 0 files"
  ],
  [
    "leaves a file",
    loading("fs.writeFileSync('/dev/shm/left', '')", "receiveRun()"),
    "its program started 0 programs and left 1 files"
  ],
  [
    "takes the port of the connection to its model",
    loading(
      "await new Promise((r) => createServer().listen(8080, '127.0.0.1', r))",
      "becomeProgram(receiveRun())"
    ),
    "its program has port 8080, which the connection to the model needs: Address already in use"
  ]
]

/** An image whose sandboxes wait two seconds for a program that loads, instead of two minutes. */
class Impatient extends Context.Service<Impatient, string>()("test/Impatient") {
  static readonly layer = Layer.effect(
    Impatient,
    ChangedImage.acquire("cogni-waiter", "LOAD_SECONDS_MAX => 120", "LOAD_SECONDS_MAX => 2")
  )
}

const impatient = RunHarness.layer(undefined, { limits: { sandboxesMax: 1 } }).pipe(
  Layer.provideMerge(Impatient.layer)
)

layer(impatient, { excludeTestServices: true, timeout: "5 minutes" })(
  "a program that cannot wait for a run",
  (it) => {
    const startsCold = Effect.fnUntraced(function* (
      preload: Preload,
      failure: string,
      image = Images.runtime
    ) {
      const cold = run({ image, argv: ["echo", "cold"], preload })
      assert.strictEqual(textOf(yield* cold), "cold\n")
      yield* Await.until(
        `the pool says ${failure}`,
        Effect.map(report, (said) => said.failure?.includes(failure) === true)
      )
      assert.strictEqual(textOf(yield* cold), "cold\n")
      assert.deepStrictEqual((yield* report).waiting, [])
    })

    it.effect.each(broken)("lets its runs start cold, and the pool say why: it %s", ([, preload, failure]) =>
      startsCold(preload, failure)
    )

    it.effect("lets its runs start cold, and the pool say why: it does not get ready", () =>
      Effect.gen(function* () {
        const image = yield* Impatient
        yield* startsCold(
          loading("setInterval(() => {}, 1000)"),
          "the program did not load within 2 s",
          image
        )
      })
    )

    it.effect.each([
      // F_SETSIG with SIGCONT, and F_NOTIFY: a signal when the host writes the input.
      [
        "when there is something of a run",
        'sysopen my $inputs, "/cogni", 0 or die; fcntl $inputs, 10, 18 or die; fcntl $inputs, 1026, 0x80000006 or die;',
        /cogni-waiter/u,
        "has ended, or was made to go on"
      ],
      [
        "for a moment, under another name",
        `my $name = ") T \\n\\0"; syscall ${prctl}, 15, $name, 0, 0, 0; ${rings("")}`,
        /cogni-waiter/u,
        "has ended, or was made to go on"
      ],
      [
        "and then kills the process that connects it to its model",
        rings(
          'for my $one (glob "/proc/[0-9]*") { open my $file, "<", "$one/comm" or next; <$file> eq "socat\\n" and kill "KILL", substr $one, 6 }'
        ),
        /^Z\S* socat$/u,
        "has ended, or was made to go on"
      ],
      [
        "and then stops the process that waits",
        rings('kill "STOP", getppid;'),
        /^T\S* cogni-waiter$/u,
        // A sandbox that does not answer says nothing of the program.
        undefined
      ]
    ] as const)("is not used if it makes the kernel continue it %s", ([, wake, seen, failure]) =>
      Effect.gen(function* () {
        const wakes: Preload = [
          "perl",
          "-e",
          `${wake} open my $ready, ">&=", 3; syswrite $ready, "ready\\n"; close $ready;
         select undef, undef, undef, 600 for 1 .. 1000; print "woken"`
        ]
        const cold = run({
          argv: ["cat", "/cogni/prompt.txt"],
          preload: wakes,
          inputs: [{ name: "prompt.txt", content: "hello" }]
        })
        assert.strictEqual(textOf(yield* cold), "hello")
        yield* ready(wakes)
        const began = performance.now()
        yield* Await.until(
          "the timer rings",
          Effect.sync(() => performance.now() - began > 500)
        )
        yield* Await.until(
          `its sandbox has ${String(seen)}`,
          Effect.map(processesOfWaiting, (processes) => processes.some((one) => seen.test(one)))
        )
        const { discarded, hits } = yield* report
        assert.strictEqual(textOf(yield* cold), "hello")
        const after = yield* report
        assert.deepStrictEqual([after.hits, after.discarded], [hits, discarded + 1])
        if (failure !== undefined) assert.include(after.failure, failure)
      })
    )

    it.effect(
      "serves no run in a directory if it has a file of its workspace open, and the pool says so",
      () =>
        Effect.gen(function* () {
          const path = join(yield* RunHarness.Directory, "given")
          mkdirSync(path)
          chownSync(path, 1000, 1000)
          const holds = loading(
            "fs.openSync('/workspace/held', 'w'); fs.unlinkSync('/workspace/held')",
            "becomeProgram(receiveRun())"
          )
          const cold = run({ argv: ["echo", "cold"], preload: holds, workspace: { type: "directory", path } })
          assert.strictEqual(textOf(yield* cold), "cold\n")
          yield* ready(holds)
          assert.strictEqual(textOf(yield* cold), "cold\n")
          // As after a start that failed, so that the next ones are not spent for nothing at once.
          assert.include((yield* report).failure, "others have a file of its workspace open")
        })
    )

    it.effect("ends its run at the time limit if it ignores it", () =>
      Effect.gen(function* () {
        const ignores = loading("fs.writeSync(3, 'ready\\n'); setInterval(() => {}, 1000)")
        yield* run({ argv: ["true"], preload: ignores })
        const long = "x".repeat(60_000)
        const error = yield* pooled(
          ignores,
          Effect.flip(
            run({
              argv: ["true", long],
              preload: ignores,
              limits: { runtimeSecondsMax: 1, stopGraceSecondsMax: 1 }
            })
          )
        )
        assert.strictEqual(error.reason._tag, "TimedOut", error.message)
      })
    )
  }
)
