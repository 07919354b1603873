/**
 * The text that people read, taken out of pages and code, and the rules it follows.
 *
 * The rules list forms of a private way of speaking that this repository once had. Each form has an ordinary word or
 * construction beside it.
 */
import { fleschKincaid } from "flesch-kincaid"
import { syllable } from "syllable"
import * as SourceTree from "./SourceTree.ts"

/** Where a text stands. A message is a string that a user can read: an error, a flag's help, a log line. */
export type Kind = "page" | "message" | "docstring" | "comment" | "title"

export interface Passage {
  readonly kind: Kind
  readonly path: string
  /** From 1. */
  readonly line: number
  /** One paragraph, without markup and with single spaces. */
  readonly text: string
}

export interface Fault {
  readonly passage: Passage
  readonly found: string
  readonly instead: string
}

/** The longest sentence, in words. The median of the Docker and Stripe documentation is about 15. */
export const sentenceWordsMax = 40

/** The highest reading grade of a page, and of all text of a kind: what a reader of 14 or 15 years understands. */
export const gradeMax = 9

interface Form {
  readonly form: RegExp
  readonly instead: string
}

const forms: ReadonlyArray<Form> = [
  {
    form: /\b(?:is|are|was|were|be|there's) none\b(?! of the\b)/iu,
    instead: "does not exist, is not a valid …"
  },
  { form: /\bnone of (?:its|their|our|his) own\b/iu, instead: "does not match, does not belong to" },
  { form: /\bbe had\b/iu, instead: "is available, can be used" },
  { form: /\bnobody\b/iu, instead: "no user, nothing, or the passive voice" },
  { form: /\bsomebody\b/iu, instead: "another user, a caller, the operator" },
  { form: /\bwho(?:m|so)?ever\b/iu, instead: "the caller, the user, anyone who" },
  { form: /\botherwise than\b|\bother than it\b/iu, instead: "different from" },
  { form: /\bin (?:the|its|their|his) stead\b/iu, instead: "instead" },
  { form: /\bamiss\b/iu, instead: "wrong, invalid, a mismatch" },
  {
    form: /\b(?:is|are|was|were|be|being) (?:said|told)\b(?! apart)/iu,
    instead: "is reported, stated, written"
  },
  { form: /\b(?:is|are|was|were) not there\b/iu, instead: "does not exist, is missing" },
  { form: /\b(?:what|all that|that) (?:is|was) there\b/iu, instead: "what exists, the existing …" },
  { form: /\bby now\b/iu, instead: "now, since" },
  { form: /\blikewise\b/iu, instead: "also, or repeat the words" },
  { form: /\bfor ever\b/iu, instead: "forever, without limit" },
  {
    form: /\b(?:where(?:of|in|by|upon|with)|there(?:of|in|upon|with)|here(?:of|in|with))\b/iu,
    instead: "of which, in it, with it"
  },
  { form: /\bshall\b/iu, instead: "must, will, should" },
  { form: /\bunmistakable\b/iu, instead: "unique" },
  { form: /\bas it (?:must|should|ought to) be\b/iu, instead: "correct, valid, complete" },
  { form: /\bno more of (?:them|it)\b/iu, instead: "at most" },
  {
    form: /\blets? (?:this|that|its|no|the) (?:user|one|caller) (?:not )?in\b/iu,
    instead: "authentication failed"
  },
  { form: /\bgoes? by unseen\b/iu, instead: "is not detected" },
  { form: /\bcomes? to nothing\b/iu, instead: "fails, has no effect" },
  { form: /\bso it is (?:done|written|made)\b/iu, instead: "this is the default" },
  { form: /\bthe like(?:s)?\b(?! of)/iu, instead: "name the things, or: and similar" },
  { form: /\bonce (?:said|told)\b/iu, instead: "once reported" },
  { form: /\bhad better\b/iu, instead: "should" },
  { form: /\bin so (?:many|few)\b/iu, instead: "in N" },
  { form: /\bwhence\b|\bwhither\b|\bthither\b|\bhitherto\b/iu, instead: "from which, to which, until now" },
  { form: /\btakes? in\b|\btaken in\b/iu, instead: "sync, import, read" },
  { form: /\bmay (?:well )?be (?:no|not any) \w+ (?:at all)?\b/iu, instead: "cannot be, must not be" },
  { form: /\bway out\b/iu, instead: "egress" },
  { form: /\bis (?:its|their) own master\b/iu, instead: "is independent" },
  { form: /\b(?:of|for) its (?:own )?accord\b/iu, instead: "by itself" },
  { form: /\bthat (?:have|has) to do with\b/iu, instead: "about" }
]

/** Beginnings of sentences. */
const beginnings: ReadonlyArray<Form> = [
  { form: /^Of (?!course\b)/u, instead: "begin with the noun: 'The N of …'" },
  { form: /^What (?![^.:]*\?)/u, instead: "begin with a verb or a noun" },
  { form: /^Who(?:se)? (?![^.:]*\?)/u, instead: "begin with a verb or a noun" },
  { form: /^(?:So|Such) (?:is|are|was|it is)\b/u, instead: "name the subject" }
]

const clean = (text: string): string => text.replaceAll(/\s+/gu, " ").trim()

/** Code and addresses are not language: they become one word. */
const withoutCode = (text: string): string =>
  text
    .replaceAll(/```[\s\S]*?```/gu, " ")
    .replaceAll(/`[^`]*`/gu, "CODE")
    .replaceAll(/\{@link [^}]*\}/gu, "CODE")
    .replaceAll(/\]\([^)]*\)/gu, "]")
    .replaceAll(/https?:\/\/\S+/gu, "CODE")

/** The sentences of a paragraph. A colon or a semicolon does not end one. */
export const sentences = (text: string): ReadonlyArray<string> =>
  withoutCode(text)
    .split(/(?<=[.!?]["”’)*_]*)\s+(?=["“‘(*_[]*[A-Z0-9])/u)
    .map(clean)
    .filter((sentence) => sentence !== "")

/** The words of a sentence. */
const words = (sentence: string): number =>
  sentence.split(/[\s/–—]+/u).filter((word) => /\p{L}/u.test(word)).length

/** The beginning of a sentence, without marks. Titles and messages begin in lower case. */
const opening = (sentence: string, kind: Kind): string => {
  const begun = sentence.replace(/^[^\p{L}\p{N}]+/u, "")
  return kind === "title" || kind === "message"
    ? `${begun.slice(0, 1).toUpperCase()}${begun.slice(1)}`
    : begun
}

/** The rules that a passage breaks, in order. */
export const faults = (passage: Passage): ReadonlyArray<Fault> =>
  sentences(passage.text).flatMap((sentence) => {
    const banned = forms.flatMap(({ form, instead }) => {
      const found = form.exec(sentence)?.[0]
      return found === undefined ? [] : [{ passage, found, instead }]
    })
    const begins = beginnings.flatMap(({ form, instead }) =>
      form.test(opening(sentence, passage.kind)) ? [{ passage, found: sentence.slice(0, 40), instead }] : []
    )
    const long = words(sentence)
    return [
      ...banned,
      ...begins,
      ...(long > sentenceWordsMax
        ? [{ passage, found: sentence.slice(0, 60), instead: `${long} words: cut it into two sentences` }]
        : [])
    ]
  })

/** The Flesch-Kincaid grade of some passages together. Fragments of fewer than four words are not counted. */
export const grade = (passages: ReadonlyArray<Passage>): number => {
  const counts = { sentence: 0, word: 0, syllable: 0 }
  for (const sentence of passages.flatMap(({ text }) => sentences(text))) {
    const found = sentence.replaceAll("CODE", "code").match(/[a-z’']+/giu) ?? []
    if (found.length < 4) continue
    counts.sentence += 1
    counts.word += found.length
    counts.syllable += syllable(found.join(" "))
  }
  return counts.sentence === 0 ? 0 : fleschKincaid(counts)
}

/** Programs in which `#` begins a comment. */
export const shellPatterns: ReadonlyArray<string> = [
  "dev",
  ".ci/run",
  "docs/record-demo",
  "images/{build,lib.sh}",
  "images/*/Dockerfile",
  "images/*/cogni-!(*.mjs)",
  ".github/**/*.yml"
]

/** Programs outside the packages, whose comments are read. */
export const programPatterns: ReadonlyArray<string> = [
  "images/**/*.mjs",
  "docs/typedoc-effect.mjs",
  "docs/.vitepress/config.ts"
]

/** Comments and messages of a file in which `#` begins a comment. A run of lines is one comment. */
const shellPassages = (path: string): ReadonlyArray<Passage> => {
  const found: Array<{ line: number; text: string; end: number }> = []
  SourceTree.read(path)
    .split("\n")
    .forEach((line, index) => {
      const text = /^\s*#(?!!)\s?(.*)$/u.exec(line)?.[1]
      if (text === undefined || /^\s*(?:shellcheck|syntax=)|-{20,}|\S {3,}\S/u.test(text)) return
      const before = found.at(-1)
      if (before?.end === index - 1) {
        before.text += `\n${text}`
        before.end = index
      } else found.push({ line: index + 1, text, end: index })
    })
  return [
    ...found.flatMap(({ line, text }) =>
      paragraphs(text).map((one): Passage => ({ kind: "comment", path, line, text: one }))
    ),
    ...[...SourceTree.read(path).matchAll(/\b(?:say|stop \S+|step) "((?:[^"\\]|\\.)*)"/gu)].map(
      ({ 1: text, index }) => ({
        kind: "message" as const,
        path,
        line: SourceTree.lineOf(path, index),
        text: clean(text!.replaceAll(/\$\{?\w+[^ }]*\}?/gu, "CODE"))
      })
    )
  ]
}

