/**
 * What a pull request says, made from commits that an agent wrote. Pure.
 *
 * In a forge, text acts: a mention writes to people, a reference shows up elsewhere, "fixes #1" closes an
 * issue, an image is fetched by every reader. Commit text is therefore shown as code. That alone is not enough:
 * GitLab looks for closing words in a description as it was written, code or not, and a squashed merge makes a
 * commit message of it, which knows no code at all. So marks are also taken apart by an invisible joiner, in a
 * title and in code alike.
 */
import { clip, oneLine, printable } from "../git/ShownText.ts"

export interface PullRequestFacts {
  readonly runId: string
  readonly baseBranch: string
  /** Of the commits, the oldest first. */
  readonly messages: ReadonlyArray<string>
}

export const titleCharactersMax = 200

/** GitHub takes 65,536. */
export const bodyCharactersMax = 20_000

/** How much of one commit's message is shown. */
export const messageCharactersMax = 2000

/** Separates what would otherwise be read as one; shows nothing. */
const wordJoiner = "\u2060"

/** Invisible characters that `printable` leaves: direction, annotation, and tags that only a machine reads. */
const unseen = /[\u061c\u206a-\u206f\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu

export const make = ({ baseBranch, messages, runId }: PullRequestFacts) => {
  const subject = oneLine(linesOf(messages[0] ?? "")[0] ?? "", titleCharactersMax - 20)
  const title = clip(inert(subject === "" ? `Changes of ${runId}` : subject), titleCharactersMax)
  const count = messages.length
  const intro =
    `${count} ${count === 1 ? "commit" : "commits"} of run \`${runId}\`, for \`${baseBranch}\`. ` +
    "What follows was written by the agent."
  return { title, body: clip(`${intro}\n\n${fenced(messages)}\n`, bodyCharactersMax) }
}

/** Text in which nothing acts, for where there is no code. */
export const inert = (text: string): string =>
  withoutReferences(text).replace(/[<>\]()`*_|\\]/gu, (mark) => `${mark}${wordJoiner}`)

/** Nothing that is looked for in plain text: people, issues and the like, addresses, commands, markers. */
const withoutReferences = (text: string): string =>
  text
    .replace(/[@#!&$%^~[]/gu, (mark) => `${mark}${wordJoiner}`)
    .replace(/(:\/)(\/)/gu, `$1${wordJoiner}$2`)
    .replace(/(www)\./giu, `$1${wordJoiner}.`)
    // GH-1, and the keys of other trackers, which GitLab closes as well.
    .replace(/([A-Z][A-Z0-9_]+)-(?=\d)/gu, `$1${wordJoiner}-`)
    .replace(/(gh)-(?=\d)/giu, `$1${wordJoiner}-`)
    // A line that begins like this is a command to GitLab.
    .replace(/^(\s*)\//gmu, `$1${wordJoiner}/`)

/** A block of code with a fence that is not in it. */
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

/** From the first to the last that say something. */
const linesOf = (message: string): ReadonlyArray<string> =>
  message
    .split(/\r\n|[\n\r\u0085\u2028\u2029]/u)
    .map((line) => printable(line.replace(unseen, "")).trimEnd())
    .join("\n")
    .trim()
    .split("\n")
