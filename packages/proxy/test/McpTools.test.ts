/** Tools of MCP servers: a fair server, and one that breaks every rule, as programs and over HTTP. */
import { assert, describe, it } from "@effect/vitest"
import { ConnectionBroker } from "@cogni/sandbox-connections/ConnectionBroker"
import * as RunId from "@cogni/sandbox-core/RunId"
import * as McpServer from "@cogni/sandbox-loop/McpServer"
import * as Tool from "@cogni/sandbox-loop/Tool"
import * as ToolSet from "@cogni/sandbox-loop/ToolSet"
import * as McpTools from "@cogni/sandbox-proxy/tools/McpTools"
import { Duration, Effect, Exit, Fiber, FiberSet, Logger, Redacted, Schema, Scope } from "effect"
import { TestClock } from "effect/testing"
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs"
import type { IncomingMessage } from "node:http"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { inspect } from "node:util"
import { ended, until } from "../../../test/harness/Await.ts"
import { serve } from "../../../test/harness/LocalServer.ts"
import * as McpLink from "../src/internal/tools/McpLink.ts"
import * as McpPins from "../src/internal/tools/McpPins.ts"
import * as McpServerRule from "../src/internal/tools/McpServerRule.ts"

const planted = 'planted-token+"of/the=account'
const program = fileURLToPath(new URL("fixtures/mcp-server.mjs", import.meta.url))

const context = {
  runId: RunId.RunId.make("run-12345678"),
  identity: { billingAccountId: "account-a", attempt: 0 },
  requestId: "request-1"
}

/** A broker that counts its leases. */
const brokerOf = (leases: Array<unknown>, server: () => string, secret = () => planted) =>
  ConnectionBroker.of({
    lease: (request) =>
      Effect.sync(() => {
        leases.push(request)
        return {
          id: "lease-1",
          username: "x",
          secret: Redacted.make(secret()),
          expiresAt: new Date(0),
          ended: Effect.never,
          permit: {
            billingAccountId: "account-a",
            grantId: "grant-1",
            connectionId: "connection-a",
            connectionName: "api",
            server: server(),
            purpose: request.purpose,
            repository: undefined,
            toolId: request.toolId,
            expiresAt: new Date(0),
            runId: undefined
          }
        }
      }),
    revokeLease: () => Effect.succeed(false)
  })

const patterns = { echo: "read_only", "write_*": "external_side_effect", picture: "read_only" } as const

const credential = {
  connection: "api",
  credentialVariable: "TOKEN",
  credentialServer: "https://api.example.com"
} as const

/** The program of the fixture. It writes the IDs of its processes to a file. */
const world = Effect.fnUntraced(function* (how: string, more: Partial<McpServerRule.McpServerRule> = {}) {
  const directory = yield* Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(tmpdir(), "cogni-mcp-"))),
    (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
  )
  const file = join(directory, "processes")
  const leases: Array<unknown> = []
  const logs: Array<string> = []
  const given = { secret: planted }
  const scope = yield* Scope.make()
  yield* Effect.addFinalizer(() => Scope.close(scope, Exit.void))
  const made = McpTools.make([
    {
      rule: {
        name: "acme",
        command: process.execPath,
        args: [program, how, file],
        env: ["NAMED"],
        tools: patterns,
        ...more
      },
      environment: { NAMED: "named" }
    }
  ]).pipe(
    Scope.provide(scope),
    Effect.provideService(
      ConnectionBroker,
      brokerOf(
        leases,
        () => credential.credentialServer,
        () => given.secret
      )
    )
  )
  const log = Logger.layer([Logger.make(({ message }) => void logs.push(inspect(message)))])
  const processes = () => (existsSync(file) ? readFileSync(file, "utf8").trim().split("\n").map(Number) : [])
  const asked = Effect.sync(() => existsSync(`${file}.asked`))
  const written = () => existsSync(`${file}.written`)
  return { made: Effect.provide(made, log), asked, given, leases, log, logs, processes, scope, written }
})

