/** A running command whose end fails. */
import { assert, describe, it } from "@effect/vitest"
import type { Process } from "@cogni/sandbox-promise"
import { setImmediate } from "node:timers/promises"
import * as SessionProcess from "../src/internal/SessionProcess.ts"

describe("SessionProcess", () => {
  it("does not end the host's process if its release fails after its exit", async () => {
    const unhandled: Array<unknown> = []
    const note = (reason: unknown) => void unhandled.push(reason)
    const ended: Process = {
      output: (async function* () {})(),
      exit: Promise.resolve({ exitCode: 3 }),
      kill: async () => undefined,
      [Symbol.asyncDispose]: () => Promise.reject(new Error("the release failed"))
    }
    process.on("unhandledRejection", note)
    try {
      const session = await SessionProcess.start(Promise.resolve(ended))
      assert.deepStrictEqual(await session.wait(), { exitCode: 3 })
      for (let turn = 0; turn < 20; turn++) await setImmediate()
      assert.deepStrictEqual(unhandled, [])
    } finally {
      process.off("unhandledRejection", note)
    }
  })
})
