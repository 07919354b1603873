import { assert, describe, it } from "@effect/vitest"
import {
  ContainerRuntime,
  LlmProxy,
  MemoryContainerRuntime,
  RunStore,
  SandboxRunner,
  Workspace
} from "@cogni/sandbox-core"
import type * as Posture from "@cogni/sandbox-core/Posture"
import * as Await from "../../../test/harness/Await.ts"
import {
  ContainerRuntimeFaults,
  LlmProxyFaults,
  RunStoreFaults,
  WorkspaceFaults
} from "../../../test/harness/faults/Fault.ts"
import { Effect, Exit, Fiber, Layer, Redacted } from "effect"
import { TestClock } from "effect/testing"
import { forever, hello, leftovers, llm, record, run, runId, runner, settle, spec } from "./Specs.ts"

/** The runtime in memory, with another posture from `start`. */
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

/** A program that records whether it ran. */
const witness = () => {
  let ran = false
  const program: MemoryContainerRuntime.Program = () =>
    Effect.sync(() => {
      ran = true
      return 0
    })
  return { program, ran: () => ran }
}

describe("SandboxRunner", () => {
  describe("run", () => {
    it.effect("returns the agent's output and exit code, the posture and the duration", () =>
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

    it.effect("generates an ID if none is given, and acquires no proxy without a model", () =>
      Effect.gen(function* () {
        const result = yield* run({ image: "agent", argv: ["agent"] })
        assert.match(result.runId, /^run-[0-9a-z]{12}$/u)
        assert.isUndefined(result.llm)
      }).pipe(Effect.provide(runner({ proxy: LlmProxy.layerNoop, program: hello })))
    )

    it.effect("creates the container from the spec, the workspace and the proxy", () =>
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
        assert.strictEqual(seen?.env["COGNI_GATEWAY_SOCK"], "/llm-sock/llm.sock")
        assert.strictEqual(seen?.env["RUN_ID"], seen?.runId)
        assert.notInclude(JSON.stringify(seen), "account-1", "the payer is the host's business")
      })
    )

    it.effect("gives a sandbox the token of its run in place of a key, if its proxy signed one", () =>
      Effect.gen(function* () {
        let seen: ContainerRuntime.ContainerSpec | undefined
        const signing = Effect.map(LlmProxy.makeMemory(), (proxy) =>
          LlmProxy.LlmProxy.of({
            ...proxy,
            acquire: (request) =>
              Effect.map(proxy.acquire(request), (endpoint) => ({
                ...endpoint,
                token: Redacted.make(`token-of-${request.runId}`)
              }))
          })
        )
        yield* run({ ...spec, llm, env: { OPENAI_API_KEY: "mine" } }).pipe(
          Effect.provide(
            runner({
              proxy: Layer.effect(LlmProxy.LlmProxy, signing),
              program: ({ spec }) =>
                Effect.sync(() => {
                  seen = spec
                  return 0
                })
            })
          )
        )
        assert.strictEqual(seen?.env["OPENAI_API_KEY"], `token-of-${seen?.runId}`)
        assert.strictEqual(seen?.env["ANTHROPIC_API_KEY"], `token-of-${seen?.runId}`)
      })
    )

    it.effect("acquires independent resources concurrently", () =>
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

    it.effect("refuses an ID that was used before", () =>
      Effect.gen(function* () {
        yield* run()
        const error = yield* Effect.flip(run())
        assert.strictEqual(error.reason._tag, "RunIdInUse")
        assert.strictEqual(error.runId, runId)
        assert.strictEqual((yield* record())?.outcome.status, "exited", "the first run's record stays")
      }).pipe(Effect.provide(runner({ program: hello })))
    )

    it.effect("fails with ImageNotFound for a missing image, and leaves nothing behind", () =>
      Effect.gen(function* () {
        const error = yield* Effect.flip(run())
        assert.strictEqual(error.reason._tag, "ImageNotFound")
        assert.deepStrictEqual(yield* leftovers(), [])
      }).pipe(Effect.provide(runner({ runtime: MemoryContainerRuntime.layer({ images: new Set() }) })))
    )

    it.effect("refuses a directory that does not exist", () =>
      Effect.gen(function* () {
        const error = yield* Effect.flip(run({ ...spec, workspace: { type: "directory", path: "/missing" } }))
        assert.strictEqual(error.reason._tag, "WorkspaceFailed")
        assert.include(error.message, "/missing")
      }).pipe(Effect.provide(runner({ workspace: Workspace.layerMemory({ directories: new Set() }) })))
    )

    it.effect("returns the exit code of a program that kills itself as a value", () =>
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

    it.effect("records the verified posture", () =>
      Effect.gen(function* () {
        yield* run()
        assert.strictEqual((yield* record())?.posture?.seccompMode, 2)
      }).pipe(Effect.provide(runner({ program: hello })))
    )
  })

  describe("interruption", () => {
    const points = [0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144]
    it.effect.each(points)("leaves nothing behind after %s turns, and is recorded", (turns) =>
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
    it.effect("contain the result of a run that ended by itself", () =>
      Effect.gen(function* () {
        const result = yield* run()
        const kept = yield* record()
        assert.deepStrictEqual(kept?.outcome, { status: "exited", result })
        assert.strictEqual(kept?.startedAt, "1970-01-01T00:00:00.000Z")
        assert.isDefined(kept?.endedAt)
        assert.deepStrictEqual(kept?.timings, result.timings)
      }).pipe(Effect.provide(runner({ program: hello })))
    )

    it.effect("contain reason, code, output and peak of a run that broke a limit", () =>
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

    it.effect("change nothing else if they cannot be written, or hang", () =>
      Effect.gen(function* () {
        for (const store of [
          RunStoreFaults.layer(RunStore.layerMemory, [RunStoreFaults.hang("RunStore.save", 1)]),
          Layer.effect(
            RunStore.RunStore,
            Effect.map(RunStore.RunStore, (inner) => ({
              ...inner,
              open: (id, spec) =>
                Effect.map(inner.open(id, spec), (open) => ({
                  ...open,
                  save: () => Effect.die(new Error("disk full"))
                }))
            }))
          ).pipe(Layer.provide(RunStore.layerMemory))
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

  describe("runOnce", () => {
    const runOnce = (input = spec) => SandboxRunner.SandboxRunner.use((runner) => runner.runOnce(input))

    it.effect("returns a run that succeeded", () =>
      Effect.gen(function* () {
        assert.deepStrictEqual(yield* runOnce(), { ok: true, stdout: "hello\n", stderr: "", exitCode: 0 })
      }).pipe(Effect.provide(runner({ program: hello })))
    )

    it.effect("returns an agent that failed", () =>
      Effect.gen(function* () {
        assert.deepStrictEqual(yield* runOnce(), {
          ok: false,
          stdout: "",
          stderr: "no\n",
          exitCode: 2,
          message: "the agent ended with exit code 2. Read its output"
        })
      }).pipe(Effect.provide(runner({ program: ({ stderr }) => Effect.as(stderr("no\n"), 2) })))
    )

    it.effect("returns a broken limit with the partial result", () =>
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

    it.effect("returns a fault, and an invalid spec", () =>
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
})
