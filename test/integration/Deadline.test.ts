/**
 * Nothing runs without limit: a container ends itself at its deadline, and when its host process dies, whatever its
 * agent does.
 *
 * Durations are differences between the engine's timestamps, so a busy machine does not change what is tested.
 */
import { assert, describe, it, layer } from "@effect/vitest"
import { ContainerRuntime, type ContainerSpec } from "@cogni/sandbox-core/ContainerRuntime"
import { label } from "@cogni/sandbox-core/ResourceLabels"
import * as RunId from "@cogni/sandbox-core/RunId"
import { supervisor } from "@cogni/sandbox-core/SpecFields"
import * as DockerApi from "@cogni/sandbox-docker/DockerApi"
import * as FileRunStore from "@cogni/sandbox-docker/FileRunStore"
import { Duration, Effect, Semaphore, Stream } from "effect"
import * as Deadline from "../../packages/docker/src/internal/container/Deadline.ts"
import { hostConfig } from "../../packages/docker/src/internal/container/Hardening.ts"
import * as Await from "../harness/Await.ts"
import * as HostProcess from "../harness/HostProcess.ts"
import * as Images from "../harness/Images.ts"
import * as Pace from "../harness/Pace.ts"
import * as PrivateEngine from "../harness/PrivateEngine.ts"
import * as RunHarness from "../harness/RunHarness.ts"

const MiB = 1024 ** 2

/** Exit code of a container whose standard input ended. */
const hostGoneCode = 97

/** How much later than its deadline a container may end. */
const latenessSecondsMax = 10

const limits = {
  runtimeSecondsMax: 1,
  stopGraceSecondsMax: 0,
  memoryBytesMax: 256 * MiB,
  processesMax: 64,
  // Less than a processor: an attack that spins leaves even less to the first process, and to other tests more.
  cpusMax: 0.5,
  temporaryBytesMax: 16 * MiB,
  filesOpenMax: 1024,
  workspaceBytesMax: 16 * MiB
}
const deadlineSeconds = Deadline.secondsMax({ limits })

const specOf = (more: Partial<ContainerSpec> = {}) =>
  Effect.map(RunId.generate, (runId): ContainerSpec => ({
    runId,
    role: "agent",
    image: Images.runtime,
    argv: ["true"],
    env: {},
    user: { userId: 1000, groupId: 1000 },
    mounts: [],
    network: { mode: "none" },
    limits,
    ...more
  }))

/** Prints the time, then the script attacks. Signals that the first process forwards must not end the attacker itself. */
const attacking = (script: string): readonly [string, ...Array<string>] => [
  "bash",
  "-c",
  `date +%s.%N; for n in {1..64}; do trap '' $n; done 2>/dev/null\n${script}\nwhile :; do sleep 1; done`
]

/** Spins in this many processes. */
const spin = (processes: number) => `for n in {1..${processes}}; do (while :; do :; done) & done`

const numbers =
  process.arch === "x64"
    ? { setScheduler: 144, setPriority: 141, limit: 302, openProcess: 434, sendSignal: 424 }
    : { setScheduler: 119, setPriority: 140, limit: 261, openProcess: 434, sendSignal: 424 }

