import { assert, describe, it } from "@effect/vitest"
import { RunId } from "@cogni/sandbox-core"
import * as ResourceLabels from "@cogni/sandbox-core/ResourceLabels"
import { Schema } from "effect"

const Owner = Schema.Struct({
  bootId: Schema.String.check(Schema.isPattern(/^[A-Za-z0-9-]{1,64}$/u)),
  processId: Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 4_194_304 })),
  startTicks: Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }))
})

const hostile = [
  "",
  "/",
  "//",
  "boot/1",
  "boot/1/2/3",
  "boot/-1/2",
  "boot/1.5/2",
  "boot/1/2\n",
  "\nboot/1/2",
  "boot/1/2 ",
  "boot/0x10/2",
  "boot/1e3/2",
  "boot/١/2",
  "../../etc/1/2",
  "boot\0/1/2",
  `${"b".repeat(65)}/1/2`,
  "boot/12345678901/2",
  `boot/1/${"9".repeat(21)}`,
  "<no value>",
  "boot/NaN/Infinity"
]

describe("ResourceLabels", () => {
  it.prop(
    "an owner survives its label",
    [Owner],
    ([owner]) => {
      assert.deepStrictEqual(ResourceLabels.parseOwner(ResourceLabels.formatOwner(owner)), owner)
    },
    { arbitrary: { runs: 300, seed: "owner" } }
  )

  it.prop(
    "parses any text without throwing, and only into valid owners",
    [Schema.String],
    ([text]) => {
      const owner = ResourceLabels.parseOwner(text)
      if (owner === undefined) return
      assert.isTrue(Number.isInteger(owner.processId) && owner.processId >= 0)
    },
    { arbitrary: { runs: 500, seed: "owner-text" } }
  )

  it.each(hostile)("rejects %j as an owner", (text) => {
    assert.isUndefined(ResourceLabels.parseOwner(text))
  })

  it("puts every label under one prefix, with its value", () => {
    const labels = ResourceLabels.make({
      runId: RunId.RunId.make("run-labels000001"),
      role: "agent",
      owner: { bootId: "boot", processId: 1, startTicks: 2 },
      startedAt: new Date(0),
      expiresAt: new Date(60_000)
    })
    assert.deepStrictEqual(labels, {
      "dev.cogni.sandbox.run": "run-labels000001",
      "dev.cogni.sandbox.role": "agent",
      "dev.cogni.sandbox.owner": "boot/1/2",
      "dev.cogni.sandbox.started-at": "1970-01-01T00:00:00.000Z",
      "dev.cogni.sandbox.expires-at": "1970-01-01T00:01:00.000Z"
    })
    assert.sameMembers(Object.keys(labels), Object.values(ResourceLabels.label))
  })
})
