/**
 * Waiting sandboxes on real Docker, seen from inside and from the engine. Nothing of their maker or of another run is
 * in them, they look like those of cold runs, and whatever happens to them, their runs are right.
 */
import { assert, it, layer } from "@effect/vitest"
import { ContainerRuntime } from "@cogni/sandbox-core/ContainerRuntime"
import * as RunId from "@cogni/sandbox-core/RunId"
import * as SandboxPool from "@cogni/sandbox-core/SandboxPool"
import type { RunResult } from "@cogni/sandbox-core/RunResult"
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import type { SandboxSpecInput } from "@cogni/sandbox-core/SandboxSpec"
import { formatOwner } from "@cogni/sandbox-core/ResourceLabels"
import * as UsageObserver from "@cogni/sandbox-core/UsageObserver"
import * as DockerApi from "@cogni/sandbox-docker/DockerApi"
import * as HostOwner from "@cogni/sandbox-docker/HostOwner"
import * as GatewayLlmProxy from "@cogni/sandbox-proxy/GatewayLlmProxy"
import { Context, Effect, Exit, Layer, Logger, Redacted } from "effect"
import { hostname } from "node:os"
import * as Await from "../harness/Await.ts"
import * as ChangedImage from "../harness/ChangedImage.ts"
import { docker } from "../harness/Docker.ts"
import * as Images from "../harness/Images.ts"
import * as ModelApi from "../harness/ModelApi.ts"
import * as RunHarness from "../harness/RunHarness.ts"

const key = "sk-planted-77aa10-of-the-pool"

class Upstream extends Context.Service<Upstream, ModelApi.ModelApi>()("test/PoolUpstream") {
  static readonly layer = Layer.effect(Upstream, ModelApi.acquire)
}

const proxy = Layer.unwrap(
  Effect.map(Upstream, ({ url }) =>
    GatewayLlmProxy.layer({ url, key: Redacted.make(key) }).pipe(Layer.provide(UsageObserver.layerNone))
  )
)

/** Everything that a program can read about itself and its surroundings, without what differs between any two runs. */
const survey = [
  "env | sort | sed 's/^HOSTNAME=.*/HOSTNAME=…/'",
  "sed 's/^[0-9]* [0-9]* [0-9]*:[0-9]* [^ ]* \\([^ ]* [^ ]*\\).* - \\([^ ]*\\).*/mount \\1 \\2/' /proc/self/mountinfo | sort",
  "ls -an --time-style=+ / | grep -v ' proc$' | tr -s ' '; ls -lan --time-style=+ /workspace /workspace/.cogni /cogni /llm-sock /tmp /home/agent | sed 's/^total .*//'",
  // Sorted afterwards: a process at the other end of a pipe may or may not be there yet.
  'names=$(for p in /proc/[0-9]*; do cat $p/comm; done); echo "$names" | sort',
  "tail -n +2 /proc/net/tcp | awk '$4 == \"0A\" {print $2}'; cut -d ' ' -f 8- /proc/net/unix",
  "ulimit -a; grep -E 'Cap|Seccomp|NoNew|Uid|Gid|Groups' /proc/self/status",
  "cat /proc/self/cgroup | wc -l; id; pwd; umask; ls -la /proc/self/fd | wc -l"
].join("; echo; ")

/** All that a program can read of the memory file systems, the environment and `/proc`. */
const everything = [
  "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline /proc/self/mountinfo /proc/self/cgroup 2>/dev/null | tr '\\0' '\\n'",
  "hostname; cat /etc/hostname /etc/hosts /etc/resolv.conf 2>/dev/null",
  "find /workspace /cogni /llm-sock /tmp /home/agent /dev/shm /dev/mqueue /run /var 2>/dev/null",
  "find /workspace /cogni /tmp /home/agent /dev/shm -type f -exec cat {} + 2>/dev/null"
].join("; ")

const run = (spec: Partial<SandboxSpecInput> & Pick<SandboxSpecInput, "argv">) =>
  SandboxRunner.SandboxRunner.use((runner) => runner.run({ image: Images.runtime, ...spec }))

const shell = (line: string, more: Partial<SandboxSpecInput> = {}) =>
  run({ ...more, argv: ["sh", "-c", line] })

const report = Effect.flatMap(SandboxPool.SandboxPool, (pool) => pool.report)

