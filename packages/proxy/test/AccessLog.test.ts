import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import { hasReachedUpstream, LlmCall } from "@cogni/sandbox-core/RunFigures"
import * as AccessLog from "../src/internal/nginx/AccessLog.ts"

const line = (changes: Record<string, string> = {}) =>
  JSON.stringify({
    at: "1795228585.493",
    requestId: "4ad24309887f4958b464e1b01edca31e",
    method: "POST",
    target: "/v1/chat/completions",
    status: "200",
    upstreamStatus: "200",
    upstreamCallId: "call-1",
    upstreamGenerationId: "",
    upstreamCost: "0.002",
    requestBytes: "79",
    responseBytes: "21",
    seconds: "0.004",
    firstByteSeconds: "0.003",
    completion: "OK",
    connection: "7",
    ...changes
  })

/** Reads both logs in pieces of `pieceBytes`. */
const parse = (access: string | Uint8Array, errors = "", pieceBytes = Infinity) => {
  const reader = AccessLog.makeReader()
  const add = (bytes: Uint8Array, to: (piece: Uint8Array) => void) => {
    for (let from = 0; from < bytes.length; from += pieceBytes) to(bytes.subarray(from, from + pieceBytes))
  }
  add(typeof access === "string" ? Buffer.from(access) : access, reader.addAccess)
  add(Buffer.from(errors), reader.addErrors)
  return reader.read()
}

const broke = (connection: number, doing = "reading upstream") =>
  `2026/11/21 02:36:00 [error] 7#7: *${connection} upstream prematurely closed connection while ${doing}, client: unix:, request: "POST /v1/chat/completions HTTP/1.1"\n`

