import { assert, describe, it } from "@effect/vitest"
import type { ExecSpec } from "@cogni/sandbox-core/ContainerRuntime"
import { Schema, Stream } from "effect"
import * as SupervisorFrame from "../src/internal/container/SupervisorFrame.ts"

const header = (length: number, kind: number, id: number): Uint8Array => {
  const bytes = new Uint8Array(9)
  const view = new DataView(bytes.buffer)
  view.setUint32(0, length)
  view.setUint8(4, kind)
  view.setUint32(5, id)
  return bytes
}

const frame = (kind: number, id: number, payload: Uint8Array): Uint8Array =>
  Buffer.concat([header(payload.byteLength, kind, id), payload])

const numbers = (...all: ReadonlyArray<number>): Uint8Array => {
  const bytes = new Uint8Array(4 * all.length)
  all.forEach((value, index) => new DataView(bytes.buffer).setUint32(4 * index, value))
  return bytes
}

/** Decodes frames as the supervisor does. */
const framesOf = (bytes: Uint8Array) => {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const found: Array<{ readonly kind: number; readonly id: number; readonly payload: Uint8Array }> = []
  for (let at = 0; at < bytes.byteLength;) {
    const length = view.getUint32(at)
    found.push({
      kind: view.getUint8(at + 4),
      id: view.getUint32(at + 5),
      payload: bytes.subarray(at + 9, at + 9 + length)
    })
    at += 9 + length
  }
  return found
}

const stringsOf = (payload: Uint8Array): ReadonlyArray<string> => {
  const found: Array<string> = []
  for (let at = 0; at < payload.byteLength;) {
    const length = new DataView(payload.buffer, payload.byteOffset).getUint32(at)
    found.push(new TextDecoder().decode(payload.subarray(at + 4, at + 4 + length)))
    at += 4 + length
  }
  return found
}

const Said = Schema.Struct({
  id: Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 2 ** 32 - 1 })),
  channel: Schema.Literals(["stdout", "stderr"]),
  text: Schema.String
})

