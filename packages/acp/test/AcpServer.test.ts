/** The agent, between the protocol's own client and a fake runner of prompts. */
import { AcpRefusal } from "@cogni/sandbox-acp/AcpRefusal"
import * as AcpServer from "@cogni/sandbox-acp/AcpServer"
import type { AcpTurn } from "@cogni/sandbox-acp/AcpSession"
import * as Sessions from "../src/internal/Sessions.ts"
import { assert, describe, it } from "@effect/vitest"
import * as Await from "../../../test/harness/Await.ts"
import { Cause, Deferred, Effect, Exit, Fiber, Queue, Result, Stream } from "effect"
import { connected, end, message, optionsOf, raw, refused, type Run, text } from "./Connected.ts"

const echo: Run = ({ prompt, say }) =>
  Effect.as(say({ type: "text_delta", delta: `you said ${prompt}` }), end(`you said ${prompt}`))

/** A run that waits until it is interrupted, and counts. */
const waiting = Effect.gen(function* () {
  const begun = yield* Deferred.make<void>()
  const count = { begun: 0, released: 0 }
  const run: Run = ({ say }) =>
    Effect.gen(function* () {
      count.begun++
      yield* say({ type: "text_delta", delta: "half of" })
      yield* Deferred.succeed(begun, undefined)
      return yield* Effect.never
    }).pipe(
      Effect.ensuring(
        // A release that needs other fibers to run: an answer that does not wait for it would be seen.
        Effect.andThen(
          Effect.yieldNow,
          Effect.sync(() => void count.released++)
        )
      )
    )
  return { begun: Deferred.await(begun), count, run }
})

