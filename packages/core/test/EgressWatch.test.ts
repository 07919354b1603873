/** Canaries and spent budgets in a run's egress, and their effect on the run. */
import { assert, describe, it } from "@effect/vitest"
import {
  LlmProxy,
  type MemoryContainerRuntime,
  type RunEvent,
  RunStore,
  type SandboxError,
  SandboxRunner,
  type SandboxSpec,
  Workspace
} from "@cogni/sandbox-core"
import type * as LlmObservation from "@cogni/sandbox-core/LlmObservation"
import type * as SandboxReason from "@cogni/sandbox-core/SandboxReason"
import type * as RunFigures from "@cogni/sandbox-core/RunFigures"
import * as RunJournal from "@cogni/sandbox-core/RunJournal"
import { Effect, Exit, Fiber, Layer, Ref, Stream } from "effect"
import { TestClock } from "effect/testing"
import { leftovers, llm, record, run, runner, settle, spec } from "./Specs.ts"

const at = "1970-01-01T00:00:00.000Z"

/** Records the requests to the workspaces and proxies of a test. */
const witness = () => {
  const workspaces: Array<Workspace.WorkspaceRequest> = []
  const proxies: Array<LlmProxy.LlmRequest> = []
  const contentOf = (name: string) =>
    workspaces.at(-1)?.planted[0]?.files.find((file) => file.name === name)?.content ?? ""
  return {
    workspaces,
    proxies,
    /** The planted `aws_secret_access_key` of the last run, as its agent can read it. */
    secret: () => /secret_access_key = (\w+)/u.exec(contentOf("credentials"))?.[1] ?? "not planted",
    credentials: () => contentOf("credentials"),
    workspace: Layer.effect(
      Workspace.Workspace,
      Effect.map(Workspace.makeMemory(), (inner) => ({
        acquire: (request) => {
          workspaces.push(request)
          return inner.acquire(request)
        }
      }))
    ),
    proxy: (options: {
      readonly observations?: ReadonlyArray<LlmObservation.LlmObservation>
      readonly capabilities?: Partial<LlmObservation.LlmProxyCapabilities>
      /** Observations that it reports only when it is finished. */
      readonly atTheEnd?: ReadonlyArray<LlmObservation.LlmObservation>
    }) =>
      Layer.effect(
        LlmProxy.LlmProxy,
        Effect.map(LlmProxy.makeMemory({ observations: options.observations }), (inner) => ({
          capabilities: { ...inner.capabilities, ...options.capabilities },
          acquire: (request) => {
            proxies.push(request)
            return Effect.map(inner.acquire(request), (endpoint) => ({
              ...endpoint,
              finish: Effect.andThen(
                Effect.forEach(options.atTheEnd ?? [], request.observe, { discard: true }),
                endpoint.finish
              )
            }))
          }
        }))
      )
  }
}

type Observed = Parameters<ReturnType<typeof witness>["proxy"]>[0]

/** A runner whose agent knows what was planted. */
const planting = (
  program: (secret: string, io: MemoryContainerRuntime.ProgramIo) => Effect.Effect<number>,
  observed: Observed = {}
) => {
  const seen = witness()
  return {
    seen,
    layer: runner({
      program: (io) => Effect.suspend(() => program(seen.secret(), io)),
      workspace: seen.workspace,
      proxy: seen.proxy(observed)
    })
  }
}

const exhaustion: RunFigures.Exhaustion = { budget: "calls", limit: 20, used: 20 }
const exhausted: Observed = { observations: [{ _tag: "BudgetExhausted", exhaustion }] }
const evidence: RunFigures.Evidence = {
  at,
  canary: "database_password",
  encoding: "base64",
  channel: "prompt",
  requestId: "8f14e45f-ceea-467f-9575-1d5f6c0e0c4a"
}
const suspected: Observed = { observations: [{ _tag: "ExfiltrationSuspected", evidence }] }

const within = (onExhausted: "refuse" | "stop"): SandboxSpec.SandboxSpecInput => ({
  ...spec,
  llm: { ...llm, budget: { callsMax: 20, onExhausted } }
})

