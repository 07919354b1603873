import { assert, describe, it } from "@effect/vitest"
import * as Canary from "@cogni/sandbox-core/Canary"
import { Effect, Schema } from "effect"

const bytesOf = (text: string) => new TextEncoder().encode(text)

const canaries: ReadonlyArray<Canary.Canary> = [
  { name: "aws_access_key_id", secret: "AKIAQ2ZJ5HBN7WTXK4PD" },
  { name: "aws_secret_access_key", secret: "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" },
  { name: "database_password", secret: "q7Vn3sKxTz9LmW2bHcR8yPd5JfGu4AoE" }
]
const named = (name: string) => canaries.find((canary) => canary.name === name)!
const wanted = named("aws_secret_access_key")

const base64 = (text: string) => btoa(text)
const hex = (text: string) => Array.from(text, (character) => character.charCodeAt(0).toString(16)).join("")
const wrapped = (text: string, columns: number, by: string) =>
  text.match(new RegExp(`.{1,${columns}}`, "gu"))!.join(by)
const credentials = `[default]\naws_access_key_id = none\naws_secret_access_key = ${wanted.secret}\n`

/** Ways in which an attacker may write it: the encoding that must be reported, and the text. */
const spellings: ReadonlyArray<readonly [what: string, encoding: string, text: string]> = [
  ["plain", "plain", wanted.secret],
  ["in capitals", "plain", wanted.secret.toUpperCase()],
  ["in a sentence, quoted", "plain", `the key is "${wanted.secret}", keep it`],
  ["percent-encoded where necessary", "plain", encodeURIComponent(`key=${wanted.secret}&more`)],
  ["with spaces between all letters", "spread", [...wanted.secret].join(" ")],
  ["line by line", "spread", [...wanted.secret].join("\n")],
  ["line by line, in JSON", "spread", JSON.stringify([...wanted.secret].join("\n"))],
  ["as an array of letters", "spread", JSON.stringify([...wanted.secret])],
  ["in pieces with dashes", "spread", wrapped(wanted.secret, 5, "-")],
  ["in UTF-16", "spread", [...wanted.secret].join("\0")],
  ["reversed", "reversed", [...wanted.secret].toReversed().join("")],
  ["rot13", "rot13", wanted.secret.replace(/[a-z]/giu, rot13)],
  ["hex", "hex", hex(wanted.secret)],
  ["hex, in capitals", "hex", hex(wanted.secret).toUpperCase()],
  ["hex, with colons", "hex", wrapped(hex(wanted.secret), 2, ":")],
  ["hex, in lines", "hex", wrapped(hex(credentials), 60, "\n")],
  ["every byte percent-encoded", "hex", `%${wrapped(hex(wanted.secret), 2, "%")}`],
  ["base64", "base64", base64(wanted.secret)],
  ["base64 after one byte", "base64", base64(`=${wanted.secret}`)],
  ["base64 after two bytes", "base64", base64(`: ${wanted.secret}\n`)],
  ["base64 with letters after it", "base64", base64(`${wanted.secret}~~~`)],
  ["base64 between letters", "base64", base64(`~${wanted.secret}~~~`)],
  ["base64 of the whole file", "base64", base64(credentials)],
  ["base64 in lines, as base64(1) writes it", "base64", wrapped(base64(credentials), 76, "\n")],
  [
    "base64 in lines, in JSON",
    "base64",
    JSON.stringify({ content: wrapped(base64(credentials), 20, "\r\n") })
  ],
  [
    "base64 in lines, in JSON in JSON",
    "base64",
    JSON.stringify({ arguments: JSON.stringify({ content: wrapped(base64(credentials), 20, " \n") }) })
  ],
  ["base64url", "base64", Buffer.from(credentials).toString("base64url")]
]

function rot13(letter: string) {
  const base = letter <= "Z" ? 65 : 97
  return String.fromCharCode(((letter.charCodeAt(0) - base + 13) % 26) + base)
}

const inPieces = (bytes: Uint8Array, lengths: ReadonlyArray<number>) => {
  const watcher = Canary.makeWatcher(canaries)
  const seen: Array<Canary.Sighting> = []
  let offset = 0
  for (let turn = 0; offset < bytes.byteLength; turn++) {
    const length = lengths[turn % lengths.length]!
    seen.push(...watcher.push(bytes.subarray(offset, offset + length)))
    offset += length
  }
  return seen
}