describe("an ACP agent", () => {
  it.live("advertises exactly what it implements", () =>
    Effect.gen(function* () {
      const { initialized } = yield* connected(optionsOf(echo))
      assert.deepStrictEqual(initialized, {
        protocolVersion: 1,
        agentInfo: { name: "test-agent", title: "Test agent", version: "1.2.3" },
        agentCapabilities: {
          loadSession: false,
          promptCapabilities: { image: false, audio: false, embeddedContext: true },
          mcpCapabilities: { http: false, sse: false },
          sessionCapabilities: { close: {} }
        },
        authMethods: []
      } as unknown as typeof initialized)
    })
  )

  it.live("sends what the agent reports, in order, before the answer to the prompt", () =>
    Effect.gen(function* () {
      const run: Run = ({ say }) =>
        Effect.gen(function* () {
          yield* say({ type: "text_delta", delta: "one " })
          yield* say({
            type: "tool_call_start",
            toolCallId: "c",
            toolName: "Bash",
            args: { command: "ls -a" }
          })
          yield* say({ type: "tool_call_result", toolCallId: "c", result: "a b" })
          yield* say({
            type: "tool_call_start",
            toolCallId: "d",
            toolName: "Edit",
            args: { path: "src/a.ts" }
          })
          yield* say({ type: "tool_call_result", toolCallId: "d", result: { why: "no" }, isError: true })
          for (let at = 0; at < 50; at++) yield* say({ type: "text_delta", delta: `${at},` })
          return end("two")
        })
      const { prompt, said, session, updates } = yield* connected(
        optionsOf(run, { directory: "/workspace", isShared: true })
      )
      const answer = yield* prompt(yield* session, "go")
      assert.strictEqual(answer.stopReason, "end_turn")
      assert.strictEqual(said(), `one ${Array.from({ length: 50 }, (_, at) => `${at},`).join("")}`)
      assert.deepStrictEqual(updates.slice(1, 5), [
        {
          sessionUpdate: "tool_call",
          toolCallId: "1:c",
          title: "ls -a",
          name: "Bash",
          kind: "execute",
          status: "in_progress",
          rawInput: { command: "ls -a" }
        },
        {
          sessionUpdate: "tool_call_update",
          toolCallId: "1:c",
          status: "completed",
          content: [{ type: "content", content: { type: "text", text: "a b" } }]
        },
        {
          sessionUpdate: "tool_call",
          toolCallId: "1:d",
          title: "Edit src/a.ts",
          name: "Edit",
          kind: "edit",
          status: "in_progress",
          locations: [{ path: "/project/src/a.ts" }],
          rawInput: { path: "src/a.ts" }
        },
        {
          sessionUpdate: "tool_call_update",
          toolCallId: "1:d",
          status: "failed",
          content: [{ type: "content", content: { type: "text", text: `{"why":"no"}` } }]
        }
      ] as unknown as typeof updates)
    })
  )

  it.live("gives later prompts the earlier turns of their session, and of no other", () =>
    Effect.gen(function* () {
      const seen: Array<Pick<AcpTurn, "earlier" | "prompt">> = []
      const { prompt, said, session } = yield* connected(
        optionsOf(({ earlier, prompt }) =>
          Effect.sync(() => {
            seen.push({ earlier, prompt })
            return end(`answer ${seen.length}`)
          })
        )
      )
      const one = yield* session
      yield* prompt(one, "a")
      yield* prompt(yield* session, "b")
      yield* prompt(one, "c")
      assert.deepStrictEqual(seen, [
        { prompt: "a", earlier: [] },
        { prompt: "b", earlier: [] },
        {
          prompt: "c",
          earlier: [
            { role: "user", content: "a" },
            { role: "assistant", content: "answer 1" }
          ]
        }
      ])
      assert.strictEqual(said(), "answer 1answer 2answer 3", "an answer without reported text was not sent")
    })
  )

  it.live("drops the oldest turns of a long conversation, and tells the user", () =>
    Effect.gen(function* () {
      const earlier: Array<number> = []
      const { prompt, session, updates } = yield* connected(
        optionsOf(
          (turn) =>
            Effect.sync(() => {
              earlier.push(turn.earlier.length)
              return end("12345")
            }),
          { limits: { historyCharsMax: 20 } }
        ),
        true
      )
      const id = yield* session
      for (const text of ["aaaaa", "bbbbb", "ccccc", "ddddd"]) yield* prompt(id, text)
      assert.deepStrictEqual(earlier, [0, 2, 4, 4])
      const notices = updates.filter(({ sessionUpdate }) => sessionUpdate === "notice")
      assert.strictEqual(notices.length, 2)
      assert.match(JSON.stringify(notices[0]), /no longer sees the oldest turn of this session/u)
    })
  )

  it.live("cancels a prompt, and answers after its resources are released", () =>
    Effect.gen(function* () {
      const begun = yield* Deferred.make<void>()
      const release = yield* Deferred.make<void>()
      const run: Run = () =>
        Effect.andThen(Deferred.succeed(begun, undefined), Effect.never).pipe(
          Effect.ensuring(Deferred.await(release))
        )
      const { cancel, prompt, session } = yield* connected(optionsOf(run))
      const id = yield* session
      const answer = yield* Effect.forkChild(prompt(id, "go"))
      yield* Deferred.await(begun)
      yield* cancel(id)
      // A refused request takes the same way, so an early answer would have arrived before it.
      for (let asked = 0; asked < 20; asked++) yield* refused(prompt(id, "again"))
      assert.isUndefined(answer.pollUnsafe(), "the prompt was answered before its release")
      yield* Deferred.succeed(release, undefined)
      assert.deepStrictEqual(yield* Fiber.join(answer), { stopReason: "cancelled" })
    })
  )

  it.live("cancels a turn that has not started its runner", () =>
    Effect.gen(function* () {
      const sessions = yield* Sessions.make(
        optionsOf(() => Effect.never),
        { messageBytesMax: 1, promptBytesMax: 100, sessionsMax: 1, promptsMax: 1, historyCharsMax: 100 }
      )
      const { sessionId } = yield* sessions.open({ cwd: "/", mcpServers: [] })
      const turn = Result.getOrThrow(
        sessions.begin(
          { sessionId, prompt: [text("go")] },
          () => Promise.resolve(),
          () => Promise.resolve({ outcome: { outcome: "cancelled" } })
        )
      )
      yield* sessions.cancel(sessionId)
      assert.deepStrictEqual(yield* turn.run, { stopReason: "cancelled" })
    })
  )

  it.live("cancels a prompt whose cancellation follows at once", () =>
    Effect.gen(function* () {
      const { run } = yield* waiting
      const { answer, open, send } = yield* raw(optionsOf(run))
      const sessionId = yield* open
      yield* send(
        message({ id: "p", method: "session/prompt", params: { sessionId, prompt: [text("go")] } }) +
          message({ method: "session/cancel", params: { sessionId } })
      )
      assert.deepStrictEqual((yield* answer("p")).result, { stopReason: "cancelled" })
    })
  )

  it.live("answers a withdrawn request with the error of the protocol", () =>
    Effect.gen(function* () {
      const { begun, count, run } = yield* waiting
      const { agent, session } = yield* connected(optionsOf(run))
      const id = yield* session
      const withdrawal = new AbortController()
      const answer = yield* Effect.forkChild(
        refused(
          Effect.promise(() =>
            agent.request(
              "session/prompt",
              { sessionId: id, prompt: [{ type: "text", text: "go" }] },
              { cancellationSignal: withdrawal.signal }
            )
          )
        )
      )
      yield* begun
      withdrawal.abort()
      assert.strictEqual((yield* Fiber.join(answer)).code, -32800)
      assert.strictEqual(count.released, 1)
    })
  )

  it.live("tells the next prompt that the last one was cancelled", () =>
    Effect.gen(function* () {
      const first = yield* waiting
      const earlier: Array<AcpTurn["earlier"]> = []
      const run: Run = (turn) =>
        turn.prompt === "go"
          ? first.run(turn)
          : Effect.sync(() => {
              earlier.push(turn.earlier)
              return end("ok")
            })
      const { cancel, prompt, session } = yield* connected(optionsOf(run))
      const id = yield* session
      const answer = yield* Effect.forkChild(prompt(id, "go"))
      yield* first.begun
      yield* cancel(id)
      yield* Fiber.join(answer)
      yield* prompt(id, "and now?")
      assert.deepStrictEqual(earlier, [
        [
          { role: "user", content: "go" },
          { role: "assistant", content: "half of\n\n[the answer ends here: the user cancelled it]" }
        ]
      ])
    })
  )

  it.live("ignores the cancellation of a session without a prompt", () =>
    Effect.gen(function* () {
      const { cancel, prompt, session } = yield* connected(optionsOf(echo))
      const id = yield* session
      yield* cancel(id)
      yield* cancel("unknown")
      assert.strictEqual((yield* prompt(id, "a")).stopReason, "end_turn")
    })
  )

  it.live("closes a session with its running prompt and what it holds", () =>
    Effect.gen(function* () {
      const { begun, count, run } = yield* waiting
      const held: Array<string> = []
      const { prompt, request, session } = yield* connected(
        optionsOf(run, {
          open: ({ sessionId }) =>
            Effect.as(
              Effect.acquireRelease(
                Effect.sync(() => void held.push(sessionId)),
                () =>
                  Effect.sync(() => {
                    assert.strictEqual(count.released, 1, "the session was released before its prompt")
                    held.pop()
                  })
              ),
              { prompt: run }
            )
        })
      )
      const id = yield* session
      const answer = yield* Effect.forkChild(prompt(id, "go"))
      yield* begun
      yield* request("session/close", { sessionId: id })
      assert.deepStrictEqual(yield* Fiber.join(answer), { stopReason: "cancelled" })
      assert.deepStrictEqual(held, [])
      assert.strictEqual((yield* refused(prompt(id, "again"))).code, -32002)
    })
  )

  it.live("ends every session when the client closes its end", () =>
    Effect.gen(function* () {
      const { begun, count, run } = yield* waiting
      let open = 0
      const client = yield* connected(
        optionsOf(run, {
          open: () =>
            Effect.as(
              Effect.acquireRelease(
                Effect.sync(() => open++),
                () => Effect.sync(() => open--)
              ),
              { prompt: run }
            )
        })
      )
      const id = yield* client.session
      yield* client.session
      assert.strictEqual(open, 2)
      yield* Effect.forkChild(Effect.exit(client.prompt(id, "go")))
      yield* begun
      yield* client.end
      assert.isTrue(Exit.isSuccess(yield* client.ended))
      assert.deepStrictEqual([open, count.released], [0, 1])
    })
  )

  it.live("answers a failed run with the error of its runner, and goes on", () =>
    Effect.gen(function* () {
      const run: Run = ({ prompt }) =>
        prompt === "bad"
          ? Effect.fail(
              new AcpRefusal({
                reason: "RunFailed",
                detail: "run-1: it failed",
                remedy: "See AcpOptions.ignoreMcpServers",
                details: { runId: "run-1" }
              })
            )
          : prompt === "worse"
            ? Effect.die(new Error(`{"secret":"planted"}`))
            : Effect.succeed(end("fine"))
      const { prompt, session } = yield* connected(
        optionsOf(run, { wording: (text) => text.replace("AcpOptions.ignoreMcpServers", "--flag") })
      )
      const id = yield* session
      const failed = yield* refused(prompt(id, "bad"))
      assert.deepStrictEqual(
        [failed.code, failed.message, failed.data],
        [
          -32603,
          "run-1: it failed. See --flag",
          { runId: "run-1", reason: "RunFailed", remedy: "See --flag" }
        ]
      )
      const defect = yield* refused(prompt(id, "worse"))
      assert.strictEqual(defect.code, -32603)
      assert.notInclude(JSON.stringify([defect.message, defect.data]), "planted")
      assert.strictEqual((yield* prompt(id, "good")).stopReason, "end_turn")
    })
  )

  it.live.each(["max_tokens", "max_turn_requests", "refusal"] as const)(
    "passes the stop reason %s on",
    (stopReason) =>
      Effect.gen(function* () {
        const { prompt, session } = yield* connected(
          optionsOf(() => Effect.succeed({ stopReason, text: "" }))
        )
        assert.deepStrictEqual(yield* prompt(yield* session, "go"), { stopReason })
      })
  )
})

