import { assert, describe, it } from "@effect/vitest"
import {
  ContainerRuntime,
  LlmProxy,
  MemoryContainerRuntime,
  type Posture,
  type RunEvent,
  RunId,
  RunStore,
  SandboxError,
  SandboxRunner,
  Workspace
} from "@cogni/sandbox-core"
import type * as Fault from "../../../test/harness/faults/Fault.ts"
import {
  Await,
  ContainerRuntimeFaults,
  LlmProxyFaults,
  RunStoreFaults,
  WorkspaceFaults
} from "../../../test/harness/faults/Fault.ts"
import type * as Interceptor from "../../../test/harness/faults/Interceptor.ts"
import * as ResourceLedger from "../../../test/harness/faults/ResourceLedger.ts"
import { Clock, Duration, Effect, Exit, Fiber, Layer, Stream } from "effect"
import { TestClock } from "effect/testing"
import { leftovers, llm, record, run, runId, runner, settle, spec } from "./Specs.ts"

const hello: MemoryContainerRuntime.Program = ({ stdout }) => Effect.as(stdout("hello\n"), 0)
const forever: MemoryContainerRuntime.Program = ({ stdout }) =>
  Effect.andThen(stdout("so far\n"), Effect.never)

/** Memory, with what `start` says replaced. */
const reporting = (
  posture: (good: Posture.Posture) => Posture.Posture | undefined,
  program: MemoryContainerRuntime.Program
) =>
  Layer.effect(
    ContainerRuntime.ContainerRuntime,
    Effect.map(MemoryContainerRuntime.make({ program }), (inner) => ({
      ...inner,
      acquire: (spec) =>
        Effect.map(inner.acquire(spec), (container) => ({
          ...container,
          start: Effect.map(container.start, (seen) => (seen === undefined ? undefined : posture(seen)))
        }))
    }))
  )

/** A program that tells whether it ran. */
const witness = () => {
  let ran = false
  const program: MemoryContainerRuntime.Program = () =>
    Effect.sync(() => {
      ran = true
      return 0
    })
  return { program, ran: () => ran }
}

const proxyFailed = new SandboxError.ProxyFailed({ detail: "planted", remedy: "Take it out" })