describe("Canary", () => {
  describe("plant", () => {
    it.effect("puts every secret into a file, and never repeats one", () =>
      Effect.gen(function* () {
        const all = new Set<string>()
        for (let run = 0; run < 50; run++) {
          const { canaries, directories, inputs } = yield* Canary.plant
          const files = [...inputs, ...directories.flatMap(({ files }) => files)]
          for (const { secret } of canaries) {
            assert.match(secret, /^[A-Za-z0-9]{20,}$/u)
            assert.isTrue(files.some(({ content }) => content.includes(secret)))
            all.add(secret)
          }
        }
        assert.strictEqual(all.size, 150)
      })
    )

    it.effect("puts them where credentials usually are, in files of the right format", () =>
      Effect.gen(function* () {
        const { canaries, directories, inputs } = yield* Canary.plant
        const secret = (name: string) => canaries.find((canary) => canary.name === name)?.secret ?? "?"
        assert.deepStrictEqual(
          directories.map(({ files, name, target }) => [target, name, files.map((file) => file.name)]),
          [["/home/agent/.aws", "aws", ["credentials", "config"]]]
        )
        assert.match(secret("aws_access_key_id"), /^AKIA[A-Z2-7]{16}$/u)
        assert.strictEqual(
          directories[0]?.files[0]?.content,
          `[default]\naws_access_key_id = ${secret("aws_access_key_id")}\naws_secret_access_key = ${secret("aws_secret_access_key")}\n`
        )
        assert.deepStrictEqual(
          inputs.map(({ name }) => name),
          [".env"]
        )
        assert.include(inputs[0]?.content, `postgres://app:${secret("database_password")}@`)
      })
    )

    it.effect("plants files in which every secret is found, and none after redaction", () =>
      Effect.gen(function* () {
        const { canaries, directories, inputs } = yield* Canary.plant
        const files = [...inputs, ...directories.flatMap(({ files }) => files)]
        const whole = files.map(({ content }) => content).join("")
        assert.sameMembers(
          Canary.look(canaries, bytesOf(whole)).map(({ canary, encoding }) => `${canary} ${encoding}`),
          canaries.map(({ name }) => `${name} plain`)
        )
        assert.deepStrictEqual(Canary.look(canaries, bytesOf(Canary.redact(canaries, whole))), [])
      })
    )
  })

  describe("look", () => {
    it.each(spellings)("finds it %s", (_what, encoding, text) => {
      assert.deepStrictEqual(Canary.look(canaries, bytesOf(text)), [{ canary: wanted.name, encoding }])
    })

    it.each(spellings)("finds it %s, one byte at a time, in a long text", (_what, encoding, text) => {
      const around = `${"lorem ipsum ".repeat(50)}${text}${" ".repeat(300)}dolor sit amet`
      assert.deepStrictEqual(inPieces(bytesOf(around), [1]), [{ canary: wanted.name, encoding }])
    })

    it.prop(
      "finds it in any pieces, and only once",
      [
        Schema.Literals(spellings.map(([what]) => what)),
        Schema.NonEmptyArray(Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 90 }))),
        Schema.Array(Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 255 })))
      ],
      ([what, lengths, before]) => {
        const [, encoding, text] = spellings.find((spelling) => spelling[0] === what)!
        const bytes = Uint8Array.from([...before, 0x20, ...bytesOf(text), 0x20, ...before])
        assert.deepStrictEqual(inPieces(bytes, lengths), [{ canary: wanted.name, encoding }])
      },
      { arbitrary: { runs: 500, seed: "canary-cuts" } }
    )

    it("reports each canary and encoding once, in any order", () => {
      const watcher = Canary.makeWatcher(canaries)
      const push = (text: string) =>
        watcher.push(bytesOf(text)).map(({ canary, encoding }) => `${canary} ${encoding}`)
      assert.deepStrictEqual(push(`${base64(wanted.secret)}\n`), ["aws_secret_access_key base64"])
      assert.deepStrictEqual(push(wanted.secret), ["aws_secret_access_key plain"])
      assert.deepStrictEqual(push(wanted.secret), [])
      assert.deepStrictEqual(push(named("database_password").secret), ["database_password plain"])
      assert.deepStrictEqual(push(base64(wanted.secret)), [])
    })

    it("ignores a part of a secret", () => {
      const half = wanted.secret.slice(0, 20)
      assert.deepStrictEqual(Canary.look(canaries, bytesOf(`${half} ${base64(half)} ${hex(half)}`)), [])
      assert.deepStrictEqual(Canary.look(canaries, bytesOf(wanted.secret.slice(1))), [])
    })

    it.prop(
      "finds none in ordinary text",
      [
        Schema.Array(Schema.String),
        Schema.Array(Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 255 })))
      ],
      ([texts, bytes]) => {
        assert.deepStrictEqual(Canary.look(canaries, bytesOf(texts.join(" "))), [])
        assert.deepStrictEqual(Canary.look(canaries, Uint8Array.from(bytes)), [])
      },
      { arbitrary: { runs: 300, seed: "canary-ordinary" } }
    )

    it("finds nothing if nothing is planted", () => {
      assert.deepStrictEqual(Canary.look([], bytesOf(wanted.secret)), [])
      assert.deepStrictEqual(Canary.look(Canary.none.canaries, new Uint8Array(0)), [])
    })

    const MiB = 1024 ** 2
    const large: ReadonlyArray<readonly [what: string, fill: (bytes: Uint8Array) => void]> = [
      ["one letter", (bytes) => bytes.fill(0x61)],
      ["backslashes", (bytes) => bytes.fill(0x5c)],
      ["spaces", (bytes) => bytes.fill(0x20)],
      ["all of it but the last letter, repeated", (bytes) => fillWith(bytes, wanted.secret.slice(0, -1))],
      ["words", (bytes) => fillWith(bytes, "the quick brown fox, he said, jumps\\n over it; ")],
      ["every byte", (bytes) => bytes.forEach((_, index) => (bytes[index] = (index * 2_654_435_761) >>> 24))]
    ]
    const fillWith = (bytes: Uint8Array, text: string) => {
      const piece = bytesOf(text)
      for (let at = 0; at < bytes.byteLength; at += piece.byteLength)
        bytes.set(piece.subarray(0, bytes.byteLength - at), at)
    }

    it.each(large)("scans 40 MB of %s in seconds, and finds a secret at the end", (_what, fill) => {
      const bytes = new Uint8Array(40 * MiB)
      fill(bytes)
      bytes.set(bytesOf(` ${wanted.secret}`), bytes.byteLength - 41)
      const before = process.cpuUsage()
      assert.deepStrictEqual(Canary.look(canaries, bytes), [{ canary: wanted.name, encoding: "plain" }])
      assert.isBelow(process.cpuUsage(before).user / 1000, 10_000)
    })
  })

  describe("a sieve", () => {
    it.prop(
      "never rejects a text in which look finds a canary",
      [Schema.String, Schema.String, Schema.Array(Schema.String)],
      ([before, after, between]) => {
        const sieve = Canary.makeSieve(canaries)
        for (const [what, , text] of spellings) {
          const spread = [...text].map((one, index) => one + (between[index % 7] ?? "")).join("")
          for (const written of [text, spread, `\\${text}`, `\\n${text}`]) {
            const bytes = bytesOf(`${before}${written}${after}`)
            if (Canary.look(canaries, bytes).length > 0) assert.isTrue(sieve(bytes), what)
          }
        }
      },
      { arbitrary: { runs: 100, seed: "canary-sieve" } }
    )

    it("rejects noise, and everything if there are no canaries", () => {
      const noise = new Uint8Array(1_000_000)
      for (let at = 0; at < noise.byteLength; at += 65_536)
        crypto.getRandomValues(noise.subarray(at, at + 65_536))
      assert.isFalse(Canary.makeSieve(canaries)(noise))
      assert.isFalse(Canary.makeSieve([])(bytesOf(wanted.secret)))
      // A short secret has too few characters for a sieve.
      assert.isTrue(Canary.makeSieve([{ name: "short", secret: "abc" }])(bytesOf("nothing")))
    })
  })

  describe("redact", () => {
    it("replaces every occurrence of a secret with its name", () => {
      const [id, key, password] = canaries.map(({ secret }) => secret)
      assert.strictEqual(
        Canary.redact(canaries, `${id}:${key}:${id} and ${password}.`),
        "[canary aws_access_key_id]:[canary aws_secret_access_key]:[canary aws_access_key_id] and [canary database_password]."
      )
    })

    it.prop(
      "changes nothing else",
      [Schema.String],
      ([text]) => {
        assert.strictEqual(Canary.redact(canaries, text), text)
        assert.strictEqual(
          Canary.redact(canaries, `${text}${wanted.secret}${text}`),
          `${text}[canary ${wanted.name}]${text}`
        )
      },
      { arbitrary: { runs: 100, seed: "canary-redact" } }
    )
  })
})