/** Open files of the runs that must start cold, so that no waiting sandbox has their shape. */
const coldFilesOpenMax = 4000

/** Waits until sandboxes are ready for the other runs. */
const ready = (count: number) =>
  Await.until(
    `${count} sandboxes wait`,
    Effect.map(
      report,
      ({ waiting }) => waiting.filter(({ shape }) => !/ 400\d /u.test(shape)).length >= count
    )
  )

/** Waits until no sandbox of an earlier run is left. */
const idle = Await.until(
  "a sandbox is being removed",
  Effect.map(report, ({ removing }) => removing === 0)
)

/** Runs an effect, and returns how many of its runs got a waiting sandbox too. */
const counting = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.gen(function* () {
    const before = (yield* report).hits
    const value = yield* effect
    return { value, hits: (yield* report).hits - before }
  })

/** IDs of the containers of this process. */
const containers = Effect.map(
  Effect.orDie(DockerApi.DockerApi.use((api) => api.labelled("dev.cogni.sandbox.run"))),
  (found) => {
    const own = formatOwner(HostOwner.self())
    return found.filter(({ labels }) => labels["dev.cogni.sandbox.owner"] === own).map(({ id }) => id)
  }
)

const modelOf = (account: string) => ({ model: "model", identity: { billingAccountId: account } })

const keep = [{ image: Images.runtime, count: 2 }]