/** Paragraphs, list items, headings and table cells of a page. */
const pagePassages = (path: string): ReadonlyArray<Passage> => {
  const blank = (text: string) => text.replaceAll(/[^\n]/gu, " ")
  const lines = SourceTree.read(path)
    .replace(/^---\n[\s\S]*?\n---\n/u, blank)
    .replaceAll(/^ *(```|~~~)[\s\S]*?^ *\1 *$/gmu, blank)
    .replaceAll(/<!--[\s\S]*?-->/gu, blank)
    // Titles of tests are judged where they stand.
    .replaceAll(/›\s“[^”]+”(?:\s·\s“[^”]+”)*/gu, blank)
    .split("\n")
  const found: Array<Passage> = []
  let open: { line: number; text: string } | undefined
  const close = () => {
    if (open !== undefined && clean(open.text) !== "")
      found.push({ kind: "page", path, line: open.line, text: clean(open.text) })
    open = undefined
  }
  lines.forEach((line, index) => {
    const row = /^\s*\|(.*)\|\s*$/u.exec(line)
    const begins = /^\s*(?:#+ |[-*] |\d+\. )/u.test(line)
    if (row !== null || begins || line.trim() === "") close()
    if (row !== null) {
      for (const cell of row[1]!.split(/(?<!\\)\|/u)) {
        if (/[a-z]/iu.test(cell)) found.push({ kind: "page", path, line: index + 1, text: clean(cell) })
      }
    } else if (line.trim() !== "") {
      open = {
        line: open?.line ?? index + 1,
        text: `${open?.text ?? ""} ${line.replace(/^\s*(?:#+ |[-*] |\d+\. |> )/u, "")}`
      }
      if (line.startsWith("#")) close()
    }
  })
  close()
  return found
}

/** The comments of a file. A run of line comments on adjacent lines is one. */
const comments = (
  path: string
): ReadonlyArray<{ readonly docstring: boolean; readonly line: number; readonly text: string }> => {
  const source = SourceTree.read(path)
  const found: Array<{ docstring: boolean; line: number; text: string; end: number }> = []
  for (const token of SourceTree.comments(path)) {
    const before = found.at(-1)
    const between = before === undefined ? "" : source.slice(before.end, token.start)
    if (token.type === "Line" && before !== undefined && !before.docstring && /^\n[ \t]*$/u.test(between)) {
      before.text += `\n${token.value}`
      before.end = token.end
    } else {
      found.push({
        docstring: token.type === "Block" && token.value.startsWith("*"),
        line: SourceTree.lineOf(path, token.start),
        text: token.value,
        end: token.end
      })
    }
  }
  return found
}

/** Paragraphs of a comment, without its stars and its examples. */
const paragraphs = (text: string): ReadonlyArray<string> =>
  text
    .replace(/^\*/u, "")
    .replaceAll(/^[ \t]*\* ?/gmu, "")
    .replaceAll(/```[\s\S]*?```/gu, "\n")
    // Tables and drawings.
    .replaceAll(/^.*(?:[│─►▼┌└┐┘├┤]|^[ \t]*\|.*\|).*$/gmu, "")
    .replaceAll(/^ {4,}.*$/gmu, "")
    .split(/\n\s*\n|\n(?=\s*(?:[-*] |\d+\. |@))/u)
    .map((one) => clean(one.replace(/^\s*(?:[-*] |\d+\. |@\w+(?: \w+ -)? ?)/u, "")))
    .filter((one) => /[a-z]/iu.test(one) && !/^(?:oxlint|eslint|effect-|@ts-|\/\/\/)/u.test(one))

const isSource = (path: string) => /^packages\/[a-z-]+\/src\//u.test(path) && !path.includes("/testing/")

/** Lists of names and programs in another language, not sentences. */
const foreign = /(?:MountProgram|SeccompProfile|SharedProgram)\.ts$/u

/** Two ordinary words at least, and no program in another language. */
const isSentence = (text: string): boolean =>
  (withoutCode(text).match(/(?<![\w-])[a-z]{2,}(?![\w(=/-])/gu) ?? []).length >= 2 &&
  / /u.test(text.trim()) &&
  !/^\s*(?:SELECT|INSERT|UPDATE|DELETE|CREATE|WITH|<|\{)|\b(?:set -e|exec |git -c|fi\n|done\n)|\$\(/u.test(
    text
  )

/** The text of a string, a template or strings joined by `+`. Anything that is filled in is one word. */
const textOf = (node: SourceTree.Node): string | undefined => {
  if (node.type === "Literal") return typeof node["value"] === "string" ? node["value"] : undefined
  if (node.type === "TemplateLiteral")
    return SourceTree.templateText(node)
      .map((part) => part ?? "CODE")
      .join("")
  if (node.type !== "BinaryExpression" || node["operator"] !== "+") return undefined
  const [left, right] = [textOf(node["left"] as SourceTree.Node), textOf(node["right"] as SourceTree.Node)]
  return left === undefined && right === undefined ? undefined : `${left ?? "CODE"}${right ?? "CODE"}`
}

/** Sentences among the strings of a file. */
const messages = (path: string): ReadonlyArray<Passage> => {
  const seen = new Set<number>()
  // Parents come first, so that a joined text is read as a whole.
  return [...SourceTree.walk(SourceTree.tree(path))].flatMap((node) => {
    const text = textOf(node)
    if (text === undefined || seen.has(node.start)) return []
    for (const inner of SourceTree.walk(node)) seen.add(inner.start)
    return isSentence(text)
      ? text.split(/\n\s*\n|\n(?=\s*(?:[-*] |\d+\. ))/u).map((one): Passage => ({
          kind: "message",
          path,
          line: SourceTree.lineOf(path, node.start),
          text: clean(one)
        }))
      : []
  })
}

/** Every passage of the repository. */
export const passages = (): ReadonlyArray<Passage> => [
  ...SourceTree.pages().flatMap(pagePassages),
  ...SourceTree.files(...shellPatterns).flatMap(shellPassages),
  ...SourceTree.files("packages/*/package.json").map((path): Passage => ({
    kind: "page",
    path,
    line: 1,
    text: SourceTree.readJson(path).description
  })),
  ...[...SourceTree.sources(), ...SourceTree.files(...programPatterns)].flatMap(
    (path): ReadonlyArray<Passage> => [
      ...comments(path).flatMap(({ docstring, line, text }) =>
        paragraphs(text).map((one): Passage => ({
          kind: docstring ? "docstring" : "comment",
          path,
          line,
          text: one
        }))
      ),
      ...SourceTree.placedTitles(path).map((parts): Passage => ({
        kind: "title",
        path,
        line: SourceTree.lineOf(path, parts.offset),
        text: clean(parts.text.map((part) => part ?? "CODE").join(""))
      })),
      ...(isSource(path) && !foreign.test(path) ? messages(path) : [])
    ]
  )
]
