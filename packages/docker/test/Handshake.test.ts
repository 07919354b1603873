import { assert, describe, it } from "@effect/vitest"
import * as Handshake from "../src/internal/container/Handshake.ts"
import { reportBytesMax } from "../src/internal/container/PostureReport.ts"
import { Schema } from "effect"

const bytes = (text: string) => new TextEncoder().encode(text)
const report = ["cogni-posture 1", "status Seccomp:\t2", "interface lo", "cogni-posture end"].join("\n")

const play = (pieces: ReadonlyArray<Uint8Array>) => {
  const handshake = Handshake.make({ isWaiting: false })
  const said: Array<Handshake.Said> = []
  const output: Array<Uint8Array> = []
  for (const piece of pieces) {
    const heard = handshake.push({ channel: "stderr", bytes: piece })
    said.push(...heard.said)
    if (heard.output !== undefined) output.push(heard.output.bytes)
  }
  return { said, output: Buffer.concat(output).toString("latin1"), pending: handshake.pending() }
}

describe("Handshake", () => {
  it.prop(
    "separates the report from the agent's bytes, however stderr is split",
    [Schema.String, Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 17 }))],
    ([own, length]) => {
      const wire = bytes(`${report}\ncogni-start\n${own}`)
      const pieces = Array.from({ length: Math.ceil(wire.byteLength / length) }, (_, index) =>
        wire.slice(index * length, (index + 1) * length)
      )
      const { output, said } = play(pieces)
      assert.deepStrictEqual(said, [{ _tag: "Reported", report }, { _tag: "Started" }])
      assert.strictEqual(output, Buffer.from(own, "utf8").toString("latin1"))
    }
  )

  it.each([
    ["what its program wrote before it", `x\n${report}\n`, `x\n${report}`, false],
    [
      "a line that only ends like its last",
      `x cogni-posture end\n${report}\n`,
      `x cogni-posture end\n${report}`,
      false
    ],
    ["what its program wrote after it", `${report}\nx\n`, report, true],
    ["nothing else", `${report}\n`, report, false]
  ])("reads a report that comes in one piece, with %s", (_, text, expected, isMore) => {
    const handshake = Handshake.make({ isWaiting: true })
    handshake.push({ channel: "stderr", bytes: bytes(`${report}\n`) })
    handshake.expectReport()
    const { output, said } = handshake.push({ channel: "stderr", bytes: bytes(text) })
    assert.deepStrictEqual(said, [{ _tag: "Reported", report: expected }])
    assert.isUndefined(output)
    assert.strictEqual(handshake.hasSpoken(), isMore)
  })

  it("treats a handshake that the agent imitates as output", () => {
    const { output, said } = play([bytes(`${report}\ncogni-start\n${report}\ncogni-failed socket\n`)])
    assert.strictEqual(said.length, 2)
    assert.include(output, "cogni-failed socket")
  })

  it("ignores a start before the report", () => {
    assert.deepStrictEqual(play([bytes("cogni-start\nhello\n")]).said, [])
  })

  it("reports why the connection to the model failed", () => {
    assert.deepStrictEqual(play([bytes(`${report}\ncogni-failed socket no answer\n`)]).said[1], {
      _tag: "Failed",
      detail: "socket no answer"
    })
  })

  it("keeps the text that came instead of a report, for the error message", () => {
    assert.include(
      play([bytes("exec /usr/local/bin/cogni-entrypoint: no such file")]).pending,
      "no such file"
    )
  })

  it("drops everything beyond the maximum size of a report", () => {
    const handshake = Handshake.make({ isWaiting: false })
    const flood = bytes(`${"x\n".repeat(32_768)}`)
    for (let turn = 0; turn < 64; turn++) handshake.push({ channel: "stderr", bytes: flood })
    assert.isAtMost(handshake.pending().length, 600)
    assert.deepStrictEqual(
      handshake.push({ channel: "stderr", bytes: bytes(`${report}\ncogni-start\n`) }).said,
      []
    )
  })

  it("reads a line that comes a byte at a time without reading it again for each byte", () => {
    const handshake = Handshake.make({ isWaiting: false })
    const one = { channel: "stderr", bytes: bytes("x") } as const
    const before = process.cpuUsage()
    for (let turn = 0; turn < 200_000; turn++) handshake.push(one)
    // Measured: 20 s if each byte copies the line.
    assert.isBelow(process.cpuUsage(before).user / 1e6, 2)
    assert.strictEqual(handshake.pending(), "x".repeat(600))
  })

  it("treats a byte on stdout after the report as a started agent, and still removes cogni-start from stderr", () => {
    const handshake = Handshake.make({ isWaiting: false })
    const stdout = { channel: "stdout", bytes: bytes("y\n") } as const
    assert.deepStrictEqual(handshake.push(stdout).said, [], "before the report")
    handshake.push({ channel: "stderr", bytes: bytes(`${report}\n`) })
    assert.deepStrictEqual(handshake.push(stdout), { said: [{ _tag: "Started" }], output: stdout })
    assert.deepStrictEqual(handshake.push(stdout), { said: [], output: stdout })
    const late = handshake.push({ channel: "stderr", bytes: bytes("cogni-start\nown\n") })
    assert.strictEqual(Buffer.from(late.output?.bytes ?? []).toString(), "own\n")
  })

  it("takes a second report after a claim, and none after the start", () => {
    const handshake = Handshake.make({ isWaiting: false })
    const heard = (text: string) => handshake.push({ channel: "stderr", bytes: bytes(text) })
    handshake.expectReport()
    assert.strictEqual(heard(`${report}\n`).said[0]?._tag, "Reported")
    handshake.expectReport()
    assert.deepStrictEqual(heard("cogni-start\n").said, [], "without its second report")
    const second = Handshake.make({ isWaiting: false })
    const told = (text: string) => second.push({ channel: "stderr", bytes: bytes(text) }).said
    assert.deepStrictEqual(told(`${report}\n`), [{ _tag: "Reported", report }])
    second.expectReport()
    assert.deepStrictEqual(told(`${report}\n`), [{ _tag: "Reported", report }])
    assert.isFalse(second.hasSpoken())
    assert.deepStrictEqual(told("cogni-failed x\ncogni-start\n"), [], "before `go`")
    assert.isTrue(second.hasSpoken())
    second.expectStart()
    assert.deepStrictEqual(told("cogni-start\n"), [{ _tag: "Started" }])
    second.expectReport()
    assert.deepStrictEqual(told(`${report}\n`), [])
  })

  it.each(["stdout", "stderr"] as const)(
    "takes nothing on %s from a container that waits, and hears that it wrote",
    (channel) => {
      const handshake = Handshake.make({ isWaiting: true })
      const told = (text: string) => handshake.push({ channel, bytes: bytes(text) })
      handshake.push({ channel: "stderr", bytes: bytes(`${report}\n`) })
      assert.isFalse(handshake.hasSpoken())
      assert.deepStrictEqual(told("cogni-start\n"), { said: [], output: undefined })
      assert.isTrue(handshake.hasSpoken())
      assert.isFalse(handshake.hasFlooded())
      assert.deepStrictEqual(told("x".repeat(reportBytesMax)), { said: [], output: undefined })
      assert.isTrue(handshake.hasFlooded())
    }
  )

  it("finds no handshake on stdout", () => {
    const handshake = Handshake.make({ isWaiting: false })
    assert.deepStrictEqual(handshake.push({ channel: "stdout", bytes: bytes(report) }).said, [])
  })
})
