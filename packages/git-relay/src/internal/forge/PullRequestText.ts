/**
 * Text of a pull request, generated from commits that an agent wrote. Pure.
 *
 * Text has effects in a forge: a mention notifies people, a reference shows up elsewhere, "fixes #1" closes an issue,
 * and every reader fetches an image. Commit messages are therefore shown as code. That alone is not enough: GitLab
 * searches the raw description for closing words, code or not, and a squash merge turns the description into a commit
 * message, which has no code. So an invisible joiner also splits the marks, in titles and in code.
 */
import { clip, oneLine, printable } from "../git/ShownText.ts"

interface PullRequestFacts {
  readonly runId: string
  readonly baseBranch: string
  /** Commit messages, oldest first. */
  readonly messages: ReadonlyArray<string>
}

export const titleCharactersMax = 200

/** GitHub accepts 65,536. */
export const bodyCharactersMax = 20_000

/** Maximum length of one commit message in the body. */
export const messageCharactersMax = 2000

/** Invisible character that splits text which would otherwise be read as one word. */
const wordJoiner = "\u2060"

/** Invisible characters that `printable` keeps: direction, annotation, and tags that only machines read. */
const unseen = /[\u061c\u206a-\u206f\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu

export const make = ({ baseBranch, messages, runId }: PullRequestFacts) => {
  const subject = oneLine(linesOf(messages[0] ?? "")[0] ?? "", titleCharactersMax - 20)
  const title = clip(inert(subject === "" ? `Changes of ${runId}` : subject), titleCharactersMax)
  const count = messages.length
  const intro =
    `${count} ${count === 1 ? "commit" : "commits"} of run \`${runId}\`, for \`${baseBranch}\`. ` +
    "The following text was written by the agent."
  return { title, body: clip(`${intro}\n\n${fenced(messages)}\n`, bodyCharactersMax) }
}

/** Returns a title without effects in a forge. A title is plain text, with references and, in some places, with HTML. */
const inert = (title: string): string =>
  withoutReferences(title).replace(/\](?=\()|<(?=[a-z/!?])/giu, (mark) => `${mark}${wordJoiner}`)

/** Splits everything that forges recognize in plain text: mentions, references, addresses, commands and markers. */
const withoutReferences = (text: string): string =>
  text
    .replace(/[@#!&$%^~[](?=\S)/gu, (mark) => `${mark}${wordJoiner}`)
    .replace(/(:\/)(\/)/gu, `$1${wordJoiner}$2`)
    .replace(/(www)\./giu, `$1${wordJoiner}.`)
    // GH-1, and the keys of other trackers, which GitLab closes too.
    .replace(/([A-Z][A-Z0-9_]+)-(?=\d)/gu, `$1${wordJoiner}-`)
    .replace(/(gh)-(?=\d)/giu, `$1${wordJoiner}-`)
    // GitLab runs a line that begins with a slash as a command.
    .replace(/^(\s*)\//gmu, `$1${wordJoiner}/`)

/** Returns a code block whose fence does not occur in it. */
const fenced = (messages: ReadonlyArray<string>): string => {
  const text = clip(
    messages.map((message) => clip(withoutReferences(paragraph(message)), messageCharactersMax)).join("\n\n"),
    bodyCharactersMax - 1500
  )
  const longest = Math.max(2, ...[...text.matchAll(/`+/gu)].map(([ticks]) => ticks.length))
  const fence = "`".repeat(Math.min(longest + 1, 400))
  return `${fence}text\n${longest >= 400 ? text.replaceAll("`", "'") : text}\n${fence}`
}

const paragraph = (message: string): string => linesOf(message).join("\n")

/** Lines from the first to the last that are not blank. */
const linesOf = (message: string): ReadonlyArray<string> =>
  message
    .split(/\r\n|[\n\r\u0085\u2028\u2029]/u)
    .map((line) => printable(line.replace(unseen, "")).trimEnd())
    .join("\n")
    .trim()
    .split("\n")