const attacks: ReadonlyArray<readonly [name: string, script: string]> = [
  ["ignores every signal", ":"],
  [
    "kills and stops the first process",
    "while :; do kill -KILL 1; kill -STOP 1; kill -TSTP 1; kill -STOP -1; done"
  ],
  [
    "floods the first process with every signal",
    `perl -e 'for my $s (1..64) { next if $s == 9 || $s == 19; if (!fork) { kill $s, 1 while 1 } }'`
  ],
  [
    "stops the first process through a descriptor of it",
    `perl -e 'my $fd = syscall(${numbers.openProcess}, 1, 0); while (1) { syscall(${numbers.sendSignal}, $fd, $_, 0, 0) for 9, 19 }'`
  ],
  [
    "takes away the processor, priority and limits of the first process",
    `perl -e 'my $zero = pack "l2", 0, 0; syscall(${numbers.setScheduler}, 1, 5, $zero);
      syscall(${numbers.setPriority}, $_, $_ == 2 ? 1000 : 1, 19) for 0..2;
      my $limit = pack "Q2", 0, 0; syscall(${numbers.limit}, 1, $_, $limit, 0) for 0..15'
    ${spin(50)}`
  ],
  ["is a fork bomb", "bomb() { bomb | bomb & }; bomb; while :; do bomb; done 2>/dev/null"],
  [
    "makes orphans faster than they are reaped",
    `for n in {1..4}; do perl -e 'while (1) { my $p = fork; if (defined $p && !$p) { fork; exit } waitpid $p, 0 if $p }' & done`
  ],
  ["kills every other process", "exec perl -e 'while (1) { kill 9, -1; sleep 1 }'"],
  ["floods its output", "yes & yes >&2 &"]
]

/** The engine's timestamps of a container that has ended, in seconds. */
const ended = Effect.fnUntraced(function* (id: string) {
  const api = yield* DockerApi.DockerApi
  const found = yield* api.inspect(id)
  assert(found !== undefined && !found.State.Running, "it has not ended")
  return {
    exitCode: found.State.ExitCode,
    startedAt: Date.parse(found.State.StartedAt!) / 1000,
    endedAt: Date.parse(found.State.FinishedAt!) / 1000
  }
})

const isAtDeadline = (seconds: number) => {
  assert.isAtMost(seconds, deadlineSeconds + latenessSecondsMax, "seconds after the first instruction")
}

const untilEnded = (id: string) =>
  Effect.flatMap(DockerApi.DockerApi, (api) =>
    Await.until(
      "the container still runs",
      Effect.map(api.inspect(id), (found) => found?.State.Status === "exited")
    )
  )

/** A container like an agent's, whose first process has these arguments, with its input open until `hangUp`. */
const withInit = Effect.fnUntraced(function* (
  entrypoint: ReadonlyArray<string>,
  options: { readonly image?: string; readonly env?: ReadonlyArray<string>; readonly input?: string } = {}
) {
  const api = yield* DockerApi.DockerApi
  const spec = yield* specOf()
  const id = yield* Effect.acquireRelease(
    api.create({
      name: `cogni-${spec.runId}-init`,
      image: options.image ?? Images.runtime,
      ...(entrypoint.length === 0 ? {} : { entrypoint }),
      argv: [],
      env: options.env ?? [],
      user: "1000:1000",
      labels: { "dev.cogni.test": label.run },
      hostConfig: {
        ...hostConfig(spec),
        Tmpfs: { ...hostConfig(spec).Tmpfs, "/llm-sock": "mode=1777" },
        Init: options.image !== undefined
      }
    }),
    (created) => Effect.orDie(api.remove(created))
  )
  const socket = yield* Effect.acquireRelease(api.attach(id), (open) => Effect.sync(() => open.destroy()))
  socket.on("error", () => undefined)
  socket.resume()
  yield* api.start(id)
  socket.write(options.input ?? "")
  return { id, hangUp: Effect.sync(() => socket.destroy()) }
})

/** Containers at a time: they mostly wait for their deadline, but some of them spin. */
const places = Semaphore.makeUnsafe(3)

const inTurn = <A, E, R>(use: Effect.Effect<A, E, R>) => places.withPermits(1)(Effect.scoped(use))

