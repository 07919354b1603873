/**
 * Finds text that looks like a credential, and the run's own secrets.
 *
 * The first uses secretlint's preset without the comments that disable rules, because the author of the text would
 * write them. The second searches by value, in plain text and in the usual encodings. Findings never repeat a secret:
 * they have its kind and its line.
 */
import { createRequire } from "node:module"
import * as Canary from "@cogni/sandbox-core/Canary"
import { Effect } from "effect"

export interface Finding {
  /** Such as `github, GITHUB_TOKEN`; never the text that was found. */
  readonly kind: string
  /** From 1. */
  readonly line: number
}

/** Maximum size of a part. A file is scanned in parts, to limit the input of a rule's regular expressions. */
const partCharactersMax = 512 * 1024

/**
 * Overlap of two parts, so that a secret across their boundary is whole in one. Longer than any token or private key.
 */
const overlapCharacters = 16 * 1024

/** Minimum length of a secret to search for. A shorter one would be found in every other file. */
const knownSecretBytesMin = 8

/**
 * Finds text in a file that looks like a credential. Only the name at the end of the path matters: some rules use it.
 */
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

/** Returns a function that returns the names of the secrets that occur in a text, in plain or encoded. */
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

const load = async () => {
  const [{ lintSource }, { rules }] = await Promise.all([
    import("@secretlint/core"),
    import("@secretlint/secretlint-rule-preset-recommend")
  ])
  stopProfiling()
  const config = {
    rules: rules
      .filter(({ meta }) => !/filter-comments/u.test(meta.id))
      .map((rule) => ({ id: rule.meta.id, rule }))
  }
  return { lintSource, config }
}

let loaded: ReturnType<typeof load> | undefined

/** Loads secretlint for the first scan. Each run imports this module, and only those with a repository need a scan. */
const secretlint = () => (loaded ??= load())

/**
 * Disables secretlint's profiler. It marks every rule on every file in the timeline of the process, and keeps the marks
 * without limit: 35 KB per file. The profiler is a dependency of secretlint, so it is resolved from there. If that
 * fails, the only cost is the memory of the marks.
 */
const stopProfiling = () => {
  try {
    const core = createRequire(createRequire(import.meta.url).resolve("@secretlint/core"))
    core("@secretlint/profiler").secretLintProfiler.setEnabled(false)
  } catch {
    // The layout of the packages has changed.
  }
}

/**
 * Returns only names that rules use: a rule opens the file of the host that its path names, if its name ends in `.p12`.
 */
const fileNameFor = (path: string): string => {
  const name = path.slice(path.lastIndexOf("/") + 1).toLowerCase()
  return ["package.json", "package-lock.json", ".npmrc"].includes(name) ? name : "blob.json"
}

/** Scans one part. A scan that fails is reported as a finding. */
const lint = (content: string, filePath: string): Effect.Effect<ReadonlyArray<Finding>> =>
  Effect.tryPromise(async () => {
    const { config, lintSource } = await secretlint()
    return lintSource({
      source: { filePath, content, ext: ".json", contentType: "text" },
      options: { config, noPhysicFilePath: true }
    })
  }).pipe(
    Effect.map(({ messages }) =>
      messages.map(({ loc, messageId, ruleId }) => ({
        kind: `${ruleId.replace(/^.*secretlint-rule-/u, "")}, ${messageId}`,
        line: loc.start.line
      }))
    ),
    Effect.catch(() => Effect.succeed([{ kind: "unknown, it cannot be scanned", line: 1 }]))
  )

/**
 * Returns the texts to scan. Secrets are ASCII, so one character per byte is enough. UTF-16 is ASCII with a NUL at
 * every character, but in a binary file a NUL ends a text, so both readings are tried. Data with a NUL is mostly noise,
 * which is left out.
 */
const readings = (bytes: Uint8Array): ReadonlyArray<string> =>
  bytes.includes(0)
    ? [textsIn(bytes, false), textsIn(bytes, true)]
    : [Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("latin1")]

/** Minimum length of a text. Shorter texts contain no secret. */
const textBytesMin = 8

const [space, newline] = [0x20, 0x0a]

const isText = Uint8Array.from({ length: 256 }, (_, byte) =>
  (byte >= space && byte < 0x7f) || byte === 9 || byte === newline || byte === 13 ? 1 : 0
)

/** Extracts readable texts from noise, on their own lines. */
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

/**
 * Returns the forms to search for. `Canary` supports only secrets of letters and digits; others are searched for in
 * these forms.
 */
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

/** Encodes text as UTF-8, with one character per byte. */
const inLatin1 = (text: string): string => Buffer.from(text, "utf8").toString("latin1")

const withSqueezed = (text: string): ReadonlyArray<string> => [text, squeeze(text)]

/** Removes everything except letters and digits. */
const squeeze = (text: string): string => text.replace(/[^A-Za-z0-9]/gu, "")

/** Base64 of a secret after this many other bytes: the part that does not depend on its neighbors. */
const base64Inside = (secret: string, before: number): string => {
  const bytes = Buffer.concat([Buffer.alloc(before), Buffer.from(secret, "utf8")])
  const from = Math.ceil((before * 8) / 6)
  return bytes.toString("base64").slice(from, Math.floor((bytes.length * 8) / 6))
}
