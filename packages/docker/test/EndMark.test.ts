import { assert, describe, it } from "@effect/vitest"
import type { OutputChunk } from "@cogni/sandbox-core/RunResult"
import { Schema } from "effect"
import * as EndMark from "../src/internal/container/EndMark.ts"

const token = "0123456789abcdef0123456789abcdef"
const line = (code: number) => `\0${token} ${code}\n`

const encode = (text: string) => new TextEncoder().encode(text)

/** Pushes texts, and returns the output of each stream and the exit code. */
const heard = (chunks: ReadonlyArray<readonly [OutputChunk["channel"], string | Uint8Array]>) => {
  const mark = EndMark.make(token)
  const output: Array<OutputChunk> = []
  for (const [channel, text] of chunks) {
    const rest = mark.push({ channel, bytes: typeof text === "string" ? encode(text) : text })
    if (rest !== undefined) output.push(rest)
  }
  const exitCode = mark.exitCode()
  if (exitCode === undefined) output.push(...mark.rest())
  const of = (channel: OutputChunk["channel"]) =>
    Buffer.concat(output.filter((chunk) => chunk.channel === channel).map(({ bytes }) => bytes)).toString()
  return { stdout: of("stdout"), stderr: of("stderr"), exitCode }
}

/** Texts of which the line is made, so that generated output often resembles it. */
const Pieces = Schema.Array(
  Schema.Union([
    Schema.Literals(["\0", token, `\0${token}`, `\0${token.slice(0, 9)}`, " ", "7", "\n", "\0\0", "a"]),
    Schema.String
  ])
)

describe("EndMark", () => {
  it("knows the exit code when both streams have ended with it, and passes all that came before", () => {
    assert.deepStrictEqual(
      heard([
        ["stdout", "out"],
        ["stderr", `err${line(7)}`],
        ["stdout", `put${line(7)}`]
      ]),
      { stdout: "output", stderr: "err", exitCode: 7 }
    )
    const half = heard([["stderr", line(0)]])
    assert.isUndefined(half.exitCode, "stdout may have more")
    assert.deepStrictEqual(
      heard([
        ["stdout", line(0)],
        ["stderr", line(0)]
      ]),
      {
        stdout: "",
        stderr: "",
        exitCode: 0
      }
    )
  })

  it("takes no line of another token, and holds nothing of it back", () => {
    const forged = line(0).replace(token, token.replace("0", "1"))
    const { exitCode, stderr, stdout } = heard([
      ["stdout", forged],
      ["stderr", forged]
    ])
    assert.deepStrictEqual([stdout, stderr, exitCode], [forged, forged, undefined])
  })

  it.prop(
    "passes every byte of any output in any pieces, with and without an end",
    [Pieces, Schema.Array(Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 40 }))), Schema.Boolean],
    ([pieces, cuts, ends]) => {
      // A line with the token itself cannot be output.
      const text = pieces.join("").replaceAll(`\0${token} `, "")
      const bytes = encode(ends ? text + line(130) : text)
      const chunks: Array<readonly ["stdout", Uint8Array]> = []
      let at = 0
      for (let turn = 0; at < bytes.length; turn++) {
        const size = cuts[turn % Math.max(1, cuts.length)] ?? bytes.length
        chunks.push(["stdout", bytes.subarray(at, at + size)])
        at += size
      }
      const found = heard([...chunks, ...(ends ? [["stderr", line(130)] as const] : [])])
      assert.strictEqual(found.stdout, new TextDecoder("utf-8", { ignoreBOM: true }).decode(encode(text)))
      assert.strictEqual(found.exitCode, ends ? 130 : undefined)
    }
  )
})
