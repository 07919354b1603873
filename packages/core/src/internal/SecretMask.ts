/**
 * Masks secrets in text that arrives in pieces, also one that is split between them.
 *
 * Each character of a secret becomes `*`. So text keeps its length, its lines and its offsets, and a terminal its
 * layout. The last characters of a piece are held back while they may be the beginning of a secret; nothing else
 * waits. A piece is scanned once, by patterns without nested repetition, and what is remembered is bounded.
 */

export interface SecretMask {
  /** Adds text, and returns the next characters that are certain. */
  readonly push: (text: string) => string
  /** Returns the characters that are held back. A beginning that is long enough to be of use is masked. */
  readonly rest: () => string
}

/** A beginning of this many characters is held back. A shorter one says nothing. */
const heldMin = 4

/** A held beginning of this many characters is masked if it never ends. */
const tellingChars = 8

/** Characters before a piece that are remembered. More than the longest beginning. */
const contextChars = 128

/** Longest body of a private key. Then output is shown again, because an agent may never write the end. */
const keyCharsMax = 16 * 1024

/** Credentials of a well-known form: what they begin with, which characters follow, and how many at least. */
interface Form {
  readonly prefix: string
  readonly body: string
  readonly bodyMin: number
  /** Letters and digits before it make it another word, such as `disk-…`. */
  readonly isWord?: boolean
}

const forms: ReadonlyArray<Form> = [
  { prefix: "sk-", body: "[\\w-]", bodyMin: 20, isWord: true },
  // Newer tokens of installations contain dots.
  ...["ghp_", "gho_", "ghu_", "ghs_", "ghr_"].map((prefix) => ({ prefix, body: "[\\w.-]", bodyMin: 30 })),
  { prefix: "github_pat_", body: "\\w", bodyMin: 22 },
  { prefix: "glpat-", body: "[\\w-]", bodyMin: 20 },
  ...["AKIA", "ASIA"].map((prefix) => ({ prefix, body: "[A-Z0-9]", bodyMin: 16 })),
  ...["xoxa-", "xoxb-", "xoxe-", "xoxp-", "xoxr-", "xoxs-"].map((prefix) => ({
    prefix,
    body: "[A-Za-z0-9-]",
    bodyMin: 10
  })),
  { prefix: "AIza", body: "[\\w-]", bodyMin: 30 },
  // Stripe, Hugging Face, SendGrid, runners of GitLab, apps of Slack.
  ...["sk_live_", "rk_live_"].map((prefix) => ({ prefix, body: "[A-Za-z0-9]", bodyMin: 16 })),
  { prefix: "hf_", body: "[A-Za-z0-9]", bodyMin: 30, isWord: true },
  { prefix: "SG.", body: "[\\w.-]", bodyMin: 40, isWord: true },
  { prefix: "glrt-", body: "[\\w.-]", bodyMin: 20 },
  { prefix: "xapp-", body: "[A-Za-z0-9-]", bodyMin: 20 },
  // A signed token: base64 of a JSON object, and of two more parts.
  { prefix: "eyJ", body: "[\\w.-]", bodyMin: 60, isWord: true },
  ...["Bearer ", "bearer "].map((prefix) => ({ prefix, body: "[\\w.~+/-]", bodyMin: 20, isWord: true })),
  { prefix: "npm_", body: "[A-Za-z0-9]", bodyMin: 30 },
  // A grant's token, and the secret of a sign-in.
  ...["cgs_", "cgi_"].map((prefix) => ({ prefix, body: "[\\w-]", bodyMin: 30 }))
]

const privateKey = "-----BEGIN (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----"
const privateKeyEnd = /-----END [A-Z0-9 ]{1,100}-----/u

/** Beginnings of the header lines of a private key. So many lines, and characters of one, count as its headers. */
const headers = ["Proc-Type:", "DEK-Info:", "Version:", "Comment:", "Hash:", "Charset:", "MessageID:"]
const headersMax = 8
const headerCharsMax = 100