const opened = Effect.fnUntraced(function* (how: string, more: Partial<McpServerRule.McpServerRule> = {}) {
  const found = yield* world(how, more)
  const tools = yield* found.made
  const call = (
    name: string,
    input: unknown = {},
    { run = context.runId as string, account = "account-a" } = {}
  ) =>
    Effect.provide(
      tools
        .find((tool) => tool.name === name)!
        .call(input, {
          ...context,
          runId: RunId.RunId.make(run),
          identity: { ...context.identity, billingAccountId: account }
        }),
      found.log
    )
  return { ...found, tools, call, echo: (text: string) => call("acme__echo", { text }) }
})

const failure = <A>(effect: Effect.Effect<A, Tool.ToolFailed>) =>
  Effect.map(Effect.flip(effect), ({ code, detail }) => {
    assert.notInclude(detail, "planted")
    return [code, detail] as const
  })

const isAlive = (pid: number): boolean => {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}

const noneOf = (processes: () => ReadonlyArray<number>) => Effect.sync(() => !processes().some(isAlive))

const textOf = (result: unknown): string =>
  (result as { readonly content: ReadonlyArray<{ readonly text: string }> }).content[0]!.text

describe("McpTools", () => {
  it.live("offers the tools that the operator names, with the effects that the operator gives them", () =>
    Effect.gen(function* () {
      const { call, echo, tools } = yield* opened("fair")
      assert.deepStrictEqual(
        tools.map(({ effect, name }) => [name, effect]),
        [
          ["acme__echo", "read_only"],
          // Its server calls it read-only.
          ["acme__write_note", "external_side_effect"],
          ["acme__picture", "read_only"]
        ]
      )
      assert.strictEqual(textOf(yield* echo("hello")), "hello")
      assert.strictEqual(tools[0]!.check({}), "missing arguments: text")
      assert.isUndefined(tools[0]!.check({ text: "x" }))
      const environment: unknown = JSON.parse(textOf(yield* call("acme__write_note")))
      assert.deepStrictEqual(environment, { NAMED: "named" })
    })
  )

  it.live.each([
    ["child", 2],
    ["stubborn", 1]
  ] as const)("ends its process, and those that it started, with the host: %s", ([how, count]) =>
    Effect.gen(function* () {
      const { processes, scope } = yield* opened(how)
      assert.lengthOf(processes(), count)
      assert.isTrue(processes().every(isAlive))
      yield* Scope.close(scope, Exit.void)
      yield* until("the processes have ended", noneOf(processes))
    })
  )

  it.live("reports a server that dies in a call, and starts it again for the next one", () =>
    Effect.gen(function* () {
      const { call, echo, processes } = yield* opened("fair")
      const [code, detail] = yield* failure(echo("die"))
      assert.strictEqual(code, "unavailable")
      assert.include(detail, "has ended with the exit code 7")
      assert.strictEqual(textOf(yield* echo("again")), "again")
      assert.lengthOf(processes(), 2)
      const written = yield* failure(call("acme__write_note", { text: "die" }))
      assert.strictEqual(written[0], "execution")
      assert.include(written[1], "check before you repeat it")
    })
  )

  it.live.each([
    ["flood", "messages per minute"],
    ["line", "a message of more than 4194304 bytes"],
    ["noise", "bytes that are no messages"]
  ] as const)("ends a server that sends too much: %s", ([text, expected]) =>
    Effect.gen(function* () {
      const { echo, processes } = yield* opened("fair")
      const [code, detail] = yield* failure(echo(text))
      assert.strictEqual(code, "unavailable")
      assert.include(detail, expected)
      yield* until("the process has ended", noneOf(processes))
      assert.strictEqual(textOf(yield* echo("again")), "again")
    })
  )

  it.live("refuses a result over the limit, an error of the server, and a result that nothing can show", () =>
    Effect.gen(function* () {
      const { call, echo } = yield* opened("fair")
      assert.include((yield* failure(echo("huge")))[1], "over its limit of 262144")
      const refused = yield* failure(echo("error"))
      assert.strictEqual(refused[0], "execution")
      assert.include(refused[1], "the server says no")
      assert.deepStrictEqual(yield* failure(echo("fail")), ["execution", "it failed"])
      assert.include((yield* failure(call("acme__picture")))[1], "unsupported")
      assert.deepStrictEqual(yield* echo("parts"), {
        content: [
          { type: "text", text: "one" },
          { type: "unsupported", kind: "image", mediaType: "image/png", base64Characters: 8 },
          { type: "resource", uri: "file:///a", text: "two" },
          { type: "unsupported", kind: "resource", mediaType: "", base64Characters: 8 },
          { type: "link", uri: "file:///c", name: "c" }
        ],
        structured: { three: 3 }
      })
    })
  )

  it.live("refuses to sample, to ask a person and to list roots", () =>
    Effect.gen(function* () {
      const { echo } = yield* opened("fair")
      assert.strictEqual(textOf(yield* echo("ask")), "-32601 -32601 -32601")
    })
  )

  it.live("ignores output that is no message", () =>
    Effect.gen(function* () {
      const { echo } = yield* opened("noise")
      assert.strictEqual(textOf(yield* echo("x")), "x")
    })
  )

  it.live("closes a tool that its server changes, and leaves the others open", () =>
    Effect.gen(function* () {
      const { call, echo, logs, tools } = yield* opened("changed")
      assert.strictEqual(textOf(yield* echo("change")), "change")
      const [code, detail] = yield* failure(echo("x"))
      assert.strictEqual(code, "policy_denied")
      assert.include(detail, "closed")
      assert.include(logs.join("\n"), "acme__echo is closed")
      assert.strictEqual((yield* failure(echo("y")))[0], "policy_denied")
      yield* call("acme__write_note")
      assert.notInclude(tools.map(({ name }) => name).join(), "later")
    })
  )

  it.effect("reports a server that does not answer in time", () =>
    Effect.gen(function* () {
      const { call, echo } = yield* opened("fair", { callSecondsMax: 5 })
      for (const [slow, words] of [
        [echo("slow"), "Ask for less"],
        [call("acme__write_note", { text: "slow" }), "may have had its effect"]
      ] as const) {
        const fiber = yield* Effect.forkChild(failure(slow))
        // The call has been sent when the next answer has come.
        assert.strictEqual(textOf(yield* echo("x")), "x")
        yield* TestClock.adjust(Duration.seconds(5))
        const [code, detail] = yield* Fiber.join(fiber)
        assert.strictEqual(code, "timeout")
        assert.include(detail, words)
      }
    })
  )

  it.effect("leaves places for other runs, however many slow calls one has", () =>
    Effect.gen(function* () {
      const { echo, log, tools } = yield* opened("fair", { callSecondsMax: 5 })
      const tool = tools.find(({ name }) => name === "acme__echo")!
      const slow = yield* Effect.forEach(Array.from({ length: 12 }), () =>
        Effect.forkChild(Effect.result(echo("slow")), { startImmediately: true })
      )
      yield* TestClock.adjust(Duration.seconds(1))
      const other = { ...context, runId: RunId.RunId.make("run-of-another") }
      const answer = yield* Effect.forkChild(Effect.provide(tool.call({ text: "x" }, other), log), {
        startImmediately: true
      })
      yield* until(
        "the other run has its answer",
        Effect.map(TestClock.adjust(Duration.millis(10)), () => answer.pollUnsafe() !== undefined)
      )
      assert.strictEqual(textOf(yield* Fiber.join(answer)), "x")
      yield* TestClock.adjust(Duration.seconds(10))
      const ends = yield* Effect.forEach(slow, Fiber.join)
      const details = ends.map((end) => (end._tag === "Failure" ? end.failure.detail : "an answer"))
      assert.isTrue(details.some((detail) => detail.includes("had no place")))
      assert.isTrue(details.slice(0, 4).every((detail) => detail.includes("did not answer within 5 s")))
    })
  )

  it.effect("leaves places for other accounts, however many runs of one have slow calls", () =>
    Effect.gen(function* () {
      const { call } = yield* opened("fair", { callSecondsMax: 5 })
      const echo = (text: string, run: string, account: string) =>
        call("acme__echo", { text }, { run, account })
      const slow = yield* Effect.forEach(Array.from({ length: 24 }), (_, n) =>
        Effect.forkChild(Effect.result(echo("slow", `run-of-hostile-${n % 6}`, "account-a")), {
          startImmediately: true
        })
      )
      yield* TestClock.adjust(Duration.seconds(1))
      const answer = yield* Effect.forkChild(Effect.result(echo("x", "run-of-honest", "account-b")), {
        startImmediately: true
      })
      yield* until(
        "the other account has its answer",
        Effect.map(TestClock.adjust(Duration.millis(10)), () => answer.pollUnsafe() !== undefined)
      )
      const end = yield* Fiber.join(answer)
      assert.strictEqual(end._tag === "Success" ? textOf(end.success) : end.failure.detail, "x")
      yield* Fiber.interruptAll(slow)
    })
  )

  it.live("names the tools that agents cannot call", () =>
    Effect.gen(function* () {
      const { logs } = yield* opened("digits")
      assert.include(logs.join("\n"), "1 tools whose names have no Latin letter first")
      assert.include(logs.join("\n"), "2fa_reset")
    })
  )

  it.effect("reads a program more slowly that writes too much in a minute, and ends no call of others", () =>
    Effect.gen(function* () {
      const { asked, call, echo, processes, written } = yield* opened("fair", { callSecondsMax: 600 })
      const waiting = yield* Effect.forkChild(call("acme__echo", { text: "hold" }, { run: "run-of-another" }))
      // The call above has been sent when this answer has come.
      assert.strictEqual(textOf(yield* echo("x")), "x")
      const hostile = yield* Effect.forkChild(echo("torrent"))
      yield* until("most of it was read", asked)
      assert.isFalse(written(), "the clock stands still, so the program has to wait")
      const tick = TestClock.adjust(Duration.millis(100))
      yield* until(
        "the rest was read",
        Effect.map(tick, () => hostile.pollUnsafe() !== undefined)
      )
      assert.strictEqual(textOf(yield* Fiber.join(hostile)), "written")
      assert.strictEqual(textOf(yield* Fiber.join(waiting)), "held")
      assert.lengthOf(processes(), 1)
    })
  )

  it.effect("starts a server again that hangs, also if each call ends before its tools are missed", () =>
    Effect.gen(function* () {
      const { asked, echo, processes } = yield* opened("fair", { callSecondsMax: 5 })
      const late = Effect.fnUntraced(function* (text: string) {
        const fiber = yield* Effect.forkChild(failure(echo(text)))
        if (text === "hang") yield* until("the call is there", asked)
        const [code] = yield* Effect.flatten(ended(fiber, 10))
        assert.strictEqual(code, "timeout")
      })
      yield* late("hang")
      yield* late("x")
      yield* TestClock.adjust(Duration.seconds(20))
      assert.strictEqual(textOf(yield* echo("again")), "again")
      assert.lengthOf(processes(), 2)
    })
  )

  it.live.each([
    ["exit", "has ended with the exit code 3"],
    ["clash", "the same name"]
  ] as const)("refuses a server whose tools cannot be listed: %s", ([how, expected]) =>
    Effect.gen(function* () {
      const { made } = yield* world(how)
      const error = yield* Effect.flip(made)
      assert.strictEqual(error.server, "acme")
      assert.include(error.message, expected)
    })
  )

  it.live("starts without the tools of an optional server that does not answer", () =>
    Effect.gen(function* () {
      const { logs, made } = yield* world("exit", { optional: true })
      assert.deepStrictEqual(yield* made, [])
      assert.include(logs.join("\n"), "This host starts without its tools")
    })
  )

  it.effect("starts without the tools of an optional server that never lists them", () =>
    Effect.gen(function* () {
      const { asked, logs, made } = yield* world("mute", { optional: true })
      const fiber = yield* Effect.forkChild(made)
      yield* until("the tools are asked for", asked)
      assert.deepStrictEqual(yield* Effect.flatten(ended(fiber, 60)), [])
      assert.include(logs.join("\n"), "did not list its tools within 20 s")
    })
  )

  it.live("gives a credential to a process of its own for each call, and to no agent", () =>
    Effect.gen(function* () {
      const { call, echo, leases, processes } = yield* opened("repeat", credential)
      const answer = yield* echo("x")
      assert.notInclude(JSON.stringify(answer), "planted")
      assert.strictEqual(textOf(answer), "[key] x")
      yield* call("acme__write_note")
      assert.deepStrictEqual(
        leases.map((lease) => (lease as { readonly purpose: string }).purpose),
        ["tool_read", "tool_read", "tool_write"]
      )
      assert.lengthOf(new Set(processes()), 3)
      yield* until("the processes have ended", noneOf(processes))
    })
  )

  it.live.each([
    ["leak", 2000],
    ["refuse", 1000]
  ] as const)(
    "does not show a part of the credential at the end of what an error may say: %s",
    ([how, most]) =>
      Effect.gen(function* () {
        const { echo } = yield* opened("fair", credential)
        const [code] = yield* failure(echo(`${how}${"p".repeat(most - planted.length + 1)}`))
        assert.strictEqual(code, "execution")
        const [, long] = yield* failure(echo(`${how}${"p".repeat(100_000)}`))
        assert.include(long, "too long to be searched")
      })
  )

  it.live("refuses a result over the limit before it is searched for the credential", () =>
    Effect.gen(function* () {
      const { echo } = yield* opened("fair", credential)
      const [code, detail] = yield* failure(echo("huge"))
      assert.strictEqual(code, "execution")
      // The words of this check: those of the later one name the tool.
      assert.match(detail, /^the result is \d+ bytes, over its limit of 262144/u)
    })
  )

  it.live("refuses a call whose account sees another tool, and leaves it open for the others", () =>
    Effect.gen(function* () {
      const { echo, given, logs } = yield* opened("accounts", credential)
      yield* echo("x")
      given.secret = "planted-token-of-another-account"
      const [code, detail] = yield* failure(echo("x"))
      assert.strictEqual(code, "policy_denied")
      assert.include(detail, "this account")
      assert.include(logs.join("\n"), "with the credential of this account")
      given.secret = planted
      assert.strictEqual(textOf(yield* echo("again")), "again")
    })
  )

  it.live("refuses a server that puts the credential into the description of a tool", () =>
    Effect.gen(function* () {
      const { made } = yield* world("secret", credential)
      const { message } = yield* Effect.flip(made)
      assert.include(message, "repeats the credential")
      assert.notInclude(message, "planted")
    })
  )
})

