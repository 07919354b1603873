/**
 * What a pull request says, made from commits that an agent wrote. Pure.
 *
 * In a forge, text acts: a mention writes to people, a reference shows up elsewhere, "fixes #1" closes an issue, an
 * image is fetched by every reader. Commit text is therefore shown as code, where none of that happens, and a title,
 * which knows no code, has its marks taken apart by an invisible joiner.
 */
import { clip, oneLine, printable } from "./internal/Text.ts"

// -----------------------------------------------------------------------------
// models
// -----------------------------------------------------------------------------

/** @category models */
export interface PullRequestFacts {
  readonly runId: string
  readonly baseBranch: string
  /** Of the commits, the oldest first. */
  readonly messages: ReadonlyArray<string>
}

// -----------------------------------------------------------------------------
// constants
// -----------------------------------------------------------------------------

/** @category constants */
export const titleCharactersMax = 200

/** GitHub takes 65,536. @category constants */
export const bodyCharactersMax = 20_000

/** Of one commit's message. @category constants */
export const messageCharactersMax = 2000

/** Separates what would otherwise be read as one; shows nothing. */
const wordJoiner = "\u2060"

// -----------------------------------------------------------------------------
// constructors
// -----------------------------------------------------------------------------

/** @category constructors */
export const make = ({ baseBranch, messages, runId }: PullRequestFacts) => {
  const [first = ""] = messages
  const subject = oneLine(first.split("\n")[0] ?? "", titleCharactersMax - 20)
  const title = clip(inert(subject === "" ? `Changes of ${runId}` : subject), titleCharactersMax)
  const count = messages.length
  const intro = `${count} ${count === 1 ? "commit" : "commits"} of run \`${runId}\`, for \`${baseBranch}\`. What follows was written by the agent.`
  return { title, body: clip(`${intro}\n\n${fenced(messages)}\n`, bodyCharactersMax) }
}

/** Text in which nothing acts, for where there is no code. @category converting */
export const inert = (text: string): string =>
  text
    .replace(/[@#!<>[\]()&`*_~|\\]/gu, (mark) => `${mark}${wordJoiner}`)
    .replace(/(:\/)(\/)/gu, `$1${wordJoiner}$2`)
    .replace(/\b(GH)-(?=\d)/giu, `$1${wordJoiner}-`)

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

/** A block of code with a fence that is not in it. */
const fenced = (messages: ReadonlyArray<string>): string => {
  const text = clip(
    messages.map((message) => clip(lines(message), messageCharactersMax)).join("\n\n"),
    bodyCharactersMax - 1500
  )
  const longest = Math.max(2, ...[...text.matchAll(/`+/gu)].map(([ticks]) => ticks.length))
  const fence = "`".repeat(Math.min(longest + 1, 400))
  return `${fence}text\n${longest >= 400 ? text.replaceAll("`", "'") : text}\n${fence}`
}

const lines = (message: string): string =>
  message
    .split(/\r\n|[\n\r\u2028\u2029]/u)
    .map((line) => printable(line).trimEnd())
    .join("\n")
    .trim()