const events = (input: SandboxSpec.SandboxSpecInput) =>
  Effect.gen(function* () {
    const seen = yield* Ref.make<ReadonlyArray<RunEvent.RunEvent>>([])
    const runs = yield* SandboxRunner.SandboxRunner
    const exit = yield* runs.stream(input).pipe(
      Stream.runForEach((event) => Ref.update(seen, (all) => [...all, event])),
      Effect.exit
    )
    return { exit, seen: yield* Ref.get(seen) }
  })

const flippedReason = (input: SandboxSpec.SandboxSpecInput) =>
  Effect.map(Effect.flip(run(input)), ({ reason }) => reason)

const inLetters = (secret: string) => [...secret].map((letter) => `${letter}\n`)

describe("canaries", () => {
  it.effect("off: plants nothing, and scans nothing", () => {
    const { layer, seen } = planting((_, { stdout }) => Effect.as(stdout("AKIA"), 0))
    return Effect.gen(function* () {
      const result = yield* run({ ...spec, llm })
      assert.deepStrictEqual(result.suspicions, [])
      assert.deepStrictEqual([seen.workspaces[0]?.planted, seen.workspaces[0]?.inputs], [[], []])
      assert.deepStrictEqual(seen.proxies[0]?.canaries, { policy: "off", planted: [] })
    }).pipe(Effect.provide(layer))
  })

  it.effect("are planted beside the run's own inputs and in its home, and known to the proxy", () => {
    const { layer, seen } = planting(() => Effect.succeed(0))
    return Effect.gen(function* () {
      const inputs = [{ name: "prompt.txt", content: "hello" }]
      yield* run({ ...spec, llm, inputs, canaries: "warn" })
      const [workspace] = seen.workspaces
      assert.deepStrictEqual(
        workspace?.inputs.map(({ name }) => name),
        ["prompt.txt", ".env"]
      )
      assert.deepStrictEqual(
        workspace?.planted.map(({ target }) => target),
        ["/home/agent/.aws"]
      )
      const { planted, policy } = seen.proxies[0]!.canaries
      assert.strictEqual(policy, "warn")
      const files = JSON.stringify(workspace)
      for (const { secret } of planted) assert.include(files, secret)
      const kept = JSON.stringify(yield* record())
      for (const { secret } of planted) assert.notInclude(kept, secret, "the record gives none away")
    }).pipe(Effect.provide(layer))
  })

  it.effect("are different in every run", () => {
    const { layer, seen } = planting(() => Effect.succeed(0))
    return Effect.gen(function* () {
      const { runId: _runId, ...unnamed } = spec
      for (let turn = 0; turn < 3; turn++) yield* run({ ...unnamed, llm, canaries: "stop" })
      const secrets = seen.proxies.flatMap(({ canaries }) => canaries.planted.map(({ secret }) => secret))
      assert.strictEqual(new Set(secrets).size, 9)
    }).pipe(Effect.provide(layer))
  })

  const channels = ["stdout", "stderr"] as const
  const leak =
    (channel: (typeof channels)[number], exitCode = 0) =>
    (secret: string, io: MemoryContainerRuntime.ProgramIo) =>
      io
        .stdout("before\n")
        .pipe(
          Effect.andThen(Effect.forEach(inLetters(secret), io[channel], { discard: true })),
          Effect.andThen(io.stdout("after\n")),
          Effect.as(exitCode)
        )

  it.effect.each(channels)("warn: reports one on %s at once, in the result, and in the record", (channel) => {
    const { layer } = planting(leak(channel))
    const found = [{ at, canary: "aws_secret_access_key", encoding: "spread", channel }]
    return Effect.gen(function* () {
      const { exit, seen } = yield* events({ ...spec, canaries: "warn" })
      assert.isTrue(Exit.isSuccess(exit))
      const last = seen.at(-1)
      if (last?._tag !== "RunEnded") return assert.fail(last?._tag)
      assert.deepStrictEqual(last.result.suspicions, found)
      assert.strictEqual(last.result.exitCode, 0)
      assert.include(last.result.output.stdout.text, "after\n", "the agent went on")
      assert.deepStrictEqual(
        seen.flatMap((event) => (event._tag === "ExfiltrationSuspected" ? [event.evidence] : [])),
        found
      )
      const kept = yield* record()
      assert.deepStrictEqual(kept?.suspicions, found)
      assert.deepStrictEqual(
        kept?.outcome.status === "exited" ? kept.outcome.result.suspicions : undefined,
        found
      )
    }).pipe(Effect.provide(layer))
  })

  const stops = (
    reason: SandboxError.Reason,
    expected: Partial<RunFigures.Evidence>
  ): reason is SandboxReason.ExfiltrationSuspected => {
    assert.strictEqual(reason._tag, "ExfiltrationSuspected", reason.message)
    if (reason._tag !== "ExfiltrationSuspected") return false
    assert.deepInclude(reason.evidence, expected)
    return true
  }

  it.effect.each(channels)("stop: ends the agent for one on %s, and leaves nothing behind", (channel) => {
    const { layer, seen } = planting((secret, io) =>
      io[channel](secret).pipe(Effect.andThen(io.terminated), Effect.as(143))
    )
    return Effect.gen(function* () {
      const error = yield* Effect.flip(run({ ...spec, canaries: "stop" }))
      if (!stops(error.reason, { canary: "aws_secret_access_key", encoding: "plain", channel })) return
      assert.strictEqual(error.partial?.output[channel].text, seen.secret(), "what it had said is kept")
      assert.strictEqual(error.partial?.exitCode, 143)
      assert.notInclude(`${error.message} ${String(error)}`, seen.secret())
      assert.deepStrictEqual(yield* leftovers(), [])
      const kept = yield* record()
      if (kept?.outcome.status !== "failed") return assert.fail(kept?.outcome.status)
      assert.strictEqual(kept.outcome.reason, "ExfiltrationSuspected")
      assert.deepStrictEqual(kept.suspicions, [error.reason.evidence])
    }).pipe(Effect.provide(layer))
  })

  it.effect("stop: fails a run whose agent leaks in its last output and exits with 0", () => {
    const { layer } = planting((secret, { stdout }) => Effect.as(stdout(secret), 0))
    return Effect.gen(function* () {
      stops(yield* flippedReason({ ...spec, canaries: "stop" }), { channel: "stdout" })
    }).pipe(Effect.provide(layer))
  })

  it.effect("stop: detects one in output that exceeds the limit", () => {
    const { layer } = planting((secret, { stdout }) =>
      Effect.andThen(stdout(`${"x".repeat(2000)} ${secret}`), Effect.never)
    )
    return Effect.gen(function* () {
      const fiber = yield* Effect.forkChild(
        Effect.exit(run({ ...spec, canaries: "stop", limits: { outputBytesMax: 1000 } }))
      )
      yield* settle
      yield* TestClock.adjust("1 minute")
      assert.isTrue(Exit.isFailure(yield* Fiber.join(fiber)))
      assert.lengthOf((yield* record())?.suspicions ?? [], 1)
    }).pipe(Effect.provide(layer))
  })

  it.effect("stop: does not wait for the reader of events", () => {
    let asked = false
    const { layer, seen } = planting((_, io) =>
      Effect.gen(function* () {
        yield* Effect.forkChild(Effect.forever(io.stdout("x")))
        yield* Effect.sleep("1 second")
        yield* Effect.forkChild(seen.proxies[0]!.observe({ _tag: "ExfiltrationSuspected", evidence }))
        yield* io.terminated
        asked = true
        return 143
      })
    )
    return Effect.gen(function* () {
      const runs = yield* SandboxRunner.SandboxRunner
      const fiber = yield* runs.stream({ ...spec, llm, canaries: "stop" }).pipe(
        // Takes one event only: all others wait behind it.
        Stream.runForEach(() => Effect.never),
        Effect.forkChild
      )
      yield* settle
      yield* TestClock.adjust("2 seconds")
      assert.isTrue(asked)
      yield* Fiber.interrupt(fiber)
      assert.deepStrictEqual(yield* leftovers(), [])
    }).pipe(Effect.provide(layer))
  })

  it.effect("observed by the proxy, warn: are reported and recorded, and the run continues", () => {
    const { layer } = planting(() => Effect.succeed(0), suspected)
    return Effect.gen(function* () {
      const { seen } = yield* events({ ...spec, llm, canaries: "warn" })
      assert.deepStrictEqual(
        seen.filter(({ _tag }) => _tag === "ExfiltrationSuspected"),
        [{ _tag: "ExfiltrationSuspected", evidence }]
      )
      assert.strictEqual(seen.at(-1)?._tag, "RunEnded")
      assert.deepStrictEqual((yield* record())?.suspicions, [evidence])
    }).pipe(Effect.provide(layer))
  })

  it.effect("observed by the proxy, stop: end the agent", () => {
    const { layer } = planting(
      (_, io) => io.stdout("so far").pipe(Effect.andThen(io.terminated), Effect.as(143)),
      suspected
    )
    return Effect.gen(function* () {
      const error = yield* Effect.flip(run({ ...spec, llm, canaries: "stop" }))
      assert.isTrue(stops(error.reason, evidence))
      assert.strictEqual(error.llm?.proxy, "memory", "its calls are reported as well")
      assert.deepStrictEqual((yield* record())?.suspicions, [evidence])
      assert.deepStrictEqual(yield* leftovers(), [])
    }).pipe(Effect.provide(layer))
  })

  it.effect(
    "observed after the agent exited with 0: are reported under warn, and a failure under stop",
    () => {
      const { layer } = planting((_, { stdout }) => Effect.as(stdout("done"), 0), {
        atTheEnd: [{ _tag: "ExfiltrationSuspected", evidence }]
      })
      return Effect.gen(function* () {
        const { runId: _runId, ...unnamed } = spec
        const warned = yield* run({ ...unnamed, llm, canaries: "warn" })
        assert.deepStrictEqual(warned.suspicions, [evidence])
        const error = yield* Effect.flip(run({ ...spec, llm, canaries: "stop" }))
        assert.isTrue(stops(error.reason, evidence))
        assert.strictEqual(error.partial?.output.stdout.text, "done")
        assert.strictEqual(error.partial?.exitCode, 0)
        assert.isDefined(error.llm)
        assert.deepStrictEqual((yield* record())?.suspicions, [evidence])
      }).pipe(Effect.provide(layer))
    }
  )

  it.effect("are reported once of each kind, and cannot fill the record", () => {
    const observations = Array.from({ length: 500 }, (_, index) => ({
      _tag: "ExfiltrationSuspected" as const,
      evidence: { ...evidence, encoding: `kind-${index % 250}`, requestId: `request-${index}` }
    }))
    const { layer } = planting(() => Effect.succeed(0), { observations })
    return Effect.gen(function* () {
      const { suspicions } = yield* run({ ...spec, llm, canaries: "warn" })
      assert.lengthOf(suspicions, 100)
      assert.strictEqual(new Set(suspicions.map(({ encoding }) => encoding)).size, 100)
      assert.deepStrictEqual((yield* record())?.suspicions, suspicions)
    }).pipe(Effect.provide(layer))
  })

  it.effect("are reported once for each canary, encoding and channel", () => {
    const channel = (channel: RunFigures.Evidence["channel"], requestId: string) => ({
      _tag: "ExfiltrationSuspected" as const,
      evidence: { ...evidence, channel, requestId }
    })
    const { layer } = planting(() => Effect.succeed(0), {
      observations: [channel("prompt", "1"), channel("tool_call", "2"), channel("prompt", "3")]
    })
    return Effect.gen(function* () {
      const { suspicions } = yield* run({ ...spec, llm, canaries: "warn" })
      assert.deepStrictEqual(
        suspicions.map(({ channel, requestId }) => `${channel} ${requestId}`),
        ["prompt 1", "tool_call 2"]
      )
    }).pipe(Effect.provide(layer))
  })
})