describe("AccessLog", () => {
  it("reads a line into a call", () => {
    assert.deepStrictEqual(parse(`${line()}\n`), {
      calls: [
        {
          at: "2026-11-21T02:36:25.489Z",
          requestId: "4ad24309887f4958b464e1b01edca31e",
          method: "POST",
          path: "/v1/chat/completions",
          status: 200,
          callId: "call-1",
          requestBytes: 79,
          responseBytes: 21,
          durationMs: 4,
          completed: true
        }
      ],
      callsTotal: 1,
      unreadableRows: 0,
      passedOn: 1
    })
  })

  it("omits the ID of a call that was not passed on, and marks a cut one as incomplete", () => {
    const [call] = parse(
      `${line({ upstreamCallId: "", upstreamStatus: "", completion: "", status: "403" })}\n`
    ).calls
    assert.notProperty(call, "callId")
    assert.isFalse(call!.completed)
  })

  it("reads the upstream's own ID of a call, if it is one", () => {
    const { calls } = parse(
      ["gen-1", "x", ""].map((upstreamGenerationId) => `${line({ upstreamGenerationId })}\n`).join("")
    )
    assert.deepStrictEqual(
      calls.map(({ upstreamCallId }) => upstreamCallId),
      ["gen-1", undefined, undefined]
    )
  })

  it("lists a request that nginx ended itself as refused, answered or aborted, and not as a model call", () => {
    const passed = ["200", "502", "-"].map((upstreamStatus) => line({ upstreamStatus }))
    const own = ["403", "413", "429", "204", "499"].map((status) =>
      line({ status, upstreamStatus: "", upstreamCallId: "" })
    )
    const { calls } = parse([...passed, ...own, ""].join("\n"))
    assert.deepStrictEqual(
      calls.map((call) => [hasReachedUpstream(call), call.outcome]),
      [
        ...passed.map(() => [true, undefined]),
        [false, "refused"],
        [false, "refused"],
        [false, "refused"],
        [false, "answered"],
        [false, "client_aborted"]
      ]
    )
  })

  it("counts the requests that were passed on, answered or not", () => {
    assert.strictEqual(
      parse([line(), line({ upstreamStatus: "-" }), line({ upstreamStatus: "" }), ""].join("\n")).passedOn,
      2
    )
  })

  it("marks only the last call of a connection as incomplete if its upstream broke off", () => {
    const errors = `${broke(7)}2026/11/21 02:36:00 [error] 7#7: *9 connect() failed (111: Connection refused) while connecting to upstream, client: unix:\n`
    const log = parse(
      [line(), line(), line({ connection: "8" }), line({ connection: "9" }), ""].join("\n"),
      errors
    )
    assert.deepStrictEqual(
      log.calls.map(({ completed }) => completed),
      [true, false, true, true]
    )
  })

  it("marks a call as incomplete if its upstream broke off while its client was slow", () => {
    assert.isFalse(parse(`${line()}\n`, broke(7, "sending to client")).calls[0]?.completed)
  })

  it("counts all calls and keeps the first ones, each with its outcome", () => {
    const reader = AccessLog.makeReader()
    const row = (connection: number) =>
      reader.addAccess(Buffer.from(`${line({ connection: String(connection) })}\n`))
    for (let index = 0; index < AccessLog.callsKeptMax + 500; index++) row(index)
    // The third call's connection had another call, which is not kept. That one broke off.
    row(2)
    reader.addErrors(Buffer.from(broke(1) + broke(2)))
    const log = reader.read()
    assert.strictEqual(log.calls.length, AccessLog.callsKeptMax)
    assert.deepInclude(log, { callsTotal: AccessLog.callsKeptMax + 501, unreadableRows: 0 })
    assert.deepStrictEqual(
      log.calls.slice(0, 4).map(({ completed }) => completed),
      [true, false, true, true]
    )
  })

  it("counts unreadable lines and continues", () => {
    const log = parse([line(), "{", "[]", line({ status: "x" }), "", line(), ""].join("\n"))
    assert.strictEqual(log.calls.length, 2)
    assert.deepInclude(log, { callsTotal: 5, unreadableRows: 3 })
  })

  it("skips a row that is too long and reads the next one", () => {
    const log = parse(`${"x".repeat(3 * AccessLog.rowBytesMax)}\n${line()}\n`, "", 1000)
    assert.deepInclude(log, { callsTotal: 2, unreadableRows: 1 })
    assert.strictEqual(log.calls.length, 1)
  })

  it("does not count a row before it is complete", () => {
    const reader = AccessLog.makeReader()
    const whole = line()
    reader.addAccess(Buffer.from(`${line()}\n${whole.slice(0, 40)}`))
    assert.deepInclude(reader.read(), { callsTotal: 1, unreadableRows: 0 })
    reader.addAccess(Buffer.from(`${whole.slice(40)}\n`))
    assert.deepInclude(reader.read(), { callsTotal: 2, unreadableRows: 0 })
    assert.deepStrictEqual(parse(""), { calls: [], callsTotal: 0, unreadableRows: 0, passedOn: 0 })
  })

  it("reads a line with invalid UTF-8", () => {
    const bytes = Buffer.from(`${line({ method: "P_ST" })}\n`, "latin1")
    bytes[bytes.indexOf("_")] = 0xff
    assert.strictEqual(parse(bytes).calls[0]?.method, "P\ufffdST")
  })

  it.prop(
    "reads any bytes and returns only valid calls",
    [Schema.Uint8Array, Schema.Array(Schema.String)],
    ([bytes, texts]) => {
      for (const input of [
        bytes,
        Buffer.from(`${texts.join("\n")}\n`),
        Buffer.from(`${line({ seconds: texts[0] ?? "", status: texts[1] ?? "" })}\n`)
      ]) {
        for (const call of parse(input).calls) assert.isTrue(Schema.is(LlmCall)(call))
      }
    }
  )

  it.prop(
    "reads the same from any split into pieces",
    [Schema.Array(Schema.Union([Schema.Literals(["whole", "ü😀"]), Schema.String])), Schema.Int],
    ([texts, size]) => {
      const access = texts.map((text) => `${text === "whole" ? line({ target: text }) : text}\n`).join("")
      const pieceBytes = 1 + (Math.abs(size) % 200)
      assert.deepStrictEqual(parse(access, broke(7), pieceBytes), parse(access, broke(7)))
    }
  )
})
