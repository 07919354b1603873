/** The Promise API over containers in memory: results, errors, cancellation and the end of everything that is open. */
import { assert, describe, it } from "@effect/vitest"
import { afterEach, vi } from "vitest"
import * as LlmProxy from "@cogni/sandbox-core/LlmProxy"
import { RunId } from "@cogni/sandbox-core/RunId"
import * as LlmProxyContract from "@cogni/sandbox-core/testing/LlmProxyContract"
import { AgentId } from "@cogni/sandbox-graph-provider/agents/Agent"
import { minimal } from "@cogni/sandbox-graph-provider/agents/Minimal"
import { Ledger } from "@cogni/sandbox-ledger"
import { SqlLedger } from "@cogni/sandbox-sql"
import { Effect, Layer } from "effect"
import * as HostLedger from "../src/internal/HostLedger.ts"
import {
  type AgentEnd,
  Closed,
  createHost,
  createSandbox,
  type MemoryProgram,
  run,
  SandboxError
} from "../src/index.ts"

const text = new TextDecoder()

const whole = async (pieces: AsyncIterable<Uint8Array>) => {
  const all: Array<Uint8Array> = []
  for await (const piece of pieces) all.push(piece)
  return Buffer.concat(all)
}

/** Prints its arguments, or does what the first one says. */
const program: MemoryProgram = async ({ argv, env, files, signal, stdin, stdout }) => {
  const [name = "", ...rest] = argv
  switch (name) {
    case "echo":
      return { stdout: `${rest.join(" ")}\n` }
    case "cat":
      return { stdout: rest[0] === undefined ? await whole(stdin) : await files.read(rest[0]) }
    case "lines":
      for await (const piece of stdin) await stdout(`got ${text.decode(piece)}\n`)
      return { stdout: "end\n" }
    case "first":
      for await (const piece of stdin) return { stdout: piece }
      return {}
    case "rm":
      return {
        stdout: `${(await files.stat(rest[0]!))?.type} ${await files.remove(rest[0]!, { recursive: true })}`
      }
    case "env":
      return { stdout: env[rest[0]!] ?? "" }
    case "false":
      return { exitCode: 3, stderr: "no\n" }
    case "throw":
      throw new TypeError("broken")
    case "cogni-agent":
      return { stdout: JSON.stringify({ payloads: [{ text: "42" }], meta: { durationMs: 1, error: null } }) }
    case "wait":
      await new Promise((_, reject) => signal.addEventListener("abort", () => reject(new Error("killed"))))
      return {}
    default:
      return {}
  }
}

const rejected = async (promise: Promise<unknown>): Promise<unknown> => {
  try {
    await promise
  } catch (error) {
    return error
  }
  return assert.fail("it did not reject")
}

const reasonOf = (error: unknown): string => {
  if (!(error instanceof SandboxError)) return assert.fail(`not a SandboxError: ${String(error)}`)
  return error.reason._tag
}

const llm = { model: "m", identity: { billingAccountId: "acme" } }

describe("a host with a ledger", () => {
  const upstream = { url: "http://127.0.0.1:1", key: "sk-…" }
  const argv = ["true"] as const

  it("refuses one that would stay empty", async () => {
    const ledger = Ledger.layerMemory()
    for (const options of [{ inMemory: program, upstream }, {}])
      assert.strictEqual(reasonOf(await rejected(run({ ...options, ledger, argv }))), "Misconfigured")
  })

  it("refuses a model without one, and starts nothing, also if types do not", async () => {
    const options = { upstream, argv }
    // @ts-expect-error: the ledger is missing
    const error = await rejected(run(options))
    assert.strictEqual(reasonOf(error), "Misconfigured")
    assert.include((error as SandboxError).message, 'set it to "none" if your program bills no account')
    // @ts-expect-error: the same
    assert.strictEqual(reasonOf(await rejected(createHost({ upstream }).run({ argv }))), "Misconfigured")
  })

  it("has no ledger if the host states that", async () => {
    const { exitCode } = await run({ inMemory: program, upstream, ledger: "none", argv })
    assert.strictEqual(exitCode, 0)
  })

  it("rejects with the reason if the ledger cannot be opened, and starts nothing", async () => {
    const error = await rejected(run({ upstream, argv, ledger: SqlLedger.layerAt("mysql://host/name") }))
    assert.strictEqual(reasonOf(error), "StoreUnavailable")
    assert.include((error as SandboxError).message, "the database URL is invalid")
  })

  it.effect("enters the calls of its runs", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger.makeMemory()
      const runId = RunId.make("run-00000001")
      yield* LlmProxy.LlmProxy.use((proxy) =>
        Effect.flatMap(proxy.acquire(LlmProxyContract.requestOf(runId)), ({ finish }) => finish)
      ).pipe(
        Effect.scoped,
        Effect.provide(HostLedger.entered(LlmProxy.layerMemory(), Layer.succeed(Ledger.Ledger, ledger)))
      )
      const [attempt] = yield* ledger.attempts(runId)
      assert.isDefined(attempt?.closedAt)
    })
  )
})