describe("budgets", () => {
  it.effect("spent, and the agent fails: BudgetExceeded, with its output", () => {
    const { layer } = planting((_, { stdout }) => Effect.as(stdout("I cannot go on\n"), 1), exhausted)
    return Effect.gen(function* () {
      const error = yield* Effect.flip(run(within("refuse")))
      if (error.reason._tag !== "BudgetExceeded") return assert.fail(error.message)
      assert.deepInclude(error.reason, exhaustion)
      assert.strictEqual(error.partial?.output.stdout.text, "I cannot go on\n")
      assert.strictEqual(error.partial?.exitCode, 1)
      assert.include(error.message, "budget of 20 calls is spent (20 used)")
      assert.strictEqual(error.llm?.proxy, "memory")
      assert.deepStrictEqual(yield* leftovers(), [])
      const kept = yield* record()
      assert.strictEqual(kept?.outcome.status === "failed" && kept.outcome.reason, "BudgetExceeded")
    }).pipe(Effect.provide(layer))
  })

  it.effect("spent, and the agent succeeds: its result, and one observation", () => {
    const { layer } = planting(() => Effect.succeed(0), {
      observations: [
        { _tag: "BudgetExhausted", exhaustion },
        { _tag: "BudgetExhausted", exhaustion: { ...exhaustion, budget: "bytes" } }
      ]
    })
    return Effect.gen(function* () {
      const { exit, seen } = yield* events(within("refuse"))
      assert.isTrue(Exit.isSuccess(exit))
      assert.deepStrictEqual(
        seen.filter(({ _tag }) => _tag === "BudgetExhausted"),
        [{ _tag: "BudgetExhausted", exhaustion }]
      )
      assert.strictEqual((yield* record())?.outcome.status, "exited")
    }).pipe(Effect.provide(layer))
  })

  it.effect("a spent share of subagents is in the journal once, and the run goes on", () => {
    const share = { _tag: "SubagentShareSpent", exhaustion } as const
    const { layer } = planting(() => Effect.succeed(0), { observations: [share, share] })
    return Effect.gen(function* () {
      const { runId } = yield* run(within("stop"))
      const page = yield* Effect.flatMap(RunJournal.RunJournal, (journal) => journal.read({ runId }))
      const spent = page?.entries.filter(({ type }) => type.endsWith("exhausted")) ?? []
      assert.lengthOf(spent, 1)
      assert.deepInclude(spent[0], { at, type: "subagents.exhausted", exhaustion })
    }).pipe(Effect.provide(Layer.provideMerge(layer, RunJournal.layerMemory)))
  })

  it.effect("onExhausted stop ends an agent that would continue", () => {
    const { layer } = planting(
      (_, io) => io.stdout("working").pipe(Effect.andThen(io.terminated), Effect.as(0)),
      exhausted
    )
    return Effect.gen(function* () {
      const error = yield* Effect.flip(run(within("stop")))
      assert.strictEqual(error.reason._tag, "BudgetExceeded", error.message)
      assert.strictEqual(error.partial?.exitCode, 0, "it was asked, and ended")
      assert.deepStrictEqual(yield* leftovers(), [])
    }).pipe(Effect.provide(layer))
  })

  it.effect("kill an agent that ignores SIGTERM after its grace", () => {
    const { layer } = planting(() => Effect.never, exhausted)
    return Effect.gen(function* () {
      const fiber = yield* Effect.forkChild(
        flippedReason({ ...within("stop"), limits: { stopGraceSecondsMax: 5 } })
      )
      yield* settle
      yield* TestClock.adjust("4 seconds")
      assert.isUndefined(fiber.pollUnsafe())
      yield* TestClock.adjust("1 second")
      assert.strictEqual((yield* Fiber.join(fiber))._tag, "BudgetExceeded")
    }).pipe(Effect.provide(layer))
  })

  it.effect("a limit of the kernel takes precedence over a budget and a canary", () => {
    const killed = { exitCode: 137, oomKilled: true, processesRefused: false, peak: {} }
    const seen = witness()
    return Effect.gen(function* () {
      for (const input of [
        within("refuse"),
        within("stop"),
        { ...within("refuse"), canaries: "stop" as const }
      ]) {
        const { runId: _runId, ...unnamed } = input
        assert.strictEqual((yield* flippedReason(unnamed))._tag, "OomKilled")
      }
    }).pipe(
      Effect.provide(
        runner({
          program: ({ stdout }) => Effect.suspend(() => Effect.as(stdout(seen.credentials()), killed)),
          workspace: seen.workspace,
          proxy: seen.proxy(exhausted)
        })
      )
    )
  })

  it.effect("found spent by the last call of an agent that fails: BudgetExceeded as well", () => {
    const { layer } = planting(() => Effect.succeed(1), { atTheEnd: exhausted.observations ?? [] })
    return Effect.gen(function* () {
      assert.strictEqual((yield* flippedReason(within("refuse")))._tag, "BudgetExceeded")
    }).pipe(Effect.provide(layer))
  })

  it.effect("not spent: the agent's exit code is the result", () => {
    const { layer } = planting(() => Effect.succeed(3))
    return Effect.gen(function* () {
      assert.strictEqual((yield* run(within("stop"))).exitCode, 3)
    }).pipe(Effect.provide(layer))
  })
})