describe("SandboxRunner", () => {
  describe("run", () => {
    it.effect("returns what the agent wrote, how it ended, how it was held and how long it took", () =>
      Effect.gen(function* () {
        const fiber = yield* Effect.forkChild(run({ ...spec, llm }))
        yield* settle
        yield* TestClock.adjust("3 seconds")
        const result = yield* Fiber.join(fiber)
        assert.strictEqual(result.runId, runId)
        assert.strictEqual(result.exitCode, 4)
        assert.strictEqual(result.output.stdout.text, "hello\n")
        assert.strictEqual(result.durationMs, 3000)
        assert.deepStrictEqual(result.llm?.calls, [])
        assert.sameMembers(
          result.timings.map(({ phase }) => phase),
          ["workspace", "socket", "create", "start", "proxy", "entrypoint", "agent", "collect"]
        )
        assert.strictEqual(result.timings.find(({ phase }) => phase === "agent")?.durationMs, 3000)
        assert.deepStrictEqual(result.posture.interfaces, ["lo"])
        assert.deepStrictEqual(yield* leftovers(), [])
      }).pipe(
        Effect.provide(
          runner({
            program: ({ stdout }) =>
              stdout("hello\n").pipe(Effect.andThen(Effect.sleep("3 seconds")), Effect.as(4))
          })
        )
      )
    )

    it.effect("an id is made where none was given, and no model means no way out", () =>
      Effect.gen(function* () {
        const result = yield* run({ image: "agent", argv: ["agent"] })
        assert.match(result.runId, /^run-[0-9a-z]{12}$/u)
        assert.isUndefined(result.llm)
      }).pipe(Effect.provide(runner({ proxy: LlmProxy.layerNoop, program: hello })))
    )

    it.effect("the container is what the spec says, and what the workspace and the proxy add", () =>
      Effect.gen(function* () {
        let seen: ContainerRuntime.ContainerSpec | undefined
        yield* run({ ...spec, llm, env: { LANG: "C", OPENAI_API_KEY: "mine" } }).pipe(
          Effect.provide(
            runner({
              program: ({ spec }) =>
                Effect.sync(() => {
                  seen = spec
                  return 0
                })
            })
          )
        )
        assert.deepStrictEqual(seen?.argv, ["agent", "--once"])
        assert.strictEqual(seen?.role, "agent")
        assert.deepStrictEqual(seen?.user, { userId: 1000, groupId: 1000 })
        assert.deepStrictEqual(
          seen?.mounts.map(({ target }) => target),
          ["/workspace", "/cogni", "/workspace/.cogni", "/llm-sock"]
        )
        assert.strictEqual(seen?.env["LANG"], "C")
        assert.strictEqual(seen?.env["COGNI_MODEL"], "model-1")
        assert.strictEqual(seen?.env["OPENAI_API_KEY"], "none")
        assert.notInclude(JSON.stringify(seen), "account-1", "the payer is the host's business")
      })
    )

    it.effect("what does not depend on each other is had at the same time", () =>
      Effect.gen(function* () {
        const fiber = yield* Effect.forkChild(run({ ...spec, llm }))
        yield* Await.ended(fiber, 60)
        const result = yield* Fiber.join(fiber)
        assert.strictEqual(result.durationMs, 10_000 + 7_000)
      }).pipe(
        Effect.provide(
          runner({
            runtime: ContainerRuntimeFaults.layer(MemoryContainerRuntime.layer({ program: hello }), [
              ContainerRuntimeFaults.slow("Container.start", "7 seconds")
            ]),
            workspace: WorkspaceFaults.layer(Workspace.layerMemory(), [
              WorkspaceFaults.slow("Workspace.acquire", "10 seconds")
            ]),
            proxy: LlmProxyFaults.layer(LlmProxy.layerMemory(), [
              LlmProxyFaults.slow("LlmProxy.acquire", "10 seconds"),
              LlmProxyFaults.slow("LlmProxy.ready", "7 seconds")
            ])
          })
        )
      )
    )

    it.effect("an id names one run for ever", () =>
      Effect.gen(function* () {
        yield* run()
        const error = yield* Effect.flip(run())
        assert.strictEqual(error.reason._tag, "RunIdInUse")
        assert.strictEqual(error.runId, runId)
        assert.strictEqual((yield* record())?.outcome.status, "exited", "the first run's record stays")
      }).pipe(Effect.provide(runner({ program: hello })))
    )

    it.effect("a missing image leaves nothing, and says so", () =>
      Effect.gen(function* () {
        const error = yield* Effect.flip(run())
        assert.strictEqual(error.reason._tag, "ImageNotFound")
        assert.deepStrictEqual(yield* leftovers(), [])
      }).pipe(Effect.provide(runner({ runtime: MemoryContainerRuntime.layer({ images: new Set() }) })))
    )

    it.effect("a directory that is not there is refused before anything is made", () =>
      Effect.gen(function* () {
        const error = yield* Effect.flip(run({ ...spec, workspace: { type: "directory", path: "/missing" } }))
        assert.strictEqual(error.reason._tag, "WorkspaceFailed")
        assert.include(error.message, "/missing")
      }).pipe(Effect.provide(runner({ workspace: Workspace.layerMemory({ directories: new Set() }) })))
    )

    it.effect("a program that kills itself is a value like any other", () =>
      Effect.gen(function* () {
        assert.strictEqual((yield* run()).exitCode, 139)
      }).pipe(Effect.provide(runner({ program: () => Effect.die("segmentation fault") })))
    )
  })

  describe("posture", () => {
    const weaker: ReadonlyArray<
      readonly [what: string, posture: (good: Posture.Posture) => Posture.Posture | undefined, word: string]
    > = [
      ["no posture at all", () => undefined, "did not report"],
      ["root", (good) => ({ ...good, userIds: [0] }), "uid"],
      ["an interface", (good) => ({ ...good, interfaces: ["lo", "eth0"] }), "eth0"],
      ["a missing workspace", (good) => ({ ...good, mounts: good.mounts.slice(0, 1) }), "/workspace"]
    ]
    it.effect.each(weaker)("%s ends the run before the agent's first instruction", ([, posture, word]) => {
      const agent = witness()
      return Effect.gen(function* () {
        const error = yield* Effect.flip(run())
        assert.strictEqual(error.reason._tag, "PostureMismatch")
        assert.include(error.message, word)
        assert.isFalse(agent.ran())
        assert.deepStrictEqual(yield* leftovers(), [])
        const kept = yield* record()
        assert.strictEqual(kept?.outcome.status === "failed" && kept.outcome.reason, "PostureMismatch")
      }).pipe(Effect.provide(runner({ runtime: reporting(posture, agent.program) })))
    })

    it.effect("the posture that held is on record", () =>
      Effect.gen(function* () {
        yield* run()
        assert.strictEqual((yield* record())?.posture?.seccompMode, 2)
      }).pipe(Effect.provide(runner({ program: hello })))
    )
  })

  describe("interruption", () => {
    const points = [0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144]
    it.effect.each(points)("leaves nothing, and says so on record: after %s turns", (turns) =>
      Effect.gen(function* () {
        const fiber = yield* Effect.forkChild(run({ ...spec, llm }))
        for (let turn = 0; turn < turns; turn++) yield* Effect.yieldNow
        yield* Fiber.interrupt(fiber)
        const exit = yield* Fiber.await(fiber)
        assert.isTrue(Exit.hasInterrupts(exit))
        assert.deepStrictEqual(yield* leftovers(), [])
        const kept = yield* record()
        if (kept !== undefined) assert.deepStrictEqual(kept.outcome, { status: "interrupted" })
        if (turns > 100) assert.isDefined(kept?.posture, "it had got as far as the agent")
      }).pipe(Effect.provide(runner({ program: forever })))
    )
  })

  describe("records", () => {
    it.effect("of a run that ended by itself: its result", () =>
      Effect.gen(function* () {
        const result = yield* run()
        const kept = yield* record()
        assert.deepStrictEqual(kept?.outcome, { status: "exited", result })
        assert.strictEqual(kept?.startedAt, "1970-01-01T00:00:00.000Z")
        assert.isDefined(kept?.endedAt)
        assert.deepStrictEqual(kept?.timings, result.timings)
      }).pipe(Effect.provide(runner({ program: hello })))
    )

    it.effect("of a run that broke a limit: reason, code, output and peak", () =>
      Effect.gen(function* () {
        const fiber = yield* Effect.forkChild(Effect.flip(run({ ...spec, limits: { runtimeSecondsMax: 5 } })))
        yield* Await.ended(fiber, 20)
        const kept = yield* record()
        if (kept?.outcome.status !== "failed") return assert.fail(kept?.outcome.status)
        assert.strictEqual(kept.outcome.reason, "TimedOut")
        assert.strictEqual(kept.outcome.code, "timeout")
        assert.include(kept.outcome.message, "still running after 5 s")
        assert.strictEqual(kept.outcome.output?.stdout.text, "so far\n")
        assert.deepStrictEqual(kept.outcome.peak, { workspaceBytes: 0 })
        assert.strictEqual(kept.endedAt, "1970-01-01T00:00:10.000Z")
      }).pipe(Effect.provide(runner({ program: forever })))
    )

    it.effect("a record that cannot be written, or takes for ever, changes nothing else", () =>
      Effect.gen(function* () {
        for (const store of [
          RunStoreFaults.layer(RunStore.layerMemory, [RunStoreFaults.hang("RunStore.save", 1)]),
          Layer.effect(
            RunStore.RunStore,
            Effect.map(RunStore.makeMemory, (inner) => ({
              ...inner,
              open: (id, spec) =>
                Effect.map(inner.open(id, spec), (open) => ({
                  ...open,
                  save: () => Effect.die(new Error("disk full"))
                }))
            }))
          )
        ]) {
          const fiber = yield* Effect.forkChild(
            Effect.all([run(), leftovers()]).pipe(
              Effect.provide(runner({ store, program: hello }), { local: true })
            )
          )
          yield* Await.ended(fiber, 60)
          const [result, left] = yield* Fiber.join(fiber)
          assert.strictEqual(result.exitCode, 0)
          assert.deepStrictEqual(left, [])
        }
      })
    )
  })

  describe("stream", () => {
    const stream = (input = spec) =>
      Stream.unwrap(SandboxRunner.SandboxRunner.useSync((runner) => runner.stream(input)))
    const tags = (events: ReadonlyArray<RunEvent.RunEvent>) => events.map((event) => event._tag)

    it.effect("tells everything in order: started first, ended last, both once", () =>
      Effect.gen(function* () {
        const events = yield* Stream.runCollect(stream({ ...spec, llm }))
        assert.strictEqual(events[0]?._tag, "RunStarted")
        const last = events.at(-1)
        if (last?._tag !== "RunEnded") return assert.fail(last?._tag)
        assert.lengthOf(
          events.filter(({ _tag }) => _tag === "RunStarted" || _tag === "RunEnded"),
          2
        )
        const phases = events.flatMap((event) => (event._tag === "PhaseEnded" ? [event.phase] : []))
        assert.deepStrictEqual(
          phases,
          last.result.timings.map(({ phase }) => phase)
        )
        const at = (tag: RunEvent.RunEvent["_tag"]) => tags(events).indexOf(tag)
        assert.isBelow(at("PostureVerified"), at("OutputReceived"))
        assert.strictEqual(last.result.output.stdout.text, "hello\n")
        assert.deepStrictEqual(yield* leftovers(), [])
      }).pipe(Effect.provide(runner({ program: hello })))
    )

    it.effect("RunEnded comes when nothing is left", () =>
      Effect.gen(function* () {
        const left = yield* stream().pipe(
          Stream.filter(({ _tag }) => _tag === "RunEnded"),
          Stream.mapEffect(() => leftovers()),
          Stream.runCollect
        )
        assert.deepStrictEqual(left, [[]])
      }).pipe(Effect.provide(runner({ program: hello })))
    )

    it.effect("output comes while the agent runs", () =>
      Effect.gen(function* () {
        const first = yield* stream().pipe(
          Stream.filter((event) => event._tag === "OutputReceived"),
          Stream.take(1),
          Stream.runCollect
        )
        assert.strictEqual(new TextDecoder().decode(first[0]?.bytes), "so far\n")
      }).pipe(Effect.provide(runner({ program: forever })))
    )

    it.effect("a failure is the stream's error, after what was seen", () =>
      Effect.gen(function* () {
        const seen: Array<RunEvent.RunEvent> = []
        const fiber = yield* stream({ ...spec, limits: { runtimeSecondsMax: 5 } }).pipe(
          Stream.runForEach((event) => Effect.sync(() => seen.push(event))),
          Effect.flip,
          Effect.forkChild
        )
        yield* Await.ended(fiber, 30)
        const error = yield* Fiber.join(fiber)
        assert.strictEqual(error.reason._tag, "TimedOut")
        assert.strictEqual(seen[0]?._tag, "RunStarted")
        assert.include(tags(seen), "OutputReceived")
        assert.notInclude(tags(seen), "RunEnded")
      }).pipe(Effect.provide(runner({ program: forever })))
    )

    it.effect("a refused spec has no events", () =>
      Effect.gen(function* () {
        const error = yield* Effect.flip(Stream.runCollect(stream({ ...spec, image: "" })))
        assert.strictEqual(error.reason._tag, "InvalidSpec")
      }).pipe(Effect.provide(runner()))
    )

    it.effect.each([1, 2, 3, 4, 5, 6, 7])(
      "abandoned after %s events: the run ends, and nothing is left",
      (count) =>
        Effect.gen(function* () {
          const events = yield* Stream.runCollect(Stream.take(stream({ ...spec, llm }), count))
          assert.lengthOf(events, count)
          assert.deepStrictEqual(yield* leftovers(), [])
          const kept = yield* record()
          if (kept !== undefined) assert.deepStrictEqual(kept.outcome, { status: "interrupted" })
        }).pipe(Effect.provide(runner({ program: forever })))
    )

    it.effect("a slow reader misses nothing", () =>
      Effect.gen(function* () {
        const fiber = yield* stream().pipe(
          Stream.mapEffect((event) => Effect.as(Effect.sleep("1 second"), event)),
          Stream.runCollect,
          Effect.forkChild
        )
        yield* Await.ended(fiber, 400)
        const events = yield* Fiber.join(fiber)
        const bytes = events.reduce(
          (sum, event) => sum + (event._tag === "OutputReceived" ? event.bytes.byteLength : 0),
          0
        )
        assert.strictEqual(bytes, 200)
      }).pipe(
        Effect.provide(
          runner({
            program: ({ stdout }) =>
              Effect.as(
                Effect.forEach(Array.from({ length: 200 }), () => stdout("x"), { discard: true }),
                0
              )
          })
        )
      )
    )
  })

  describe("runOnce", () => {
    const runOnce = (input = spec) => SandboxRunner.SandboxRunner.use((runner) => runner.runOnce(input))

    it.effect("a run that went well", () =>
      Effect.gen(function* () {
        assert.deepStrictEqual(yield* runOnce(), { ok: true, stdout: "hello\n", stderr: "", exitCode: 0 })
      }).pipe(Effect.provide(runner({ program: hello })))
    )

    it.effect("an agent that failed", () =>
      Effect.gen(function* () {
        assert.deepStrictEqual(yield* runOnce(), {
          ok: false,
          stdout: "",
          stderr: "no\n",
          exitCode: 2,
          errorCode: "container_failed"
        })
      }).pipe(Effect.provide(runner({ program: ({ stderr }) => Effect.as(stderr("no\n"), 2) })))
    )

    it.effect("a limit, with what there was", () =>
      Effect.gen(function* () {
        const { message, ...folded } = yield* runOnce()
        assert.deepStrictEqual(folded, {
          ok: false,
          stdout: "so far\n",
          stderr: "",
          exitCode: 137,
          errorCode: "oom_killed",
          reason: "OomKilled"
        })
        assert.include(message, "Raise limits.memoryBytesMax")
      }).pipe(
        Effect.provide(
          runner({
            program: ({ stdout }) =>
              Effect.as(stdout("so far\n"), {
                exitCode: 137,
                oomKilled: true,
                processesRefused: false,
                peak: {}
              })
          })
        )
      )
    )

    it.effect("a fault, and a spec that is none", () =>
      Effect.gen(function* () {
        const fault = yield* runOnce()
        assert.deepStrictEqual(
          [fault.ok, fault.exitCode, fault.errorCode, fault.reason],
          [false, -1, "container_failed", "ImageNotFound"]
        )
        const refused = yield* runOnce({ ...spec, image: "" })
        assert.deepStrictEqual([refused.errorCode, refused.reason], ["invalid_request", "InvalidSpec"])
      }).pipe(Effect.provide(runner({ runtime: MemoryContainerRuntime.layer({ images: new Set() }) })))
    )
  })

  describe("open", () => {
    const { argv: _argv, ...openSpec } = spec
    const open = (input = openSpec) => SandboxRunner.SandboxRunner.use((runner) => runner.open(input))

    /** `sleep infinity` for the sandbox itself; commands do what their name says. */
    const program: MemoryContainerRuntime.Program = ({ argv, stderr, stdout, terminated }) => {
      switch (argv[0]) {
        case "sleep":
          return Effect.as(terminated, 143)
        case "echo":
          return Effect.as(stdout(`${argv[1]}\n`), 0)
        case "fail":
          return Effect.as(stderr("no\n"), 9)
        case "flood":
          return Effect.forever(stdout("x".repeat(1000)))
        default:
          return Effect.never
      }
    }

    it.effect("runs many commands in one sandbox, and closes with nothing left", () =>
      Effect.gen(function* () {
        yield* Effect.scoped(
          Effect.gen(function* () {
            const sandbox = yield* open()
            assert.strictEqual(sandbox.runId, runId)
            assert.strictEqual(sandbox.posture.seccompMode, 2)
            const echo = yield* sandbox.exec(["echo", "one"])
            assert.deepStrictEqual([echo.exitCode, echo.output.stdout.text], [0, "one\n"])
            const fail = yield* sandbox.exec(["fail"])
            assert.deepStrictEqual([fail.exitCode, fail.output.stderr.text], [9, "no\n"])
            assert.isNotEmpty(yield* leftovers())
            assert.strictEqual((yield* record())?.outcome.status, "running")
          })
        )
        assert.deepStrictEqual(yield* leftovers(), [])
        assert.deepStrictEqual((yield* record())?.outcome, { status: "closed" })
      }).pipe(Effect.provide(runner({ program })))
    )

    it.effect("the output limit holds for each command, and the sandbox lives on", () =>
      Effect.gen(function* () {
        const sandbox = yield* open({ ...openSpec, limits: { outputBytesMax: 10_000 } })
        const error = yield* Effect.flip(sandbox.exec(["flood"]))
        assert.strictEqual(error.reason._tag, "OutputLimitExceeded")
        assert.strictEqual(error.runId, runId)
        assert.isAbove(error.partial?.output.stdout.bytes ?? 0, 10_000)
        assert.strictEqual((yield* sandbox.exec(["echo", "still here"])).exitCode, 0)
      }).pipe(Effect.provide(runner({ program })))
    )

    it.effect("a command that is none is refused with its problem, and the sandbox lives on", () =>
      Effect.gen(function* () {
        const sandbox = yield* open(openSpec)
        for (const [argv, options] of [
          [["echo", "a\0b"], {}],
          [["echo", "x".repeat(200_000)], {}],
          [["echo"], { env: { "A=B": "c" } }],
          [["echo"], { workingDirectory: "relative" }]
        ] as const) {
          const { reason } = yield* Effect.flip(sandbox.exec(argv as never, options))
          assert.strictEqual(reason._tag, "InvalidSpec", JSON.stringify(options))
        }
        assert.strictEqual((yield* sandbox.exec(["echo", "still here"])).exitCode, 0)
      }).pipe(Effect.provide(runner({ program })))
    )

    it.effect("a proxy that dies ends it and every command in it; its calls are on record all the same", () =>
      Effect.gen(function* () {
        const sandbox = yield* open({ ...openSpec, llm })
        const fiber = yield* Effect.forkChild(Effect.flip(sandbox.exec(["hang"])))
        yield* Await.ended(fiber, 10)
        const error = yield* Fiber.join(fiber)
        assert.strictEqual(error.reason._tag, "ProxyFailed")
        assert.strictEqual((yield* Effect.flip(sandbox.exec(["echo", "x"]))).reason._tag, "ProxyFailed")
      }).pipe(
        Effect.scoped,
        Effect.andThen(record()),
        Effect.tap((kept) => Effect.sync(() => assert.strictEqual(kept?.llm?.proxy, "memory"))),
        Effect.provide(
          runner({
            program,
            proxy: LlmProxyFaults.layer(LlmProxy.layerMemory(), [
              LlmProxyFaults.slow("LlmProxy.failure", Duration.seconds(3)),
              LlmProxyFaults.failNth(
                "LlmProxy.failure",
                1,
                new SandboxError.ProxyFailed({ detail: "it ended", remedy: "Look at its log" })
              )
            ])
          })
        )
      )
    )

    it.effect("a model that the host calls is acquired as always, and nothing of it is inside", () =>
      Effect.gen(function* () {
        const seen: Array<ContainerRuntime.ContainerSpec> = []
        const watching: MemoryContainerRuntime.Program = (io) => {
          seen.push(io.spec)
          return program(io)
        }
        const kept = yield* Effect.scoped(
          Effect.gen(function* () {
            const sandbox = yield* open({ ...openSpec, llm: { ...llm, caller: "host" } })
            yield* sandbox.exec(["echo", "x"])
            return sandbox.llmSocketPath
          })
        ).pipe(
          Effect.flatMap((path) => Effect.map(record(), (kept) => ({ path, proxy: kept?.llm?.proxy }))),
          Effect.provide(runner({ program: watching }))
        )
        assert.deepStrictEqual(kept, { path: `/memory/${runId}/llm.sock`, proxy: "memory" })
        assert.isNotEmpty(seen)
        for (const { env, mounts } of seen) {
          assert.notInclude(JSON.stringify(mounts), "llm-sock")
          assert.deepStrictEqual(env, {})
        }
        const inside = yield* Effect.scoped(open({ ...openSpec, llm })).pipe(
          Effect.provide(runner({ program }))
        )
        assert.isUndefined(inside.llmSocketPath)
      })
    )

    it.effect("a model that the host calls needs a proxy whose sockets are on the host", () =>
      Effect.gen(function* () {
        const { reason } = yield* Effect.flip(open({ ...openSpec, llm: { ...llm, caller: "host" } }))
        assert.strictEqual(reason._tag, "InvalidSpec")
        assert.include(reason.message, "llm.caller")
      }).pipe(
        Effect.provide(
          runner({
            program,
            proxy: Layer.effect(
              LlmProxy.LlmProxy,
              Effect.map(LlmProxy.makeMemory(), (proxy) => ({
                ...proxy,
                capabilities: { ...proxy.capabilities, servesHost: false }
              }))
            )
          })
        )
      )
    )

    it.effect("a run's agent is inside: a model that only the host may call is refused", () =>
      Effect.gen(function* () {
        const { reason } = yield* Effect.flip(run({ ...spec, llm: { ...llm, caller: "host" } }))
        assert.strictEqual(reason._tag, "InvalidSpec")
        assert.include(reason.message, "llm.caller")
      }).pipe(Effect.provide(runner({ program })))
    )

    it.effect("files and commands are of one workspace, and each file's trouble is its own", () =>
      Effect.gen(function* () {
        const sandbox = yield* open()
        yield* sandbox.files.write("a/b.txt", "kept")
        assert.strictEqual(new TextDecoder().decode(yield* sandbox.files.read("/workspace/a/b.txt")), "kept")
        assert.deepStrictEqual(
          (yield* sandbox.files.list(".")).map(({ name, type }) => [name, type]),
          [["a", "directory"]]
        )
        const { reason } = yield* Effect.flip(sandbox.files.read("../etc/passwd"))
        assert.strictEqual(reason._tag === "FileRefused" && reason.problem, "outside_workspace")
        assert.strictEqual((yield* sandbox.exec(["echo", "still here"])).exitCode, 0)
      }).pipe(Effect.scoped, Effect.provide(runner({ program })))
    )

    it.effect("its record says what ended it, where it was not simply closed", () =>
      Effect.gen(function* () {
        yield* Effect.scoped(
          Effect.gen(function* () {
            yield* open({ ...openSpec, limits: { runtimeSecondsMax: 10 } })
            yield* TestClock.adjust("11 seconds")
          })
        )
        const outcome = (yield* record())?.outcome
        assert.strictEqual(outcome?.status === "failed" && outcome.reason, "TimedOut")
      }).pipe(Effect.provide(runner({ program })))
    )

    it.effect("all its commands together have the run's time", () =>
      Effect.gen(function* () {
        const sandbox = yield* open({ ...openSpec, limits: { runtimeSecondsMax: 10 } })
        yield* TestClock.adjust("4 seconds")
        const fiber = yield* Effect.forkChild(
          Effect.all([Effect.flip(sandbox.exec(["hang"])), Effect.suspend(() => Clock.currentTimeMillis)])
        )
        yield* Await.ended(fiber, 20)
        const [error, atMillis] = yield* Fiber.join(fiber)
        assert.strictEqual(error.reason._tag, "TimedOut")
        assert.strictEqual(atMillis, 10_000)
        const late = yield* Effect.flip(sandbox.exec(["echo", "quick"]))
        assert.strictEqual(late.reason._tag, "TimedOut")
      }).pipe(Effect.provide(runner({ program })))
    )

    it.effect("a sandbox that cannot be had leaves nothing, and its record says why", () =>
      Effect.gen(function* () {
        const error = yield* Effect.flip(Effect.scoped(open({ ...openSpec, llm })))
        assert.strictEqual(error.reason._tag, "ProxyFailed")
        assert.deepStrictEqual(yield* leftovers(), [])
        const kept = yield* record()
        assert.strictEqual(kept?.outcome.status === "failed" && kept.outcome.reason, "ProxyFailed")
      }).pipe(Effect.provide(runner({ program, proxy: LlmProxy.layerNoop })))
    )

    it.effect.each([0, 5, 10, 20, 40, 80, 160])("interrupted after %s turns, its record is final", (turns) =>
      Effect.gen(function* () {
        const fiber = yield* Effect.forkChild(Effect.scoped(Effect.andThen(open(), Effect.never)))
        for (let turn = 0; turn < turns; turn++) yield* Effect.yieldNow
        yield* Fiber.interrupt(fiber)
        assert.deepStrictEqual(yield* leftovers(), [])
        assert.notStrictEqual((yield* record())?.outcome.status, "running")
      }).pipe(Effect.provide(runner({ program })))
    )
  })

  describe("release", () => {
    const observed = (
      faults: ReadonlyArray<Fault.Fault<keyof Interceptor.ContainerRuntimeOperations>>,
      program: MemoryContainerRuntime.Program
    ) =>
      SandboxRunner.layer.pipe(
        Layer.provideMerge(
          ContainerRuntimeFaults.layer(
            ResourceLedger.observe(
              Layer.mergeAll(
                MemoryContainerRuntime.layer({ program }),
                LlmProxy.layerMemory(),
                Workspace.layerMemory(),
                RunStore.layerMemory
              )
            ),
            faults
          )
        ),
        Layer.provideMerge(ResourceLedger.layer)
      )

    it.effect("in reverse: the container first, the run record last", () =>
      Effect.gen(function* () {
        yield* run({ ...spec, llm })
        const ledger = yield* ResourceLedger.ResourceLedger
        assert.deepStrictEqual(yield* ledger.violations, [])
        const released = (yield* ledger.entries)
          .filter(({ event }) => event === "released")
          .map(({ kind }) => kind)
        assert.strictEqual(released[0], "container")
        assert.strictEqual(released.at(-1), "run record")
        assert.sameMembers(released, ["container", "proxy", "workspace", "run record"])
      }).pipe(Effect.provide(observed([], hello)))
    )

    it.effect("a release that dies keeps neither the next one nor the result from happening", () =>
      Effect.gen(function* () {
        const result = yield* run({ ...spec, llm })
        assert.strictEqual(result.exitCode, 0)
        assert.deepStrictEqual(yield* (yield* ResourceLedger.ResourceLedger).violations, [])
        assert.strictEqual((yield* record())?.outcome.status, "exited")
      }).pipe(
        Effect.provide(observed([ContainerRuntimeFaults.dieOnRelease("ContainerRuntime.release")], hello))
      )
    )

    it.effect("a release that hangs is given up on after its bound, and the others happen", () =>
      Effect.gen(function* () {
        const fiber = yield* Effect.forkChild(run({ ...spec, llm }))
        yield* Await.ended(fiber, 100)
        const result = yield* Fiber.join(fiber)
        assert.strictEqual(result.exitCode, 0)
        const ledger = yield* ResourceLedger.ResourceLedger
        const released = (yield* ledger.entries)
          .filter(({ event }) => event === "released")
          .map(({ kind }) => kind)
        assert.sameMembers(released, ["proxy", "workspace", "run record"])
        assert.isNotEmpty(yield* leftovers(), "left to the reaper")
        assert.isAtMost(yield* Clock.currentTimeMillis, 31_000)
      }).pipe(Effect.provide(observed([ContainerRuntimeFaults.hang("ContainerRuntime.release", 1)], hello)))
    )

    it.effect("an interrupted run waits for what it has to let go", () =>
      Effect.gen(function* () {
        const fiber = yield* Effect.forkChild(run({ ...spec, llm }))
        yield* settle
        const interrupting = yield* Effect.forkChild(Fiber.interrupt(fiber))
        yield* settle
        assert.isUndefined(fiber.pollUnsafe(), "the stop is slow, and is waited for")
        yield* TestClock.adjust("20 seconds")
        yield* Fiber.join(interrupting)
        assert.deepStrictEqual(yield* leftovers(), [])
        assert.deepStrictEqual(yield* (yield* ResourceLedger.ResourceLedger).violations, [])
      }).pipe(
        Effect.provide(
          observed([ContainerRuntimeFaults.slow("ContainerRuntime.release", "20 seconds")], forever)
        )
      )
    )

    it.effect(
      "a proxy that is never ready is the proxy's fault: the agent never ran, and everything else goes",
      () => {
        const agent = witness()
        return Effect.gen(function* () {
          const fiber = yield* Effect.forkChild(Effect.flip(run({ ...spec, llm })))
          yield* Await.ended(fiber, 200)
          assert.strictEqual((yield* Fiber.join(fiber)).reason._tag, "ProxyFailed")
          assert.isFalse(agent.ran())
          assert.deepStrictEqual(yield* leftovers(), [])
        }).pipe(
          Effect.provide(
            runner({
              program: agent.program,
              proxy: LlmProxyFaults.layer(LlmProxy.layerMemory(), [LlmProxyFaults.hang("LlmProxy.ready", 1)])
            })
          )
        )
      }
    )

    it.effect("a proxy that fails is told as it told it", () =>
      Effect.gen(function* () {
        const error = yield* Effect.flip(run({ ...spec, llm }))
        assert.deepStrictEqual(error.reason, proxyFailed)
        assert.deepStrictEqual(yield* leftovers(RunId.RunId.make(error.runId ?? "")), [])
      }).pipe(
        Effect.provide(
          runner({
            program: hello,
            proxy: LlmProxyFaults.layer(LlmProxy.layerMemory(), [
              LlmProxyFaults.failNth("LlmProxy.acquire", 1, proxyFailed)
            ])
          })
        )
      )
    )
  })
})
