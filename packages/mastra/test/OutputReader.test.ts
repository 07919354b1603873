/** The stream of a process's output: bounded, and released when the process is killed. */
import { assert, describe, it } from "@effect/vitest"
import * as OutputReader from "../src/internal/OutputReader.ts"

describe("OutputReader", () => {
  it("has room again when a reader has read, or never will", async () => {
    const reader = OutputReader.make(10)
    reader.push("123456789")
    await reader.room()
    reader.push("more than there is room for")
    const states: Array<string> = []
    const waiting = reader.room().then(() => states.push("room"))
    await Promise.resolve()
    assert.deepStrictEqual(states, [])
    assert.strictEqual(String(reader.stream.read()), "123456789more than there is room for")
    await waiting
    reader.push("x".repeat(20))
    const released = reader.room()
    reader.release()
    await released
    reader.push("y".repeat(20))
    await reader.room()
    reader.end()
    let rest = ""
    for await (const piece of reader.stream) rest += String(piece)
    assert.strictEqual(rest.length, 40)
  })

  it("waits for no reader that has gone away", async () => {
    const reader = OutputReader.make(1)
    reader.push("full")
    const waiting = reader.room()
    reader.stream.destroy()
    await waiting
    reader.push("ignored")
    reader.end()
    assert.isTrue(reader.stream.destroyed)
  })
})