describe("an open sandbox", () => {
  const { argv: _argv, ...openSpec } = spec
  const open = (over: Omit<Partial<SandboxSpec.SandboxSpecInput>, "argv">) =>
    SandboxRunner.SandboxRunner.use((runner) => runner.open({ ...openSpec, ...over }))

  const commands = (secret: string, io: MemoryContainerRuntime.ProgramIo): Effect.Effect<number> => {
    switch (io.argv[0]) {
      case "sleep":
        return Effect.as(io.terminated, 143)
      case "leak":
        return Effect.as(io.stdout(secret), 0)
      case "hang":
        return Effect.andThen(io.stdout("hanging"), Effect.never)
      case "half":
        return Effect.as(io.stdout(io.argv[1] === "1" ? secret.slice(0, 20) : secret.slice(20)), 0)
      default:
        return Effect.as(io.stdout("ok"), 0)
    }
  }

  it.effect("warn: records a canary that a command writes", () => {
    const { layer } = planting(commands)
    return Effect.gen(function* () {
      yield* Effect.scoped(
        Effect.gen(function* () {
          const sandbox = yield* open({ canaries: "warn" })
          assert.strictEqual((yield* sandbox.exec(["leak"])).exitCode, 0)
          assert.strictEqual((yield* sandbox.exec(["leak"])).exitCode, 0)
        })
      )
      const kept = yield* record()
      assert.deepStrictEqual(kept?.outcome, { status: "closed" })
      assert.deepStrictEqual(
        kept?.suspicions?.map(({ canary, channel }) => `${canary} ${channel}`),
        ["aws_secret_access_key stdout"]
      )
    }).pipe(Effect.provide(layer))
  })

  it.effect("detects a secret that two commands write in halves", () => {
    const { layer } = planting(commands)
    return Effect.gen(function* () {
      yield* Effect.scoped(
        Effect.gen(function* () {
          const sandbox = yield* open({ canaries: "warn" })
          yield* sandbox.exec(["half", "1"])
          yield* sandbox.exec(["half", "2"])
        })
      )
      assert.lengthOf((yield* record())?.suspicions ?? [], 1)
    }).pipe(Effect.provide(layer))
  })

  it.effect("stop: fails the command that wrote it, and every later one", () => {
    const { layer, seen } = planting(commands)
    return Effect.gen(function* () {
      yield* Effect.scoped(
        Effect.gen(function* () {
          const sandbox = yield* open({ canaries: "stop" })
          assert.strictEqual((yield* sandbox.exec(["echo"])).output.stdout.text, "ok")
          const error = yield* Effect.flip(sandbox.exec(["leak"]))
          assert.strictEqual(error.reason._tag, "ExfiltrationSuspected")
          assert.strictEqual(error.partial?.output.stdout.text, seen.secret())
          const { reason } = yield* Effect.flip(sandbox.exec(["echo"]))
          assert.strictEqual(reason._tag, "ExfiltrationSuspected")
        })
      )
      assert.deepStrictEqual(yield* leftovers(), [])
      assert.lengthOf((yield* record())?.suspicions ?? [], 1)
    }).pipe(Effect.provide(layer))
  })

  it.effect("stop: fails a command that ends before the sandbox can be stopped", () => {
    const seen = witness()
    const busy = Layer.effect(
      Workspace.Workspace,
      Effect.map(Workspace.Workspace, (inner) => ({
        acquire: (request) =>
          Effect.map(inner.acquire(request), (acquired) => ({
            ...acquired,
            // A running measurement cannot be abandoned.
            countedBytes: Effect.sleep("10 seconds").pipe(
              Effect.as({ bytes: 0, isCertain: true }),
              Effect.uninterruptible
            )
          }))
      }))
    ).pipe(Layer.provide(seen.workspace))
    return Effect.gen(function* () {
      const fiber = yield* open({ canaries: "stop" }).pipe(
        Effect.flatMap((sandbox) => Effect.flip(sandbox.exec(["leak"]))),
        Effect.scoped,
        Effect.forkChild
      )
      yield* settle
      yield* TestClock.adjust("1 minute")
      assert.strictEqual((yield* Fiber.join(fiber)).reason._tag, "ExfiltrationSuspected")
    }).pipe(
      Effect.provide(
        runner({
          program: (io) => Effect.suspend(() => commands(seen.secret(), io)),
          workspace: busy,
          proxy: seen.proxy({})
        })
      )
    )
  })

  it.effect("observed by the proxy, stop: ends the running command", () => {
    const { layer, seen } = planting(commands)
    return Effect.gen(function* () {
      const sandbox = yield* open({ llm, canaries: "stop" })
      const fiber = yield* Effect.forkChild(Effect.flip(sandbox.exec(["hang"])))
      yield* settle
      assert.isUndefined(fiber.pollUnsafe())
      yield* seen.proxies[0]!.observe({ _tag: "ExfiltrationSuspected", evidence })
      yield* settle
      const error = yield* Fiber.join(fiber)
      assert.strictEqual(error.reason._tag, "ExfiltrationSuspected")
      assert.strictEqual(error.partial?.output.stdout.text, "hanging")
    }).pipe(Effect.scoped, Effect.provide(layer))
  })

  it.effect("observed by the proxy, stop: runs no further command", () => {
    const { layer } = planting(commands, suspected)
    return Effect.gen(function* () {
      const sandbox = yield* open({ llm, canaries: "stop" })
      assert.strictEqual((yield* Effect.flip(sandbox.exec(["echo"]))).reason._tag, "ExfiltrationSuspected")
    }).pipe(Effect.scoped, Effect.provide(layer))
  })

  it.effect("ends for a spent budget with stop, and continues with refuse", () => {
    const { layer } = planting(commands, exhausted)
    const inOne = (onExhausted: "refuse" | "stop", id: string) =>
      Effect.scoped(
        Effect.gen(function* () {
          const sandbox = yield* open({ llm: within(onExhausted).llm!, runId: id })
          return yield* Effect.exit(sandbox.exec(["echo"]))
        })
      )
    return Effect.gen(function* () {
      assert.isTrue(Exit.isSuccess(yield* inOne("refuse", "run-refuse000001")))
      const exit = yield* inOne("stop", "run-stop00000001")
      assert.strictEqual((yield* Effect.flip(exit)).reason._tag, "BudgetExceeded")
    }).pipe(Effect.provide(layer))
  })
})