describe("createSandbox", () => {
  it("runs commands, and returns their output and exit code", async () => {
    await using sandbox = await createSandbox({ inMemory: program })
    const { exitCode, stdout } = await sandbox.exec(["echo", "hello"])
    assert.deepStrictEqual([exitCode, stdout], [0, "hello\n"])
    const failed = await sandbox.exec(["false"])
    assert.deepStrictEqual([failed.exitCode, failed.stderr], [3, "no\n"])
    assert.strictEqual((await sandbox.exec(["env", "WORD"], { env: { WORD: "x" } })).stdout, "x")
    assert.strictEqual((await sandbox.exec(["cat"], { stdin: "input" })).stdout, "input")
    assert.match((await sandbox.exec(["throw"])).stderr, /broken/u)
  })

  it("writes, reads and lists files, which commands see", async () => {
    await using sandbox = await createSandbox({ inMemory: program })
    await sandbox.files.write("a/b.txt", "content")
    assert.strictEqual(await sandbox.files.readText("a/b.txt"), "content")
    assert.strictEqual((await sandbox.exec(["cat", "a/b.txt"])).stdout, "content")
    assert.deepStrictEqual(
      (await sandbox.files.list("a")).map(({ name }) => name),
      ["b.txt"]
    )
    assert.strictEqual(reasonOf(await rejected(sandbox.files.read("absent"))), "FileRefused")
  })

  it("describes and removes files, and says what does not exist", async () => {
    await using sandbox = await createSandbox({ inMemory: program })
    const { files } = sandbox
    await files.write("a/b.txt", "content")
    assert.deepInclude(await files.stat("a/b.txt"), { name: "b.txt", type: "file", bytes: 7 })
    assert.deepInclude(await files.stat("a"), { name: "a", type: "directory" })
    assert.isUndefined(await files.stat("absent"))
    assert.isUndefined(await files.stat("absent/below"))
    assert.strictEqual(reasonOf(await rejected(files.stat("../outside"))), "FileRefused")
    assert.strictEqual(reasonOf(await rejected(files.remove("a"))), "FileRefused")
    assert.isTrue(await files.remove("a/b.txt"))
    assert.isFalse(await files.remove("a/b.txt"))
    await files.write("a/c/d", "")
    assert.isTrue(await files.remove("a", { recursive: true }))
    assert.isFalse(await files.remove("a", { recursive: true }))
    await files.write("e/f", "")
    assert.strictEqual((await sandbox.exec(["rm", "e"])).stdout, "directory true")
    assert.isUndefined(await files.stat("e"))
  })

  it("ends a file operation whose signal has aborted", async () => {
    await using sandbox = await createSandbox({ inMemory: program })
    const { files } = sandbox
    const signal = AbortSignal.abort("no longer needed")
    const asked = [
      files.read("a", { signal }),
      files.readText("a", { signal }),
      files.write("a", "x", { signal }),
      files.list(".", { signal }),
      files.stat("a", { signal }),
      files.remove("a", { signal })
    ]
    assert.deepStrictEqual(
      await Promise.all(asked.map(rejected)),
      asked.map(() => "no longer needed")
    )
    assert.deepStrictEqual(await files.list("."), [])
  })

  it("sends an iterable as standard input while the command runs, and ends it with the command", async () => {
    await using sandbox = await createSandbox({ inMemory: program })
    const answers: Array<string> = []
    let isOver = false
    const next = new TransformStream<Uint8Array, Uint8Array>()
    const writer = next.writable.getWriter()
    await using lines = await sandbox.spawn(["lines"], { stdin: next.readable })
    void writer.write(Buffer.from("one"))
    for await (const { bytes } of lines.output) {
      answers.push(text.decode(bytes))
      if (answers.length === 1) void writer.write(Buffer.from("two"))
      if (answers.length === 2) void writer.close()
    }
    assert.deepStrictEqual(answers, ["got one\n", "got two\n", "end\n"])
    async function* endless() {
      try {
        for (;;) yield Buffer.from("x")
      } finally {
        isOver = true
      }
    }
    assert.strictEqual((await sandbox.exec(["first"], { stdin: endless() })).stdout, "x")
    assert.isTrue(isOver)
  })

  it("kills a command whose standard input throws, and rejects with CommandInputFailed", async () => {
    await using sandbox = await createSandbox({ inMemory: program })
    async function* broken() {
      yield Buffer.from("one")
      throw new RangeError("the source broke")
    }
    const error = await rejected(sandbox.exec(["cat"], { stdin: broken() }))
    assert.strictEqual(reasonOf(error), "CommandInputFailed")
    assert.match(String(error), /RangeError: the source broke/u)
    assert.strictEqual((await sandbox.exec(["echo", "still here"])).stdout, "still here\n")
  })

  it("does not wait for an iterable that never yields, when the command is ended", async () => {
    await using sandbox = await createSandbox({ inMemory: program })
    async function* silent(): AsyncGenerator<Uint8Array> {
      await new Promise(() => undefined)
      yield Buffer.from("never")
    }
    const abort = new AbortController()
    const waiting = sandbox.exec(["cat"], { stdin: silent(), signal: abort.signal })
    abort.abort("enough")
    assert.strictEqual(await rejected(waiting), "enough")
    assert.strictEqual((await sandbox.exec(["false"], { stdin: silent() })).exitCode, 3)
  })

  it("streams the output of a spawned command, and kills it when it is disposed of", async () => {
    await using sandbox = await createSandbox({ inMemory: program })
    const echo = await sandbox.spawn(["echo", "hello"])
    const said: Array<string> = []
    for await (const { bytes, channel } of echo.output) said.push(`${channel} ${text.decode(bytes)}`)
    assert.deepStrictEqual(said, ["stdout hello\n"])
    assert.strictEqual((await echo.exit).exitCode, 0)
    const waiting = await sandbox.spawn(["wait"])
    await waiting[Symbol.asyncDispose]()
    const killed = await sandbox.spawn(["wait"])
    await killed.kill("SIGKILL")
    assert.strictEqual((await killed.exit).exitCode, 137)
    const ended = await sandbox.spawn(["wait"])
    await ended.kill()
    assert.deepStrictEqual(await ended.exit, { exitCode: 143, signal: "SIGTERM" })
  })

  it("rejects with a SandboxError that has a reason, a code and the partial output", async () => {
    const invalid = await rejected(createSandbox({ inMemory: program, limits: { processesMax: 1 } }))
    assert.strictEqual(reasonOf(invalid), "InvalidSpec")
    await using sandbox = await createSandbox({ inMemory: program, limits: { outputBytesMax: 3 } })
    const error = await rejected(sandbox.exec(["echo", "hello"]))
    assert.strictEqual(reasonOf(error), "OutputLimitExceeded")
    assert.instanceOf(error, Error)
    assert.strictEqual((error as SandboxError).code, "container_failed")
  })

  it("ends a command when its signal aborts, and rejects with the signal's reason", async () => {
    await using sandbox = await createSandbox({ inMemory: program })
    const abort = new AbortController()
    const waiting = sandbox.exec(["wait"], { signal: abort.signal })
    abort.abort(new Error("no longer needed"))
    assert.strictEqual(String(await rejected(waiting)), "Error: no longer needed")
    assert.strictEqual((await sandbox.exec(["echo", "still here"])).stdout, "still here\n")
    const late = await rejected(sandbox.exec(["echo"], { signal: AbortSignal.abort("before") }))
    assert.strictEqual(late, "before")
  })

  it("ends a spawned command when its signal aborts, before its exit rejects", async () => {
    let isKilled = false
    await using sandbox = await createSandbox({
      inMemory: async ({ signal, stdout }) => {
        await stdout("begun")
        await new Promise<void>((resolve) =>
          signal.addEventListener("abort", () => {
            isKilled = true
            resolve()
          })
        )
        return {}
      }
    })
    const abort = new AbortController()
    await using waiting = await sandbox.spawn(["wait"], { signal: abort.signal })
    for await (const _piece of waiting.output) break
    abort.abort("enough")
    assert.strictEqual(await rejected(waiting.exit), "enough")
    assert.isTrue(isKilled)
  })

  it("ends its commands when it is closed, and accepts no others", async () => {
    const sandbox = await createSandbox({ inMemory: program })
    const waiting = sandbox.exec(["wait"])
    const [error] = await Promise.all([rejected(waiting), sandbox.close()])
    assert.deepStrictEqual(error, new Closed({ what: "sandbox" }))
    assert.instanceOf(await rejected(sandbox.exec(["echo"])), Closed)
    assert.instanceOf(await rejected(sandbox.spawn(["echo"])), Closed)
    assert.isUndefined(await sandbox.ended)
    await sandbox.close()
  })
})

