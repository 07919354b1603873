/**
 * Whatever is said, no credential is in it, nor anything that a terminal would act on.
 */
import { assert, describe, it } from "@effect/vitest"
import { Redacted, Schema } from "effect"
import * as Redaction from "../src/internal/Redaction.ts"
import * as Text from "../src/internal/Text.ts"

const secret = "ghs_12+34/planted=token.with-dots"
const credential = { username: "x-access-token", password: Redacted.make(secret) }
const pair = Buffer.from(`x-access-token:${secret}`)
const forms = [
  secret,
  encodeURIComponent(secret),
  pair.toString("base64"),
  pair.toString("base64").replace(/=+$/u, ""),
  Buffer.from(secret).toString("base64url"),
  Buffer.from(secret).toString("hex")
]

describe("Redaction", () => {
  it.prop("no form of a credential comes through", [Schema.String, Schema.String], ([before, after]) => {
    const redact = Redaction.make([credential])
    for (const form of forms) {
      const clean = redact(`${before}${form}${after}`)
      for (const other of forms) assert.notInclude(clean, other)
      assert.isAtMost(clean.length, Text.lineCharactersMax)
      assert.notMatch(clean, /[\u0000-\u001f\u007f-\u009f\u202a-\u202e]/u)
    }
  })

  it("the user part of any URL goes too, known or not", () => {
    const redact = Redaction.make([])
    assert.strictEqual(
      redact("unable to access 'https://somebody:something@git.example.com/a'"),
      "unable to access 'https://[redacted]@git.example.com/a'"
    )
  })

  it("what is no secret stays, on one line and without its full stop", () => {
    assert.strictEqual(
      Redaction.make([credential])("fatal:\tno\n\u001b[31msuch thing.\n"),
      "fatal: no [31msuch thing"
    )
  })

  it("a path is shown as it is, or with what cannot be shown spelt out", () => {
    const latin1 = (text: string) => Buffer.from(text, "utf8").toString("latin1")
    assert.strictEqual(Text.showPath(latin1("src/größe.ts")), "src/größe.ts")
    assert.strictEqual(Text.showPath("latin\u00e9.txt"), String.raw`latin\xe9.txt`)
    assert.strictEqual(Text.showPath("a\nb\u001b"), String.raw`a\x0ab\x1b`)
    assert.isAtMost(Text.showPath("x".repeat(5000)).length, Text.lineCharactersMax)
  })
})
