/** The MCP server, between the protocol's own client and an in-memory sandbox. */
import { Client } from "@modelcontextprotocol/sdk/client/index.js"
import type { Transport } from "@modelcontextprotocol/sdk/shared/transport.js"
import type { JSONRPCMessage } from "@modelcontextprotocol/sdk/types.js"
import * as Cli from "../src/Cli.ts"
import * as McpCommand from "../src/McpCommand.ts"
import * as Output from "../src/Output.ts"
import * as Settings from "../src/Settings.ts"
import type { Program } from "@cogni/sandbox-core/MemoryContainerRuntime"
import * as SandboxRunner from "@cogni/sandbox-core/SandboxRunner"
import * as CommandBehaviour from "../../loop/src/testing/CommandBehaviour.ts"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, describe, it } from "@effect/vitest"
import {
  type Cause,
  Context,
  Effect,
  Exit,
  Fiber,
  Layer,
  Queue,
  References,
  Result,
  Stdio,
  Stream
} from "effect"
import { TestClock } from "effect/testing"

const input: Omit<McpCommand.McpInput, "logFormat" | "metricsPort" | "pool" | "poolMemoryBytes"> = {
  profile: "coding",
  allow: [],
  deny: [],
  packages: [],
  canaries: "off",
  env: []
}

const plan: McpCommand.McpPlan = {
  spec: { image: "memory/mcp", limits: { runtimeSecondsMax: 3600 } },
  profile: "coding",
  allow: [],
  deny: [],
  hostDirectory: undefined,
  idleSeconds: undefined
}

/** Counts open sandboxes, and all that were ever opened. */
const counting = (program: Program, images?: ReadonlySet<string>) => {
  const count = { open: 0, opened: 0 }
  const layer = Layer.effect(
    SandboxRunner.SandboxRunner,
    Effect.map(SandboxRunner.SandboxRunner, (runner) =>
      SandboxRunner.SandboxRunner.of({
        ...runner,
        open: (spec) =>
          Effect.tap(runner.open(spec), () => {
            count.open++
            count.opened++
            return Effect.addFinalizer(() => Effect.sync(() => count.open--))
          })
      })
    )
  ).pipe(Layer.provide(SandboxRunner.layerMemory({ program, images })))
  return { count, layer }
}

/** Starts a server, and a client on its standard input and output. */
const world = Effect.fnUntraced(function* (
  over: Partial<McpCommand.McpPlan> = {},
  images?: ReadonlySet<string>
) {
  const { count, layer } = counting(CommandBehaviour.program, images)
  const stdin = yield* Queue.unbounded<Uint8Array, Cause.Done>()
  const said = Output.makeMemory()
  const lines: Array<string> = []
  const transport: Transport = {
    start: () => Promise.resolve(),
    send: (message: JSONRPCMessage) => {
      Queue.offerUnsafe(stdin, new TextEncoder().encode(`${JSON.stringify(message)}\n`))
      return Promise.resolve()
    },
    close: () => {
      transport.onclose?.()
      return Promise.resolve()
    }
  }
  const memory = Context.get(yield* Layer.build(said.layer), Output.Output)
  const output = Output.Output.of({
    ...memory,
    stdoutJson: (text) =>
      Effect.sync(() => {
        lines.push(text)
        transport.onmessage?.(JSON.parse(text))
      })
  })
  const serving = yield* McpCommand.serve({ ...plan, ...over }).pipe(
    Effect.provide(layer),
    Effect.provideService(Output.Output, output),
    Effect.provide(Stdio.layerTest({ stdin: Stream.fromQueue(stdin) })),
    Effect.provideService(References.MinimumLogLevel, "None"),
    Effect.forkChild({ startImmediately: true })
  )
  const client = new Client({ name: "test", version: "1" })
  yield* Effect.promise(() => client.connect(transport))
  const call = (name: string, given: Record<string, unknown>) =>
    Effect.map(
      Effect.promise(() => client.callTool({ name, arguments: given })),
      ({ content, isError, structuredContent }) => ({
        failed: isError === true,
        text: (content as [{ readonly text: string }])[0].text,
        result: structuredContent as Record<string, unknown> | undefined
      })
    )
  const shell = (behaviour: CommandBehaviour.Behaviour, more = {}) =>
    call("shell__exec", { command: CommandBehaviour.memory.line(behaviour), ...more })
  return { call, client, count, end: Queue.end(stdin), lines, said: said.said, serving, shell }
})