describe("a session that a sandbox cannot have", () => {
  const opened = (params: object) =>
    Effect.flatMap(connected(optionsOf(echo)), ({ request }) =>
      refused(request("session/new", { cwd: "/project", mcpServers: [], ...params } as never))
    )

  it.live("is refused if the client offers MCP servers", () =>
    Effect.gen(function* () {
      const secret = { name: "TOKEN", value: "planted-secret" }
      const error = yield* opened({
        mcpServers: [{ name: "files", command: "/bin/mcp", args: [], env: [secret] }]
      })
      assert.strictEqual(error.code, -32602)
      assert.deepInclude(error.data, { reason: "McpServersUnsupported", mcpServers: 1 })
      assert.match(error.message, /sandbox, which has no network/u)
      assert.notInclude(JSON.stringify([error.message, error.data]), "planted-secret")
    })
  )

  it.live("opens without these servers if the agent ignores them, and tells the user once", () =>
    Effect.gen(function* () {
      const { prompt, request, said } = yield* connected(optionsOf(echo, { ignoreMcpServers: true }))
      const { sessionId } = yield* request("session/new", {
        cwd: "/project",
        mcpServers: [{ name: "files", command: "/bin/mcp", args: [], env: [] }]
      })
      yield* prompt(sessionId, "a")
      yield* prompt(sessionId, "b")
      assert.strictEqual(said().split("the MCP server of this session is ignored").length, 2)
    })
  )

  it.live("is refused with more than one directory", () =>
    Effect.gen(function* () {
      const error = yield* opened({ additionalDirectories: ["/other"] })
      assert.deepInclude(error.data, { reason: "DirectoriesUnsupported" })
    })
  )

  it.live("is refused in a relative directory", () =>
    Effect.gen(function* () {
      const error = yield* opened({ cwd: "project" })
      assert.deepInclude(error.data, { reason: "DirectoryRefused" })
    })
  )

  it.live("is refused beyond the limit of sessions, until one is closed", () =>
    Effect.gen(function* () {
      const { request, session } = yield* connected(optionsOf(echo, { limits: { sessionsMax: 2 } }))
      const id = yield* session
      yield* session
      assert.deepInclude((yield* refused(session)).data, { reason: "SessionsExhausted" })
      yield* request("session/close", { sessionId: id })
      yield* session
    })
  )

  it.live("releases what a refused runner held, and counts no session", () =>
    Effect.gen(function* () {
      let held = 0
      const { session } = yield* connected(
        optionsOf(echo, {
          limits: { sessionsMax: 1 },
          open: () =>
            Effect.andThen(
              Effect.acquireRelease(
                Effect.sync(() => held++),
                () => Effect.sync(() => held--)
              ),
              Effect.fail(new AcpRefusal({ reason: "DirectoryRefused", detail: "no", remedy: "" }))
            )
        })
      )
      assert.deepInclude((yield* refused(session)).data, { reason: "DirectoryRefused" })
      assert.deepInclude((yield* refused(session)).data, { reason: "DirectoryRefused" })
      assert.strictEqual(held, 0)
    })
  )
})