describe("requirements of a proxy", () => {
  const blind = { name: "blind", inspectsBodies: false }
  const metrics = "core__metrics_query"
  const rows: ReadonlyArray<
    readonly [
      what: string,
      input: Partial<SandboxSpec.SandboxSpecInput>,
      capabilities: Partial<LlmObservation.LlmProxyCapabilities>,
      problems: ReadonlyArray<string>
    ]
  > = [
    [
      "a budget",
      { llm: { ...llm, budget: {} } },
      blind,
      ["llm.budget: the proxy blind does not read bodies. Use the gateway"]
    ],
    ["further models", { llm: { ...llm, models: { fast: "m2" } } }, blind, ["llm.models: "]],
    ["strict fields", { llm: { ...llm, unknownFields: "refuse" } }, blind, ["llm.unknownFields: "]],
    ["canaries", { llm, canaries: "warn" }, blind, ["canaries: "]],
    [
      "all of them at once",
      { llm: { ...llm, budget: {}, models: { fast: "m2" } }, canaries: "stop", tools: [metrics] },
      blind,
      [
        `tools: the proxy has no ${metrics} (it has no tool at all)`,
        "llm.budget: ",
        "llm.models: ",
        "canaries: "
      ]
    ],
    [
      "a tool it does not have",
      { llm, tools: ["core__get_current_time", metrics] },
      { tools: ["core__get_current_time"] },
      [`tools: the proxy has no ${metrics} (it has core__get_current_time)`]
    ],
    [
      "tools without a model",
      { tools: ["core__get_current_time"] },
      { tools: ["core__get_current_time"] },
      ["tools: a run without a model has none, "]
    ]
  ]

  it.effect.each(rows)("refuses %s before anything is created", ([, input, capabilities, problems]) => {
    const { layer, seen } = planting(() => Effect.die("must not run"), { capabilities })
    return Effect.gen(function* () {
      const refused = yield* Effect.flip(run({ ...spec, ...input }))
      if (refused.reason._tag !== "InvalidSpec") return assert.fail(refused.message)
      assert.lengthOf(refused.reason.problems, problems.length, refused.message)
      for (const [index, problem] of problems.entries())
        assert.isTrue(refused.reason.problems[index]?.startsWith(problem), refused.reason.problems[index])
      assert.strictEqual(refused.code, "invalid_request")
      const { argv: _argv, ...openSpec } = spec
      const runs = yield* SandboxRunner.SandboxRunner
      const { reason } = yield* Effect.flip(Effect.scoped(runs.open({ ...openSpec, ...input })))
      assert.strictEqual(reason._tag, "InvalidSpec")
      assert.deepStrictEqual(yield* Effect.flip(runs.check({ ...spec, ...input })), refused.reason)
      assert.deepStrictEqual([seen.workspaces, seen.proxies], [[], []])
      assert.deepStrictEqual(yield* leftovers(), [])
      assert.isUndefined(yield* record())
      assert.deepStrictEqual(yield* RunStore.RunStore.use((store) => store.list), [])
    }).pipe(Effect.provide(layer))
  })

  it.effect("passes requirements to a proxy that can meet them", () => {
    const { layer, seen } = planting(() => Effect.succeed(0), { capabilities: { tools: [metrics] } })
    return Effect.gen(function* () {
      yield* run({ ...spec, llm: { ...llm, budget: {}, models: { fast: "m2" } }, tools: [metrics] })
      assert.deepStrictEqual(seen.proxies[0]?.tools, [metrics])
      assert.deepStrictEqual(seen.proxies[0]?.llm?.models, { fast: "m2" })
      assert.deepStrictEqual(seen.proxies[0]?.llm?.budget, { onExhausted: "refuse" })
    }).pipe(Effect.provide(layer))
  })

  it.effect("scans the output of a run without a model, whatever the proxy", () => {
    const { layer } = planting((secret, { stdout }) => Effect.as(stdout(secret), 0), { capabilities: blind })
    return Effect.gen(function* () {
      assert.lengthOf((yield* run({ ...spec, canaries: "warn" })).suspicions, 1)
    }).pipe(Effect.provide(layer))
  })
})