describe.concurrent("the deadline of a container", () => {
  layer(RunHarness.layer(), { excludeTestServices: true })("", (it) => {
    it.effect.each(attacks)("holds against an agent that %s", ([, script]) =>
      Effect.gen(function* () {
        const runtime = yield* ContainerRuntime
        const container = yield* runtime.acquire(yield* specOf({ argv: attacking(script) }))
        yield* container.start
        yield* container.proceed
        // The engine may deliver standard error before the time on standard output.
        const text = yield* Stream.runFold(
          container.output,
          () => "",
          (before, { bytes, channel }) =>
            channel === "stdout" && before.length < 40 ? before + new TextDecoder().decode(bytes) : before
        )
        const exit = yield* container.exit
        const { endedAt, exitCode } = yield* ended(container.id)
        assert.strictEqual(exitCode, Deadline.exitCode)
        assert.isTrue(exit.deadlinePassed)
        const began = Number(/^\d+\.\d+/u.exec(text)?.[0])
        isAtDeadline(endedAt - began)
        // The agent's clock can be set while the test runs, and its first line comes after the start of its time.
        assert.isAtLeast(endedAt - began, deadlineSeconds - 3)
      }).pipe(inTurn)
    )

    it.effect.each(attacks)("holds against a command in an open sandbox that %s", ([, script]) =>
      Effect.gen(function* () {
        const runtime = yield* ContainerRuntime
        const container = yield* runtime.acquire(yield* specOf({ argv: [supervisor], supervised: true }))
        yield* container.start
        yield* container.proceed
        const command = yield* container.exec({ argv: attacking(script), env: {} })
        // Nothing more is read: the supervisor must not wait for a reader.
        const [first] = yield* command.output.pipe(
          Stream.filter(({ channel }) => channel === "stdout"),
          Stream.take(1),
          Stream.runCollect
        )
        const exit = yield* container.exit
        const { endedAt, exitCode, startedAt } = yield* ended(container.id)
        assert.strictEqual(exitCode, Deadline.exitCode)
        assert.isTrue(exit.deadlinePassed)
        isAtDeadline(endedAt - Number(/^\d+\.\d+/u.exec(new TextDecoder().decode(first?.bytes))?.[0]))
        assert.isAtLeast(endedAt - startedAt, deadlineSeconds - 1)
      }).pipe(inTurn)
    )

    it.effect("ends a container of a relay", () =>
      Effect.gen(function* () {
        const runtime = yield* ContainerRuntime
        const container = yield* runtime.acquire(
          yield* specOf({ role: "relay", argv: ["sh", "-c", "trap '' TERM; while :; do sleep 1; done"] })
        )
        yield* container.start
        assert.isTrue((yield* container.exit).deadlinePassed)
        const { endedAt, startedAt } = yield* ended(container.id)
        isAtDeadline(endedAt - startedAt)
      }).pipe(inTurn)
    )

    it.effect("ends a container that is held, and never told to go", () =>
      Effect.gen(function* () {
        const { id } = yield* withInit(
          ["/usr/local/bin/cogni-init", "1", "3600", "/usr/local/bin/cogni-entrypoint", "true"],
          { env: ["COGNI_HOLD=1"] }
        )
        yield* untilEnded(id)
        const { endedAt, exitCode, startedAt } = yield* ended(id)
        assert.strictEqual(exitCode, Deadline.exitCode)
        assert.isAtLeast(endedAt - startedAt, 0.9)
        assert.isAtMost(endedAt - startedAt, 1 + latenessSecondsMax)
      }).pipe(inTurn)
    )

    it.effect("ends nginx", () =>
      Effect.gen(function* () {
        const input = "daemon off; pid /tmp/nginx.pid; events {}"
        const { id } = yield* withInit([], {
          image: Images.proxy,
          env: [`COGNI_CONFIG_BYTES=${input.length}`, "COGNI_DEADLINE_SECONDS=1"],
          input
        })
        yield* untilEnded(id)
        const { endedAt, exitCode, startedAt } = yield* ended(id)
        assert.strictEqual(exitCode, 137)
        assert.isAtMost(endedAt - startedAt, 1 + latenessSecondsMax)
      }).pipe(inTurn)
    )

    it.effect.each([
      [
        "held",
        ["/usr/local/bin/cogni-init", "3600", "3600", "/usr/local/bin/cogni-entrypoint", "true"],
        ["COGNI_HOLD=1"],
        ""
      ],
      [
        "running its agent",
        [
          "/usr/local/bin/cogni-init",
          "3600",
          "3600",
          "/usr/local/bin/cogni-entrypoint",
          "sh",
          "-c",
          "trap '' TERM; while :; do sleep 1; done"
        ],
        ["COGNI_HOLD=1"],
        "go\n"
      ],
      [
        "waiting for a run, and in which a program that loads has stopped the one that waits",
        ["/usr/local/bin/cogni-init", "3600", "0", "/usr/local/bin/cogni-waiter", "load"],
        ["COGNI_SOCKET=/llm-sock/llm.sock"],
        `load\n${"0".repeat(32)}\n3\nsh\n-c\nkill -STOP $PPID; exec sleep 3600\n`
      ],
      ["a relay's", ["/usr/local/bin/cogni-init", "0", "3600", "sleep", "3600"], [], ""]
    ] as const)("a container that is %s ends when its input ends", ([, entrypoint, env, input]) =>
      Effect.gen(function* () {
        const api = yield* DockerApi.DockerApi
        const { hangUp, id } = yield* withInit(entrypoint, { env, input })
        yield* Effect.sleep("1 second")
        assert.isTrue((yield* api.inspect(id))?.State.Running, "it ends too early")
        yield* hangUp
        yield* untilEnded(id)
        assert.strictEqual((yield* ended(id)).exitCode, hostGoneCode)
      }).pipe(inTurn)
    )

    it.effect("a host that hangs finds its run timed out when it goes on", () =>
      Effect.gen(function* () {
        const directory = yield* RunHarness.Directory
        const api = yield* DockerApi.DockerApi
        const runId = yield* RunId.generate
        const host = yield* HostProcess.start({
          directory,
          spec: {
            runId,
            image: Images.runtime,
            argv: attacking(":"),
            limits
          }
        })
        const { text } = yield* host.told("Output")
        yield* Effect.acquireRelease(
          Effect.sync(() => process.kill(host.processId, "SIGSTOP")),
          () => Effect.sync(() => process.kill(host.processId, "SIGCONT")).pipe(Effect.ignoreCause)
        )
        const [found] = yield* api.labelled(`${label.run}=${runId}`)
        yield* untilEnded(found!.id)
        const { endedAt, exitCode } = yield* ended(found!.id)
        assert.strictEqual(exitCode, Deadline.exitCode)
        isAtDeadline(endedAt - Number(text))
        process.kill(host.processId, "SIGCONT")
        const told = yield* host.last
        assert(told._tag === "Failed", JSON.stringify(told))
        assert.strictEqual(told.reason, "TimedOut", told.message)
      }).pipe(inTurn)
    )
  })
})

