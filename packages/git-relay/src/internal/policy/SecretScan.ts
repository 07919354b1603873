/**
 * What looks like a credential, and what is one of the run's own.
 *
 * The first is secretlint's preset without its comments that switch it off: what is looked at was written by whoever
 * would write those. The second is by value, in plain and in the usual encodings. Nothing that is found is repeated:
 * a finding says what kind it is and where it stands.
 */
import { createRequire } from "node:module"
import * as Canary from "@cogni/sandbox-core/Canary"
import { lintSource } from "@secretlint/core"
import { rules } from "@secretlint/secretlint-rule-preset-recommend"
import { Effect } from "effect"

export interface Finding {
  /** Such as `github, GITHUB_TOKEN`; never what was found. */
  readonly kind: string
  /** From 1. */
  readonly line: number
}

/** A file is looked at in parts of this size: no expression of a rule gets more to chew on. */
const partCharactersMax = 512 * 1024

/** What parts share, so that what lies across two of them is whole in one. Longer than any token, or a private key. */
const overlapCharacters = 16 * 1024

/** A shorter secret would be found in every other file. */
export const knownSecretBytesMin = 8

/** What looks like a credential in a file. Only the name of the path counts, as some rules do. */
export const scan = (bytes: Uint8Array, path = ""): Effect.Effect<ReadonlyArray<Finding>> =>
  Effect.gen(function* () {
    const found = new Map<string, Finding>()
    for (const text of readings(bytes)) {
      for (let from = 0, line = 1; from < text.length; from += partCharactersMax - overlapCharacters) {
        const part = text.slice(from, from + partCharactersMax)
        for (const finding of yield* lint(part, fileNameFor(path))) {
          const there = { ...finding, line: finding.line + line - 1 }
          found.set(`${there.kind} ${there.line}`, there)
        }
        if (from + partCharactersMax >= text.length) break
        line += linesIn(part.slice(0, partCharactersMax - overlapCharacters))
        yield* Effect.yieldNow
      }
    }
    return [...found.values()].toSorted((a, b) => a.line - b.line || (a.kind < b.kind ? -1 : 1))
  })

/** Which of these secrets are in it, by name, in plain or encoded. */
export const makeKnown = (
  secrets: ReadonlyArray<Canary.Canary>
): ((bytes: Uint8Array) => ReadonlyArray<string>) => {
  const forms = secrets.flatMap(formsOf)
  const names = [...new Set(secrets.map(({ name }) => name))]
  const mayHold = Canary.makeSieve(forms)
  return (bytes) => {
    if (!mayHold(bytes)) return []
    const seen = new Set(Canary.look(forms, bytes).map(({ canary }) => canary))
    return names.filter((name) => seen.has(name))
  }
}

const rulesWithoutComments = rules
  .filter(({ meta }) => !/filter-comments/u.test(meta.id))
  .map((rule) => ({ id: rule.meta.id, rule }))

/**
 * secretlint marks every rule on every file in the process's own timeline, and keeps the marks for ever: 35 KB a file.
 * Its profiler belongs to its dependencies, so it is reached from there; where it is not, the marks are what is lost.
 */
const stopProfiling = (() => {
  let done = false
  return () => {
    if (done) return
    done = true
    try {
      const core = createRequire(createRequire(import.meta.url).resolve("@secretlint/core"))
      core("@secretlint/profiler").secretLintProfiler.setEnabled(false)
    } catch {
      // It is laid out in another way now.
    }
  }
})()

/**
 * The names that rules ask for, and no other: a rule opens the file of the host that its path names, when it is one of
 * `.p12`.
 */
const fileNameFor = (path: string): string => {
  const name = path.slice(path.lastIndexOf("/") + 1).toLowerCase()
  return ["package.json", "package-lock.json", ".npmrc"].includes(name) ? name : "blob.json"
}

/** What a rule cannot look at has not been looked at, which is a finding, too. */
const lint = (content: string, filePath: string): Effect.Effect<ReadonlyArray<Finding>> =>
  Effect.tryPromise(() => {
    stopProfiling()
    return lintSource({
      source: { filePath, content, ext: ".json", contentType: "text" },
      options: { config: { rules: rulesWithoutComments }, noPhysicFilePath: true }
    })
  }).pipe(
    Effect.map(({ messages }) =>
      messages.map(({ loc, messageId, ruleId }) => ({
        kind: `${ruleId.replace(/^.*secretlint-rule-/u, "")}, ${messageId}`,
        line: loc.start.line
      }))
    ),
    Effect.catch(() => Effect.succeed([{ kind: "unknown, it cannot be looked at", line: 1 }]))
  )

/**
 * What a secret is made of is ASCII, so one character a byte is enough. UTF-16 is that with a NUL at every character,
 * and in a program's file a NUL ends a text: both are tried. What holds a NUL is mostly noise, which is left out.
 */
const readings = (bytes: Uint8Array): ReadonlyArray<string> =>
  bytes.includes(0)
    ? [textsIn(bytes, false), textsIn(bytes, true)]
    : [Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("latin1")]

/** No secret is in a shorter text. */
const textBytesMin = 8

const [space, newline] = [0x20, 0x0a]

const isText = Uint8Array.from({ length: 256 }, (_, byte) =>
  (byte >= space && byte < 0x7f) || byte === 9 || byte === newline || byte === 13 ? 1 : 0
)

/** What in noise can be read, on the lines where it stands. */
const textsIn = (bytes: Uint8Array, withoutNul: boolean): string => {
  const text = Buffer.allocUnsafe(bytes.byteLength + 1)
  let [length, from, lines] = [0, 0, 0]
  for (let at = 0; at < bytes.byteLength; at++) {
    const byte = bytes[at]!
    if (isText[byte] === 1) {
      text[length++] = byte
      if (byte === newline) lines++
    } else if (byte !== 0 || !withoutNul) {
      if (length - from >= textBytesMin) text[length++] = space
      else {
        if (lines > 0) text.fill(newline, from, from + lines)
        length = from + lines
      }
      from = length
      lines = 0
    }
  }
  return text.toString("latin1", 0, length)
}

const linesIn = (text: string): number => text.split("\n").length - 1

/** `Canary` knows secrets of letters and digits only; of another one, this is what is looked for. */
const formsOf = ({ name, secret }: Canary.Canary): ReadonlyArray<Canary.Canary> => {
  const written = [
    inLatin1(secret),
    encodeURIComponent(secret),
    inLatin1(JSON.stringify(secret).slice(1, -1))
  ]
  const inside = [0, 1, 2].map((before) => base64Inside(secret, before))
  return [...new Set([...written, ...inside.filter((text) => squeeze(text) !== text)].flatMap(withSqueezed))]
    .filter((text) => text.length >= knownSecretBytesMin)
    .map((text) => ({ name, secret: text }))
}

/** Its bytes, one character each. */
const inLatin1 = (text: string): string => Buffer.from(text, "utf8").toString("latin1")

const withSqueezed = (text: string): ReadonlyArray<string> => [text, squeeze(text)]

/** What is left of it when only letters and digits are. */
const squeeze = (text: string): string => text.replace(/[^A-Za-z0-9]/gu, "")

/** What base64 makes of it when this many bytes stand before it: the part that does not depend on its neighbours. */
const base64Inside = (secret: string, before: number): string => {
  const bytes = Buffer.concat([Buffer.alloc(before), Buffer.from(secret, "utf8")])
  const from = Math.ceil((before * 8) / 6)
  return bytes.toString("base64").slice(from, Math.floor((bytes.length * 8) / 6))
}