describe("the engine of a host", () => {
  afterEach(() => void vi.unstubAllEnvs())

  const refused = async (options: { readonly docker?: string }) =>
    createSandbox(options).then(
      () => assert.fail("it must reject"),
      (error: unknown) => (error as SandboxError).message
    )

  it("is the one that DOCKER_HOST names, unless the option names another", async () => {
    vi.stubEnv("DOCKER_HOST", "unix:///nonexistent/variable.sock")
    assert.include(await refused({}), "/nonexistent/variable.sock")
    assert.include(await refused({ docker: "/nonexistent/option.sock" }), "/nonexistent/option.sock")
  })

  it("is not guessed if DOCKER_HOST cannot be used", async () => {
    vi.stubEnv("DOCKER_HOST", "ssh://builder")
    assert.include(await refused({}), "ssh://builder")
  })
})

describe("createHost", () => {
  it("runs one command to its end", async () => {
    const result = await run({ inMemory: program, argv: ["echo", "hello"] })
    assert.deepStrictEqual([result.exitCode, result.output.stdout.text], [0, "hello\n"])
  })

  it("streams the events of a run, and ends the run of a consumer that stops early", async () => {
    await using host = createHost({ inMemory: program })
    const tags: Array<string> = []
    for await (const { _tag } of host.stream({ argv: ["echo", "hello"] })) tags.push(_tag)
    assert.deepStrictEqual([tags[0], tags.at(-1)], ["RunStarted", "RunEnded"])
    let isKilled = false
    await using other = createHost({
      inMemory: async ({ signal, stdout }) => {
        await stdout("begun")
        await new Promise<void>((resolve) =>
          signal.addEventListener("abort", () => {
            isKilled = true
            resolve()
          })
        )
        return {}
      }
    })
    for await (const { _tag } of other.stream({ argv: ["wait"] })) if (_tag === "OutputReceived") break
    assert.isTrue(isKilled)
  })

  it("lists its agents by name, with those of the caller", async () => {
    const mine = { ...minimal, id: AgentId.make("mine"), name: "A reviewer" }
    await using host = createHost({ inMemory: program, agents: [mine] })
    const listed = host.agents.map(({ agentId, name }) => `${agentId} ${name}`)
    assert.strictEqual(listed[0], "sandbox:mine A reviewer")
    assert.include(listed, "sandbox:codex Codex")
  })

  it("returns the answer of an agent, also at the end of its events", async () => {
    await using host = createHost({ inMemory: program })
    const { result, text: answer } = await host.runAgent("agent", { prompt: "What is six times seven?", llm })
    assert.deepStrictEqual([answer, result.exitCode], ["42", 0])
    let end: AgentEnd | undefined
    for await (const event of host.streamAgent("agent", { prompt: "Again", llm }))
      if (event.type === "end") end = event.end
    assert.strictEqual(end?.text, "42")
  })

  it("rejects with AnswerMissing if an agent gives no answer, and with AgentNotFound if there is no such agent", async () => {
    await using host = createHost({ inMemory: () => ({ exitCode: 4, stderr: "no model\n" }) })
    const missing = await rejected(host.runAgent("agent", { prompt: "x", llm }))
    assert.include(missing, { _tag: "AnswerMissing", code: "exit" })
    assert.match(String(missing), /exit code 4/u)
    assert.strictEqual(
      reasonOf(await rejected(host.runAgent("agent", { prompt: "x", llm, runId: "../escape" }))),
      "InvalidSpec"
    )
    assert.include(await rejected(host.runAgent("nobody", { prompt: "x", llm })), { _tag: "AgentNotFound" })
  })

  it("ends everything that is open when it is closed", async () => {
    const host = createHost({ inMemory: program })
    const sandbox = await host.createSandbox()
    const waiting = [rejected(sandbox.exec(["wait"])), rejected(host.run({ argv: ["wait"] }))]
    // Its consumer reads one event and stops.
    const abandoned = host.stream({ argv: ["wait"] })[Symbol.asyncIterator]()
    await abandoned.next()
    await host.close()
    assert.instanceOf(await rejected(abandoned.next()), Closed)
    for (const error of await Promise.all(waiting))
      assert.deepStrictEqual(error, new Closed({ what: "host" }))
    assert.isUndefined(await sandbox.ended)
    assert.instanceOf(await rejected(host.run({ argv: ["echo"] })), Closed)
    assert.instanceOf(await rejected(host.createSandbox()), Closed)
    assert.instanceOf(await rejected(sandbox.spawn(["echo"])), Closed)
    const late = host.stream({ argv: ["echo"] })[Symbol.asyncIterator]()
    assert.instanceOf(await rejected(late.next()), Closed)
    await host.close()
  })
})