describe("a prompt that an agent cannot take", () => {
  it.live("is refused while another of its session runs", () =>
    Effect.gen(function* () {
      const { begun, run } = yield* waiting
      const { cancel, prompt, session } = yield* connected(optionsOf(run))
      const id = yield* session
      const first = yield* Effect.forkChild(prompt(id, "go"))
      yield* begun
      const error = yield* refused(prompt(id, "too"))
      assert.deepStrictEqual([error.code, error.data?.["reason"]], [-32600, "SessionBusy"])
      yield* cancel(id)
      assert.strictEqual((yield* Fiber.join(first)).stopReason, "cancelled")
    })
  )

  it.live("is refused beyond the limit of running prompts", () =>
    Effect.gen(function* () {
      const { begun, run } = yield* waiting
      const { cancel, prompt, session } = yield* connected(optionsOf(run, { limits: { promptsMax: 1 } }))
      const id = yield* session
      const first = yield* Effect.forkChild(prompt(id, "go"))
      yield* begun
      assert.deepInclude((yield* refused(prompt(yield* session, "too"))).data, { reason: "PromptsExhausted" })
      yield* cancel(id)
      yield* Fiber.join(first)
    })
  )

  it.live("is refused in a session that is not open", () =>
    Effect.gen(function* () {
      const { prompt } = yield* connected(optionsOf(echo))
      const error = yield* refused(prompt("nowhere", "a"))
      assert.deepStrictEqual(
        [error.code, error.data?.["reason"], error.data?.["sessionId"]],
        [-32002, "SessionUnknown", "nowhere"]
      )
    })
  )
})