describe("McpTools over HTTP", () => {
  const tool = Tool.make({
    name: "far__echo",
    description: "Repeats a text",
    effect: "read_only",
    input: Schema.Struct({ text: Schema.String }),
    output: Schema.Struct({ text: Schema.String }),
    execute: ({ text }) => Effect.succeed({ text })
  })

  const far = Effect.fnUntraced(function* (more: Partial<McpServerRule.McpServerRule> = {}) {
    const headers: Array<IncomingMessage["headers"]> = []
    const leases: Array<unknown> = []
    const made = { status: 0 }
    const run = yield* FiberSet.makeRuntimePromise<never, void, never>()
    const origin = yield* serve((request, response) => {
      const pieces: Array<Buffer> = []
      request.on("data", (piece: Buffer) => pieces.push(piece))
      request.on("end", () => {
        headers.push(request.headers)
        if (made.status !== 0)
          return void response.writeHead(made.status, { location: "/other" }).end(planted)
        const answer = McpServer.answerHttp(
          { registry: ToolSet.make([tool]), session: context },
          Object.fromEntries(Object.entries(request.headers).map(([name, value]) => [name, String(value)])),
          Buffer.concat(pieces)
        )
        void run(
          Effect.flatMap(answer, (found) =>
            Effect.promise(async () => {
              response.writeHead(found.status, Object.fromEntries(found.headers))
              response.end(Buffer.from(await found.arrayBuffer()))
            })
          )
        )
      })
    })
    const url = `${origin}/mcp`
    const tools = McpTools.make([
      {
        rule: { name: "acme", url, allowPrivateAddresses: true, tools: { "**": "read_only" }, ...more },
        environment: {}
      }
    ]).pipe(
      Effect.provideService(
        ConnectionBroker,
        brokerOf(leases, () => origin)
      )
    )
    return { headers, leases, made, origin, tools }
  })

  it.live("calls a server of the official SDK, with the credential of the connection", () =>
    Effect.gen(function* () {
      const { headers, leases, tools } = yield* far({ connection: "api" })
      const [found] = yield* tools
      assert.strictEqual(found!.name, "acme__far_echo")
      const result = yield* found!.call({ text: "over http" }, context)
      assert.include(JSON.stringify(result), "over http")
      assert.isTrue(headers.every(({ authorization }) => authorization === `Bearer ${planted}`))
      assert.lengthOf(leases, 2)
    })
  )

  it.live.each([401, 302, 500])("reports the status %i, and nothing that its answer says", (status) =>
    Effect.gen(function* () {
      const { made, tools } = yield* far({ connection: "api" })
      const [found] = yield* tools
      made.status = status
      const [code, detail] = yield* failure(found!.call({ text: "x" }, context))
      assert.strictEqual(code, "unavailable")
      assert.notInclude(detail, "/other")
    })
  )

  it.live("does not connect to a private address unless the operator allows it", () =>
    Effect.gen(function* () {
      const { headers, tools } = yield* far({ allowPrivateAddresses: false })
      assert.include((yield* Effect.flip(tools)).message, "private")
      assert.lengthOf(headers, 0)
    })
  )
})

