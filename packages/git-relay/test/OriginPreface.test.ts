import { assert, describe, it } from "@effect/vitest"
import { Result, Schema } from "effect"
import * as OriginPreface from "../src/internal/origin/OriginPreface.ts"

const id = "a".repeat(40)
const text = `cogni-origin 1\nformat sha1\nhead main\nref ${id} HEAD\nref ${id} refs/heads/main\nshallow ${id}`

/** Answers of the reader to these pieces. */
const answers = (pieces: ReadonlyArray<string>) => {
  const reader = OriginPreface.makeReader()
  return pieces.map((piece) => reader.push(Buffer.from(piece, "latin1")))
}

describe("OriginPreface", () => {
  it("reads the references, and returns the bytes that follow", () => {
    const [answer] = answers([`${text}\n\n# v2 git bundle`])
    assert.isTrue(answer !== undefined && Result.isSuccess(answer))
    const { preface, rest } = Result.getOrThrow(answer!)
    assert.strictEqual(Buffer.from(rest).toString(), "# v2 git bundle")
    assert.strictEqual(preface.advertised.headBranch, "main")
    assert.deepStrictEqual(preface.shallow as ReadonlyArray<string>, [id])
  })

  it.prop("reads a preface in pieces of any size", [Schema.Int, Schema.Int], ([one, other]) => {
    const all = `${text}\n\nPACK`
    const cuts = [Math.abs(one) % all.length, Math.abs(other) % all.length].toSorted((a, b) => a - b)
    const found = answers([all.slice(0, cuts[0]), all.slice(cuts[0], cuts[1]), all.slice(cuts[1])])
    const first = found.find((answer) => answer !== undefined)
    assert.isTrue(first !== undefined && Result.isSuccess(first))
  })

  it.each([
    ["an empty preface", "\n\n"],
    ["another program", "hello\nformat sha1\n\n"],
    ["an unknown format", "cogni-origin 1\nformat md5\n\n"],
    ["an id of the other format", `cogni-origin 1\nformat sha256\nref ${id} HEAD\n\n`],
    ["an unknown line", `cogni-origin 1\nformat sha1\nremote ${id} x\n\n`],
    ["a name with a space", `cogni-origin 1\nformat sha1\nref ${id} refs/heads/a b\n\n`],
    ["more references than requested", `${text}\nref ${id} refs/heads/other\n\n`]
  ])("refuses %s", (_, said) => {
    const [answer] = answers([said])
    assert.isTrue(answer !== undefined && Result.isFailure(answer))
  })

  it("refuses a preface without an end", () => {
    const line = `shallow ${id}\n`.repeat(40_000)
    const reader = OriginPreface.makeReader()
    reader.push(Buffer.from("cogni-origin 1\nformat sha1\n"))
    let answer
    for (let times = 0; times < 8 && answer === undefined; times++) answer = reader.push(Buffer.from(line))
    assert.isTrue(answer !== undefined && Result.isFailure(answer))
  })
})