describe("SupervisorFrame", () => {
  it.prop(
    "decodes whole frames in order, however the bytes are split",
    [Schema.Array(Said), Schema.Array(Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 40 })))],
    ([said, cuts]) => {
      const whole = Buffer.concat(
        said.map(({ channel, id, text }) => frame(channel === "stdout" ? 17 : 18, id, Buffer.from(text)))
      )
      const decoder = SupervisorFrame.makeDecoder()
      const found: Array<SupervisorFrame.Frame> = []
      let at = 0
      for (let turn = 0; at < whole.byteLength; turn++) {
        const next = at + (cuts[turn % Math.max(1, cuts.length)] ?? 7)
        found.push(...decoder.push(whole.subarray(at, next)))
        at = next
      }
      assert.deepStrictEqual(
        found.map(({ id, told }) =>
          told._tag === "Output"
            ? { id, channel: told.channel, text: Buffer.from(told.bytes).toString() }
            : undefined
        ),
        said.map(({ channel, id, text }) => ({ id, channel, text: Buffer.from(text).toString() }))
      )
    },
    { arbitrary: { runs: 300, seed: 6 } }
  )

  it("keeps nothing of other commands with the output of one", () => {
    const others = frame(17, 2, new Uint8Array(SupervisorFrame.framePayloadBytesMax))
    const [own] = SupervisorFrame.makeDecoder().push(Buffer.concat([frame(18, 1, Buffer.from("a")), others]))
    assert.strictEqual(own?.told._tag === "Output" ? own.told.bytes.buffer.byteLength : undefined, 1)
  })

  it("decodes the end of a command", () => {
    const decoder = SupervisorFrame.makeDecoder()
    assert.deepStrictEqual(decoder.push(frame(19, 7, numbers(137, 9, 1, 0))), [
      { id: 7, told: { _tag: "Exited", exitCode: 137, signal: 9, oomKilled: true, processesRefused: false } }
    ])
    assert.deepStrictEqual(decoder.push(frame(20, 7, Buffer.from("No such file or directory"))), [
      { id: 7, told: { _tag: "Refused", why: "No such file or directory" } }
    ])
    assert.deepStrictEqual(decoder.push(frame(21, 7, new Uint8Array(0))), [{ id: 7, told: { _tag: "Gone" } }])
  })

  it("decodes the credit for streamed input, and its end", () => {
    const decoder = SupervisorFrame.makeDecoder()
    assert.deepStrictEqual(decoder.push(frame(22, 7, numbers(0xffff_ffff))), [
      { id: 7, told: { _tag: "InputAccepted", bytes: 0xffff_ffff } }
    ])
    assert.deepStrictEqual(decoder.push(frame(23, 7, new Uint8Array(0))), [
      { id: 7, told: { _tag: "InputOver" } }
    ])
  })

  it("encodes a command with a stream as its strings and an announcement", () => {
    const command: ExecSpec = { argv: ["cat"], env: {}, stdin: Stream.never }
    const [start, ...rest] = framesOf(SupervisorFrame.start(3, command, "/workspace"))
    assert.deepStrictEqual(stringsOf(start!.payload), ["/workspace", "1", "cat"])
    assert.deepStrictEqual(
      rest.map(({ id, kind, payload }) => [kind, id, payload.byteLength]),
      [[7, 3, 0]]
    )
    assert.deepStrictEqual(
      SupervisorFrame.inputPieces(new Uint8Array(2 * SupervisorFrame.inputPieceBytesMax + 1)).map(
        ({ byteLength }) => byteLength
      ),
      [65_536, 65_536, 1]
    )
    assert.deepStrictEqual(
      [SupervisorFrame.input(3, Buffer.from("ab")), SupervisorFrame.inputEnd(3)].map((bytes) =>
        framesOf(bytes).map(({ id, kind, payload }) => [kind, id, Buffer.from(payload).toString()])
      ),
      [[[2, 3, "ab"]], [[3, 3, ""]]]
    )
  })

  it("limits exit codes, signals and reasons to what a process can have", () => {
    const decoder = SupervisorFrame.makeDecoder()
    const [ended, refused] = [
      ...decoder.push(frame(19, 7, numbers(0x7fff_ff03, 0xffff_ff09, 0, 7))),
      ...decoder.push(frame(20, 7, Buffer.from("x".repeat(5000))))
    ]
    assert.deepStrictEqual(ended?.told, {
      _tag: "Exited",
      exitCode: 3,
      signal: 9,
      oomKilled: false,
      processesRefused: true
    })
    assert.deepStrictEqual(refused?.told, { _tag: "Refused", why: "x".repeat(200) })
  })

  it("decodes a frame that arrives in small pieces in linear time", () => {
    const decoder = SupervisorFrame.makeDecoder()
    const whole = frame(17, 1, new Uint8Array(SupervisorFrame.framePayloadBytesMax))
    const before = process.cpuUsage()
    let found = 0
    for (let turn = 0; turn < 20; turn++)
      for (let at = 0; at < whole.byteLength; at++) found += decoder.push(whole.subarray(at, at + 1)).length
    assert.strictEqual(found, 20)
    // Quadratic time would be half a minute.
    assert.isBelow(process.cpuUsage(before).user / 1000, 5000)
  })

  it.each([
    ["an unknown kind", frame(99, 1, new Uint8Array(0))],
    ["a kind that only the host sends", frame(1, 1, new Uint8Array(0))],
    ["an exit with a payload that is too short", frame(19, 1, numbers(0, 0))],
    ["input credit with a payload that is too short", frame(22, 1, new Uint8Array(3))],
    ["input credit with a payload that is too long", frame(22, 1, numbers(1, 2))],
    ["a payload above the maximum", header(SupervisorFrame.framePayloadBytesMax + 1, 17, 1)],
    ["text that is not a frame", Buffer.from("GET / HTTP/1.1\r\n\r\n")]
  ])("rejects %s", (_what, bytes) => {
    assert.throws(() => SupervisorFrame.makeDecoder().push(bytes), /invalid supervisor frame/u)
  })

  it("encodes a command as its strings, its input in pieces, and the end of the input", () => {
    const command: ExecSpec = {
      argv: ["sh", "-c", "echo $A; rm -rf 'x y'\n"],
      env: { A: "b=c\nd", Ü: "ö" },
      stdin: new Uint8Array(150_000).fill(7)
    }
    const [start, ...rest] = framesOf(SupervisorFrame.start(3, command, "/workspace"))
    assert.deepStrictEqual(stringsOf(start!.payload), ["/workspace", "3", ...command.argv, "A=b=c\nd", "Ü=ö"])
    assert.deepStrictEqual(
      rest.map(({ id, kind, payload }) => [kind, id, payload.byteLength]),
      [
        [2, 3, 65_536],
        [2, 3, 65_536],
        [2, 3, 18_928],
        [3, 3, 0]
      ]
    )
    const [elsewhere] = framesOf(
      SupervisorFrame.start(4, { argv: ["pwd"], env: {}, workingDirectory: "/tmp" }, "/workspace")
    )
    assert.deepStrictEqual(stringsOf(elsewhere!.payload), ["/tmp", "1", "pwd"])
  })

  it("encodes a signal, a kill and a credit as one frame each", () => {
    assert.deepStrictEqual(
      [SupervisorFrame.signal(5, 15), SupervisorFrame.kill(5), SupervisorFrame.credit(5, 65_536)].map(
        (bytes) =>
          framesOf(bytes).map(({ id, kind, payload }) => [kind, id, Buffer.from(payload).toString("hex")])
      ),
      [[[4, 5, "3135"]], [[5, 5, ""]], [[6, 5, "00010000"]]]
    )
  })
})