describe("McpServerRule", () => {
  const decode = Schema.decodeUnknownResult(McpServerRule.McpServerRules, { onExcessProperty: "error" })
  const fair = { name: "acme", command: "/usr/bin/acme", tools: { "*": "read_only" } }

  it.each([
    [{ ...fair, command: "acme" }],
    [{ ...fair, url: "https://acme.example" }],
    [{ name: "acme", tools: fair.tools }],
    [{ ...fair, tools: {} }],
    [{ ...fair, tools: { "*": "harmless" } }],
    [{ ...fair, connection: "api" }],
    [{ ...fair, name: "a__b" }],
    [{ ...fair, credentials: "x" }],
    [{ name: "acme", url: "http://acme.example/", tools: fair.tools }],
    [{ name: "acme", url: "https://user@acme.example/", tools: fair.tools }]
  ])("refuses %j", (rule) => {
    assert.strictEqual(decode([rule])._tag, "Failure")
    assert.strictEqual(decode([fair])._tag, "Success")
    assert.strictEqual(decode([fair, fair])._tag, "Failure")
  })

  it("gives a tool the strictest effect of all patterns that cover it", () => {
    const tools = { "*": "read_only", "write_*": "state_change", "*_out": "external_side_effect" } as const
    const rule = { name: "acme", tools }
    assert.strictEqual(McpServerRule.effectOf(rule, "write_out"), "external_side_effect")
    assert.strictEqual(McpServerRule.effectOf(rule, "write_in"), "state_change")
    assert.strictEqual(McpServerRule.effectOf(rule, "read"), "read_only")
  })
})