describe("plan", () => {
  const settings = Effect.map(
    Layer.build(
      Settings.layer({ COGNI_LLM_URL: "http://127.0.0.1:1", COGNI_LLM_KEY: "k", COGNI_LLM_MODEL: "m" })
    ),
    (context) => Context.get(context, Settings.Settings)
  ).pipe(Effect.provide(NodeServices.layer))

  it.effect("is a sandbox without a model, for 24 hours, in the configured image", () =>
    Effect.gen(function* () {
      const served = Result.getOrThrow(McpCommand.plan(input, yield* settings))
      assert.notProperty(served.spec, "llm")
      assert.notProperty(served.spec, "argv")
      assert.containSubset(served, {
        spec: { image: "cogni-sandbox/runtime:latest", limits: { runtimeSecondsMax: 86_400 } },
        profile: "coding"
      })
    })
  )

  it.effect("has the host path of --workspace, and an idle time only with --workspace", () =>
    Effect.gen(function* () {
      const given = { ...input, workspace: "/srv/p", timeoutSeconds: 60, memoryBytes: 64 * 1024 ** 2 }
      const served = Result.getOrThrow(McpCommand.plan(given, yield* settings))
      assert.containSubset(served, {
        hostDirectory: "/srv/p",
        idleSeconds: 900,
        spec: {
          workspace: { type: "directory", path: "/srv/p" },
          limits: { runtimeSecondsMax: 60, memoryBytesMax: 64 * 1024 ** 2 }
        }
      })
      const own = Result.getOrThrow(McpCommand.plan(input, yield* settings))
      assert.isUndefined(own.idleSeconds, "its files would be lost")
      const lost = McpCommand.plan({ ...input, idleSeconds: 60 }, yield* settings)
      assert.strictEqual(Result.isFailure(lost) ? lost.failure.exit : "", "usage")
    })
  )

  it.effect("is refused if it is invalid, with nothing on standard output", () =>
    Effect.gen(function* () {
      const bad = yield* McpCommand.serve({ ...plan, spec: { image: "" } }).pipe(
        Effect.provide(
          Layer.mergeAll(
            counting(CommandBehaviour.program).layer,
            Output.makeMemory().layer,
            Stdio.layerTest({ stdin: Stream.never })
          )
        ),
        Effect.exit
      )
      assert.match(JSON.stringify(bad), /InvalidSpec.*image/u)
      for (const [argv, word] of [
        [["--profile", "all"], /profile/u],
        [["--idle", "5m"], /--workspace/u],
        [["--timeout", "soon"], /duration/u],
        [["extra"], /./u]
      ] as const) {
        const memory = Output.makeMemory()
        const code = yield* Cli.main({
          argv: ["mcp", ...argv],
          environment: { COGNI_STATE_DIR: "/nonexistent" }
        }).pipe(Effect.provide(Layer.merge(NodeServices.layer, memory.layer)))
        assert.strictEqual(code, 64, argv.join(" "))
        assert.strictEqual(memory.said.stdout, "")
        assert.match(memory.said.stderr, word)
      }
    })
  )
})

