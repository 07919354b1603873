import { readFileSync } from "node:fs"
import { performance } from "node:perf_hooks"
import * as SecretScan from "../src/internal/policy/SecretScan.ts"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Schema } from "effect"

// Split, so that no scanner finds them here.
const github = `ghp_${"aB3dE5gH7jK9mN1pQ3sT5vW7xY9zA1cD3eF5"}`
const anthropic = `sk-ant-${"api03-"}${"aB3dE5gH7jK9mN1pQ3sT5vW7xY9zA1".repeat(4).slice(0, 93)}AA`
const privateKey = `-----BEGIN RSA ${"PRIVATE"} KEY-----\n${`${"MIIEowIBAAKCAQEA".repeat(4)}\n`.repeat(20)}-----END RSA ${"PRIVATE"} KEY-----\n`
const slack = `xoxb-${"123456789012-1234567890123-AbCdEfGhIjKlMnOpQrStUvWx"}`

const bytesOf = (text: string) => new TextEncoder().encode(text)
const scan = (text: string | Uint8Array, path?: string) =>
  SecretScan.scan(typeof text === "string" ? bytesOf(text) : text, path)

describe("text that looks like a secret", () => {
  it.effect.each([
    ["github", github],
    ["anthropic", anthropic],
    ["privatekey", privateKey],
    ["slack", slack]
  ] as const)("is found: %s", ([kind, secret]) =>
    Effect.gen(function* () {
      const found = yield* scan(`first line\nkey = "${secret}"\n`)
      assert.deepStrictEqual(
        found.map(({ kind, line }) => [kind.split(",")[0], line]),
        [[kind, 2]]
      )
      assert.notInclude(JSON.stringify(found), secret.slice(8, 30))
    })
  )

  it.effect("is found despite comments that would disable the rules", () =>
    Effect.gen(function* () {
      for (const comment of [
        "secretlint-disable",
        "secretlint-disable-next-line",
        "secretlint-disable @secretlint/secretlint-rule-github -- ok"
      ]) {
        const found = yield* scan(`// ${comment}\n${github} // secretlint-disable-line\n`)
        assert.lengthOf(found, 1, comment)
      }
    })
  )

  it.effect("is found in other encodings and in binary files", () =>
    Effect.gen(function* () {
      const utf16 = Buffer.from(`\ufeffone\ntwo ${github}\n`, "utf16le")
      const noise = Buffer.from(Array.from({ length: 5000 }, (_, index) => (index * 7919) % 256))
      const binary = Buffer.concat([noise, Buffer.from(`\0${github}\0`), noise])
      const latin1 = Buffer.from(`\xe9\xff ${github} \xe9`, "latin1")
      for (const bytes of [utf16, Buffer.from(utf16).swap16(), binary, latin1])
        assert.isAbove((yield* scan(bytes)).length, 0)
    })
  )

  it.effect("is found anywhere in a large file, with its line", () =>
    Effect.gen(function* () {
      const line = `${"x".repeat(99)}\n`
      for (const before of [0, 5100, 5240, 5242, 10_300, 20_000]) {
        const found = yield* scan(`${line.repeat(before)}${github}\n${line.repeat(20_000 - before)}`)
        assert.deepStrictEqual(found, [{ kind: "github, GITHUB_TOKEN", line: before + 1 }])
      }
    })
  )

  it.effect("is not found in ordinary text", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* scan(""), [])
      assert.deepStrictEqual(yield* scan(readFileSync(new URL(import.meta.url))), [])
      assert.deepStrictEqual(yield* scan("ghp_short sk-ant- password: hunter2 a@b.example\n"), [])
    })
  )

  it.effect("is found by rules that check the name of a file", () =>
    Effect.gen(function* () {
      const token = `//npm.example.com/:_authToken=${"0f9a1b2c-3d4e-4f5a-8b6c-7d8e9f0a1b2c"}\n`
      assert.isAbove((yield* scan(token, "a/.npmrc")).length, 0)
    })
  )

  it.effect("is not retained after a scan", () =>
    Effect.gen(function* () {
      yield* scan("once")
      const marks = performance.getEntriesByType("mark").length
      for (let at = 0; at < 20; at++) yield* scan(`text ${at}`)
      assert.strictEqual(performance.getEntriesByType("mark").length, marks)
    })
  )
})

describe("known secrets", () => {
  const plain = { name: "plain", secret: "Zq8vK2mW5xR9tB4nL7cJ3hD6" }
  const odd = { name: "odd", secret: "p4$$/w+rd=ü-with_odd.chars&more>>??" }
  const known = SecretScan.makeKnown([
    plain,
    odd,
    { name: "short", secret: "abc" },
    { name: "no", secret: "" }
  ])

  const spellings: ReadonlyArray<readonly [string, (secret: string) => string | Uint8Array]> = [
    ["as it is", (secret) => `x ${secret} y`],
    ["in base64", (secret) => Buffer.from(secret).toString("base64")],
    ["in base64 with something before it", (secret) => Buffer.from(`user:${secret}`).toString("base64")],
    ["in base64url", (secret) => Buffer.from(`ab${secret}`).toString("base64url")],
    [
      "in base64 of short lines",
      (secret) =>
        Buffer.from(secret)
          .toString("base64")
          .replace(/(.{9})/gu, "$1\n")
    ],
    ["in hex", (secret) => Buffer.from(secret).toString("hex")],
    ["in a URL", (secret) => `?a=${encodeURIComponent(secret)}`],
    ["in JSON", (secret) => JSON.stringify({ secret })],
    ["reversed", (secret) => Buffer.from(secret).toReversed()],
    ["in UTF-16", (secret) => Buffer.from(secret, "utf16le")]
  ]
  it.each(spellings)("are found %s", (_what, spell) => {
    for (const { name, secret } of [plain, odd]) {
      const spelled = spell(secret)
      const bytes = typeof spelled === "string" ? bytesOf(spelled) : spelled
      assert.deepStrictEqual(known(bytes), [name])
      const far = Buffer.concat([new Uint8Array(3_000_000), bytes, new Uint8Array(10)])
      assert.deepStrictEqual(known(far), [name])
    }
  })

  it.prop("are not found in any other text", [Schema.Array(Schema.String)], ([texts]) => {
    assert.deepStrictEqual(known(bytesOf(texts.join(" "))), [])
  })

  it("can have any letters", () => {
    const known = SecretScan.makeKnown([{ name: "word", secret: "пароль-для-всех" }])
    assert.deepStrictEqual(known(Buffer.from("x пароль-для-всех x")), ["word"])
    assert.deepStrictEqual(known(Buffer.from("nothing")), [])
  })

  it("are reported once each", () => {
    assert.deepStrictEqual(known(bytesOf(`${odd.secret} ${plain.secret} ${plain.secret} abc`)), [
      "plain",
      "odd"
    ])
    assert.deepStrictEqual(SecretScan.makeKnown([])(bytesOf(plain.secret)), [])
  })
})