describe("a connection", () => {
  it.live("refuses methods that it does not advertise", () =>
    Effect.gen(function* () {
      const { agent } = yield* connected(optionsOf(echo))
      for (const method of [
        "session/load",
        "session/resume",
        "session/list",
        "session/delete",
        "session/set_mode",
        "session/set_config_option",
        "authenticate",
        "logout",
        "fs/read_text_file",
        "no/such"
      ]) {
        const error = yield* refused(Effect.promise(() => agent.request(method, { sessionId: "x" })))
        assert.strictEqual(error.code, -32601, method)
      }
    })
  )

  it.live.each([
    ["no JSON", "{]", -32700],
    ["a batch", "[]", -32600],
    ["a number", "7", -32600],
    ["an object of another kind", '{"jsonrpc":"1.0","id":1,"method":"initialize"}', -32600]
  ] as const)("answers %s with an error, and goes on", ([, line, code]) =>
    Effect.gen(function* () {
      const { answer, open, send } = yield* raw(optionsOf(echo))
      yield* send(`${line}\n`)
      assert.strictEqual((yield* answer(null)).error?.code, code)
      yield* open
    })
  )

  it.live("refuses requests before initialize", () =>
    Effect.gen(function* () {
      const { answer, send } = yield* raw(optionsOf(echo))
      yield* send(message({ id: 1, method: "session/new", params: { cwd: "/", mcpServers: [] } }))
      assert.strictEqual((yield* answer(1)).error?.code, -32600)
    })
  )

  it.live("refuses parameters that do not match the schema", () =>
    Effect.gen(function* () {
      const { answer, open, send } = yield* raw(optionsOf(echo))
      const sessionId = yield* open
      for (const [id, prompt] of [
        [5, "text"],
        [6, [{ type: "text" }]],
        [7, [null]]
      ] as const) {
        yield* send(message({ id, method: "session/prompt", params: { sessionId, prompt } }))
        assert.strictEqual((yield* answer(id)).error?.code, -32602, String(id))
      }
    })
  )

  it.live("ignores unknown notifications and responses", () =>
    Effect.gen(function* () {
      const { open, send } = yield* raw(optionsOf(echo))
      yield* send(message({ method: "no/such", params: {} }) + message({ id: 99, result: {} }))
      yield* open
    })
  )

  it.live("reads no more while its answers are not read", () =>
    Effect.gen(function* () {
      const room = yield* Deferred.make<void>()
      const count = { written: 0 }
      const input = yield* Queue.bounded<Uint8Array>(1)
      yield* Effect.forkScoped(
        AcpServer.serve(
          {
            input: Stream.fromQueue(input),
            write: () =>
              Effect.andThen(
                Deferred.await(room),
                Effect.sync(() => void count.written++)
              )
          },
          optionsOf(echo)
        )
      )
      const total = 2000
      let sent = 0
      const sending = yield* Effect.forkScoped(
        Effect.forEach(
          Array.from({ length: total }, (_, id) => id),
          (id) =>
            Effect.andThen(
              Queue.offer(input, new TextEncoder().encode(message({ id, method: "no/such", params: {} }))),
              Effect.sync(() => void sent++)
            ),
          { discard: true }
        )
      )
      // It has stopped when many turns of the event loop let nothing more in.
      for (let quiet = 0, before = -1; quiet < 100; quiet = sent === before ? quiet + 1 : 0) {
        before = sent
        yield* Effect.promise(() => new Promise<void>((resolve) => setImmediate(resolve)))
      }
      assert.isBelow(sent, 200, "input is read although no answer is taken")
      yield* Deferred.succeed(room, undefined)
      yield* Fiber.join(sending)
      assert.strictEqual(sent, total)
      yield* Await.until(
        "all answers are written",
        Effect.sync(() => count.written === total)
      )
    })
  )

  it.live("slows a run down while its client does not read", () =>
    Effect.gen(function* () {
      const room = yield* Deferred.make<void>()
      let said = 0
      const run: Run = ({ say }) =>
        Effect.forEach(
          Array.from({ length: 500 }),
          () =>
            Effect.andThen(
              say({ type: "text_delta", delta: "x" }),
              Effect.sync(() => void said++)
            ),
          { discard: true }
        ).pipe(Effect.as(end("")))
      let blocked = false
      const { answer, open, send } = yield* raw(optionsOf(run), (line) =>
        blocked && line.includes("session/update") ? Deferred.await(room) : Effect.void
      )
      const sessionId = yield* open
      blocked = true
      yield* send(message({ id: "p", method: "session/prompt", params: { sessionId, prompt: [text("go")] } }))
      for (let quiet = 0; quiet < 100; quiet++)
        yield* Effect.promise(() => new Promise<void>((resolve) => setImmediate(resolve)))
      assert.strictEqual(said, 0)
      yield* Deferred.succeed(room, undefined)
      assert.deepStrictEqual((yield* answer("p")).result, { stopReason: "end_turn" })
      assert.strictEqual(said, 500)
    })
  )

  it.live("ends its sessions when its input ends, although its client reads nothing", () =>
    Effect.gen(function* () {
      const { begun, count, run } = yield* waiting
      let blocked = false
      const server = yield* raw(
        // Also says something at its end, when nothing can interrupt it.
        optionsOf((turn) => Effect.onExit(run(turn), () => turn.note("warning", "kept"))),
        (line) => (blocked && line.includes('"error"') ? Effect.never : Effect.void)
      )
      const sessionId = yield* server.open
      yield* server.send(
        message({ id: "p", method: "session/prompt", params: { sessionId, prompt: [text("go")] } })
      )
      yield* begun
      blocked = true
      for (let id = 0; id < 10; id++) yield* server.send(message({ id, method: "no/such" }))
      yield* server.end
      assert.isTrue(Exit.isSuccess(yield* server.ended))
      assert.strictEqual(count.released, 1)
    })
  )

  it.live("fails when its output fails, and ends its sessions", () =>
    Effect.gen(function* () {
      const { begun, count, run } = yield* waiting
      let broken = false
      const input = yield* Queue.unbounded<Uint8Array, Cause.Done>()
      const lines = yield* Queue.unbounded<string>()
      const serving = yield* Effect.forkScoped(
        AcpServer.serve(
          {
            input: Stream.fromQueue(input),
            write: (line) => (broken ? Effect.fail("gone" as const) : Effect.asVoid(Queue.offer(lines, line)))
          },
          optionsOf(run)
        )
      )
      const send = (line: string) => Queue.offer(input, new TextEncoder().encode(line))
      yield* send(message({ id: 0, method: "initialize", params: { protocolVersion: 1 } }))
      yield* Queue.take(lines)
      yield* send(message({ id: 1, method: "session/new", params: { cwd: "/", mcpServers: [] } }))
      const { result } = JSON.parse(yield* Queue.take(lines)) as { result: { sessionId: string } }
      yield* send(
        message({
          id: 2,
          method: "session/prompt",
          params: { sessionId: result.sessionId, prompt: [text("go")] }
        })
      )
      yield* begun
      broken = true
      yield* send(message({ id: 3, method: "no/such" }))
      const exit = yield* Fiber.await(serving)
      assert.isTrue(Exit.isFailure(exit) && Cause.squash(exit.cause) === "gone")
      assert.strictEqual(count.released, 1)
    })
  )

  it.live("fails on a message over its limit, and ends its sessions", () =>
    Effect.gen(function* () {
      const { begun, count, run } = yield* waiting
      const client = yield* connected(optionsOf(run, { limits: { messageBytesMax: 4096 } }))
      yield* Effect.forkChild(Effect.exit(client.prompt(yield* client.session, "go")))
      yield* begun
      yield* client.send("x".repeat(5000))
      const exit = yield* client.ended
      assert.isTrue(Exit.isFailure(exit) && Cause.squash(exit.cause) instanceof AcpServer.AcpFailed)
      assert.strictEqual(count.released, 1)
    })
  )
})