/** Follows the text after the first line of a private key, up to what cannot be of one. */
const makeKeyText = () => {
  /** The beginning of the line, and the dashes before the next character. */
  let line = ""
  let dashes = 0
  let headersLeft = headersMax
  let isEscaped = false

  const mayBeHeader = (char: string): boolean => {
    const begun = line + char
    if (
      begun.length > headerCharsMax ||
      !headers.some((name) => name.startsWith(begun) || begun.startsWith(name))
    )
      return false
    return !headers.includes(begun) || headersLeft-- > 0
  }
  /** Whether the next character may be of the key. Also as a string of a program, quoted, or in a difference. */
  const takes = (char: string): boolean => {
    const isMarked = dashes === 0 || dashes === 5 || (dashes <= 6 && line.length === dashes)
    const isEnd = /[\r\n]/u.test(char) || (isEscaped && /[nr]/u.test(char))
    isEscaped = char === "\\" && !isEscaped
    if (char === "-") {
      dashes++
      line += line.length < headerCharsMax ? char : ""
      return dashes <= (line.length === dashes ? 6 : 5)
    }
    const isTaken =
      (isMarked && (/[A-Za-z0-9+/=\s\\"']/u.test(char) || (line === "" && /[>#|]/u.test(char)))) ||
      mayBeHeader(char)
    dashes = 0
    if (isEnd) line = ""
    else if (line.length < headerCharsMax && (line !== "" || /[A-Za-z0-9+/=]/u.test(char))) line += char
    return isTaken
  }
  return {
    /** Returns how many characters at the beginning of a text may be of the key. */
    partOf: (text: string): number => {
      for (let at = 0; at < text.length; at++) if (!takes(text.charAt(at))) return at
      return text.length
    }
  }
}

/** Tells secrets from other text. */
interface Rules {
  readonly pattern: RegExp
  /** The characters of secrets, at the end of a text. */
  readonly word: RegExp
  /** Whether a text from an index to its end may be the beginning of a secret. */
  readonly mayBegin: (text: string, from: number) => boolean
  /** The characters that continue a secret which the pattern found. `undefined`: it has ended. */
  readonly moreOf: (secret: string) => RegExp | undefined
}

/** Number of characters that show at once, of most text, that it is no beginning. All beginnings have more. */
const startChars = 3

const startsOf = (texts: ReadonlyArray<string>): ReadonlySet<string> =>
  new Set(texts.map((text) => text.slice(0, startChars)))

const formRules = (): Rules => {
  const starts = startsOf(forms.map(({ prefix }) => prefix))
  const known = forms.map((form) => ({
    ...form,
    bodies: new RegExp(`^${form.body}*$`, "u"),
    more: new RegExp(`${form.body}*`, "uy")
  }))
  return {
    pattern: new RegExp(
      [
        privateKey,
        ...forms.map(
          ({ body, bodyMin, isWord, prefix }) =>
            `${isWord === true ? "(?<![A-Za-z0-9])" : ""}${prefix.replace(".", "\\.")}${body}{${bodyMin},}`
        )
      ].join("|"),
      "gu"
    ),
    word: /(?:[Bb]earer )?[\w.~+/-]*$/u,
    mayBegin: (text, from) => {
      if (!starts.has(text.slice(from, from + startChars))) return false
      const begun = text.slice(from)
      return known.some(({ bodies, bodyMin, isWord, prefix }) =>
        isWord === true && /[A-Za-z0-9]/u.test(text.charAt(from - 1))
          ? false
          : begun.length <= prefix.length
            ? prefix.startsWith(begun)
            : begun.startsWith(prefix) &&
              begun.length < prefix.length + bodyMin &&
              bodies.test(begun.slice(prefix.length))
      )
    },
    moreOf: (secret) => known.find(({ prefix }) => secret.startsWith(prefix))?.more
  }
}

const valueRules = (values: ReadonlyArray<string>): Rules => {
  const lower = values.map((value) => value.toLowerCase())
  const starts = startsOf(lower)
  return {
    pattern: new RegExp(lower.length === 0 ? "(?!)" : lower.join("|"), "giu"),
    word: /[A-Za-z0-9]*$/u,
    mayBegin: (text, from) => {
      if (!starts.has(text.slice(from, from + startChars).toLowerCase())) return false
      const begun = text.slice(from).toLowerCase()
      return lower.some((value) => value.length > begun.length && value.startsWith(begun))
    },
    moreOf: () => undefined
  }
}

const masked = (text: string): string => text.replaceAll(/[^\r\n]+/gu, ({ length }) => "*".repeat(length))

const make = ({ mayBegin, moreOf, pattern, word }: Rules): SecretMask => {
  /** The end of what was pushed, of which the first `done` characters were returned. */
  let kept = ""
  let done = 0
  /** Characters that continue a secret without a fixed length. */
  let more: RegExp | undefined
  /** Characters of a private key that may still come, and its last ones. */
  let keyLeft = 0
  let keyTail = ""
  let keyText = makeKeyText()
  /** Text that was not looked at yet, and text to return. */
  let rest = ""
  let out = ""

  const forget = () => {
    kept = ""
    done = 0
  }
  const continued = (body: RegExp) => {
    body.lastIndex = 0
    const { length } = body.exec(rest)?.[0] ?? ""
    out += masked(rest.slice(0, length))
    rest = rest.slice(length)
    if (rest !== "") more = undefined
  }
  const inKey = () => {
    const end = privateKeyEnd.exec(keyTail + rest)
    const length = end === null ? rest.length : end.index + end[0].length - keyTail.length
    const possible = rest.slice(0, Math.min(length, keyLeft))
    const taken = possible.slice(0, keyText.partOf(possible))
    out += masked(taken)
    keyTail = (keyTail + taken).slice(-contextChars)
    const isOver = taken.length < possible.length || (end !== null && taken.length === length)
    keyLeft = isOver ? 0 : keyLeft - taken.length
    rest = rest.slice(taken.length)
    if (keyLeft > 0) return
    // A secret may begin in what was masked.
    kept = keyTail
    done = kept.length
  }
  /** Where the end of a text is held back: at what may be the beginning of a secret. */
  const heldFrom = (text: string, from: number): number => {
    const begin = Math.max(from, text.length - contextChars)
    const { length } = word.exec(text.slice(begin))?.[0] ?? ""
    for (let at = text.length - length; at <= text.length - heldMin; at++) if (mayBegin(text, at)) return at
    return text.length
  }
  const scan = () => {
    const text = kept + rest
    rest = ""
    let ended = 0
    pattern.lastIndex = 0
    for (let found = pattern.exec(text); found !== null; found = pattern.exec(text)) {
      ended = found.index + found[0].length
      if (ended <= done) continue
      if (found[0].startsWith("-----")) {
        out += text.slice(done, ended)
        rest = text.slice(ended)
        keyLeft = keyCharsMax
        keyTail = ""
        keyText = makeKeyText()
        return forget()
      }
      const begin = Math.max(found.index, done)
      out += text.slice(done, begin) + masked(text.slice(begin, ended))
      done = ended
      more = ended === text.length ? moreOf(found[0]) : undefined
      if (more !== undefined) return forget()
    }
    const from = Math.max(done, heldFrom(text, ended))
    out += text.slice(done, from)
    const keptFrom = Math.max(ended, Math.min(from, text.length - contextChars))
    kept = text.slice(keptFrom)
    done = from - keptFrom
  }
  /** Looks at the next part. Returns whether there is more. */
  const step = (): boolean => {
    if (more !== undefined) continued(more)
    else if (keyLeft > 0) inKey()
    else scan()
    return rest !== ""
  }
  return {
    push: (text) => {
      out = ""
      rest = text
      let isMore = text !== ""
      while (isMore) isMore = step()
      return out
    },
    rest: () => {
      const held = kept.slice(done)
      done = kept.length
      return held.length < tellingChars ? held : masked(held)
    }
  }
}

/** Masks credentials of well-known forms. */
export const ofForms = (): SecretMask => make(formRules())

/** Masks values of letters and digits, in any case. */
export const ofValues = (values: ReadonlyArray<string>): SecretMask => make(valueRules(values))
