import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import { LlmCall } from "@cogni/sandbox-core/RunResult"
import * as AccessLog from "../src/AccessLog.ts"

const line = (changes: Record<string, string> = {}) =>
  JSON.stringify({
    at: "1795228585.493",
    requestId: "4ad24309887f4958b464e1b01edca31e",
    method: "POST",
    target: "/v1/chat/completions",
    status: "200",
    upstreamStatus: "200",
    upstreamCallId: "call-1",
    upstreamCost: "0.002",
    requestBytes: "79",
    responseBytes: "21",
    seconds: "0.004",
    firstByteSeconds: "0.003",
    completion: "OK",
    connection: "7",
    ...changes
  })

const parse = (text: string) => AccessLog.parse(new TextEncoder().encode(text))

describe("AccessLog", () => {
  it("reads a line into a call", () => {
    assert.deepStrictEqual(parse(`${line()}\n`).lines.map(AccessLog.toLlmCall), [
      {
        at: "2026-11-21T02:36:25.493Z",
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
    ])
  })

  it("a call that never got there has no id, and a cut one is not complete", () => {
    const [call] = parse(
      `${line({ upstreamCallId: "", upstreamStatus: "", completion: "", status: "403" })}\n`
    ).lines.map(AccessLog.toLlmCall)
    assert.notProperty(call, "callId")
    assert.isFalse(call!.completed)
  })

  it("counts what was passed on, answered or not", () => {
    assert.strictEqual(
      AccessLog.passedOn(
        parse([line(), line({ upstreamStatus: "-" }), line({ upstreamStatus: "" })].join("\n"))
      ),
      2
    )
  })

  it("a call whose upstream broke off is not complete, and those before it on the connection are", () => {
    const errors =
      '2026/11/21 02:36:00 [error] 7#7: *7 upstream prematurely closed connection while reading upstream, client: unix:, request: "POST /v1/chat/completions HTTP/1.1"\n' +
      "2026/11/21 02:36:00 [error] 7#7: *9 connect() failed (111: Connection refused) while connecting to upstream, client: unix:\n"
    const log = AccessLog.parse(
      Buffer.from([line(), line(), line({ connection: "8" }), line({ connection: "9" })].join("\n")),
      Buffer.from(errors)
    )
    assert.deepStrictEqual(
      log.lines.map(AccessLog.toLlmCall).map(({ completed }) => completed),
      [true, false, true, true]
    )
  })

  it("counts bad lines and goes on", () => {
    const log = parse([line(), "{", "[]", line({ status: "x" }), "", line()].join("\n"))
    assert.strictEqual(log.lines.length, 2)
    assert.strictEqual(log.unreadable, 3)
  })

  it("a line that is still being written is no bad line, and a whole one without its end is read", () => {
    assert.deepInclude(parse(`${line()}\n${line().slice(0, 40)}`), { unreadable: 0 })
    assert.strictEqual(parse(line()).lines.length, 1)
    assert.deepStrictEqual(parse(""), { lines: [], unreadable: 0 })
  })

  it("bytes that are no UTF-8 do not lose the line", () => {
    const bytes = Buffer.from(`${line({ method: "P_ST" })}\n`, "latin1")
    bytes[bytes.indexOf("_")] = 0xff
    const log = AccessLog.parse(bytes)
    assert.strictEqual(log.lines[0]?.method, "P\ufffdST")
  })

  it.prop(
    "any bytes are read, and all that is read is a call",
    [Schema.Uint8Array, Schema.Array(Schema.String)],
    ([bytes, texts]) => {
      for (const input of [
        bytes,
        Buffer.from(texts.join("\n")),
        Buffer.from(line({ seconds: texts[0] ?? "", status: texts[1] ?? "" }))
      ]) {
        for (const call of AccessLog.parse(input).lines.map(AccessLog.toLlmCall))
          assert.isTrue(Schema.is(LlmCall)(call))
      }
    }
  )
})
