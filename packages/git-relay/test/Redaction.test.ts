/** Redacted text contains no credential, and nothing that a terminal would interpret. */
import { assert, describe, it } from "@effect/vitest"
import { Redacted, Schema } from "effect"
import * as Redaction from "../src/internal/git/Redaction.ts"
import * as Text from "../src/internal/git/ShownText.ts"

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
  it.prop("removes every form of a credential", [Schema.String, Schema.String], ([before, after]) => {
    const redact = Redaction.make([credential])
    for (const form of forms) {
      const clean = redact(`${before}${form}${after}`)
      for (const other of forms) assert.notInclude(clean, other)
      assert.isAtMost(clean.length, Text.lineCharactersMax)
      assert.notMatch(clean, /[\u0000-\u001f\u007f-\u009f\u202a-\u202e]/u)
    }
  })

  it("removes the user part of any URL, known or not", () => {
    const redact = Redaction.make([])
    assert.strictEqual(
      redact("unable to access 'https://somebody:something@git.example.com/a'"),
      "unable to access 'https://[redacted]@git.example.com/a'"
    )
  })

  it("keeps other text, on one line and without its full stop", () => {
    assert.strictEqual(
      Redaction.make([credential])("fatal:\tno\n\u001b[31msuch thing.\n"),
      "fatal: no [31msuch thing"
    )
  })

  it("removes several credentials completely, even if one is part of another", () => {
    const redact = Redaction.make([
      { username: "a", password: Redacted.make("secret-one") },
      { username: "b", password: Redacted.make("secret-one-and-more") }
    ])
    assert.strictEqual(redact("x secret-one-and-more y secret-one z"), "x [redacted] y [redacted] z")
  })

  it("keeps text that is too short for a credential, because it would occur in every word", () => {
    assert.strictEqual(Redaction.make([{ username: "a", password: Redacted.make("e") }])("there"), "there")
  })

  it("removes a credential before it cuts the text, so that no part of it remains", () => {
    const long = `${"x".repeat(Text.lineCharactersMax - 10)}${secret}`
    assert.notInclude(Redaction.make([credential])(long), secret.slice(0, 9))
  })
})