layer(RunHarness.layer(proxy, { keep }).pipe(Layer.provideMerge(Upstream.layer)), {
  excludeTestServices: true,
  timeout: "3 minutes"
})("a pool on Docker", (it) => {
  it.effect(
    "gives runs sandboxes that look from inside like those of cold runs, with and without a model",
    () =>
      Effect.gen(function* () {
        for (const [index, llm] of [undefined, modelOf("acct-looks")].entries()) {
          const asked = {
            env: { GREETING: 'it\'s\n"one" \\n ☃' },
            inputs: [{ name: "prompt.txt", content: "hello" }],
            ...(llm === undefined ? {} : { llm })
          }
          yield* ready(1)
          const warm = yield* counting(shell(survey, asked))
          assert.strictEqual(warm.hits, 1)
          // A shape of its own, of which none waits.
          const cold = yield* counting(
            shell(survey, { ...asked, limits: { filesOpenMax: coldFilesOpenMax + index } })
          )
          assert.strictEqual(cold.hits, 0)
          // Without a model, the empty directory for the socket is mounted nevertheless.
          const seen = ({ output, runId }: RunResult) =>
            output.stdout.text
              .replaceAll(`RUN_ID=${runId}\n`, "RUN_ID=its own\n")
              .replace(/^(nofiles .*) 4\d{3}$/mu, "$1")
              .split("\n")
              .filter((line) => llm !== undefined || !line.startsWith("mount /llm-sock"))
          const [one, other] = [warm, cold].map(({ value }) => seen(value))
          assert.deepStrictEqual(one, other)
          assert.include(warm.value.output.stdout.text, "GREETING=it's")
          assert.strictEqual(warm.value.output.stderr.text, cold.value.output.stderr.text)
        }
      })
  )

  it.effect("calls its model, with the account of its run", () =>
    Effect.gen(function* () {
      yield* ready(1)
      const { hits, value } = yield* counting(
        run({
          argv: [
            "node",
            "-e",
            `fetch("http://localhost:8080/v1/chat/completions", { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ model: "model", messages: [{ role: "user", content: "hi" }] }) }).then(async (r) => console.log(r.status, await r.text()))`
          ],
          llm: modelOf("acct-calls")
        })
      )
      assert.strictEqual(hits, 1)
      assert.include(value.output.stdout.text, "200")
      assert.strictEqual(value.llm?.callsTotal, 1)
      const { received } = yield* Upstream
      assert.include(JSON.stringify(yield* received), "acct-calls")
    })
  )

  it.effect("has nothing of its maker, and nothing of another run, in a sandbox", () =>
    Effect.gen(function* () {
      const markers = ["alpha", "bravo"].map((name) => ({
        name,
        runId: RunId.RunId.make(`run-of-${name}-${crypto.randomUUID().slice(0, 8)}`),
        secret: `secret-of-${name}`,
        llm: modelOf(`acct-of-${name}`)
      }))
      yield* ready(2)
      yield* idle
      const waiting = yield* containers
      // The engine's record of a waiting sandbox, and what a run sees in one.
      for (const id of waiting) {
        const record = yield* docker("inspect", id)
        for (const word of ["acct-of", "secret-of", "run-of", key, "prompt-of"])
          assert.notInclude(record, word)
      }
      const outputs: Array<string> = []
      for (const { llm, name, runId, secret } of markers) {
        yield* ready(1)
        const leaves = `for d in /workspace /tmp /home/agent /dev/shm; do echo left-by-${name} > $d/left-by-${name}; done`
        const { hits, value } = yield* counting(
          shell(`${everything}; ${leaves}`, {
            runId,
            llm,
            env: { SECRET: secret },
            inputs: [{ name: "prompt.txt", content: `prompt-of-${name}` }]
          })
        )
        assert.strictEqual(hits, 1)
        outputs.push(value.output.stdout.text)
      }
      for (const [index, text] of outputs.entries()) {
        const own = markers[index]!
        assert.include(text, own.secret)
        assert.include(text, `prompt-of-${own.name}`)
        for (const other of markers) {
          const words = [
            `prompt-of-${other.name}`,
            other.secret,
            other.runId,
            `acct-of-${other.name}`,
            `left-by-${other.name}`
          ]
          const script = text.replaceAll(`left-by-${own.name}`, "")
          if (other !== own) for (const word of words) assert.notInclude(script, word)
        }
        for (const word of [key, formatOwner(HostOwner.self()), hostname(), "waiting-"])
          assert.notInclude(text, word)
      }
    })
  )

  it.effect("sets the limits of the run, which then hold", () =>
    Effect.gen(function* () {
      yield* ready(1)
      const limits = { memoryBytesMax: 96 * 1024 ** 2, processesMax: 24, cpusMax: 0.5 }
      const { hits, value } = yield* counting(
        Effect.flip(
          run({
            argv: ["node", "-e", "const kept = []; for (;;) kept.push(Buffer.alloc(2 ** 22, 1))"],
            limits
          })
        )
      )
      assert.strictEqual(hits, 1)
      assert.strictEqual(value.reason._tag, "OomKilled", value.message)
      yield* ready(1)
      const forks = yield* counting(
        Effect.flip(shell("i=0; while [ $i -lt 60 ]; do sleep 5 & i=$((i + 1)); done; wait", { limits }))
      )
      assert.strictEqual(forks.hits, 1)
      assert.strictEqual(forks.value.reason._tag, "PidsExhausted", forks.value.message)
      yield* ready(1)
      const late = yield* counting(
        Effect.flip(run({ argv: ["sleep", "60"], limits: { runtimeSecondsMax: 1, stopGraceSecondsMax: 1 } }))
      )
      assert.strictEqual(late.hits, 1)
      assert.strictEqual(late.value.reason._tag, "TimedOut", late.value.message)
    })
  )

  it.effect("reports the exit of the agent itself, whatever it printed", () =>
    Effect.gen(function* () {
      yield* ready(1)
      const forged = `printf '\\000%s 0\\n' ${"0123456789abcdef".repeat(2)}`
      const tries = [
        "cat /proc/1/environ /proc/1/mem",
        "ls /proc/1/fd",
        "cat /proc/1/fd/0",
        "head -c 3000000 /dev/zero",
        `${forged}; ${forged} >&2`,
        "exit 7"
      ]
      const { hits, value } = yield* counting(shell(tries.join("; ")))
      assert.strictEqual(hits, 1)
      assert.strictEqual(value.exitCode, 7)
      const { stderr, stdout } = value.output
      const line = `\0${"0123456789abcdef".repeat(2)} 0\n`
      assert.strictEqual(stdout.bytes, 3_000_000 + line.length)
      assert.isTrue(stderr.text.endsWith(line))
      for (const path of ["environ", "mem", "fd", "fd/0"])
        assert.match(stderr.text, new RegExp(`/proc/1/${path}'?: (Permission denied|cannot open)`, "u"))
    })
  )

  it.effect("gives no run a sandbox that others have used, or that was sent a signal, while it waited", () =>
    Effect.gen(function* () {
      const touches = [
        (id: string) => docker("kill", "--signal=WINCH", id),
        (id: string) => docker("exec", "--detach", id, "sleep", "600"),
        (id: string) =>
          docker(
            "exec",
            id,
            "sh",
            "-c",
            "echo planted > /tmp/planted; echo planted > /workspace/planted; true"
          )
      ]
      for (const touch of touches) {
        yield* ready(2)
        yield* idle
        // The pool may have removed one already, and have started another.
        const touched = yield* Effect.filter(yield* containers, (id) =>
          Effect.map(Effect.exit(touch(id)), Exit.isSuccess)
        )
        assert.isNotEmpty(touched)
        const value = yield* shell(
          "hostname; ls /tmp /workspace; for p in /proc/[0-9]*; do cat $p/comm; done; exit 3"
        )
        const { text } = value.output.stdout
        assert.strictEqual(value.exitCode, 3)
        assert.notInclude(text, "planted")
        assert.notInclude(text, "sleep")
        for (const id of touched) assert.isFalse(id.startsWith(text.slice(0, text.indexOf("\n"))), text)
      }
    })
  )

  it.effect("serves runs right while waiting sandboxes are killed and removed", () =>
    Effect.gen(function* () {
      const runtime = yield* ContainerRuntime
      const troubles = [(id: string) => docker("kill", id), (id: string) => docker("rm", "-f", id)]
      for (const trouble of troubles) {
        yield* ready(2)
        // One may have ended already, from the trouble before.
        for (const id of yield* containers) yield* Effect.exit(trouble(id))
        const [one, other] = yield* Effect.all([shell("echo one"), shell("echo other; exit 3")], {
          concurrency: 2
        })
        assert.deepStrictEqual([one.output.stdout.text, one.exitCode], ["one\n", 0])
        assert.deepStrictEqual([other.output.stdout.text, other.exitCode], ["other\n", 3])
        yield* Await.until(
          "the sandbox of the run is removed",
          Effect.map(runtime.leftovers(one.runId), ({ length }) => length === 0)
        )
      }
    })
  )
})

