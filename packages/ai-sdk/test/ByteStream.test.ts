/** The bound of a stream that is fed from outside, which a whole process would show only after a pause. */
import { assert, describe, it } from "@effect/vitest"
import * as ByteStream from "../src/internal/ByteStream.ts"

/** Waits until everything has run that can run without another event. */
const settled = async () => {
  for (let turn = 0; turn < 3; turn++) await new Promise((resolve) => setImmediate(resolve))
}

describe("a channel", () => {
  it("delays a push beyond its bytes until they are read, or the reader cancels", async () => {
    const { push, stream } = ByteStream.channel(10)
    const pushed: Array<number> = []
    const add = (number: number) => void push(new Uint8Array(6)).then(() => pushed.push(number))
    add(1)
    add(2)
    await settled()
    assert.deepStrictEqual(pushed, [1])
    const reader = stream.getReader()
    await reader.read()
    await settled()
    assert.deepStrictEqual(pushed, [1, 2])
    add(3)
    await settled()
    assert.deepStrictEqual(pushed, [1, 2])
    await reader.cancel()
    await settled()
    assert.deepStrictEqual(pushed, [1, 2, 3])
    await push(new Uint8Array(100))
  })
})