describe.skipIf(PrivateEngine.obstacle !== undefined)("a host process that is killed", () => {
  const points = 20
  /**
   * The first of those that come when the agent's container has started, and of those that come after the agent's first
   * instruction, however slow the machine is.
   */
  const [atStart, afterStart] = [12, 16]
  const runIdOf = (index: number) => `run-killed-at-${index}`

  const begin = Effect.fnUntraced(function* (engine: PrivateEngine.PrivateEngine, index: number) {
    return yield* HostProcess.start({
      directory: yield* RunHarness.Directory,
      host: engine.host,
      ...(index % 2 === 0 ? { proxyImage: Images.proxy } : { gatewayImage: Images.gateway }),
      spec: {
        runId: runIdOf(index),
        image: engine.image,
        argv: ["sh", "-c", "trap '' TERM HUP; echo up; while :; do sleep 1; done"],
        limits: { runtimeSecondsMax: 3600, memoryBytesMax: 64 * MiB, processesMax: 32 },
        llm: { model: "demo", identity: { billingAccountId: "account" } }
      }
    })
  })

  /** The containers that the engine knows, or those of one run. */
  const containers = Effect.fnUntraced(function* (filter: string = label.run) {
    const api = yield* DockerApi.DockerApi
    const found = (yield* api.labelled(filter)).filter(({ kind }) => kind === "container")
    const all = yield* Effect.forEach(found, ({ id, labels }) =>
      Effect.map(api.inspect(id), (seen) => (seen === undefined ? [] : [{ labels, state: seen.State }]))
    )
    return all.flat()
  })

  const isStartedAgent = ({ labels, state }: Effect.Success<ReturnType<typeof containers>>[number]) =>
    labels[label.role] === "agent" && Date.parse(state.StartedAt!) > 0

  /** Starts hosts, two at a time, and kills each at its point. Returns the seconds at which each was killed. */
  const killed = Effect.fnUntraced(function* (engine: PrivateEngine.PrivateEngine) {
    const at = new Map<string, number>()
    const kill = (host: HostProcess.HostProcess, index: number) =>
      Effect.andThen(
        host.kill,
        Effect.sync(() => at.set(runIdOf(index), Date.now() / 1000))
      )
    const inPairs = { concurrency: 2 }
    const whole = yield* Effect.forEach(
      [points, points + 1],
      (index) =>
        Effect.gen(function* () {
          const host = yield* begin(engine, index)
          const [took] = yield* Effect.timed(host.told("Output"))
          yield* kill(host, index)
          return took
        }).pipe(Effect.scoped),
      inPairs
    )
    const slowest = whole.reduce(Duration.max)
    yield* Effect.forEach(
      Array.from({ length: points }, (_, index) => index),
      (index) =>
        Effect.gen(function* () {
          const host = yield* begin(engine, index)
          if (index < atStart) yield* Effect.sleep(Duration.times(slowest, index / atStart))
          else if (index >= afterStart) yield* host.told("Output")
          else
            yield* Await.until(
              "the container of the agent has not started",
              Effect.map(containers(`${label.run}=${runIdOf(index)}`), (found) => found.some(isStartedAgent))
            )
          yield* kill(host, index)
        }).pipe(Effect.scoped),
      inPairs
    )
    return at
  })

  it.live("at any of 20 points of a run leaves no running container, long before its deadline", () =>
    Effect.gen(function* () {
      const engine = yield* PrivateEngine.acquire(Images.runtime)
      yield* engine.load(Images.proxy)
      yield* engine.load(Images.gateway)
      const [killedAt, agents] = yield* Effect.gen(function* () {
        const at = yield* killed(engine)
        yield* Await.until(
          "a container of a killed host runs",
          Effect.map(containers(), (found) => found.every(({ state }) => !state.Running))
        )
        return [at, (yield* containers()).filter(isStartedAgent)] as const
      }).pipe(Effect.provide(DockerApi.layer({ host: engine.host })))
      for (const { labels, state } of agents) {
        const since = killedAt.get(labels[label.run]!)
        assert(since !== undefined, `the container of an unknown run: ${labels[label.run]}`)
        const seconds = Date.parse(state.FinishedAt!) / 1000 - since
        assert.isAtMost(seconds, Pace.allowed(latenessSecondsMax * 1000) / 1000, labels[label.run])
      }
      const started = agents.map(({ labels }) => labels[label.run])
      for (let index = atStart; index < points + 2; index++) assert.include(started, runIdOf(index))
      assert.deepStrictEqual((yield* PrivateEngine.reapAt(engine.host)).failed, [])
      assert.deepStrictEqual(yield* PrivateEngine.labelledAt(engine.host), [])
      const directory = yield* RunHarness.Directory
      yield* FileRunStore.make({ directory, trafficOf: "unknown" }).reap
    }).pipe(Effect.provide(RunHarness.Directory.layer, { local: true }), Effect.scoped)
  )
})