const changing = `cogni-sandbox/pool-test:${crypto.randomUUID().slice(0, 8)}`

const tagged = Effect.acquireRelease(docker("tag", Images.runtime, changing), () => docker("rmi", changing))

layer(
  Layer.provideMerge(
    RunHarness.layer(undefined, { keep: [{ image: changing, count: 1 }] }),
    Layer.effectDiscard(tagged)
  ),
  {
    excludeTestServices: true,
    timeout: "3 minutes"
  }
)("a pool whose image is replaced", (it) => {
  it.effect("gives no run a sandbox of the old image", () =>
    Effect.gen(function* () {
      yield* ready(1)
      yield* docker("tag", Images.proxy, changing)
      // The other image starts no agent, so the run must have been started from it.
      const error = yield* Effect.flip(run({ image: changing, argv: ["true"] }))
      assert.notStrictEqual(error.reason._tag, "TimedOut")
      yield* docker("tag", Images.runtime, changing)
      const result = yield* run({ image: changing, argv: ["echo", "new"] })
      assert.strictEqual(result.output.stdout.text, "new\n")
    })
  )
})

it.live(
  "replaces a sandbox that writes without end while it waits, and logs it once",
  () =>
    Effect.gen(function* () {
      const bridge = "my $bridge = Cogni::Bridge::start("
      const image = yield* ChangedImage.acquire(
        "cogni-waiter",
        bridge,
        `if (!fork) { 1 while syswrite STDERR, 'x' x 65536 } ${bridge}`
      )
      const warnings: Array<string> = []
      const log = Logger.make(({ message }) => void warnings.push(String(message)))
      yield* Effect.gen(function* () {
        yield* Await.until(
          "two were replaced",
          Effect.map(report, ({ started }) => started >= 3)
        )
        assert.deepStrictEqual(warnings, [
          `a waiting sandbox of ${image} is replaced, because no run can get it: it wrote something before it had a run`
        ])
        assert.strictEqual((yield* run({ image, argv: ["echo", "cold"] })).output.stdout.text, "cold\n")
      }).pipe(
        Effect.provide(
          Layer.provide(RunHarness.layer(undefined, { keep: [{ image, count: 1 }] }), Logger.layer([log]))
        )
      )
    }).pipe(Effect.scoped),
  { timeout: 120_000 }
)