describe("server", () => {
  it.live("lists the tools of its profile, and explains where they act", () =>
    Effect.gen(function* () {
      const coding = yield* world()
      const names = ({ tools }: Awaited<ReturnType<Client["listTools"]>>) =>
        tools.map(({ name }) => name).toSorted()
      assert.deepStrictEqual(names(yield* Effect.promise(() => coding.client.listTools())), [
        "core__get_current_time",
        "file__list",
        "file__read",
        "file__write",
        "process__list",
        "process__logs",
        "process__signal",
        "process__start",
        "process__wait",
        "shell__exec"
      ])
      assert.match(coding.client.getInstructions() ?? "", /empty at first/u)
      const minimal = yield* world({
        profile: "minimal",
        allow: ["shell.exec"],
        deny: ["file.list"],
        hostDirectory: "/srv/p"
      })
      assert.deepStrictEqual(names(yield* Effect.promise(() => minimal.client.listTools())), [
        "core__get_current_time",
        "file__read",
        "shell__exec"
      ])
      assert.match(minimal.client.getInstructions() ?? "", /\/srv\/p/u)
      assert.strictEqual(coding.count.opened + minimal.count.opened, 0, "a sandbox was opened without need")
    })
  )

  it.live("refuses an unknown tool before it answers", () =>
    Effect.gen(function* () {
      const exit = yield* McpCommand.serve({ ...plan, deny: ["shel.exec"] }).pipe(
        Effect.provide(
          Layer.mergeAll(
            counting(CommandBehaviour.program).layer,
            Output.makeMemory().layer,
            Stdio.layerTest({ stdin: Stream.never })
          )
        ),
        Effect.exit
      )
      assert.isTrue(Exit.isFailure(exit))
      assert.include(JSON.stringify(exit), "shel.exec")
    })
  )

  it.live("opens its sandbox once, on the first call, and closes it when the input ends", () =>
    Effect.gen(function* () {
      const { call, count, end, lines, said, serving, shell } = yield* world({ hostDirectory: "/srv/p" })
      const all = yield* Effect.all(
        Array.from({ length: 5 }, () => shell({ _tag: "SaysDirectory" }, { cwd: "/srv/p" })),
        { concurrency: "unbounded" }
      )
      for (const { result } of all) assert.containSubset(result, { stdout: "/workspace\n", cwd: "/srv/p" })
      assert.containSubset(
        (yield* call("process__start", { command: CommandBehaviour.memory.line({ _tag: "Sleeps" }) })).result,
        {
          process_id: "proc-1"
        }
      )
      assert.deepStrictEqual(count, { open: 1, opened: 1 })
      assert.match(said.stderr, /^· run-[0-9a-z]+: the sandbox is open\n$/u)
      yield* end
      yield* Fiber.join(serving)
      assert.deepStrictEqual(count, { open: 0, opened: 1 })
      for (const line of lines) assert.strictEqual((JSON.parse(line) as { jsonrpc: string }).jsonrpc, "2.0")
    })
  )

  it.live("ends the current call and the sandbox when it is interrupted", () =>
    Effect.gen(function* () {
      const { count, serving, shell } = yield* world()
      yield* shell({ _tag: "ExitsWith", exitCode: 0 })
      const waiting = yield* Effect.forkChild(Effect.exit(shell({ _tag: "Sleeps" })), {
        startImmediately: true
      })
      yield* Fiber.interrupt(serving)
      assert.strictEqual(count.open, 0)
      yield* Fiber.interrupt(waiting)
    })
  )

  it.effect("closes an idle sandbox without processes, and opens another on the next call", () =>
    Effect.gen(function* () {
      const { call, count, shell } = yield* world({ hostDirectory: "/srv/p", idleSeconds: 60 })
      yield* shell({ _tag: "ExitsWith", exitCode: 0 })
      yield* TestClock.adjust("59 seconds")
      assert.strictEqual(count.open, 1)
      yield* TestClock.adjust("2 seconds")
      assert.deepStrictEqual(count, { open: 0, opened: 1 })
      yield* call("process__start", { command: CommandBehaviour.memory.line({ _tag: "Sleeps" }) })
      yield* TestClock.adjust("10 minutes")
      assert.deepStrictEqual(count, { open: 1, opened: 2 })
      yield* call("process__signal", { process_id: "proc-1", signal: "SIGTERM" })
      yield* call("process__wait", { process_id: "proc-1" })
      yield* TestClock.adjust("61 seconds")
      assert.deepStrictEqual(count, { open: 0, opened: 2 })
    })
  )

  it.effect("does not close an idle sandbox without --workspace, because its files would be lost", () =>
    Effect.gen(function* () {
      const { count, shell } = yield* world()
      yield* shell({ _tag: "ExitsWith", exitCode: 0 })
      yield* TestClock.adjust("59 minutes")
      assert.deepStrictEqual(count, { open: 1, opened: 1 })
    })
  )

  it.effect("opens another sandbox after a timeout if the files persist", () =>
    Effect.gen(function* () {
      const { count, shell } = yield* world({ hostDirectory: "/srv/p" })
      yield* shell({ _tag: "ExitsWith", exitCode: 0 })
      yield* TestClock.adjust("3601 seconds")
      assert.strictEqual(count.open, 0)
      assert.containSubset((yield* shell({ _tag: "ExitsWith", exitCode: 4 })).result, { exit_code: 4 })
      assert.deepStrictEqual(count, { open: 1, opened: 2 })
      // The watcher of the first sandbox does not affect the second.
      yield* TestClock.adjust("1 minute")
      assert.strictEqual(count.open, 1)
    })
  )

  it.effect("reports an error after a timeout if the files are lost", () =>
    Effect.gen(function* () {
      const { count, shell } = yield* world()
      yield* shell({ _tag: "ExitsWith", exitCode: 0 })
      yield* TestClock.adjust("3601 seconds")
      const { failed, text } = yield* shell({ _tag: "ExitsWith", exitCode: 0 })
      assert.isTrue(failed)
      assert.match(text, /^unavailable: /u)
      assert.deepStrictEqual(count, { open: 0, opened: 1 })
    })
  )

  it.live("reports a sandbox that cannot be opened, and retries on the next call", () =>
    Effect.gen(function* () {
      const { call, count } = yield* world({}, new Set())
      for (let index = 0; index < 2; index++) {
        const { failed, text } = yield* call("file__list", {})
        assert.isTrue(failed)
        assert.match(text, /^unavailable: .*ImageNotFound/u)
      }
      assert.strictEqual(count.opened, 0)
    })
  )
})