describe("McpPins", () => {
  it.each([
    ["createIssue", "create_issue"],
    ["create-issue.v2", "create_issue_v2"],
    ["__proto__", "proto"],
    ["1st", undefined],
    ["…", undefined]
  ])("names %s for agents as %s", (own, expected) => {
    assert.strictEqual(McpPins.nameOf(own), expected)
  })

  it("notices any change of a tool, but not another order of keys", () => {
    const tool = {
      name: "echo",
      description: "d",
      inputSchema: { type: "object", properties: { a: {}, b: {} } }
    }
    const rule = { name: "acme", tools: { "*": "read_only" } } as const
    const made = McpPins.make(rule, [tool])
    if (made._tag === "Failure") return assert.fail(made.failure)
    const [pin] = made.success
    assert.isTrue(
      McpPins.isSame(pin!, [{ ...tool, inputSchema: { properties: { b: {}, a: {} }, type: "object" } }])
    )
    assert.isFalse(McpPins.isSame(pin!, [{ ...tool, description: "e" }]))
    assert.isFalse(McpPins.isSame(pin!, [{ ...tool, inputSchema: { type: "object" } }]))
    assert.isFalse(McpPins.isSame(pin!, [tool, tool]))
    assert.isFalse(McpPins.isSame(pin!, []))
  })
})

describe("McpLink", () => {
  it("waits longer after each failure, up to a limit", () => {
    assert.deepStrictEqual([1, 2, 3, 4, 8, 50].map(McpLink.waitSeconds), [0, 1, 2, 4, 60, 60])
  })
})
